"""Pack what travels, and unpack what came: bounded, whatever it claims to be.

    unpack(pack(data), "zstd") == data
    unpack(bomb, "gzip")              # raises ParcelTooLargeError after PARCEL_MAX bytes, not later

A few bytes can unfold to gigabytes, so the output is asked for in steps, and counted.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

from vestige.errors import ParcelError, ParcelTooLargeError
from vestige.limits import MIB, PARCEL_FRAMES_MAX, PARCEL_MAX, PARCEL_PACKED_MAX
from vestige.store.sqlite.bodies.compression import FrameDecompressor
from vestige.store.sqlite.bodies.compression import compress_frame as pack

ENCODINGS = ("zstd", "gzip", "identity")
"""As `Content-Encoding` names them."""

_STEP = MIB


class _Frame(Protocol):
    """One packed piece; several may follow each other."""

    def decompress(self, data: bytes, length_max: int) -> bytes: ...
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


class _Gzip:
    """zlib's object with the manners of the others: it keeps what it has not used yet."""

    def __init__(self) -> None:
        self._frame = zlib.decompressobj(wbits=31)

    def decompress(self, data: bytes, length_max: int) -> bytes:
        try:
            return self._frame.decompress(self._frame.unconsumed_tail + data, length_max)
        except zlib.error as problem:
            raise ValueError(str(problem)) from None

    @property
    def eof(self) -> bool:
        return self._frame.eof

    @property
    def needs_input(self) -> bool:
        return not self._frame.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data


def unpack(data: bytes, encoding: str, length_max: int = PARCEL_MAX) -> bytes:
    """The bytes that were packed. ParcelError: they cannot be had, or are too many."""
    if len(data) > PARCEL_PACKED_MAX:
        raise ParcelTooLargeError(
            f"parcel: more than {PARCEL_PACKED_MAX} bytes, packed. Send fewer lines at once."
        )
    if encoding == "identity":
        return _bounded(data, length_max)
    if encoding not in ENCODINGS:
        raise ParcelError(
            f"parcel: encoding {encoding!r} is not known (expected {', '.join(ENCODINGS)})."
        )
    parts: list[bytes] = []
    total = frames = 0
    while data:
        frames += 1
        if frames > PARCEL_FRAMES_MAX:
            raise ParcelError(
                f"parcel: joined from more than {PARCEL_FRAMES_MAX} {encoding} frames. Pack it as one."
            )
        frame: _Frame = FrameDecompressor() if encoding == "zstd" else _Gzip()
        for part in _unfold(frame, data, encoding):
            total += len(part)
            if total > length_max:
                raise _too_long(length_max)
            parts.append(part)
        data = frame.unused_data
    return b"".join(parts)


def _unfold(frame: _Frame, data: bytes, encoding: str) -> Iterator[bytes]:
    """One frame, step by step."""
    try:
        yield frame.decompress(data, _STEP)
        while not frame.eof:
            part = frame.decompress(b"", _STEP)
            if not part and frame.needs_input and not frame.eof:
                raise ValueError("it ends too early")
            yield part
    except ValueError as problem:
        raise ParcelError(f"parcel: not valid {encoding} ({problem}). Send it again.") from None


def _bounded(data: bytes, length_max: int) -> bytes:
    if len(data) > length_max:
        raise _too_long(length_max)
    return data


def _too_long(length_max: int) -> ParcelTooLargeError:
    return ParcelTooLargeError(
        f"parcel: more than {length_max} bytes when unpacked. Send fewer lines at once."
    )


__all__ = ["ENCODINGS", "pack", "unpack"]
