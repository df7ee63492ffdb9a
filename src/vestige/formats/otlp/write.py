"""Write a run as OTLP/JSON, one request per line like a collector's file exporter.

A small run is one line: a JSON document that can be posted to any OTLP endpoint. Log records become
events of their spans. Attributes named `vestige.*` make the export lossless: an import of the file
gives the same run again.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige._version import __version__
from vestige.errors import UsageError
from vestige.formats.atomic_file import create_file, resolve_target
from vestige.formats.otlp.any_value import Object, parse_hex_id
from vestige.formats.otlp.constants import ADDED, END_SEQ, FORMAT, SEQ, TRACE_ID, Keys, own_run_id
from vestige.formats.otlp.exported_genai_attributes import to_genai_attributes
from vestige.formats.protocol import RunToWrite, derived_span_id, derived_uuid
from vestige.formats.run_to_records import get_end_ns, get_original_bytes, order_moments
from vestige.limits import OTLP_LINE_BYTES, OTLP_LINE_SPANS
from vestige.record.run import BodyRef, LogInfo, SpanInfo
from vestige.record.run_id import file_name_of

SUFFIX: Final = ".otlp.jsonl"
_CLIENTS: Final = ("llm", "http", "embedding")
_NAME_MAX: Final = 120
"""Characters of a log message that are used as the event's name."""


def write_trace(source: RunToWrite, target: Path) -> Path:
    path = resolve_target(target, f"{file_name_of(source.run.info.id)}{SUFFIX}")
    if not source.run.spans:
        raise UsageError(f"run {source.run.info.id}: has no spans, so it cannot be a trace.")
    with create_file(path) as file:
        _write_lines(_TraceWriter(source), file)
    return path


def _write_lines(trace: _TraceWriter, file: BinaryIO) -> None:
    """Write a bounded number of spans per line, because readers decode a line at a time."""
    spans: list[bytes] = []
    size = 0
    for span in trace.spans():
        encoded = msgspec.json.encode(span)
        if spans and (len(spans) >= OTLP_LINE_SPANS or size + len(encoded) > OTLP_LINE_BYTES):
            file.write(trace.line(spans))
            spans, size = [], 0
        spans.append(encoded)
        size += len(encoded)
    file.write(trace.line(spans))


class _TraceWriter:
    """Converts a run to OTLP objects."""

    def __init__(self, source: RunToWrite) -> None:
        self._source = source
        run = source.run
        self._spans = {span.id: span for span in run.spans}
        roots = [span for span in run.spans if span.parent_id is None]
        self._root = (roots or run.spans)[0]
        self._trace_id = _trace_id(run.info.id, self._root)
        self._service = run.info.component or self._root.component
        self._opened: dict[str, int] = {}
        self._closed: dict[str, int] = {}
        self._logs: dict[str, list[tuple[int, LogInfo]]] = {}
        for seq, (*_, ends, _, node) in enumerate(order_moments(source), 1):
            if isinstance(node, LogInfo):
                span_id = node.span_id if node.span_id in self._spans else self._root.id
                self._logs.setdefault(str(span_id), []).append((seq, node))
            else:
                (self._closed if ends else self._opened)[node.id] = seq
        self._links: dict[str, list[Object]] = {}
        for link in run.links:
            self._links.setdefault(link.span_id, []).append(
                self._link(link.target_run, link.target_span, link.reason)
            )

    def line(self, spans: list[bytes]) -> bytes:
        """Return a request with these encoded spans."""
        resource = {"attributes": _pairs({"service.name": self._service})}
        scope = {"name": "vestige", "version": __version__}
        part = {"scope": scope, "spans": [msgspec.Raw(span) for span in spans]}
        document = {"resourceSpans": [{"resource": resource, "scopeSpans": [part]}]}
        return msgspec.json.encode(document) + b"\n"

    def spans(self) -> Iterator[Object]:
        for span in sorted(self._source.run.spans, key=lambda span: self._opened[span.id]):
            yield self._span(span)

    def _span(self, span: SpanInfo) -> Object:
        input_body, output_body = self._source.body(span.input), self._source.body(span.output)
        added = to_genai_attributes(span, input_body, output_body)
        if span.id == self._root.id and self._source.run.info.conversation_id is not None:
            added.setdefault("gen_ai.conversation.id", self._source.run.info.conversation_id)
        added = {key: value for key, value in added.items() if key not in span.attributes}
        attributes: Object = dict(span.attributes) | added | self._vestige_attributes(span)
        if added:
            attributes[ADDED] = list(added)
        attributes |= _body(Keys.INPUT, span.input, input_body)
        attributes |= _body(Keys.OUTPUT, span.output, output_body)
        ended_ns = span.started_ns + (span.duration_ns or 0)
        if span.status is None:
            ended_ns = max(span.started_ns, self._source.run.info.last_ns)
        otel_span: Object = {
            "traceId": self._trace_id,
            "spanId": w3c_id(span.id),
            "name": span.name,
            "kind": 3 if span.type in _CLIENTS else 1,
            "startTimeUnixNano": str(span.started_ns),
            "endTimeUnixNano": str(ended_ns),
            "attributes": _pairs(attributes),
            "status": _status(span),
        }
        if span.parent_id is not None:
            otel_span["parentSpanId"] = w3c_id(span.parent_id)
        events = [*self._log_events(span), *_exception_event(span, ended_ns)]
        if events:
            otel_span["events"] = events
        if span.id in self._links:
            otel_span["links"] = self._links[span.id]
        return otel_span

    def _vestige_attributes(self, span: SpanInfo) -> Object:
        """Return the facts of a span that no convention covers."""
        attributes: Object = {SEQ: self._opened[span.id], Keys.TYPE: span.type}
        if span.id in self._closed:
            attributes |= {END_SEQ: self._closed[span.id], Keys.STATUS: span.status}
            ended_ns = get_end_ns(self._source, span)
            if ended_ns != span.started_ns + (span.duration_ns or 0):
                attributes[Keys.ENDED_NS] = ended_ns
        if span.component != self._service:
            attributes[Keys.COMPONENT] = span.component
        if w3c_id(span.id) != span.id:
            attributes[Keys.SPAN_ID] = span.id
        if span.parent_id is not None and w3c_id(span.parent_id) != span.parent_id:
            attributes[Keys.PARENT_ID] = span.parent_id
        if span.redacted:
            attributes[Keys.REDACTED] = msgspec.json.encode(span.redacted).decode()
        conversation = self._source.run.info.conversation_id
        if span.id == self._root.id and conversation is not None:
            attributes[Keys.CONVERSATION] = conversation
        return attributes

    def _log_events(self, span: SpanInfo) -> Iterator[Object]:
        for seq, skeleton in self._logs.get(span.id, ()):
            log = self._source.load_log(skeleton)
            attributes: Object = dict(log.attributes)
            attributes |= {
                SEQ: seq,
                Keys.LEVEL: log.level,
                Keys.MESSAGE: log.message,
                Keys.COMPONENT: log.component,
            }
            if log.span_id != span.id:
                attributes[Keys.SPAN_ID] = log.span_id or ""
            if log.redacted:
                attributes[Keys.REDACTED] = msgspec.json.encode(log.redacted).decode()
            attributes |= _body(Keys.BODY, log.body, self._source.body(log.body))
            name = log.message.strip().partition("\n")[0][:_NAME_MAX] or "log"
            yield {"timeUnixNano": str(log.time_ns), "name": name, "attributes": _pairs(attributes)}

    def _link(self, run_id: str | None, span_id: str, reason: str | None) -> Object:
        trace_id = self._trace_id if run_id is None else _trace_id(run_id, None)
        attributes: Object = {} if reason is None else {Keys.REASON: reason, "reason": reason}
        if run_id is not None and own_run_id(trace_id) != run_id:
            attributes[Keys.RUN_ID] = run_id
        if w3c_id(span_id) != span_id:
            attributes[Keys.SPAN_ID] = span_id
        return {"traceId": trace_id, "spanId": w3c_id(span_id), "attributes": _pairs(attributes)}


