"""Write a run as OTLP/JSON: lines of requests, as a collector's file exporter writes them.

A small run is one line, and so also one JSON document that can be sent to any OTLP endpoint as it
is. Lines said are events of their spans. Beside the conventions' names stand ours (`vestige.*`):
read again, the run is what it was.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from vestige._version import __version__
from vestige.errors import UsageError
from vestige.formats.atomic_file import new_file, place_for
from vestige.formats.otlp.any_value import Object, hex_id
from vestige.formats.otlp.constants import ADDED, END_SEQ, FORMAT, SEQ, TRACE_ID, Keys, own_run_of
from vestige.formats.otlp.genai_attributes import added
from vestige.formats.protocol import RunToWrite, derived_span_id, derived_uuid
from vestige.formats.run_to_records import ended_at_ns, moments_of
from vestige.limits import OTLP_LINE_BYTES, OTLP_LINE_SPANS
from vestige.record.run import BodyRef, LogInfo, SpanInfo
from vestige.record.run_id import file_name_of

SUFFIX: Final = ".otlp.jsonl"
_CLIENTS: Final = ("llm", "http", "embedding")
_NAME_MAX: Final = 120
"""Characters of a line that are an event's name."""


def write_trace(source: RunToWrite, target: Path) -> Path:
    made = place_for(target, f"{file_name_of(source.run.info.id)}{SUFFIX}")
    if not source.run.spans:
        raise UsageError(f"run {source.run.info.id}: has no span, and a trace is made of them.")
    with new_file(made) as file:
        _write(_Trace(source), file)
    return made


def _write(trace: _Trace, file: BinaryIO) -> None:
    """Some spans a line: whoever reads it takes a line into memory."""
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


class _Trace:
    """A run on its way out."""

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
        self._said: dict[str, list[tuple[int, LogInfo]]] = {}
        for seq, (*_, ends, _, node) in enumerate(moments_of(source), 1):
            if isinstance(node, LogInfo):
                holder = node.span_id if node.span_id in self._spans else self._root.id
                self._said.setdefault(str(holder), []).append((seq, node))
            else:
                (self._closed if ends else self._opened)[node.id] = seq
        self._links: dict[str, list[Object]] = {}
        for link in run.links:
            self._links.setdefault(link.span_id, []).append(
                self._link(link.target_run, link.target_span, link.reason)
            )

    def line(self, spans: list[bytes]) -> bytes:
        resource = {"attributes": _pairs({"service.name": self._service})}
        scope = {"name": "vestige", "version": __version__}
        part = {"scope": scope, "spans": [msgspec.Raw(span) for span in spans]}
        document = {"resourceSpans": [{"resource": resource, "scopeSpans": [part]}]}
        return msgspec.json.encode(document) + b"\n"

    def spans(self) -> Iterator[Object]:
        for span in sorted(self._source.run.spans, key=lambda span: self._opened[span.id]):
            yield self._span(span)

    def _span(self, span: SpanInfo) -> Object:
        given, came = self._source.body(span.input), self._source.body(span.output)
        more = added(span, given, came)
        if span.id == self._root.id and self._source.run.info.conversation_id is not None:
            more.setdefault("gen_ai.conversation.id", self._source.run.info.conversation_id)
        more = {key: value for key, value in more.items() if key not in span.attributes}
        told: Object = dict(span.attributes) | more | self._own(span)
        if more:
            told[ADDED] = list(more)
        told |= _body(Keys.INPUT, span.input, given) | _body(Keys.OUTPUT, span.output, came)
        ended_ns = span.started_ns + (span.duration_ns or 0)
        if span.status is None:
            ended_ns = max(span.started_ns, self._source.run.info.last_ns)
        made: Object = {
            "traceId": self._trace_id,
            "spanId": w3c_id(span.id),
            "name": span.name,
            "kind": 3 if span.type in _CLIENTS else 1,
            "startTimeUnixNano": str(span.started_ns),
            "endTimeUnixNano": str(ended_ns),
            "attributes": _pairs(told),
            "status": _status(span),
        }
        if span.parent_id is not None:
            made["parentSpanId"] = w3c_id(span.parent_id)
        events = [*self._lines(span), *_exception(span, ended_ns)]
        if events:
            made["events"] = events
        if span.id in self._links:
            made["links"] = self._links[span.id]
        return made

    def _own(self, span: SpanInfo) -> Object:
        """By our names: what no convention has."""
        told: Object = {SEQ: self._opened[span.id], Keys.TYPE: span.type}
        if span.id in self._closed:
            told |= {END_SEQ: self._closed[span.id], Keys.STATUS: span.status}
            ended_ns = ended_at_ns(self._source, span)
            if ended_ns != span.started_ns + (span.duration_ns or 0):
                told[Keys.ENDED_NS] = ended_ns
        if span.component != self._service:
            told[Keys.COMPONENT] = span.component
        if w3c_id(span.id) != span.id:
            told[Keys.SPAN_ID] = span.id
        if span.parent_id is not None and w3c_id(span.parent_id) != span.parent_id:
            told[Keys.PARENT_ID] = span.parent_id
        if span.redacted:
            told[Keys.REDACTED] = msgspec.json.encode(span.redacted).decode()
        conversation = self._source.run.info.conversation_id
        if span.id == self._root.id and conversation is not None:
            told[Keys.CONVERSATION] = conversation
        return told

    def _lines(self, span: SpanInfo) -> Iterator[Object]:
        for seq, place in self._said.get(span.id, ()):
            line = self._source.line(place)
            told: Object = dict(line.attributes)
            told |= {
                SEQ: seq,
                Keys.LEVEL: line.level,
                Keys.MESSAGE: line.message,
                Keys.COMPONENT: line.component,
            }
            if line.span_id != span.id:
                told[Keys.SPAN_ID] = line.span_id or ""
            if line.redacted:
                told[Keys.REDACTED] = msgspec.json.encode(line.redacted).decode()
            told |= _body(Keys.BODY, line.body, self._source.body(line.body))
            name = line.message.strip().partition("\n")[0][:_NAME_MAX] or "log"
            yield {"timeUnixNano": str(line.time_ns), "name": name, "attributes": _pairs(told)}

    def _link(self, run_id: str | None, span_id: str, reason: str | None) -> Object:
        trace_id = self._trace_id if run_id is None else _trace_id(run_id, None)
        told: Object = {} if reason is None else {Keys.REASON: reason, "reason": reason}
        if run_id is not None and own_run_of(trace_id) != run_id:
            told[Keys.RUN_ID] = run_id
        if w3c_id(span_id) != span_id:
            told[Keys.SPAN_ID] = span_id
        return {"traceId": trace_id, "spanId": w3c_id(span_id), "attributes": _pairs(told)}


