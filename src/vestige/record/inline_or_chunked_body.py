"""Choose how a body is written: as text or bytes in its line, or in chunks if it is too long.

Text and bytes are stored unchanged. Objects become JSON.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.limits import BODY_CHUNK, BODY_INLINE_MAX
from vestige.record.coercion import safe_str
from vestige.record.json_render import has_fields, is_container, iter_json, plain_text


class LongBody(msgspec.Struct, frozen=True):
    """A long body as a series of short texts."""

    texts: Iterable[str]
    errors: str = "backslashreplace"
    """The error handler for encoding: it writes lone surrogates out, or restores bytes."""
    original_bytes: int | None = None
    """The full size of a body of which only the beginning is stored."""
    original_sha256: str | None = None


def body_form(body: Any) -> str | bytes | LongBody:
    """Return a body of any type in the form in which it is written."""
    kind = type(body)
    if kind is dict or kind is list:  # first, because most bodies are
        plain = plain_text(body)
        return plain if plain is not None and len(plain) <= BODY_INLINE_MAX else _render_json(body)
    if kind is not str:
        if isinstance(body, (bytes, bytearray, memoryview)):
            return _bytes_form(bytes(body))
        if isinstance(body, LongBody):
            return body
        if not isinstance(body, str):
            return _object_form(body)
    text = str.__str__(body)
    if len(text) <= BODY_INLINE_MAX:
        return text
    return LongBody(text[at : at + BODY_CHUNK] for at in range(0, len(text), BODY_CHUNK))


def _bytes_form(body: bytes) -> bytes | LongBody:
    if len(body) <= BODY_INLINE_MAX:
        return body
    slices = (body[at : at + BODY_CHUNK] for at in range(0, len(body), BODY_CHUNK))
    return LongBody(decode_chunks(slices), "surrogateescape")


def decode_chunks(chunks: Iterable[bytes]) -> Iterator[str]:
    """Decode chunks of bytes as one text: a character, or a secret, may span two chunks."""
    decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
    for chunk in chunks:
        yield decode(chunk)
    yield decode(b"", True)


def _object_form(body: Any) -> str | LongBody:
    if type(body) in (int, float, bool) or has_fields(body) or is_container(body):
        return _render_json(body)
    return safe_str(body)


def _render_json(body: Any) -> str | LongBody:
    chunks = iter_json(body)
    beginning: list[str] = []
    length = 0
    for chunk in chunks:
        beginning.append(chunk)
        length += len(chunk)
        if length > BODY_INLINE_MAX:
            return LongBody(chain(beginning, chunks))
    return "".join(beginning)
