"""Spill files: bodies too long for a line, written chunk by chunk before the line.

The file is named after the record that refers to it, so the collector can delete it
once that record is stored. It is renamed to that name when it is complete. Memory
stays near one chunk, however long the body is.
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


def write_spill(path: Path, chunks: Iterable[bytes], body_max: int = BODY_MAX) -> BodyInfo:
    """Write the chunks to `path`. Bytes beyond `body_max` are only counted and hashed."""
    import hashlib  # It costs 4 ms, and most programs have only short bodies.

    unfinished = path.with_name(f".{path.name}")
    stored_hash, original_hash = hashlib.sha256(), hashlib.sha256()
    stored_bytes = original_bytes = 0
    fd = system.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with BufferedWriter(FileIO(fd, "wb")) as file:  # It writes all bytes, or raises.
            for chunk in chunks:
                original_hash.update(chunk)
                original_bytes += len(chunk)
                room = body_max - stored_bytes
                if room > 0:
                    part = chunk if len(chunk) <= room else _truncate_utf8(chunk, room)
                    file.write(part)
                    stored_hash.update(part)
                    # After a character that did not fit, later chunks must not be written.
                    stored_bytes = stored_bytes + len(part) if part is chunk else body_max
            original: dict[str, object] = {}
            size = original_bytes
            if original_bytes > body_max:
                digest = original_hash.hexdigest()
                marker = f"\n…[cut by vestige: {original_bytes} bytes, sha256 {digest}]".encode()
                file.write(marker)
                stored_hash.update(marker)
                size = file.tell()
                original = {"original_bytes": original_bytes, "original_sha256": digest}
        system.rename(unfinished, path)
    except BaseException:
        with suppress(FileNotFoundError):
            system.unlink(unfinished)
        raise
    sha256 = stored_hash.hexdigest()
    return BodyInfo(spilled_bytes=size, sha256=sha256, **original)  # type: ignore[arg-type]


def _truncate_utf8(data: bytes, length: int) -> bytes:
    """Return at most `length` bytes that do not end inside a UTF-8 character."""
    end = length
    while end > length - 4 and end > 0 and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]


def write_partial(path: Path, body: bytes) -> None:
    """Replace the stored part of a body that is still arriving. The replacement is atomic."""
    unfinished = path.with_name(f".{path.name}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with BufferedWriter(FileIO(system.open(unfinished, flags, 0o600), "wb")) as file:
        file.write(body)
    system.rename(unfinished, path)


def remove_partial(path: Path) -> None:
    with suppress(FileNotFoundError):
        system.unlink(path)