def w3c_id(span_id: str) -> str:
    """Return the id if it is a valid W3C span id, else one derived from it."""
    valid = len(span_id) == 16 and parse_hex_id(span_id, 8) == span_id
    return span_id if valid else derived_span_id(FORMAT, span_id)


def _trace_id(run_id: str, root: SpanInfo | None) -> str:
    """Return the trace id that the run was imported with, or its run id without dashes."""
    imported = None if root is None else root.attributes.get(TRACE_ID)
    if (
        isinstance(imported, str)
        and parse_hex_id(imported, 16) == imported
        and own_run_id(imported) == run_id
    ):
        return imported
    plain = run_id.replace("-", "")
    if parse_hex_id(plain, 16) == plain and len(plain) == 32:
        return plain
    return derived_uuid(FORMAT, "run", run_id).replace("-", "")


def _status(span: SpanInfo) -> Object:
    if span.status in (None, "ok"):
        return {} if span.status is None else {"code": 1}
    message = span.attributes.get("error.message")
    return {"code": 2, "message": message if isinstance(message, str) else str(span.status)}


def _exception_event(span: SpanInfo, ended_ns: int) -> Iterator[Object]:
    """Yield the exception that ended the span, as the event that other tools expect."""
    names = {"type": "type", "message": "message", "stack": "stacktrace"}
    attributes = {
        f"exception.{theirs}": span.attributes.get(f"error.{ours}")
        for ours, theirs in names.items()
    }
    attributes = {key: value for key, value in attributes.items() if value is not None}
    if span.status not in (None, "ok") and attributes:
        yield {"timeUnixNano": str(ended_ns), "name": "exception", "attributes": _pairs(attributes)}


def _body(key: str, ref: BodyRef | None, data: bytes | None) -> Object:
    if ref is None:
        return {}
    if data is None:
        return {key + Keys.LOST: ref.size_bytes}
    attributes: Object = {}
    try:
        attributes[key] = data.decode()
    except UnicodeDecodeError:
        attributes[key] = data
    if (original := get_original_bytes(ref)) is not None:
        attributes[key + Keys.ORIGINAL] = original
    return attributes


def _pairs(attributes: Object) -> list[Object]:
    return [{"key": key, "value": _any_value(value)} for key, value in attributes.items()]


def _any_value(value: Any) -> Object:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case bytes():
            return {"bytesValue": base64.b64encode(value).decode()}
        case list():
            return {"arrayValue": {"values": [_any_value(item) for item in value]}}
        case None:
            return {}
        case _:
            return {"stringValue": str(value)}
