"""The run that was recorded beside a capture: its spans and bodies, on their way into the bundle.

They are copied into the spool when the capture is finalized, or recovered: a bundle must not change
with the home that the run came from. In the format of formats/wink/run_records.py.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from vestige.debug.spool import EXTRAS
from vestige.formats.wink.content import Extra
from vestige.home import Home, get_home

INDEX: Final = "index.json"
_STEP: Final = 1 << 18


class _Kept(msgspec.Struct, frozen=True):
    name: str
    path: str
    entry_count: int | None


def keep_records(spool: Home, home: str, run_id: str) -> None:
    """Copy a run out of its home into the spool; all of it, or nothing."""
    # Here: most captures have no run beside them, and need no store.
    from vestige.collector.loop import catch_up
    from vestige.formats.protocol import RunToWrite
    from vestige.formats.wink.run_records import RecordParts
    from vestige.store.sqlite.sqlite_store import SqliteStore

    source = get_home(home)
    catch_up(source)
    unfinished = spool.root / f".{EXTRAS}"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    kept: list[_Kept] = []
    with SqliteStore.open(source.store, readonly=True) as store:
        parts = RecordParts(RunToWrite(store.load_run(run_id), store.read_body))
        for number, extra in enumerate(parts.extras()):
            with open(unfinished / str(number), "wb") as file:
                file.writelines(extra.chunks())
            kept.append(_Kept(extra.name, extra.path, extra.entry_count))
    (unfinished / INDEX).write_bytes(msgspec.json.encode(kept))
    os.replace(unfinished, spool.root / EXTRAS)


def kept_records(spool: Home) -> Iterator[Extra]:
    """What `keep_records` kept."""
    folder = spool.root / EXTRAS
    try:
        kept = msgspec.json.decode((folder / INDEX).read_bytes(), type=list[_Kept])
    except (OSError, msgspec.DecodeError):
        return
    for number, one in enumerate(kept):
        steps = partial(_steps, folder / str(number))
        yield Extra(one.name, one.path, one.entry_count, steps)


def _steps(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while step := file.read(_STEP):
            yield step