def w3c_id(span_id: str) -> str:
    """Ours are W3C's already; others' get one that derives from them."""
    good = len(span_id) == 16 and hex_id(span_id, 8) == span_id
    return span_id if good else derived_span_id(FORMAT, span_id)


def _trace_id(run_id: str, root: SpanInfo | None) -> str:
    """The trace that it came as, or its own id without the dashes."""
    came = None if root is None else root.attributes.get(TRACE_ID)
    if isinstance(came, str) and hex_id(came, 16) == came and own_run_of(came) == run_id:
        return came
    plain = run_id.replace("-", "")
    if hex_id(plain, 16) == plain and len(plain) == 32:
        return plain
    return derived_uuid(FORMAT, "run", run_id).replace("-", "")


def _status(span: SpanInfo) -> Object:
    if span.status in (None, "ok"):
        return {} if span.status is None else {"code": 1}
    message = span.attributes.get("error.message")
    return {"code": 2, "message": message if isinstance(message, str) else str(span.status)}


def _exception(span: SpanInfo, ended_ns: int) -> Iterator[Object]:
    """What ended a span, as others look for it."""
    names = {"type": "type", "message": "message", "stack": "stacktrace"}
    told = {
        f"exception.{theirs}": span.attributes.get(f"error.{ours}")
        for ours, theirs in names.items()
    }
    told = {key: value for key, value in told.items() if value is not None}
    if span.status not in (None, "ok") and told:
        yield {"timeUnixNano": str(ended_ns), "name": "exception", "attributes": _pairs(told)}


def _body(key: str, ref: BodyRef | None, data: bytes | None) -> Object:
    if ref is None:
        return {}
    if data is None:
        return {key + Keys.LOST: ref.size_bytes}
    told: Object = {}
    try:
        told[key] = data.decode()
    except UnicodeDecodeError:
        told[key] = data
    words = (ref.cut or "").split()
    if len(words) > 2 and words[:2] == ["cut", "from"] and words[2].isdecimal():
        told[key + Keys.ORIGINAL] = int(words[2])
    return told


def _pairs(told: Object) -> list[Object]:
    return [{"key": key, "value": _value(value)} for key, value in told.items()]


def _value(value: Any) -> Object:
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
            return {"arrayValue": {"values": [_value(each) for each in value]}}
        case None:
            return {}
        case _:
            return {"stringValue": str(value)}
