"""Binary requests of OTLP, as the JSON that they could have been.

The package `opentelemetry-proto` reads them (`pip install 'vestige[otlp]'`); it is loaded with the
first such request.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from vestige.errors import UnreadableError

PACKAGE = "opentelemetry-proto"


def is_installed() -> bool:
    try:
        return find_spec("opentelemetry.proto.collector.trace.v1") is not None
    except ModuleNotFoundError:
        return False


def decode_request(data: bytes, signal: str) -> Any:
    """`signal`: traces or logs. Nesting is bounded by protobuf's own reader."""
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError

    request = _message(signal)
    try:
        request.ParseFromString(data)
        return MessageToDict(request, use_integers_for_enums=True)
    except (DecodeError, ValueError, RecursionError):
        raise UnreadableError("request: no protobuf message of OTLP.") from None


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
