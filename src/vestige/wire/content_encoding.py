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

Step = Callable[[bytes], Iterator[bytes]]
"""Takes the next coded bytes, gives what they mean: piece by piece, none longer than `_PIECE`."""


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
    names = _names(coding)
    if len(names) > CODINGS_MAX:
        return None
    steps = []
    for name in reversed(names):
        step = _make_step(name)
        if step is None:
            return None
        steps.append(step)
    out = bytearray()
    view = memoryview(data)
    done: list[tuple[int, int]] = [(0, 0)]
    try:
        left = [length_max] * len(steps)
        for begin, end in _pieces(len(view), ends):
            for piece in _undo(steps, left, bytes(view[begin:end])):
                out += piece
                if len(out) > length_max:
                    return Decoded(out[:length_max], False, [*done, (len(out), end)])
            done.append((len(out), end))
    except Exception:  # noqa: BLE001  # each library raises its own for damaged data
        # Nothing could be undone: the server named a coding that it did not use. Then as it came.
        return Decoded(out, False, done) if out else Decoded(data, False, [])
    return Decoded(out, True, done)


def _undo(steps: list[Step], left: list[int], piece: bytes, at: int = 0) -> Iterator[bytes]:
    """One piece through all codings. `left`: what each may still give; a bomb may be an inner one."""
    if at == len(steps):
        yield piece
        return
    for plain in steps[at](piece):
        if left[at] < 0:
            raise ValueError("longer than the bound")
        left[at] -= len(plain)
        yield from _undo(steps, left, plain, at + 1)


def _pieces(length: int, ends: Iterable[int]) -> Iterator[tuple[int, int]]:
    """As it came, in steps that are never long."""
    at = 0
    for end in chain(ends, (length,)):
        while at < min(end, length):
            step = min(end, length, at + _FEED)
            yield at, step
            at = step


_FEED = BODY_CHUNK // 16
"""Bytes decoded at a time."""

_PIECE = BODY_CHUNK
"""Bytes that a decoder gives at a time: a kilobyte of brotli or zstd may stand for a gigabyte."""

_SIP = 16
"""Bytes decoded at a time where the library knows no bound: they stand for some ten megabytes at most."""

FRAMES_MAX = 10_000
"""One after the other: empty ones give nothing, so that no bound on the size would ever stop them."""

CODINGS_MAX = 4
"""One upon the other: each has a window in memory, and nobody sends more than two."""


def _names(coding: str) -> list[str]:
    names = [name.strip().lower() for name in coding.split(",")]
    return [name for name in names if name not in ("", "identity")]


def _make_step(name: str) -> Step | None:
    if name in ("gzip", "x-gzip"):
        return _framed(lambda: zlib.decompressobj(16 + zlib.MAX_WBITS), _inflate)
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


def _zlib(window: int) -> Step:
    decoder = zlib.decompressobj(window)
    return lambda coded: _inflate(decoder, coded)


def _inflate(decoder: Any, coded: bytes) -> Iterator[bytes]:
    plain = decoder.decompress(coded, _PIECE)
    yield plain
    while len(plain) == _PIECE:  # there may be more, even where all was taken in
        plain = decoder.decompress(decoder.unconsumed_tail, _PIECE)
        yield plain


def _framed(make: Callable[[], Any], undo: Callable[[Any, bytes], Iterator[bytes]]) -> Step:
    """Of gzip and zstd: a server may send one after the other, and clients join them."""
    decoder = make()
    frames = 1

    def step(coded: bytes) -> Iterator[bytes]:
        nonlocal decoder, frames
        while coded:
            if decoder.eof:
                decoder, frames = make(), frames + 1
                if frames > FRAMES_MAX:
                    raise ValueError("more frames than the bound")
            yield from undo(decoder, coded)
            coded = decoder.unused_data if decoder.eof else b""

    return step


class _Deflate:
    """With the zlib wrapper, as the standard says, or without it, as some servers do."""

    def __init__(self) -> None:
        self._inner: Step | None = None

    def __call__(self, coded: bytes) -> Iterator[bytes]:
        if self._inner is None:
            try:
                zlib.decompressobj().decompress(coded, 1)
                self._inner = _zlib(zlib.MAX_WBITS)
            except zlib.error:
                self._inner = _zlib(-zlib.MAX_WBITS)
        return self._inner(coded)


def _brotli() -> Step:
    """Whoever can receive it has a library for it."""
    try:
        import brotli
    except ImportError:
        import brotlicffi as brotli
    decoder = brotli.Decompressor()
    decode_some: Any = getattr(decoder, "decompress", None) or decoder.process
    if not hasattr(decoder, "can_accept_more_data"):
        return _sipping(decode_some)

    def step(coded: bytes) -> Iterator[bytes]:
        plain = decode_some(coded, output_buffer_limit=_PIECE)
        yield plain
        while plain or not decoder.can_accept_more_data():  # as zlib's
            plain = decode_some(b"", output_buffer_limit=_PIECE)
            yield plain

    return step


def _zstd() -> Step:
    try:
        from compression import zstd
    except ImportError:
        from backports import zstd

    def undo(decoder: Any, coded: bytes) -> Iterator[bytes]:
        yield decoder.decompress(coded, _PIECE)
        while not decoder.needs_input and not decoder.eof:
            yield decoder.decompress(b"", _PIECE)

    return _framed(zstd.ZstdDecompressor, undo)


def _sipping(decode_some: Callable[[bytes], bytes]) -> Step:
    def step(coded: bytes) -> Iterator[bytes]:
        for at in range(0, len(coded), _SIP):
            yield decode_some(coded[at : at + _SIP])

    return step
