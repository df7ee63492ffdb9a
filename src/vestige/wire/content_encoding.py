"""Decoding of content codings (gzip, deflate, br, zstd), up to a bound.

Bodies are stored decoded, so that messages deduplicate and can be searched. The coding and the size
on the wire are attributes. `Decoded.complete` is false for a truncated or damaged body.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.limits import BODY_CHUNK
from vestige.wire import aws_event_stream

Step = Callable[[bytes], Iterator[bytes]]
"""Decodes the next bytes, in pieces of at most `_PIECE` bytes."""


class Decoded(msgspec.Struct, frozen=True):
    """A decoded body."""

    data: bytes | bytearray
    complete: bool
    """False: the body is longer than the bound, truncated or damaged."""
    steps: list[tuple[int, int]]
    """Progress of decoding: (decoded bytes, coded bytes) after each piece."""

    def coded_at(self, plain: int) -> int:
        """Return how many coded bytes the first `plain` decoded bytes needed."""
        at = bisect_left(self.steps, (plain, 0))
        return self.steps[at][1] if at < len(self.steps) else self.steps[-1][1]


def is_coded(coding: str) -> bool:
    return bool(_names(coding))


def decode(
    data: bytes | bytearray, coding: str, length_max: int, ends: Iterable[int] = ()
) -> Decoded | None:
    """Decode data with codings such as `gzip` or `br, gzip`. None: a coding is unknown.

    `ends` are the end offsets of the received chunks, for `Decoded.steps`.
    """
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
        # If nothing was decoded, the server named a coding that it did not use.
        return Decoded(out, False, done) if out else Decoded(data, False, [])
    return Decoded(out, True, done)


def _undo(steps: list[Step], left: list[int], piece: bytes, at: int = 0) -> Iterator[bytes]:
    """Decode a piece through all codings. `left` bounds the output of each coding."""
    if at == len(steps):
        yield piece
        return
    for plain in steps[at](piece):
        if left[at] < 0:
            raise ValueError("longer than the bound")
        left[at] -= len(plain)
        yield from _undo(steps, left, plain, at + 1)


def _pieces(length: int, ends: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the received chunks, split into short steps."""
    at = 0
    for end in chain(ends, (length,)):
        while at < min(end, length):
            step = min(end, length, at + _FEED)
            yield at, step
            at = step


_FEED = BODY_CHUNK // 16
"""Bytes decoded at a time."""

_PIECE = BODY_CHUNK
"""Bytes that a decoder returns at a time: a kilobyte of brotli or zstd can decode to a gigabyte."""

_SMALL_FEED = 16
"""Bytes decoded at a time without an output bound: they decode to about ten megabytes at most."""

FRAMES_MAX = 10_000
"""Consecutive frames. Empty frames produce no output, so the bound on size does not stop them."""

CODINGS_MAX = 4
"""Nested codings. Each needs a window in memory, and servers use at most two."""


def _names(coding: str) -> list[str]:
    names = [name.strip().lower() for name in coding.split(",")]
    return [name for name in names if name not in ("", "identity")]


def _make_step(name: str) -> Step | None:
    if name in ("gzip", "x-gzip"):
        return _framed(lambda: zlib.decompressobj(16 + zlib.MAX_WBITS), _inflate)
    if name == "deflate":
        return _Deflate()
    if name == aws_event_stream.CODING:
        return aws_event_stream.FrameDecoder()
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
    while len(plain) == _PIECE:  # there may be more output, even if all input was consumed
        plain = decoder.decompress(decoder.unconsumed_tail, _PIECE)
        yield plain


def _framed(make: Callable[[], Any], undo: Callable[[Any, bytes], Iterator[bytes]]) -> Step:
    """Make a step for gzip or zstd, which may consist of several consecutive frames."""
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
    """Decoder for deflate with the zlib wrapper (the standard) or without it (some servers)."""

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
    """Make a step for brotli. A program that can receive it has one of these libraries."""
    try:
        import brotli
    except ImportError:
        import brotlicffi as brotli
    decoder = brotli.Decompressor()
    decode_some: Any = getattr(decoder, "decompress", None) or decoder.process
    if not hasattr(decoder, "can_accept_more_data"):
        return _feed_slowly(decode_some)

    def step(coded: bytes) -> Iterator[bytes]:
        plain = decode_some(coded, output_buffer_limit=_PIECE)
        yield plain
        while plain or not decoder.can_accept_more_data():
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


def _feed_slowly(decode_some: Callable[[bytes], bytes]) -> Step:
    def step(coded: bytes) -> Iterator[bytes]:
        for at in range(0, len(coded), _SMALL_FEED):
            yield decode_some(coded[at : at + _SMALL_FEED])

    return step
