"""Convert payload fields to bounded attributes of a record, without losing any.

Known fields get the attribute names of Vestige. All others are kept as JSON under PAYLOAD.

Elsewhere: formats/agentdbg/to_records.py makes the record and its bodies.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from vestige.formats.agentdbg.constants import DETAILS, JSON, PAYLOAD, PLAIN
from vestige.formats.agentdbg.parse_event import (
    BAD_JSON,
    decode_value,
    take_text,
    take_value,
    text_of,
)
from vestige.limits import ATTRIBUTE_VALUE_MAX, NAME_MAX
from vestige.record.coercion import clean_text, flat, truncate
from vestige.record.types import Attributes

INT_MAX = 2**63 - 1


def llm_attributes(payload: dict[str, msgspec.Raw], attributes: Attributes, name: str) -> None:
    for key, ours in _WORDS:
        raw = payload.pop(key, None)
        if raw is not None and (text := word_of(raw)) is not None:
            attributes[ours] = bounded(text)
    if "model" not in attributes:
        attributes["model"] = bounded_name(name)
    temperature = _value(payload.pop("temperature", None))
    if temperature is not None:
        attributes["temperature"] = flat(temperature)
    usage = _value(payload.get("usage"))
    if usage is None:
        payload.pop("usage", None)
        return
    known = usage if isinstance(usage, dict) else {}
    numbers = []
    for theirs, ours in _USAGE:
        number = known.get(theirs)
        if type(number) is int and 0 <= number <= INT_MAX:
            attributes[ours] = number
            numbers.append(number)
    if len(numbers) == len(known) == len(_USAGE):
        del payload["usage"]  # nothing in it but these: no need to keep it as it was
        read, written, total = numbers
        if total == read + written:
            del attributes["total_tokens"]


_WORDS = (("model", "model"), ("provider", "provider"), ("stop_reason", "finish_reason"))
_USAGE = (
    ("prompt_tokens", "input_tokens"),
    ("completion_tokens", "output_tokens"),
    ("total_tokens", "total_tokens"),
)


def word_of(raw: msgspec.Raw | None) -> str | None:
    """Return a text; short ones are cached, because many events share a model or a status."""
    if raw is None:
        return None
    data = bytes(raw)
    return _known_word(data) if len(data) < 100 else take_text(raw)


def _value(raw: msgspec.Raw | None) -> Any:
    if raw is None:
        return None
    data = bytes(raw)
    return _known_value(data) if len(data) < 100 else take_value(raw)


@lru_cache(4096)
def _known_word(data: bytes) -> str | None:
    return take_text(msgspec.Raw(data))


@lru_cache(4096)
def _known_value(data: bytes) -> Any:
    """Decode a value once and share it: callers only read it."""
    return take_value(msgspec.Raw(data))


def error_of(raw: msgspec.Raw | None) -> Attributes:
    """Return the nested `error` of a call."""
    value = take_value(raw)
    if value is None:
        return {}
    if not isinstance(value, dict):
        return {"error.message": bounded(take_text(raw) or "")}
    return _error_attributes(value)


def error_fields(payload: dict[str, msgspec.Raw]) -> Attributes:
    return _error_attributes({key: take_value(value) for key, value in payload.items()})


def _error_attributes(value: dict[str, Any]) -> Attributes:
    attributes: Attributes = {}
    kind = value.get("error_type") or value.get("type")
    attributes["error.type"] = bounded_name(str(kind)) if kind else "Error"
    if value.get("message") is not None:
        attributes["error.message"] = bounded(_plain(value["message"]))
    if value.get("stack") is not None:
        attributes["error.stack"] = bounded(_plain(value["stack"]))
    if value.get("details") is not None:
        attributes[DETAILS] = bounded(text_of_json(value["details"]))
    return attributes


def keep_rest(payload: dict[str, msgspec.Raw], attributes: Attributes) -> None:
    """Store payload fields that have no other place."""
    if payload:
        attributes[PAYLOAD] = bounded(msgspec.json.encode(payload).decode(errors="replace"))


def restore(ours: dict[str, Any], attributes: Attributes) -> None:
    more = ours.get("attributes")
    if isinstance(more, dict):
        for key, value in more.items():
            scalar = flat(value)
            attributes[bounded_name(key)] = bounded(scalar) if isinstance(scalar, str) else scalar
    if isinstance(ours.get("span_id"), str):
        attributes["vestige.span_id"] = bounded_name(ours["span_id"])


def body_of(raw: msgspec.Raw, field: str, attributes: Attributes) -> str | None:
    """Return a payload field as a body, and note its type if the text is ambiguous."""
    data = bytes(raw)
    if data.startswith((b"{", b"[")):
        return data.decode(errors="replace")
    text = text_of(data)
    if text is None:
        return None
    if data[:1] != b'"':
        _note(attributes, JSON, field)
    elif text[:1] in _BEFORE_JSON and text.lstrip()[:1] in ("{", "[") and _is_json(text):
        _note(attributes, PLAIN, field)
    return text


_BEFORE_JSON = frozenset("{[ \t\r\n\v\f\x1c\x1d\x1e\x1f\x85\xa0")


def _note(attributes: Attributes, name: str, field: str) -> None:
    known = attributes.get(name)
    attributes[name] = f"{known},{field}" if known else field


def _is_json(text: str) -> bool:
    try:
        decode_value(text)
    except BAD_JSON:
        return False
    return True


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else text_of_json(value)


def text_of_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except BAD_JSON:
        return clean_text(str(value))


def bounded(text: str) -> str:
    return text if len(text) <= ATTRIBUTE_VALUE_MAX else truncate(text, ATTRIBUTE_VALUE_MAX)


def bounded_name(text: str) -> str:
    return text if len(text) <= NAME_MAX else truncate(text, NAME_MAX)
