"""Repair records that cannot be encoded, and shorten records that are too long for a line."""

from __future__ import annotations

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.limits import BODY_INLINE_MAX
from vestige.record.coercion import (
    clean_attributes,
    clean_message,
    clean_name,
    clean_text,
    truncate,
)
from vestige.record.types import KnownRecord, Log, SpanOpen, SpanUpdate

_VALUE_SHRUNK = 1_000
"""Characters per attribute. ATTRIBUTES_MAX of them fit a line, even if all are escaped."""


def clean_record(record: KnownRecord) -> KnownRecord:
    """Return the record with only values that JSON and UTF-8 can represent."""
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
    """Return the record with every part shortened, for a line that is too long."""
    record = clean_record(record)
    record.attributes = {
        key: truncate(value, _VALUE_SHRUNK) if isinstance(value, str) else value
        for key, value in record.attributes.items()
    }
    body = getattr(record, "body", None)
    if body is not None and len(body) > BODY_INLINE_MAX // 8:
        beginning = body[: BODY_INLINE_MAX // 8]
        record = msgspec.structs.replace(
            record, body=f"{beginning}\n…[cut by vestige: {len(body)} characters]"
        )
    return record
