"""Rebuild a zip whose end is missing, and with it the directory of its members.

Each member begins with a header of its own, and its packed bytes show where they end. The manifest
is the last member of a bundle: if it is missing, one is written with what is known.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from vestige._runtime.clock import SYSTEM
from vestige.formats.wink.archive.member_names import find_fault
from vestige.formats.wink.log_records import to_iso
from vestige.formats.wink.manifest import (
    FILES,
    LOGS,
    MANIFEST,
    SNAPSHOTS,
    UNKNOWN,
    VERSION,
    Agent,
    Component,
    Execution,
    Manifest,
    render_manifest,
)
from vestige.limits import BUNDLE_MEMBERS_MAX, BUNDLE_TOTAL_MAX, KIB, MIB

_HEADER: Final = struct.Struct("<4s2x2H4x4x4x4x2H")
_MAGIC: Final = b"PK\x03\x04"
_ENCRYPTED: Final = 0x1
_STEP: Final = 64 * KIB
_UNPACKED_MAX: Final = MIB
"""Bytes that are unpacked at a time."""

_DESCRIPTOR_MAX: Final = 24
"""Bytes of a checksum and two sizes, which may follow the packed bytes."""


def rebuild_archive(source: Path, target: BinaryIO) -> list[str]:
    """Write the members of a zip without its end into a new one. Return their names.

    Of the last member, lines are kept as far as they go; an incomplete file is left out.
    """
    names: list[str] = []
    left = BUNDLE_TOTAL_MAX
    with source.open("rb") as file, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as rebuilt:
        while len(names) < BUNDLE_MEMBERS_MAX and (name := _read_header(file)) is not None:
            if name in names or find_fault(name) is not None:
                break
            if name.startswith((FILES, MANIFEST)) and not _is_complete(file):
                break
            names.append(name)
            written = _copy_member(file, rebuilt, name, left)
            left -= written
            if left <= 0 or not _find_next(file):
                break
        if names and MANIFEST not in names:
            rebuilt.writestr(MANIFEST, render_manifest(_make_manifest(source, names)))
    return names


def _make_manifest(source: Path, names: list[str]) -> Manifest:
    """Return what is known of a bundle without its manifest: when it was written, its parts."""
    time, bundle_id = to_iso(source.stat().st_mtime_ns), SYSTEM.run_id()
    components = {"snapshots": Component(SNAPSHOTS), "logs": Component(LOGS)}
    for name in names:
        if name.startswith("vestige/"):
            components[PurePosixPath(name).stem] = Component(name)
    return Manifest(
        version=VERSION,
        bundle_id=bundle_id,
        created_at=time,
        session_id=bundle_id,
        agent=Agent(name=source.stem),
        execution=Execution(started_at=time, outcome=UNKNOWN),
        components=components,
    )


def _read_header(file: BinaryIO) -> str | None:
    """Return the name of the member at the file's position, and move to its packed bytes."""
    raw = file.read(_HEADER.size)
    if len(raw) < _HEADER.size:
        return None
    magic, flags, method, name_size, extra_size = _HEADER.unpack(raw)
    if magic != _MAGIC or method != zipfile.ZIP_DEFLATED or flags & _ENCRYPTED:
        return None
    name = file.read(name_size)
    file.seek(extra_size, 1)
    try:
        return name.decode() if len(name) == name_size else None
    except UnicodeDecodeError:
        return None


def _is_complete(file: BinaryIO) -> bool:
    """Return whether the packed bytes at the file's position reach their end."""
    at = file.tell()
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        while not unpacker.eof and (step := unpacker.unconsumed_tail or file.read(_STEP)):
            unpacker.decompress(step, _UNPACKED_MAX)
    except zlib.error:
        return False
    finally:
        file.seek(at)
    return unpacker.eof


def _copy_member(file: BinaryIO, rebuilt: zipfile.ZipFile, name: str, left: int) -> int:
    """Unpack a member, and move behind its packed bytes. Return its size."""
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    written = 0
    with rebuilt.open(name, "w", force_zip64=True) as member:
        while (
            not unpacker.eof
            and written < left
            and (step := unpacker.unconsumed_tail or file.read(_STEP))
        ):
            try:
                data = unpacker.decompress(step, _UNPACKED_MAX)
            except zlib.error:
                break
            member.write(data)
            written += len(data)
    file.seek(-len(unpacker.unused_data), 1)
    return written


def _find_next(file: BinaryIO) -> bool:
    """Move to the next member. Return False if none begins here."""
    at = file.tell()
    offset = file.read(_DESCRIPTOR_MAX + len(_MAGIC)).find(_MAGIC)
    file.seek(at + max(0, offset))
    return offset >= 0
