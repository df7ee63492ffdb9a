"""Compiled hyperscan databases, cached on disk: reading one takes less than 1 ms.

    get_database(expressions, home.scanners)      # compiled, or read from the cache
    get_database(expressions, None)               # compiled; nothing is read or written

Only rules and names of keys may be cached, never a registered secret. The caller is responsible for
that when it passes a folder.

A file contains the source that it was compiled from, so a file of another version is not used. A
file that other users could have written is not read, because the engine runs it as it is.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Sequence
from io import BufferedWriter, FileIO
from typing import TYPE_CHECKING, Any, Final

from vestige._runtime.syscalls import read_all, system

if TYPE_CHECKING:
    from pathlib import Path

FILES_MAX: Final = 8
"""Files in the cache: each set of extra keys has its own."""
_BYTES_MAX: Final = 16 * 1024 * 1024
_FREE_BYTES_MIN: Final = 64 * 1024 * 1024
"""Free space below which nothing is cached: the rest of a full disk is for records."""
_HEADER: Final = struct.Struct("<II")
"""CRC-32 of what follows it, and the length of the source."""


def get_database(expressions: Sequence[bytes], folder: Path | None) -> Any:
    """Return a database that finds these expressions."""
    import hyperscan

    flags = hyperscan.HS_FLAG_SINGLEMATCH | hyperscan.HS_FLAG_DOTALL
    return _get(list(expressions), flags, False, _source(b"", expressions), folder)


def find_database(expressions: Sequence[bytes], folder: Path | None) -> Any | None:
    """Return a database that finds these expressions, if one is cached."""
    source = _source(b"", expressions)
    return None if folder is None else _load(_path(folder, source), source)


def get_literal_database(literals: Sequence[tuple[bytes, bool]], folder: Path | None) -> Any:
    """Return a database that finds literals. True: ignore its case."""
    import hyperscan

    flags = [
        hyperscan.HS_FLAG_SINGLEMATCH | (hyperscan.HS_FLAG_CASELESS if ignores_case else 0)
        for _, ignores_case in literals
    ]
    texts = [literal for literal, _ in literals]
    source = _source(b"literals", [b"%d %s" % pair[::-1] for pair in literals])
    return _get(texts, flags, True, source, folder)


def _source(kind: bytes, parts: Sequence[bytes]) -> bytes:
    import hyperscan

    version: str = getattr(hyperscan, "__version__", "")
    return b"\n".join((version.encode() + kind, *parts))


def _path(folder: Path, source: bytes) -> Path:
    return folder / f"{zlib.crc32(source):08x}.hs"


def _get(
    expressions: list[bytes],
    flags: int | list[int],
    literal: bool,
    source: bytes,
    folder: Path | None,
) -> Any:
    import hyperscan

    path = None if folder is None else _path(folder, source)
    if path is not None and (database := _load(path, source)) is not None:
        return database
    made = hyperscan.Database()
    made.compile(expressions=expressions, flags=flags, literal=literal)
    if path is not None:
        # A full disk, a folder of another user, a fake file system: compile each time.
        with contextlib.suppress(Exception):
            _write(path, source, hyperscan.dumpb(made))
    return made


def _load(path: Path, source: bytes) -> Any | None:
    import hyperscan

    raw = _read(path, source)
    if raw is not None:
        with contextlib.suppress(hyperscan.error):  # compiled for another processor
            return hyperscan.loadb(raw, hyperscan.HS_MODE_BLOCK)
    return None


def _read(path: Path, source: bytes) -> bytes | None:
    try:
        descriptor = system.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        stat = system.fstat(descriptor)
        if stat.st_uid != os.geteuid() or stat.st_mode & 0o022 or stat.st_size > _BYTES_MAX:
            return None
        data = read_all(descriptor)
    finally:
        system.close(descriptor)
    if len(data) < _HEADER.size:
        return None
    crc, length = _HEADER.unpack_from(data)
    start = _HEADER.size + length
    if zlib.crc32(data[4:]) != crc or data[_HEADER.size : start] != source:
        return None
    return data[start:]


def _write(path: Path, source: bytes, raw: bytes) -> None:
    folder = path.parent
    folder.mkdir(mode=0o700, exist_ok=True)
    # All files: a kill may have left an unfinished one.
    files = sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime_ns)
    for old in files[: max(0, len(files) - FILES_MAX + 1)]:
        old.unlink(missing_ok=True)
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize < _FREE_BYTES_MIN:
        return
    crc = zlib.crc32(len(source).to_bytes(4, "little") + source + raw)
    unfinished = path.with_suffix(f".{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    descriptor = system.open(unfinished, flags, 0o600)
    try:
        with BufferedWriter(FileIO(descriptor, "wb")) as file:
            file.write(_HEADER.pack(crc, len(source)) + source + raw)
        system.rename(unfinished, path)  # Atomic: two processes may start together.
    finally:
        unfinished.unlink(missing_ok=True)
