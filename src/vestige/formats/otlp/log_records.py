"""Convert an OTLP log record to a log record of its run, or to a message of a model call.

The content of a log record is its identity. A record that is sent again is recognized; two equal
records in one request are both kept.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.formats.otlp.any_value import Object, as_object, as_text, parse_any_value, parse_int
from vestige.formats.otlp.chat_messages import ChatMessages
from vestige.formats.otlp.claude_spans import find_call_body
from vestige.formats.otlp.constants import FORMAT, external_run_id, external_writer_id
from vestige.formats.otlp.parse_span import Event, OtelLogRecord
from vestige.formats.otlp.span_types import get_component
from vestige.providers.truncated_json import close_json
from vestige.record.call_bodies import CALL_BODY
from vestige.record.coercion import (
    clean_attributes,
    clean_message,
    clean_name,
    clean_text,
    truncate,
)
from vestige.record.otlp_sequence_numbers import log_seq
from vestige.record.types import VERSION, Log

_EXCEPTION = {
    "exception.type": "error.type",
    "exception.message": "error.message",
    "exception.stacktrace": "error.stack",
}
_MESSAGE_MAX = 200
"""Characters of a structured body that are used as the message. The body itself is kept."""
_TEXT_LEVELS = {
    "warning": "warn",
    "warn": "warn",
    "error": "error",
    "fatal": "error",
    "critical": "error",
    "debug": "debug",
    "trace": "debug",
}


def to_message_event(log_record: OtelLogRecord) -> Event | None:
    """Return a chat message as an event of its span, or None for any other log record."""
    name = log_record.event_name or as_text(log_record.attributes.get("event.name"))
    if not log_record.span_id or not name.startswith("gen_ai."):
        return None
    attributes = log_record.attributes | as_object(parse_any_value(log_record.body))
    is_message = ChatMessages().add_event(name, attributes)
    return Event(log_record.time_ns, name, attributes) if is_message else None


class LogRecordConverter:
    """Converts the log records of one file or request, and counts equal ones."""

    def __init__(self) -> None:
        self._occurrences: Counter[bytes] = Counter()

    def to_record(self, log_record: OtelLogRecord) -> Log:
        digest = _digest(log_record)
        self._occurrences[digest] += 1
        identity = hashlib.sha256(digest + str(self._occurrences[digest]).encode()).digest()
        message, body = _message_and_body(log_record)
        attributes: Object = {
            _EXCEPTION.get(key, key): value for key, value in log_record.attributes.items()
        }
        call_body = find_call_body(log_record)
        if body is None and call_body is not None:
            body = attributes.pop("body")  # attributes are shortened, bodies are not
            attributes[CALL_BODY] = call_body
            if str(attributes.get("body_truncated")).lower() == "true":
                body = close_json(body)
                attributes["body_truncated"] = True
                attributes["body_length"] = parse_int(attributes.get("body_length"))
        if log_record.event_name:
            attributes["event_name"] = log_record.event_name
        component = clean_name(get_component(log_record.resource, log_record.scope, FORMAT))
        if log_record.scope and log_record.scope != component:
            attributes["otel.scope"] = log_record.scope
        return Log(
            VERSION,
            external_writer_id(log_record.trace_id),
            log_seq(identity),
            log_record.time_ns,
            external_run_id(log_record.trace_id),
            component,
            _level(log_record),
            clean_message(message),
            log_record.span_id or None,
            clean_attributes(attributes),
            body,
        )


def _digest(log_record: OtelLogRecord) -> bytes:
    content = (
        log_record.span_id,
        log_record.time_ns,
        log_record.severity,
        log_record.event_name,
        log_record.body,
        log_record.attributes,
    )
    try:
        raw = msgspec.json.encode(content, order="deterministic", enc_hook=repr)
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError):
        raw = repr(content).encode(errors="backslashreplace")
    return hashlib.sha256(raw).digest()


def _level(log_record: OtelLogRecord) -> str:
    if log_record.severity == 0:
        return _TEXT_LEVELS.get(log_record.severity_text.lower(), "info")
    return severity_to_level(log_record.severity)


def severity_to_level(severity: int) -> str:
    if severity <= 8:
        return "debug"
    if severity <= 12:
        return "info"
    return "warn" if severity <= 16 else "error"


def _message_and_body(log_record: OtelLogRecord) -> tuple[str, str | None]:
    """Return the message, and the body if it is structured."""
    body: Any = parse_any_value(log_record.body)
    if isinstance(body, str):
        return body or log_record.event_name or "log", None
    if body is None:
        return log_record.event_name or "log", None
    try:
        text = msgspec.json.encode(body, enc_hook=str).decode()
    except (UnicodeEncodeError, OverflowError, RecursionError):
        text = clean_text(repr(body))
    return log_record.event_name or truncate(text, _MESSAGE_MAX), text
