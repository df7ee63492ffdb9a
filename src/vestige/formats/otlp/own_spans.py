"""Spans that we wrote (formats/otlp/write.py), read back as the records that they were.

Their numbers are those of the run, so the order is the run's own and not the clock's. What was
added for others, by their conventions, is left out again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec

from vestige.formats.otlp.any_value import Object, text_of
from vestige.formats.otlp.constants import (
    ADDED,
    END_SEQ,
    OWN_KEYS,
    SEQ,
    Keys,
    own_run_of,
    own_writer_of,
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

_NUMBER_MAX: Final = 2**53
_Counts = Annotated[
    dict[str, Annotated[int, msgspec.Meta(ge=0, le=2**31)]], msgspec.Meta(max_length=100)
]
_ID: Final = re.compile(r"[\x21-\x7e]{1,200}")


def is_number(value: Any) -> bool:
    return type(value) is int and 0 < value <= _NUMBER_MAX


def records_of(span: OtelSpan) -> Iterator[KnownRecord]:
    told = span.attributes
    run_id, writer = own_run_of(span.trace_id), own_writer_of(span.trace_id)
    span_id = _id(told.get(Keys.SPAN_ID)) or span.id
    parent = _id(told.get(Keys.PARENT_ID)) or span.parent_id or None
    component = (
        text_of(told.get(Keys.COMPONENT)) or text_of(span.resource.get("service.name")) or "?"
    )
    body, info = _body(told, Keys.INPUT)
    conversation = told.get(Keys.CONVERSATION) if parent is None else None
    yield SpanOpen(
        VERSION,
        writer,
        told[SEQ],
        span.start_ns,
        run_id,
        span_id,
        clean_name(component),
        clean_name(text_of(told.get(Keys.TYPE)) or "step"),
        clean_name(span.name),
        parent,
        clean_name(conversation) if isinstance(conversation, str) else None,
        clean_attributes(_own(told)),
        [_link(link, span) for link in span.links] or None,
        body,
        info,
        _counts(told.get(Keys.REDACTED)),
    )
    for event in span.events:
        if is_number(event.attributes.get(SEQ)):
            yield _line(event, run_id, writer, span_id)
    if not is_number(told.get(END_SEQ)):
        return
    body, info = _body(told, Keys.OUTPUT)
    ended_ns = told.get(Keys.ENDED_NS)
    yield SpanClose(
        VERSION,
        writer,
        told[END_SEQ],
        ended_ns if type(ended_ns) is int and 0 <= ended_ns < 2**62 else span.end_ns,
        run_id,
        span_id,
        clean_name(text_of(told.get(Keys.STATUS)) or "ok"),
        span.duration_ns,
        {},
        body,
        info,
    )


def _line(event: Event, run_id: str, writer: str, span_id: str) -> Log:
    told = event.attributes
    body, info = _body(told, Keys.BODY)
    of = told.get(Keys.SPAN_ID)
    return Log(
        VERSION,
        writer,
        told[SEQ],
        event.time_ns,
        run_id,
        clean_name(text_of(told.get(Keys.COMPONENT)) or "?"),
        clean_name(text_of(told.get(Keys.LEVEL)) or "info"),
        clean_message(text_of(told.get(Keys.MESSAGE))),
        (_id(of) or None) if isinstance(of, str) else span_id,
        clean_attributes(_own(told)),
        body,
        info,
        _counts(told.get(Keys.REDACTED)),
    )


def _own(told: Object) -> Object:
    added = told.get(ADDED)
    left = {key for key in added if isinstance(key, str)} if isinstance(added, list) else set()
    return {key: value for key, value in told.items() if key not in left and key not in OWN_KEYS}


def _id(value: Any) -> str:
    return value if isinstance(value, str) and _ID.fullmatch(value) else ""


def _body(told: Object, key: str) -> tuple[str | None, BodyInfo | None]:
    held, lost, original = told.get(key), told.get(key + Keys.LOST), told.get(key + Keys.ORIGINAL)
    if type(lost) is int and 0 <= lost < 2**62:
        return None, BodyInfo(spilled_bytes=lost)
    if not isinstance(held, (str, bytes)):
        return None, None
    text, info = (held, None) if isinstance(held, str) else inline_bytes(held)
    if type(original) is int and 0 <= original < 2**62:
        encoding = "text" if info is None else info.encoding
        info = BodyInfo(encoding=encoding, original_bytes=original)
    return text, info


def _link(link: OtelLink, span: OtelSpan) -> Link:
    told = link.attributes
    run_id = _id(told.get(Keys.RUN_ID)) or own_run_of(link.trace_id)
    reason = told.get(Keys.REASON)
    return Link(
        _id(told.get(Keys.SPAN_ID)) or link.span_id,
        None if link.trace_id == span.trace_id else run_id,
        reason[:NAME_MAX] if isinstance(reason, str) else None,
    )


def _counts(value: Any) -> dict[str, int] | None:
    if not isinstance(value, str):
        return None
    try:
        return msgspec.json.decode(value, type=_Counts)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
