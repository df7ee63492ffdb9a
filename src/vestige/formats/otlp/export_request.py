"""Convert an OTLP/HTTP export request to records.

    parsed = parse_export_request(data, "traces", "json")
    parsed.records, parsed.rejected, parsed.message

Spans of a trace arrive in any order, in several requests, and sometimes twice: the records of a
span are the same each time. The run is found among the spans of one request. A trace whose root
span has not arrived yet has no run span, and its status is `running`.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType
from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.errors import UnreadableError
from vestige.formats.otlp.any_value import as_text, get_field
from vestige.formats.otlp.claude_spans import normalize_span, share_tool_status
from vestige.formats.otlp.constants import RECORDED_BY, own_run_id, own_writer_id
from vestige.formats.otlp.log_records import LogRecordConverter
from vestige.formats.otlp.parse_span import (
    OtelSpan,
    Raw,
    ignore_problem,
    is_pending,
    iter_raw_log_records,
    iter_raw_spans,
    parse_log_record,
    parse_span,
)
from vestige.formats.otlp.root_span import RootFinder
from vestige.formats.otlp.to_records import is_own, span_to_records, synthetic_run_records
from vestige.formats.otlp.trace_index import DecodeError, decode
from vestige.limits import OTLP_SPANS_MAX, OTLP_TRACES_MAX
from vestige.record.types import KnownRecord


class ParsedRequest(msgspec.Struct):
    """Records of a request, and the counts that its response reports."""

    records: list[KnownRecord] = msgspec.field(default_factory=list)
    accepted: int = 0
    """Number of spans or log records."""
    rejected: int = 0
    message: str = ""
    """Reason for the first rejection."""
    own: dict[str, str] = msgspec.field(default_factory=dict)
    """Run ids of traces that Vestige exported, with their writer ids."""
    recorded: dict[str, list[KnownRecord]] = msgspec.field(default_factory=dict)
    """Records of spans that a journal has, too, by its writer: they are stored without it only."""

    def add_message(self, rule: str, message: str, severity: str) -> None:
        self.message = self.message or message


def parse_export_request(data: bytes, signal: str, encoding: str) -> ParsedRequest:
    """Parse a request; raise UnreadableError if it is not an OTLP export request.

    `signal` is `traces` or `logs`, `encoding` is `json` or `protobuf`.
    """
    document = _decode(data, signal, encoding)
    parsed = ParsedRequest()
    if signal == "logs":
        _add_log_records(document, parsed)
    else:
        _add_spans(document, parsed)
    return parsed


def _decode(data: bytes, signal: str, encoding: str) -> Any:
    if encoding == "protobuf":
        from vestige.formats.otlp.protobuf import decode_request

        return decode_request(data, signal)
    try:
        document = decode(data)
    except DecodeError as error:
        raise UnreadableError(f"request: {error}.") from None
    if not isinstance(document, dict):
        raise UnreadableError("request: not a JSON object (expected an OTLP export request).")
    name = "resourceLogs" if signal == "logs" else "resourceSpans"
    if not isinstance(get_field(document, name), (list, NoneType)):
        raise UnreadableError(f"request: {name} is not an array (expected an OTLP export request).")
    return document


def _add_spans(document: Any, parsed: ParsedRequest) -> None:
    traces: dict[tuple[str, str], list[OtelSpan]] = {}
    for raw, resource, scope in _bounded(iter_raw_spans(document)):
        span = parse_span(raw, resource, scope, ignore_problem)
        if span is None:
            parsed.rejected += 1
            parse_span(raw, resource, scope, parsed.add_message)
        else:
            parsed.accepted += 1
            if not is_pending(span):
                normalize_span(span)
                writer = as_text(span.resource.get(RECORDED_BY))
                traces.setdefault((span.trace_id, writer), []).append(span)
                if len(traces) > OTLP_TRACES_MAX:
                    raise UnreadableError(
                        f"request: more than {OTLP_TRACES_MAX} traces. Send it in several."
                    )
    for (trace_id, writer), spans in traces.items():
        finder = RootFinder()
        share_tool_status(spans)
        for span in spans:
            if is_own(span):
                parsed.own[own_run_id(trace_id)] = own_writer_id(trace_id)
            else:
                finder.add(span)
        root = finder.root(trace_id, complete=False)
        records = parsed.recorded.setdefault(writer, []) if writer else parsed.records
        if root is not None and root.synthetic:
            records += synthetic_run_records(trace_id, root)
        for span in spans:
            records += span_to_records(span, root)


def _bounded(items: Iterator[Raw]) -> Iterator[Raw]:
    for count, item in enumerate(items):
        if count >= OTLP_SPANS_MAX:
            raise UnreadableError(
                f"request: more than {OTLP_SPANS_MAX} spans or log records. Split the request."
            )
        yield item


def _add_log_records(document: Any, parsed: ParsedRequest) -> None:
    converter = LogRecordConverter()
    for raw, resource, scope in _bounded(iter_raw_log_records(document)):
        log_record = parse_log_record(raw, resource, scope, parsed.add_message)
        if log_record is None:
            parsed.rejected += 1
        else:
            parsed.accepted += 1
            parsed.records.append(converter.to_record(log_record))
