"""A request of OTLP/HTTP as records.

    taken = read_request(data, "traces", "json")
    taken.records, taken.rejected, taken.message

Requests bring the spans of a trace in any order and any number, and the same ones again: their
records are the same each time. Which span is the run is told by the spans that came together; a
trace whose first span is yet to come has no run until then, and is `running`.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType
from typing import Any

import msgspec

from vestige.errors import UnreadableError
from vestige.formats.otlp.any_value import get
from vestige.formats.otlp.constants import own_run_of, own_writer_of
from vestige.formats.otlp.detect import DecodeError, decode
from vestige.formats.otlp.log_records import Lines
from vestige.formats.otlp.parse_span import (
    OtelSpan,
    Raw,
    is_pending,
    parse_line,
    parse_span,
    raw_lines,
    raw_spans,
)
from vestige.formats.otlp.root_span import Shape
from vestige.formats.otlp.to_records import is_own, made_run, records_of_span
from vestige.limits import OTLP_SPANS_MAX, OTLP_TRACES_MAX
from vestige.record.types import KnownRecord


class IngestCounts(msgspec.Struct):
    """What a request brought."""

    records: list[KnownRecord] = msgspec.field(default_factory=list)
    accepted: int = 0
    """Spans, or log records."""
    rejected: int = 0
    message: str = ""
    """Why the first of them was."""
    own: dict[str, str] = msgspec.field(default_factory=dict)
    """Runs that we wrote, and their writers."""

    def tell(self, rule: str, message: str, severity: str) -> None:
        self.message = self.message or message


def read_request(data: bytes, signal: str, encoding: str) -> IngestCounts:
    """`signal`: traces or logs; `encoding`: json or protobuf. UnreadableError: it is no such request."""
    document = _decode(data, signal, encoding)
    taken = IngestCounts()
    if signal == "logs":
        _take_lines(document, taken)
    else:
        _take_spans(document, taken)
    return taken


def _decode(data: bytes, signal: str, encoding: str) -> Any:
    if encoding == "protobuf":
        from vestige.formats.otlp.protobuf import decode_request

        return decode_request(data, signal)
    try:
        document = decode(data)
    except DecodeError as error:
        raise UnreadableError(f"request: {error}.") from None
    if not isinstance(document, dict):
        raise UnreadableError("request: no JSON object (expected an export request of OTLP).")
    name = "resourceLogs" if signal == "logs" else "resourceSpans"
    if not isinstance(get(document, name), (list, NoneType)):
        raise UnreadableError(f"request: {name} is no array (expected an export request of OTLP).")
    return document


def _take_spans(document: Any, taken: IngestCounts) -> None:
    traces: dict[str, list[OtelSpan]] = {}
    for raw, resource, scope in _bounded(raw_spans(document)):
        faults: list[str] = []
        span = parse_span(
            raw,
            resource,
            scope,
            lambda rule, message, severity, faults=faults: faults.append(message),  # type: ignore[misc]  # binds it
        )
        if span is None:
            taken.rejected += 1
            taken.message = taken.message or faults[0]
        else:
            taken.accepted += 1
            if not is_pending(span):
                traces.setdefault(span.trace_id, []).append(span)
                if len(traces) > OTLP_TRACES_MAX:
                    raise UnreadableError(
                        f"request: more than {OTLP_TRACES_MAX} traces. Send it in several."
                    )
    for trace_id, spans in traces.items():
        shape = Shape()
        for span in spans:
            if is_own(span):
                taken.own[own_run_of(trace_id)] = own_writer_of(trace_id)
            else:
                shape.add(span)
        root = shape.root(trace_id, whole=False)
        if root is not None and root.made:
            taken.records += made_run(trace_id, root)
        for span in spans:
            taken.records += records_of_span(span, root)


def _bounded(items: Iterator[Raw]) -> Iterator[Raw]:
    for count, item in enumerate(items):
        if count >= OTLP_SPANS_MAX:
            raise UnreadableError(
                f"request: more than {OTLP_SPANS_MAX} spans or log records. Send it in several."
            )
        yield item


def _take_lines(document: Any, taken: IngestCounts) -> None:
    lines = Lines()
    for raw, resource, scope in _bounded(raw_lines(document)):
        line = parse_line(raw, resource, scope, taken.tell)
        if line is None:
            taken.rejected += 1
        else:
            taken.accepted += 1
            taken.records.append(lines.record_of(line))
