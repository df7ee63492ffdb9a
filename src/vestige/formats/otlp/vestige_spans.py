"""Read spans that Vestige exported (formats/otlp/write.py) back as the original records.

They carry the sequence numbers of the run, so records keep their order even if clocks do not.
Attributes that the export added for the GenAI conventions are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.formats.otlp.any_value import Object, as_text
from vestige.formats.otlp.constants import (
    ADDED,
    END_SEQ,
    OWN_KEYS,
    SEQ,
    Keys,
    own_run_id,
    own_writer_id,
)
from vestige.formats.otlp.parse_span import Event, OtelLink, OtelSpan
from vestige.limits import NAME_MAX
from vestige.record.coercion import clean_attributes, clean_message, clean_name, inline_bytes
from vestige.record.types import (
    VERSION,
    BodyInfo,
    KnownRecord,
    Link,
    Log,
    SpanClose,
    SpanOpen,
)

_SEQ_MAX: Final = 2**53
_Counts = Annotated[
    dict[str, Annotated[int, msgspec.Meta(ge=0, le=2**31)]], msgspec.Meta(max_length=100)
]
_ID: Final = re.compile(r"[\x21-\x7e]{1,200}")


def is_seq(value: Any) -> bool:
    return type(value) is int and 0 < value <= _SEQ_MAX


def own_span_to_records(span: OtelSpan) -> Iterator[KnownRecord]:
    attributes = span.attributes
    run_id, writer = own_run_id(span.trace_id), own_writer_id(span.trace_id)
    span_id = _valid_id(attributes.get(Keys.SPAN_ID)) or span.id
    parent = _valid_id(attributes.get(Keys.PARENT_ID)) or span.parent_id or None
    component = (
        as_text(attributes.get(Keys.COMPONENT)) or as_text(span.resource.get("service.name")) or "?"
    )
    body, info = _parse_body(attributes, Keys.INPUT)
    conversation = attributes.get(Keys.CONVERSATION) if parent is None else None
    yield SpanOpen(
        VERSION,
        writer,
        attributes[SEQ],
        span.start_ns,
        run_id,
        span_id,
        clean_name(component),
        clean_name(as_text(attributes.get(Keys.TYPE)) or "step"),
        clean_name(span.name),
        parent,
        clean_name(conversation) if isinstance(conversation, str) else None,
        clean_attributes(_original_attributes(attributes)),
        [_to_link(link, span) for link in span.links] or None,
        body,
        info,
        _parse_counts(attributes.get(Keys.REDACTED)),
    )
    for event in span.events:
        if is_seq(event.attributes.get(SEQ)):
            yield _log_record(event, run_id, writer, span_id)
    if not is_seq(attributes.get(END_SEQ)):
        return
    body, info = _parse_body(attributes, Keys.OUTPUT)
    ended_ns = attributes.get(Keys.ENDED_NS)
    yield SpanClose(
        VERSION,
        writer,
        attributes[END_SEQ],
        ended_ns if type(ended_ns) is int and 0 <= ended_ns < 2**62 else span.end_ns,
        run_id,
        span_id,
        clean_name(as_text(attributes.get(Keys.STATUS)) or "ok"),
        span.duration_ns,
        {},
        body,
        info,
    )


def _log_record(event: Event, run_id: str, writer: str, span_id: str) -> Log:
    attributes = event.attributes
    body, info = _parse_body(attributes, Keys.BODY)
    owner_id = attributes.get(Keys.SPAN_ID)
    return Log(
        VERSION,
        writer,
        attributes[SEQ],
        event.time_ns,
        run_id,
        clean_name(as_text(attributes.get(Keys.COMPONENT)) or "?"),
        clean_name(as_text(attributes.get(Keys.LEVEL)) or "info"),
        clean_message(as_text(attributes.get(Keys.MESSAGE))),
        (_valid_id(owner_id) or None) if isinstance(owner_id, str) else span_id,
        clean_attributes(_original_attributes(attributes)),
        body,
        info,
        _parse_counts(attributes.get(Keys.REDACTED)),
    )


def _original_attributes(attributes: Object) -> Object:
    added = attributes.get(ADDED)
    dropped = {key for key in added if isinstance(key, str)} if isinstance(added, list) else set()
    dropped |= OWN_KEYS
    return {key: value for key, value in attributes.items() if key not in dropped}


def _valid_id(value: Any) -> str:
    return value if isinstance(value, str) and _ID.fullmatch(value) else ""


def _parse_body(attributes: Object, key: str) -> tuple[str | None, BodyInfo | None]:
    body, missing_bytes = attributes.get(key), attributes.get(key + Keys.LOST)
    original = attributes.get(key + Keys.ORIGINAL)
    if type(missing_bytes) is int and 0 <= missing_bytes < 2**62:
        return None, BodyInfo(spilled_bytes=missing_bytes)
    if not isinstance(body, (str, bytes)):
        return None, None
    text, info = (body, None) if isinstance(body, str) else inline_bytes(body)
    if type(original) is int and 0 <= original < 2**62:
        encoding = "text" if info is None else info.encoding
        info = BodyInfo(encoding=encoding, original_bytes=original)
    return text, info


def _to_link(link: OtelLink, span: OtelSpan) -> Link:
    attributes = link.attributes
    run_id = _valid_id(attributes.get(Keys.RUN_ID)) or own_run_id(link.trace_id)
    reason = attributes.get(Keys.REASON)
    return Link(
        _valid_id(attributes.get(Keys.SPAN_ID)) or link.span_id,
        None if link.trace_id == span.trace_id else run_id,
        reason[:NAME_MAX] if isinstance(reason, str) else None,
    )


def _parse_counts(value: Any) -> dict[str, int] | None:
    if not isinstance(value, str):
        return None
    try:
        return msgspec.json.decode(value, type=_Counts)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
