"""Read as much as there is of a zip member that is damaged.

The standard library hands out nothing of the stretch in which it meets the damage, and compares
checksums only at the end. Here the packed bytes are unpacked in small steps, up to the first one
that cannot be.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Final

from vestige.limits import KIB

_HEADER: Final = struct.Struct("<4s22x2H")
_STEP: Final = 4 * KIB


def read_damaged(fd: int, member: zipfile.ZipInfo, skip: int) -> Iterator[bytes]:
    """Yield what can be unpacked of a member behind its first `skip` bytes."""
    left = member.file_size
    for data in _unpacked(fd, member):
        data = data[:left]
        left -= len(data)
        if len(data) > skip:
            yield data[skip:]
        skip = max(0, skip - len(data))
        if not left:
            return


def _unpacked(fd: int, member: zipfile.ZipInfo) -> Iterator[bytes]:
    steps = _packed(fd, member)
    if member.compress_type == zipfile.ZIP_STORED:
        yield from steps
        return
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    for step in steps:
        before = unpacker.copy()
        try:
            yield unpacker.decompress(step)
        except zlib.error:
            yield from _bytewise(before, step)
            return
        if unpacker.eof:
            return


def _bytewise(unpacker: zlib._Decompress, step: bytes) -> Iterator[bytes]:
    """Yield the part of a step that comes before the damage."""
    for at in range(len(step)):
        try:
            yield unpacker.decompress(step[at : at + 1])
        except zlib.error:
            return


def _packed(fd: int, member: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield the member's bytes as they are in the file."""
    try:
        header = os.pread(fd, _HEADER.size, member.header_offset)
        if len(header) < _HEADER.size:
            return
        signature, name, extra = _HEADER.unpack(header)
        if signature != b"PK\x03\x04":
            return
        at = member.header_offset + _HEADER.size + name + extra
        left = member.compress_size
        while left and (step := os.pread(fd, min(_STEP, left), at)):
            yield step
            at += len(step)
            left -= len(step)
    except OSError:
        return
