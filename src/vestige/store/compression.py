"""Compress and decompress pieces of bodies.

A codec is a number in the store, and the meaning of a number never changes.

    codec, stored = compress(data)
    decompress(codec, stored, len(data)) == data

The one hard fact: a row may be damaged or forged. Output is bounded by the size
that the row declares, so a few bytes cannot expand to a GiB.
"""

from __future__ import annotations

from typing import Final

from vestige._runtime.zstd import zstd
from vestige.errors import StoreError

RAW: Final = 0
ZSTD: Final = 1

LEVEL: Final = 3
"""Higher levels take twice the time and save a few percent, because messages are short."""

COMPRESS_MIN: Final = 400
"""Shorter data would save some dozens of bytes, and take as long as a long message."""

_OPTIONS: Final[dict[int, int]] = {zstd.DecompressionParameter.window_log_max: 25}
"""The longest window that a frame may request: 32 MiB, the size of the longest body."""

_compressor: Final = zstd.ZstdCompressor(level=LEVEL)
"""Shared, because creating a compressor costs more than using it. It is thread-safe."""


def compress(data: bytes) -> tuple[int, bytes]:
    """Return the codec and the stored form: raw where zstd would not make it smaller."""
    if len(data) >= COMPRESS_MIN:
        stored: bytes = _compressor.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)
        if len(stored) < len(data):
            return ZSTD, stored
    return RAW, data


def decompress(codec: int, stored: bytes, size_bytes: int) -> bytes:
    """Return the data. Raise StoreError if it is not exactly `size_bytes` long."""
    if codec == RAW:
        data = stored
    elif codec == ZSTD:
        decompressor = zstd.ZstdDecompressor(options=_OPTIONS)
        try:
            # One byte more than declared, to detect a frame that is longer.
            data = decompressor.decompress(stored, size_bytes + 1)
        except zstd.ZstdError as error:
            raise StoreError(f"body piece: damaged ({error})") from error
    else:
        raise StoreError(f"body piece: unknown codec {codec} (expected 0 or 1). Upgrade vestige.")
    if len(data) != size_bytes:
        raise StoreError(f"body piece: damaged ({len(data)} bytes, expected {size_bytes})")
    return data


def compress_frame(data: bytes) -> bytes:
    """Compress data that is sent to another machine, as one zstd frame."""
    frame: bytes = zstd.compress(data, level=LEVEL)
    return frame


class FrameDecompressor:
    """Decompress one zstd frame from another machine, in bounded steps."""

    def __init__(self) -> None:
        self._frame = zstd.ZstdDecompressor(options=_OPTIONS)

    def decompress(self, data: bytes, length_max: int) -> bytes:
        """Return at most `length_max` more bytes. Raise ValueError if it is not a zstd frame."""
        try:
            output: bytes = self._frame.decompress(data, length_max)
        except zstd.ZstdError as error:
            raise ValueError(str(error)) from None
        return output

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
