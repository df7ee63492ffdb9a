"""Redact a long text that arrives in chunks as one text: a secret may span two chunks.

A part is returned as soon as no secret can span its end. JSON is split between its tokens; other
text is split at a separator before which no secret has begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from vestige.limits import BODY_CHUNK, SECRET_LENGTH_MAX

if TYPE_CHECKING:
    from vestige.record.redaction.json_redaction import DocumentRedaction
    from vestige.record.redaction.redactor import Redactor
    from vestige.record.redaction.secret_patterns import Hit
    from vestige.record.redaction.secret_search import Counts

WINDOW = 2 * SECRET_LENGTH_MAX
_BUFFER_MAX = 4 * BODY_CHUNK
_SEPARATORS = "\n ,;{}"
_JSON_STARTS = ("{", "[", " ", "\n", "\t", "\r")


def redact_chunks(
    redactor: Redactor, chunks: Iterable[str], counts: Counts | None
) -> Iterator[str]:
    """Yield the redacted text of the chunks, in other chunks."""
    buffer = ""
    is_json: bool | None = None
    document: DocumentRedaction | None = None
    tried = 0
    for chunk in chunks:
        buffer += chunk
        # A buffer that could not be split is searched again when it has grown by half: each search
        # reads all of it.
        if len(buffer) <= WINDOW or len(buffer) - tried < max(WINDOW, tried) // 2:
            continue
        tried = 0
        if is_json is None:
            is_json = _begins_json(buffer)
        if is_json:
            cut = _json_end(buffer)
            if cut > 0:
                document = document or _document(redactor, counts)
                yield _redact_json_part(redactor, buffer[:cut], document)
                buffer = buffer[cut:]
                continue
            # One long string: wait for its end, as far as memory allows.
            is_json = cut == 0 and len(buffer) <= _BUFFER_MAX
            if is_json:
                tried = len(buffer)
                continue
        hits = redactor.find(buffer) if redactor.may_have_secrets(buffer) else []
        cut = _find_safe_end(buffer, hits)
        if not any(hit.new for hit in hits):
            if cut == 0 and len(buffer) > _BUFFER_MAX:
                cut = len(buffer) - SECRET_LENGTH_MAX  # "****" of megabytes: limit the memory
            # All but the end, in which a secret may begin, is clean.
            yield buffer[:cut]
            buffer = buffer[cut:]
            continue
        if cut == 0 and len(buffer) > _BUFFER_MAX:
            cut = len(buffer)  # a "secret" of megabytes: mask what there is, to limit the memory
        if cut:
            yield redactor.redact_exactly(buffer[:cut], counts)
            buffer = buffer[cut:]
        else:
            tried = len(buffer)
    if buffer and is_json:
        document = document or _document(redactor, counts)
        cut = max(0, _json_end(buffer, is_last=True))
        yield _redact_json_part(redactor, buffer[:cut], document)
        buffer = buffer[cut:]
        if buffer:
            yield redactor.redact_text(buffer, counts)
    elif buffer:
        yield redactor.redact_exactly(buffer, counts)


def _redact_json_part(redactor: Redactor, text: str, document: DocumentRedaction) -> str:
    """Redact complete tokens of a document."""
    if not text:
        return text
    if document.expects_secret() or redactor.may_have_secrets(text):
        return document.redact(text)
    document.skip(text)
    return text


def _document(redactor: Redactor, counts: Counts | None) -> DocumentRedaction:
    from vestige.record.redaction.json_redaction import DocumentRedaction

    return DocumentRedaction(redactor, counts)


def _begins_json(text: str) -> bool:
    if not text.startswith(_JSON_STARTS):
        return False
    from vestige.record.redaction.json_redaction import begins_json

    return begins_json(text)


def _json_end(text: str, *, is_last: bool = False) -> int:
    from vestige.record.redaction.json_redaction import last_gap

    return last_gap(text, is_last=is_last)


def _find_safe_end(text: str, hits: list[Hit]) -> int:
    """Return an offset, SECRET_LENGTH_MAX before the end, that no secret and no key spans."""
    # At a separator, because rules look at the character before a word: splitting a word
    # could make another word of its second half.
    best = _separator_before(text, len(text) - SECRET_LENGTH_MAX)
    for start, high in sorted(((hit.start, hit.high) for hit in hits), reverse=True):
        if start < best < high:
            best = max(text.rfind(mark, 0, start) for mark in _SEPARATORS) + 1
    return best


def _separator_before(text: str, offset: int) -> int:
    """Return the end of the last separator before `offset`, or `offset` if there is none."""
    return max(text.rfind(mark, 0, offset) for mark in _SEPARATORS) + 1 or offset
