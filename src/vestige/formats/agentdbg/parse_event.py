"""Parse one line of events.jsonl leniently: its fields, and the problems found.

The decoder leaves each payload field as raw JSON, so that a prompt is kept byte for byte. A line
with something odd in it (NaN, a number for a name) is parsed leniently by Python's own decoder.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from vestige.formats.agentdbg.file_structs import clean_value
from vestige.record.coercion import clean_text, safe_str, truncate

_NAME_MAX = 512
_NULL = b"null"
NULL = msgspec.Raw(_NULL)


class Line(msgspec.Struct, gc=False):
    """An event as it was found. Raw values are JSON text."""

    event_id: str | None = None
    run_id: str | None = None
    parent_id: str | None = None
    event_type: str = ""
    ts: str | None = None
    duration_ms: int | None = None
    name: str = ""
    payload: dict[str, msgspec.Raw] = {}
    meta: msgspec.Raw = msgspec.Raw(b"{}")
    spec_version: str | None = None


class NotAnEventError(ValueError):
    """A line that holds no event; the reason is its message."""


_decode_line = msgspec.json.Decoder(Line).decode
decode_value = msgspec.json.Decoder().decode
_decode_text = msgspec.json.Decoder(str).decode
BAD_JSON = (msgspec.DecodeError, UnicodeError, RecursionError, ValueError)


def parse_event(line: bytes) -> tuple[Line, str | None]:
    """Return the event of a line, and the problem that was repaired, if any."""
    line, forgiven = as_utf8(line)
    try:
        return _decode_line(line), forgiven
    except msgspec.ValidationError as error:
        why = str(error)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        why = f"not strict JSON ({error})"
    return event_of(parse_loosely(line)), forgiven or why


def as_utf8(text: bytes) -> tuple[bytes, str | None]:
    """Return valid UTF-8, and the reason if it had to be changed.

    The fast decoder does not check raw values: an invalid byte would raise an error later."""
    try:
        if not text.isascii():
            text.decode()
    except UnicodeDecodeError as error:
        return text.decode(errors="replace").encode(), f"not UTF-8 at byte {error.start}"
    return text, None


def parse_loosely(text: bytes) -> Any:
    """Parse JSON like Python's own decoder, with NaN and lone surrogates."""
    try:
        return json.loads(text)
    except RecursionError:
        raise NotAnEventError("JSON nested too deeply") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise NotAnEventError(f"not JSON ({truncate(safe_str(error), 200)})") from None


def event_of(value: Any) -> Line:
    """Build an event from values of any type. Values that do not fit their field are left out."""
    if not isinstance(value, dict):
        raise NotAnEventError(f"a JSON {type(value).__name__} (expected an object)")
    payload = value.get("payload")
    if payload is not None and not isinstance(payload, dict):
        payload = {"value": payload}
    meta = value.get("meta")
    duration = value.get("duration_ms")
    return Line(
        event_id=_text(value.get("event_id")),
        run_id=_text(value.get("run_id")),
        parent_id=_text(value.get("parent_id")),
        event_type=_text(value.get("event_type")) or "",
        ts=_text(value.get("ts")),
        duration_ms=int(duration)
        if isinstance(duration, (int, float)) and -1e15 < duration < 1e15
        else None,
        name=_text(value.get("name")) or "",
        payload={clean_text(str(key)): raw(inner) for key, inner in (payload or {}).items()},
        meta=raw(meta if isinstance(meta, dict) else {} if meta is None else {"value": meta}),
        spec_version=_text(value.get("spec_version")),
    )


def raw(value: Any) -> msgspec.Raw:
    """Return a value as the JSON text that AgentDbg would have written, with lone surrogates
    escaped."""
    try:
        try:
            return msgspec.Raw(json.dumps(value, ensure_ascii=False).encode())
        except UnicodeEncodeError:
            return msgspec.Raw(json.dumps(clean_value(value), ensure_ascii=False).encode())
    except RecursionError:
        return msgspec.Raw(json.dumps(safe_str(value)[:10_000]).encode())


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else safe_str(value)


def take_text(raw: msgspec.Raw | None) -> str | None:
    """Return a raw value as text: a string itself, else its JSON. None for null and no value."""
    return None if raw is None else text_of(bytes(raw))


def text_of(data: bytes) -> str | None:
    if data[:1] == b'"':
        try:
            return _decode_text(data)
        except BAD_JSON:
            return str(json.loads(data))  # lone surrogates, which only the lenient reader takes
    return None if data == _NULL else data.decode(errors="replace")


def take_value(raw: msgspec.Raw | None) -> Any:
    """Decode a raw value; None without a value."""
    if raw is None:
        return None
    try:
        return decode_value(raw)
    except BAD_JSON:
        try:
            return json.loads(bytes(raw))
        except (ValueError, RecursionError):
            return None
