"""The run that was recorded beside a capture: its spans and bodies, on their way into the bundle.

They are copied into the spool when the capture is finalized, or recovered: a bundle must not change
with the home that the run came from. In the format of formats/wink/embedded_records.py.
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
from vestige.formats.wink.bundle_content import Extra
from vestige.home import Home, get_home

INDEX: Final = "index.json"
_STEP: Final = 1 << 18


class _StoredPart(msgspec.Struct, frozen=True):
    name: str
    path: str
    entry_count: int | None


def keep_records(spool: Home, home: str, run_id: str) -> None:
    """Copy a run out of its home into the spool; all of it, or nothing."""
    # Here: most captures have no run beside them, and need no store.
    from vestige.collector.loop import catch_up
    from vestige.formats.wink.embedded_records import RecordParts
    from vestige.process_writer import make_redactor
    from vestige.record.redaction.output_redaction import output_redactor
    from vestige.store.open import open_store
    from vestige.transfer.export import load_run_to_write

    source = get_home(home)
    catch_up(source)
    output_redactor().learn_from(make_redactor())
    unfinished = spool.root / f".{EXTRAS}"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    stored: list[_StoredPart] = []
    with open_store(source.store, readonly=True) as store:
        parts = RecordParts(load_run_to_write(store, run_id))
        for number, extra in enumerate(parts.extras()):
            with open(unfinished / str(number), "wb") as file:
                file.writelines(extra.chunks())
            stored.append(_StoredPart(extra.name, extra.path, extra.entry_count))
    (unfinished / INDEX).write_bytes(msgspec.json.encode(stored))
    os.replace(unfinished, spool.root / EXTRAS)


def kept_records(spool: Home) -> Iterator[Extra]:
    """Yield the records that `keep_records` stored."""
    folder = spool.root / EXTRAS
    try:
        parts = msgspec.json.decode((folder / INDEX).read_bytes(), type=list[_StoredPart])
    except (OSError, msgspec.DecodeError):
        return
    for number, one in enumerate(parts):
        steps = partial(_steps, folder / str(number))
        yield Extra(one.name, one.path, one.entry_count, steps)


def _steps(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while step := file.read(_STEP):
            yield step
