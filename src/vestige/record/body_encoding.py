"""The form in which a body is written: text in its line, bytes in its line, or too long for one.

Text is kept character for character and bytes byte for byte. Objects become JSON.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec

from vestige.limits import BODY_CHUNK, BODY_INLINE_MAX
from vestige.record.coercion import safe_str
from vestige.record.json_render import has_fields, is_container, json_steps, plain_text


class LongBody(msgspec.Struct, frozen=True):
    """A body in steps, none of which is long."""

    texts: Iterable[str]
    errors: str = "backslashreplace"
    """For encoding a step: lone surrogates have a written form; bytes come back as they were."""
    original_bytes: int | None = None
    """Set by whoever kept only the beginning of a body: the size that it had."""
    original_sha256: str | None = None


def body_form(body: Any) -> str | bytes | LongBody:
    """A caller's body, whatever it is."""
    kind = type(body)
    if kind is dict or kind is list:  # first: what most callers give
        plain = plain_text(body)
        return plain if plain is not None and len(plain) <= BODY_INLINE_MAX else _in_steps(body)
    if kind is not str:
        if isinstance(body, (bytes, bytearray, memoryview)):
            return _of_bytes(bytes(body))
        if isinstance(body, LongBody):
            return body
        if not isinstance(body, str):
            return _of_object(body)
    text = str.__str__(body)
    if len(text) <= BODY_INLINE_MAX:
        return text
    return LongBody(text[at : at + BODY_CHUNK] for at in range(0, len(text), BODY_CHUNK))


def _of_bytes(body: bytes) -> bytes | LongBody:
    if len(body) <= BODY_INLINE_MAX:
        return body
    slices = (body[at : at + BODY_CHUNK] for at in range(0, len(body), BODY_CHUNK))
    return LongBody(texts_of(slices), "surrogateescape")


def texts_of(pieces: Iterable[bytes]) -> Iterator[str]:
    """Bytes in pieces, as text: a character may lie across two, and with it a secret."""
    decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
    for piece in pieces:
        yield decode(piece)
    yield decode(b"", True)


def _of_object(body: Any) -> str | LongBody:
    if type(body) in (int, float, bool) or has_fields(body) or is_container(body):
        return _in_steps(body)
    return safe_str(body)


def _in_steps(body: Any) -> str | LongBody:
    steps = json_steps(body)
    begin: list[str] = []
    length = 0
    for step in steps:
        begin.append(step)
        length += len(step)
        if length > BODY_INLINE_MAX:
            return LongBody(chain(begin, steps))
    return "".join(begin)
