"""Bound a zip's own directory before it is read completely.

The standard library makes an object of every entry, whatever their number. So the directory
is found first as that library finds it (from the end of the file), and its size and entries
are counted in its raw bytes.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, Final

from vestige.errors import BundleCorruptedError
from vestige.limits import BUNDLE_DIRECTORY_MAX, BUNDLE_MEMBERS_MAX

_END: Final = struct.Struct("<4s4H2LH")
_LOCATOR: Final = struct.Struct("<4sLQL")
_END64: Final = struct.Struct("<4sQ2H2L4Q")
_COMMENT_MAX: Final = 65_535
_ENTRY: Final = b"PK\x01\x02"
_BEGINNING_MIN: Final = 200
"""Bytes from which the beginning of a zip may have a member."""


def check_directory(path: Path, expected: str = "a .wink bundle", hint: str = "") -> None:
    """Raise BundleCorruptedError if this is not a zip, or its directory is too large.

    The hint is for a zip without an end."""
    with path.open("rb") as file:
        found = _find(file)
        if found is None:
            raise BundleCorruptedError(
                f"{path}: not a zip, or cut off before its end (expected {expected})."
                + (f" {hint}" if hint and _is_zip_beginning(file) else "")
            )
        begin, size = found
        if begin < 0:
            raise BundleCorruptedError(
                f"{path}: its directory of {size} bytes does not fit into it. The file is damaged."
            )
        if size > BUNDLE_DIRECTORY_MAX:
            raise BundleCorruptedError(
                f"{path}: its directory has {size} bytes (expected at most {BUNDLE_DIRECTORY_MAX})."
            )
        file.seek(begin)
        count = file.read(size).count(_ENTRY)
    if count > BUNDLE_MEMBERS_MAX:
        raise BundleCorruptedError(
            f"{path}: {count} members (expected at most {BUNDLE_MEMBERS_MAX})."
        )


def _is_zip_beginning(file: BinaryIO) -> bool:
    file.seek(0)
    return file.read(_BEGINNING_MIN).startswith(b"PK\x03\x04") and file.tell() == _BEGINNING_MIN


def has_directory(path: Path) -> bool:
    """Return whether the end of a zip is there."""
    with path.open("rb") as file:
        return _find(file) is not None


def _find(file: BinaryIO) -> tuple[int, int] | None:
    """Return the offset and size of the directory."""
    file_size = file.seek(0, 2)
    tail_begin = max(0, file_size - _END.size - _COMMENT_MAX)
    file.seek(tail_begin)
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        return None
    end = tail_begin + at
    size = _END.unpack_from(tail, at)[5]
    locator_at = end - _LOCATOR.size
    end64_at = locator_at - _END64.size
    if end64_at >= 0:
        file.seek(end64_at)
        raw = file.read(_END64.size + _LOCATOR.size)
        if raw.startswith(b"PK\x06\x06") and raw[_END64.size :].startswith(b"PK\x06\x07"):
            size = _END64.unpack_from(raw)[8]
            end = end64_at
    return end - size, size
