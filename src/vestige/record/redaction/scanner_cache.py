"""Hyperscan's databases, kept on disk: what takes 50 ms to compile is read in less than one.

    database(expressions, home.scanners)      # compiled, or read as it was compiled before
    database(expressions, None)               # compiled; nothing is read or written

The one hard fact: only what everybody may know is kept, which is rules and names of keys, never a
registered secret. Whoever calls this with a folder answers for that.

A file says what it was compiled from, in full: another version's is compiled anew, not trusted. One
that somebody else could have written is not read at all, for the engine runs it as it is.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from io import BufferedWriter, FileIO
from typing import TYPE_CHECKING, Any, Final

from vestige._runtime.syscalls import read_all, system

if TYPE_CHECKING:
    from pathlib import Path

FILES_MAX: Final = 8
"""Sets of rules that are kept: a program may have keys of its own."""
_BYTES_MAX: Final = 16 * 1024 * 1024
_ROOM_MIN: Final = 64 * 1024 * 1024
"""Bytes that a disk must have left: what is left of a full one is for records."""
_HEAD: Final = struct.Struct("<II")
"""CRC-32 of what follows it, and how long the source is that the database was compiled from."""


def database(expressions: list[bytes], folder: Path | None) -> Any:
    """A database that finds these expressions."""
    import hyperscan

    version: str = getattr(hyperscan, "__version__", "")
    source = b"\n".join((version.encode(), *expressions))
    path = None if folder is None else folder / f"{zlib.crc32(source):08x}.hs"
    if path is not None and (raw := _read(path, source)) is not None:
        with contextlib.suppress(hyperscan.error):  # of another kind of processor
            return hyperscan.loadb(raw, hyperscan.HS_MODE_BLOCK)
    made = hyperscan.Database()
    flags = hyperscan.HS_FLAG_SINGLEMATCH | hyperscan.HS_FLAG_DOTALL
    made.compile(expressions=expressions, flags=flags)
    if path is not None:
        # A full disk, a folder that is not ours, a test's own idea of either: compile each time.
        with contextlib.suppress(Exception):
            _keep(path, source, hyperscan.dumpb(made))
    return made


def _read(path: Path, source: bytes) -> bytes | None:
    try:
        descriptor = system.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        found = system.fstat(descriptor)
        if found.st_uid != os.geteuid() or found.st_mode & 0o022 or found.st_size > _BYTES_MAX:
            return None
        data = read_all(descriptor)
    finally:
        system.close(descriptor)
    if len(data) < _HEAD.size:
        return None
    crc, length = _HEAD.unpack_from(data)
    start = _HEAD.size + length
    if zlib.crc32(data[4:]) != crc or data[_HEAD.size : start] != source:
        return None
    return data[start:]


def _keep(path: Path, source: bytes, raw: bytes) -> None:
    folder = path.parent
    folder.mkdir(mode=0o700, exist_ok=True)
    # All that is there: also what a kill left half written.
    others = sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime_ns)
    for old in others[: max(0, len(others) - FILES_MAX + 1)]:
        old.unlink(missing_ok=True)
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize < _ROOM_MIN:
        return
    crc = zlib.crc32(len(source).to_bytes(4, "little") + source + raw)
    half = path.with_suffix(f".{os.getpid()}")
    descriptor = system.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with BufferedWriter(FileIO(descriptor, "wb")) as file:
            file.write(_HEAD.pack(crc, len(source)) + source + raw)
        system.rename(half, path)  # at once: two processes that start together do not meet in it
    finally:
        half.unlink(missing_ok=True)
