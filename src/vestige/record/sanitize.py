"""Records that would not encode, or are too long: the thorough, slow way to make them fit."""

from __future__ import annotations

import msgspec

from vestige.limits import BODY_INLINE_MAX
from vestige.record.coercion import clean_attributes, clean_message, clean_name, clean_text, cut
from vestige.record.types import KnownRecord, Log, SpanOpen, SpanUpdate

_VALUE_SHRUNK = 1_000
"""Characters of an attribute here: as many as a record may have fit a line, even all escaped."""


def clean_record(record: KnownRecord) -> KnownRecord:
    """The same record with only what JSON and UTF-8 can hold."""
    changes: dict[str, object] = {"attributes": clean_attributes(record.attributes)}
    if isinstance(record, Log):
        changes["message"] = clean_message(record.message)
        changes["component"] = clean_name(record.component)
    if isinstance(record, SpanOpen):
        for field in ("name", "type", "component"):
            changes[field] = clean_name(getattr(record, field))
        if record.conversation_id is not None:
            changes["conversation_id"] = clean_name(record.conversation_id)
    if isinstance(record, (SpanOpen, SpanUpdate)) and record.links:
        changes["links"] = [
            msgspec.structs.replace(
                link,
                span_id=clean_name(link.span_id),
                run_id=None if link.run_id is None else clean_name(link.run_id),
                reason=None if link.reason is None else clean_name(link.reason),
            )
            for link in record.links
        ]
    body = getattr(record, "body", None)
    if body is not None:
        changes["body"] = clean_text(body)
    return msgspec.structs.replace(record, **changes)


def shrink_record(record: KnownRecord) -> KnownRecord:
    """A record whose line is too long even without a long body: bound every part of it."""
    record = clean_record(record)
    record.attributes = {
        key: cut(value, _VALUE_SHRUNK) if isinstance(value, str) else value
        for key, value in record.attributes.items()
    }
    body = getattr(record, "body", None)
    if body is not None and len(body) > BODY_INLINE_MAX // 8:
        kept = body[: BODY_INLINE_MAX // 8]
        record = msgspec.structs.replace(
            record, body=f"{kept}\n…[cut by vestige: {len(body)} characters]"
        )
    return record
