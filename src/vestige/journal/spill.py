"""Bodies too long for a line: written to a file of their own, step by step, before the line.

The file is named after the record that refers to it, so its record is its only reader
and the collector can delete it once that record is stored. It appears under its name
only when it is whole. Memory stays near one step, however long the body is.
Calls of the system are made as in process_writer.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from io import BufferedWriter, FileIO
from typing import TYPE_CHECKING

from vestige._runtime.syscalls import system
from vestige.limits import BODY_MAX
from vestige.record.types import BodyInfo

if TYPE_CHECKING:
    from pathlib import Path


def write_spill(path: Path, steps: Iterable[bytes], body_max: int = BODY_MAX) -> BodyInfo:
    """Write the steps to `path`; beyond `body_max` they are only counted and hashed."""
    import hashlib  # 4 ms, and most bodies are short

    unfinished = path.with_name(f".{path.name}")
    kept, whole = hashlib.sha256(), hashlib.sha256()
    kept_bytes = whole_bytes = 0
    fd = system.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with BufferedWriter(FileIO(fd, "wb")) as file:  # it writes all of a part, or raises
            for step in steps:
                whole.update(step)
                whole_bytes += len(step)
                room = body_max - kept_bytes
                if room > 0:
                    part = step if len(step) <= room else _whole_characters(step, room)
                    file.write(part)
                    kept.update(part)
                    # A character that did not fit must not leave room for what follows it.
                    kept_bytes = kept_bytes + len(part) if part is step else body_max
            if whole_bytes <= body_max:
                size = whole_bytes
                original: dict[str, object] = {}
            else:
                marker = (
                    f"\n…[cut by vestige: {whole_bytes} bytes, sha256 {whole.hexdigest()}]"
                ).encode()
                file.write(marker)
                kept.update(marker)
                size = file.tell()
                original = {
                    "original_bytes": whole_bytes,
                    "original_sha256": whole.hexdigest(),
                }
        system.rename(unfinished, path)
    except BaseException:
        with suppress(FileNotFoundError):
            system.unlink(unfinished)
        raise
    return BodyInfo(spilled_bytes=size, sha256=kept.hexdigest(), **original)  # type: ignore[arg-type]


def _whole_characters(data: bytes, length: int) -> bytes:
    """At most `length` bytes, not ending inside a UTF-8 character."""
    end = length
    while end > length - 4 and end > 0 and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]


def write_partial(path: Path, body: bytes) -> None:
    """Replace what was kept of a body that is still arriving; a kill leaves one or the other."""
    unfinished = path.with_name(f".{path.name}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with BufferedWriter(FileIO(system.open(unfinished, flags, 0o600), "wb")) as file:
        file.write(body)
    system.rename(unfinished, path)


def remove_partial(path: Path) -> None:
    with suppress(FileNotFoundError):
        system.unlink(path)
