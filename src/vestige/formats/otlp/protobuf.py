"""Decode binary OTLP requests to the objects of OTLP/JSON.

It needs the package `opentelemetry-proto` (`pip install 'vestige[otlp]'`), which is imported with
the first binary request.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from vestige.errors import UnreadableError
from vestige.limits import MIB, OTLP_BRACKETS_MAX, OTLP_PARTS_MAX, OTLP_SPANS_MAX

PACKAGE = "opentelemetry-proto"
_UNCHECKED_BYTES = MIB
"""Requests up to this size, which are most, cannot exceed the limits and are not scanned first."""
_MESSAGES = {
    "request": {1: "group"}, "group": {1: "resource", 2: "scope"}, "resource": {1: "pair"},
    "scope": {1: "library", 2: "item"}, "library": {3: "pair"},
    "item": {9: "pair", 11: "event", 13: "link"}, "event": {3: "pair"}, "link": {4: "pair"},
    "pair": {2: "value"}, "value": {5: "array", 6: "pairs"}, "array": {1: "value"},
    "pairs": {1: "pair"},
}  # fmt: skip
"""Message-typed fields of a trace request, by field number. A span or log record is an `item`."""
_LOG_MESSAGES = _MESSAGES | {"item": {5: "value", 6: "pair"}}


def is_installed() -> bool:
    try:
        return find_spec("opentelemetry.proto.collector.trace.v1") is not None
    except ModuleNotFoundError:
        return False


def decode_request(data: bytes, signal: str) -> Any:
    """Decode a request; `signal` is `traces` or `logs`.

    The protobuf library bounds nesting. Counts are bounded here, because a small request can
    expand to gigabytes of objects.
    """
    if data.count(b"{") + data.count(b"[") > OTLP_BRACKETS_MAX:  # JSON in string values
        raise UnreadableError(f"request: more than {OTLP_BRACKETS_MAX} objects and arrays.")
    if len(data) > _UNCHECKED_BYTES:
        _check_counts(data, _LOG_MESSAGES if signal == "logs" else _MESSAGES)
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError

    request = _new_request(signal)
    try:
        request.ParseFromString(data)
        return MessageToDict(request, use_integers_for_enums=True)
    except (DecodeError, ValueError, RecursionError):
        raise UnreadableError("request: not an OTLP protobuf message.") from None


def _check_counts(data: bytes, messages: dict[str, dict[int, str]]) -> None:
    """Raise UnreadableError if there are too many spans or fields, from their lengths alone.

    Invalid messages are left to the protobuf library.
    """
    parts = spans = 0
    pending = [(0, len(data), messages["request"])]
    while pending:
        at, end, inner = pending.pop()
        while at < end:
            parts += 1
            tag, at = _read_varint(data, at)
            kind = tag & 7
            if kind == 2:
                size, at = _read_varint(data, at)
                name = inner.get(tag >> 3)
                spans += name == "item"
                if name is not None and size:
                    pending.append((at, min(at + size, end), messages[name]))
                at += size
            elif kind == 0:
                _, at = _read_varint(data, at)
            else:  # fixed size; a group has none, and its fields are counted with the parent's
                at += {1: 8, 5: 4}.get(kind, 0)
            if spans > OTLP_SPANS_MAX or parts > OTLP_PARTS_MAX:
                raise UnreadableError(
                    f"request: more than {OTLP_SPANS_MAX} spans or log records, or {OTLP_PARTS_MAX}"
                    " parts of them. Split the request."
                )


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number and the offset after it. Missing bytes at the end count as zero."""
    if at < len(data) and data[at] < 0x80:  # fast path: one byte
        return data[at], at + 1
    number = 0
    for shift in range(0, 70, 7):
        byte = data[at] if at < len(data) else 0
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            break
    return number, at


def _new_request(signal: str) -> Any:
    if signal == "logs":
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
            ExportLogsServiceRequest,
        )

        return ExportLogsServiceRequest()
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    return ExportTraceServiceRequest()


def encode_response(rejected: int, message: str) -> bytes:
    """Encode an export response. It is empty if everything was accepted."""
    if not rejected:
        return b""
    # partial_success (field 1) has a count (field 1) and an error message (field 2).
    # It is encoded by hand, so that the package is not needed.
    partial = b"\x08" + _encode_varint(rejected)
    if text := message.encode(errors="replace"):
        partial += b"\x12" + _encode_varint(len(text)) + text
    return b"\x0a" + _encode_varint(len(partial)) + partial


def _encode_varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
