"""Make a piece small, and give it back exactly.

The only place that knows zstd, and where it is imported from. A codec is a
number in the store and is never given a second meaning.

    codec, stored = compress(data)
    decompress(codec, stored, len(data)) == data

The one hard fact: a row may be damaged, or made by somebody else. Output is
bounded by the size that the row declares, so a few bytes cannot become a GiB.
"""

from __future__ import annotations

import sys
from typing import Final

from vestige.errors import StoreError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

RAW: Final = 0
ZSTD: Final = 1

LEVEL: Final = 3
"""Higher levels cost twice the time for a few percent: messages are short."""

COMPRESS_MIN: Final = 400
"""Shorter data shrinks by some dozens of bytes, for as much time as a long message."""

_OPTIONS: Final[dict[int, int]] = {zstd.DecompressionParameter.window_log_max: 25}
"""The longest window that a frame may ask for: 32 MiB, a whole body."""

_compressor: Final = zstd.ZstdCompressor(level=LEVEL)
"""Kept: a new one for each piece would cost more than the piece. It locks itself."""


def compress(data: bytes) -> tuple[int, bytes]:
    """Codec and stored form; raw where zstd would not make it smaller."""
    if len(data) >= COMPRESS_MIN:
        stored: bytes = _compressor.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)
        if len(stored) < len(data):
            return ZSTD, stored
    return RAW, data


def decompress(codec: int, stored: bytes, size_bytes: int) -> bytes:
    """The data; StoreError if `stored` does not yield exactly `size_bytes`."""
    if codec == RAW:
        data = stored
    elif codec == ZSTD:
        decompressor = zstd.ZstdDecompressor(options=_OPTIONS)
        try:
            # One byte more than declared, to notice a frame that goes on.
            data = decompressor.decompress(stored, size_bytes + 1)
        except zstd.ZstdError as problem:
            raise StoreError(f"body piece: damaged ({problem})") from problem
    else:
        raise StoreError(f"body piece: unknown codec {codec} (knows 0, 1). Upgrade vestige.")
    if len(data) != size_bytes:
        raise StoreError(f"body piece: damaged ({len(data)} bytes, expected {size_bytes})")
    return data


def pack(data: bytes) -> bytes:
    """One zstd frame, for a journey."""
    packed: bytes = zstd.compress(data, level=LEVEL)
    return packed


class Unpacker:
    """One zstd frame that came from elsewhere, unpacked in bounded steps."""

    def __init__(self) -> None:
        self._frame = zstd.ZstdDecompressor(options=_OPTIONS)

    def decompress(self, data: bytes, length_max: int) -> bytes:
        """At most so much more of it; ValueError if it is none."""
        try:
            found: bytes = self._frame.decompress(data, length_max)
        except zstd.ZstdError as problem:
            raise ValueError(str(problem)) from None
        return found

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def needs_input(self) -> bool:
        return bool(self._frame.needs_input)

    @property
    def unused_data(self) -> bytes:
        rest: bytes = self._frame.unused_data
        return rest
