"""A log record of a trace: a line of its run, or a message of a model call (`gen_ai.user.message`).

A line's identity is what it says: the same record that comes again is known, and of two that are alike
in one request both are kept.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import msgspec

from vestige.formats.otlp.any_value import Object, any_value, object_of, text_of
from vestige.formats.otlp.chat_messages import ChatMessages
from vestige.formats.otlp.constants import FORMAT, carrier_of_trace, run_of
from vestige.formats.otlp.parse_span import Event, OtelLine
from vestige.formats.otlp.span_types import component_of
from vestige.record.coercion import clean_attributes, clean_message, clean_name, clean_text, cut
from vestige.record.external_seq import line_seq
from vestige.record.types import VERSION, Log

_EXCEPTION = {
    "exception.type": "error.type",
    "exception.message": "error.message",
    "exception.stacktrace": "error.stack",
}
_MESSAGE_SHOWN = 200
"""Characters of a structured body that stand in its line; all of it is the line's body."""


def message_of(line: OtelLine) -> Event | None:
    """The line as an event of its span; None: it is no message, or of no span."""
    name = line.event_name or text_of(line.attributes.get("event.name"))
    if not line.span_id or not name.startswith("gen_ai."):
        return None
    told = line.attributes | object_of(any_value(line.body))
    return Event(line.time_ns, name, told) if ChatMessages().take(name, told) else None


class Lines:
    """Makes lines; counts those that are alike."""

    def __init__(self) -> None:
        self._times: Counter[bytes] = Counter()

    def record_of(self, line: OtelLine) -> Log:
        digest = _digest(line)
        self._times[digest] += 1
        again = hashlib.sha256(digest + str(self._times[digest]).encode()).digest()
        message, body = _message(line)
        told: Object = {_EXCEPTION.get(key, key): value for key, value in line.attributes.items()}
        if line.event_name:
            told["event_name"] = line.event_name
        component = clean_name(component_of(line.resource, line.scope, FORMAT))
        if line.scope and line.scope != component:
            told["otel.scope"] = line.scope
        return Log(
            VERSION,
            carrier_of_trace(line.trace_id),
            line_seq(again),
            line.time_ns,
            run_of(line.trace_id),
            component,
            _level(line),
            clean_message(message),
            line.span_id or None,
            clean_attributes(told),
            body,
        )


def _digest(line: OtelLine) -> bytes:
    said = (line.span_id, line.time_ns, line.severity, line.event_name, line.body, line.attributes)
    try:
        raw = msgspec.json.encode(said, order="deterministic", enc_hook=repr)
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError):
        raw = repr(said).encode(errors="backslashreplace")
    return hashlib.sha256(raw).digest()


def _level(line: OtelLine) -> str:
    if line.severity == 0:
        text = line.severity_text.lower()
        return {
            "warning": "warn",
            "warn": "warn",
            "error": "error",
            "fatal": "error",
            "critical": "error",
            "debug": "debug",
            "trace": "debug",
        }.get(text, "info")
    return level_of(line.severity)


def level_of(severity: int) -> str:
    return (
        "debug"
        if severity <= 8
        else "info"
        if severity <= 12
        else "warn"
        if severity <= 16
        else "error"
    )


def _message(line: OtelLine) -> tuple[str, str | None]:
    """What it says in a line, and all of it if that is more."""
    body: Any = any_value(line.body)
    if isinstance(body, str):
        return body or line.event_name or "log", None
    if body is None:
        return line.event_name or "log", None
    try:
        text = msgspec.json.encode(body, enc_hook=str).decode()
    except (UnicodeEncodeError, OverflowError, RecursionError):
        text = clean_text(repr(body))
    return line.event_name or cut(text, _MESSAGE_SHOWN), text
