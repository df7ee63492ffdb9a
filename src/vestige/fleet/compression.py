"""Compression of shipments, with a bound on the decompressed size.

    unpack(pack(data), "zstd") == data
    unpack(bomb, "gzip")              # raises ParcelTooLargeError after PARCEL_MAX bytes

A few bytes can decompress to gigabytes, so decompression runs in steps and counts its output.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

from vestige.errors import ParcelError, ParcelTooLargeError
from vestige.limits import MIB, PARCEL_FRAMES_MAX, PARCEL_MAX, PARCEL_PACKED_MAX
from vestige.store.compression import FrameDecompressor
from vestige.store.compression import compress_frame as pack

ENCODINGS = ("zstd", "gzip", "identity")
"""Values of `Content-Encoding`."""

_STEP = MIB


class _Frame(Protocol):
    """Decompressor of one compressed frame. Several frames may follow each other."""

    def decompress(self, data: bytes, length_max: int) -> bytes: ...
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


class _Gzip:
    """Adapter for zlib's object: it keeps its unconsumed input, as the zstd object does."""

    def __init__(self) -> None:
        self._frame = zlib.decompressobj(wbits=31)

    def decompress(self, data: bytes, length_max: int) -> bytes:
        try:
            return self._frame.decompress(self._frame.unconsumed_tail + data, length_max)
        except zlib.error as error:
            raise ValueError(str(error)) from None

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
    """Decompress. Raises ParcelError if the data is invalid or too large."""
    if len(data) > PARCEL_PACKED_MAX:
        raise ParcelTooLargeError(
            f"parcel: more than {PARCEL_PACKED_MAX} compressed bytes. Send fewer lines at once."
        )
    if encoding == "identity":
        if len(data) > length_max:
            raise _too_long(length_max)
        return data
    if encoding not in ENCODINGS:
        raise ParcelError(
            f"parcel: unknown encoding {encoding!r} (expected {', '.join(ENCODINGS)})."
        )
    parts: list[bytes] = []
    total = frames = 0
    while data:
        frames += 1
        if frames > PARCEL_FRAMES_MAX:
            raise ParcelError(
                f"parcel: more than {PARCEL_FRAMES_MAX} {encoding} frames. Send it as one frame."
            )
        frame: _Frame = FrameDecompressor() if encoding == "zstd" else _Gzip()
        for part in _decompress(frame, data, encoding):
            total += len(part)
            if total > length_max:
                raise _too_long(length_max)
            parts.append(part)
        data = frame.unused_data
    return b"".join(parts)


def _decompress(frame: _Frame, data: bytes, encoding: str) -> Iterator[bytes]:
    """Decompress one frame in steps."""
    try:
        yield frame.decompress(data, _STEP)
        while not frame.eof:
            part = frame.decompress(b"", _STEP)
            if not part and frame.needs_input and not frame.eof:
                raise ValueError("it ends too early")
            yield part
    except ValueError as error:
        raise ParcelError(f"parcel: not valid {encoding} ({error}). Send it again.") from None


def _too_long(length_max: int) -> ParcelTooLargeError:
    return ParcelTooLargeError(
        f"parcel: more than {length_max} decompressed bytes. Send fewer lines at once."
    )


__all__ = ["ENCODINGS", "pack", "unpack"]
