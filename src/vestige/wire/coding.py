"""Content codings (gzip, deflate, br, zstd), undone up to a bound.

Bodies are stored as they mean, so that messages deduplicate and can be searched; the coding and the size on
the wire are attributes. What cannot be undone (an unknown coding, a damaged or cut stream's rest) is
left out or kept as it came; `Decoded.whole` says which.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec

from vestige.limits import BODY_CHUNK

Step = Callable[[bytes], bytes]


class Decoded(msgspec.Struct, frozen=True):
    """A body without its codings."""

    data: bytes | bytearray
    whole: bool
    """False: there was more than the bound allows, or the stream was cut or damaged."""
    steps: list[tuple[int, int]]
    """How far it was after how much of what came: (plain bytes, coded bytes)."""

    def coded_at(self, plain: int) -> int:
        """How much had to come before the first `plain` bytes were known."""
        at = bisect_left(self.steps, (plain, 0))
        return self.steps[at][1] if at < len(self.steps) else self.steps[-1][1]


def is_coded(coding: str) -> bool:
    return bool(_names(coding))


def decode(
    data: bytes | bytearray, coding: str, length_max: int, ends: Iterable[int] = ()
) -> Decoded | None:
    """`data` without its codings (`gzip`, `br, gzip`, ...); None if one of them is not known.
    `ends`: where the pieces ended in which it came, if that matters to whoever asks."""
    steps = []
    for name in reversed(_names(coding)):
        step = _make_step(name)
        if step is None:
            return None
        steps.append(step)
    out = bytearray()
    view = memoryview(data)
    done: list[tuple[int, int]] = [(0, 0)]
    try:
        for begin, end in _pieces(len(view), ends):
            piece = bytes(view[begin:end])
            for step in steps:
                piece = step(piece)
            out += piece
            done.append((len(out), end))
            if len(out) > length_max:
                return Decoded(out[:length_max], False, done)
    except Exception:  # noqa: BLE001  # each library raises its own for damaged data
        # Nothing could be undone: the server named a coding that it did not use. Then as it came.
        return Decoded(out, False, done) if out else Decoded(data, False, [])
    return Decoded(out, True, done)


def _pieces(length: int, ends: Iterable[int]) -> Iterator[tuple[int, int]]:
    """As it came, in steps that are never long."""
    at = 0
    for end in chain(ends, (length,)):
        while at < min(end, length):
            step = min(end, length, at + _FEED)
            yield at, step
            at = step


_FEED = BODY_CHUNK // 16
"""Bytes decoded at a time: a bomb of a thousand to one grows by 8 MB before it is seen."""


def _names(coding: str) -> list[str]:
    names = [name.strip().lower() for name in coding.split(",")]
    return [name for name in names if name not in ("", "identity")]


def _make_step(name: str) -> Step | None:
    if name in ("gzip", "x-gzip"):
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress
    if name == "deflate":
        return _Deflate()
    try:
        if name == "br":
            return _brotli()
        if name == "zstd":
            return _zstd()
    except ImportError:
        pass
    return None


class _Deflate:
    """With the zlib wrapper, as the standard says, or without it, as some servers do."""

    def __init__(self) -> None:
        self._inner: Any = None

    def __call__(self, piece: bytes) -> bytes:
        if self._inner is None:
            self._inner = zlib.decompressobj()
            try:
                return bytes(self._inner.decompress(piece))
            except zlib.error:
                self._inner = zlib.decompressobj(-zlib.MAX_WBITS)
        return bytes(self._inner.decompress(piece))


def _brotli() -> Step:
    """Whoever can receive it has a library for it."""
    try:
        import brotli
    except ImportError:
        import brotlicffi as brotli
    decoder = brotli.Decompressor()
    step: Step = getattr(decoder, "decompress", None) or decoder.process
    return step


def _zstd() -> Step:
    try:
        from compression import zstd
    except ImportError:
        from backports import zstd
    step: Step = zstd.ZstdDecompressor().decompress
    return step
