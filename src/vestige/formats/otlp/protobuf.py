"""Binary requests of OTLP, as the JSON that they could have been.

The package `opentelemetry-proto` reads them (`pip install 'vestige[otlp]'`); it is loaded with the
first such request.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from vestige.errors import UnreadableError
from vestige.limits import MIB, OTLP_BRACKETS_MAX, OTLP_PARTS_MAX, OTLP_SPANS_MAX

PACKAGE = "opentelemetry-proto"
_SMALL = MIB
"""Shorter requests cannot hold too much, and are most."""
_MESSAGES = {
    "request": {1: "group"}, "group": {1: "resource", 2: "scope"}, "resource": {1: "pair"},
    "scope": {1: "library", 2: "item"}, "library": {3: "pair"},
    "item": {9: "pair", 11: "event", 13: "link"}, "event": {3: "pair"}, "link": {4: "pair"},
    "pair": {2: "value"}, "value": {5: "array", 6: "pairs"}, "array": {1: "value"}, "pairs": {1: "pair"},
}  # fmt: skip
"""Fields that are messages, by number; a span is an `item`, and so is a log record:"""
_LOGS = {"item": {5: "value", 6: "pair"}}


def is_installed() -> bool:
    try:
        return find_spec("opentelemetry.proto.collector.trace.v1") is not None
    except ModuleNotFoundError:
        return False


def decode_request(data: bytes, signal: str) -> Any:
    """`signal`: traces or logs. Nesting is bounded by protobuf's own reader, and counts by us: it
    would take a small request apart into gigabytes."""
    if data.count(b"{") + data.count(b"[") > OTLP_BRACKETS_MAX:  # of JSON in its texts
        raise UnreadableError(f"request: more than {OTLP_BRACKETS_MAX} objects and arrays.")
    if len(data) > _SMALL:
        _refuse_too_many(data, _MESSAGES | _LOGS if signal == "logs" else _MESSAGES)
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError

    request = _message(signal)
    try:
        request.ParseFromString(data)
        return MessageToDict(request, use_integers_for_enums=True)
    except (DecodeError, ValueError, RecursionError):
        raise UnreadableError("request: no protobuf message of OTLP.") from None


def _refuse_too_many(data: bytes, messages: dict[str, dict[int, str]]) -> None:
    """Look at the lengths alone. What is no message of OTLP is left to the true reader."""
    parts = spans = 0
    waiting = [(0, len(data), messages["request"])]
    while waiting:
        at, end, inner = waiting.pop()
        while at < end:
            parts += 1
            tag, at = _read_varint(data, at)
            kind = tag & 7
            if kind == 2:
                size, at = _read_varint(data, at)
                name = inner.get(tag >> 3)
                spans += name == "item"
                if name is not None and size:
                    waiting.append((at, min(at + size, end), messages[name]))
                at += size
            elif kind == 0:
                _, at = _read_varint(data, at)
            else:  # so many bytes; of a group, none: what is in it counts as if it stood here
                at += {1: 8, 5: 4}.get(kind, 0)
            if spans > OTLP_SPANS_MAX or parts > OTLP_PARTS_MAX:
                raise UnreadableError(
                    f"request: more than {OTLP_SPANS_MAX} spans or log records, or {OTLP_PARTS_MAX}"
                    " parts of them. Send it in several."
                )


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number, and where it ends; it is cut where the data is."""
    if at < len(data) and data[at] < 0x80:  # all but long texts
        return data[at], at + 1
    number = 0
    for shift in range(0, 70, 7):
        byte = data[at] if at < len(data) else 0
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            break
    return number, at


def _message(signal: str) -> Any:
    if signal == "logs":
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
            ExportLogsServiceRequest,
        )

        return ExportLogsServiceRequest()
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    return ExportTraceServiceRequest()


def encode_answer(rejected: int, message: str) -> bytes:
    """An answer, which is empty where all was taken."""
    if not rejected:
        return b""
    # Few bytes, and without the package: field 1 is a message of a count (1) and a text (2).
    inner = b"\x08" + _varint(rejected) + _text(2, message)
    return b"\x0a" + _varint(len(inner)) + inner


def _text(field: int, text: str) -> bytes:
    raw = text.encode(errors="replace")
    return bytes([field << 3 | 2]) + _varint(len(raw)) + raw if raw else b""


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)
