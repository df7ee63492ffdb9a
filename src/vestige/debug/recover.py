"""Make bundles of the captures of dead processes.

    for made in recover_spools(home): print(made)

A spool whose lock is free belongs to a dead process. Its contents up to the kill become a bundle; a
spool that was finalized but not exported becomes its complete bundle. The spool is deleted when the
bundle is complete under its final name. Only the holder of the lock recovers a spool.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vestige._runtime import file_locks
from vestige._runtime.clock import SYSTEM
from vestige.debug.copy_recorded_run import keep_records
from vestige.debug.spool import EXTRAS, Spool, adopt_spool, remove_spool
from vestige.debug.spool_content import SpoolContent
from vestige.errors import UnreadableError, VestigeError
from vestige.formats.wink.write import write_bundle
from vestige.home import Home

_HIDDEN_AGE_NS: Final = 60 * 10**9
"""A hidden folder this old is the rest of a removal that was killed, not a new capture."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result of recovering one spool."""

    spool: Path
    bundle: Path | None
    """None: there was nothing in it, or it had been exported; or it could not be, see `problem`."""
    outcome: str
    problem: str | None = None


def is_spool(path: Path) -> bool:
    """Return whether this is the spool of a capture."""
    return Home(path).capture.is_file()


def recover_spools(folder: Path, target: Path) -> Iterator[Recovered]:
    """Write a bundle in `target` for every dead spool of a folder."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        place = folder / name
        if name.startswith("."):
            _clear(place)
        elif is_spool(place):
            found = recover_spool(place, target)
            if found is not None:
                yield found


def recover_spool(folder: Path, target: Path) -> Recovered | None:
    """Write one spool as a bundle to `target`; None while its process lives."""
    spool = adopt_spool(folder)
    if spool is None:
        return None
    try:
        return _recover(spool, target)
    finally:
        spool.close()


def _recover(spool: Spool, target: Path) -> Recovered:
    folder = spool.home.root
    if _was_exported(folder):
        remove_spool(folder)
        return Recovered(folder, None, "exported before")
    content = SpoolContent(spool, dead=True)
    if content.is_empty():
        remove_spool(folder)
        return Recovered(folder, None, "empty")
    try:
        run = content.captured_run
        if run is not None and not (folder / EXTRAS).exists():
            keep_records(spool.home, run.home, run.run_id)
    except (VestigeError, OSError):
        pass  # its home is gone, or knows no such run: the capture itself is here
    try:
        made = write_bundle(content, f"{target}/")  # a folder: its name in it is looked at
    except (OSError, UnreadableError) as error:
        return Recovered(folder, None, "failed", str(error))
    content.exported(made)
    return Recovered(folder, made, content.manifest.execution.shown_outcome)


def _was_exported(folder: Path) -> bool:
    """Return whether the process was killed after the export, and the bundle still exists."""
    try:
        text = Home(folder).exported.read_text(encoding="utf-8", errors="surrogateescape")
        return Path(text).is_file()
    except OSError:
        return False


def _clear(place: Path) -> None:
    try:
        age = SYSTEM.now_ns() - place.stat().st_mtime_ns
        if age > _HIDDEN_AGE_NS and not file_locks.is_held(Home(place).capture):
            shutil.rmtree(place, ignore_errors=True)
    except OSError:
        return
