"""Convert a bundle to the records of a run.

    run.*                                  the root span
    node.started ... node.completed        a span; its type is ours where the typeId names one
    agent.toolCalled, agent.toolReturned   a span `tool`, or input and output of the node's span
    provider.usage                         tokens and cost of the node's span, of type `llm` then
    log.appended                           a log record
    any other                              a log record; the payload is its body

Ids derive from the ids of the bundle and sequence numbers from positions, so a later and longer
bundle of the same run adds to an earlier one. The end of the run and the note that the bundle is
partial have their own writers.

Elsewhere: formats/openwop/validate.py reports problems of a bundle.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

from vestige.formats.openwop.constants import ENDED, FORMAT, TERMINAL
from vestige.formats.openwop.note_mapping import render_text
from vestige.formats.openwop.read import Object, list_of, load_bundle, object_of, text_of
from vestige.formats.openwop.redaction_modes import encode
from vestige.formats.openwop.times import parse_time_ns
from vestige.formats.protocol import (
    Problem,
    Source,
    derived_run_id,
    derived_span_id,
    derived_uuid,
    derived_writer,
)
from vestige.limits import ATTRIBUTE_VALUE_MAX, PROBLEMS_MAX
from vestige.record.coercion import (
    clean_attributes,
    clean_message,
    clean_name,
    clean_text,
    truncate,
)
from vestige.record.note import Note
from vestige.record.run import PARTIAL
from vestige.record.types import (
    LEVELS,
    VERSION,
    Attributes,
    KnownRecord,
    Log,
    SpanClose,
    SpanOpen,
    SpanUpdate,
)

_SPAN_ID: Final = re.compile(r"[0-9a-f]{16}")
_ENDS: Final = {
    "node.completed": "ok",
    "node.failed": "error",
    "node.cancelled": "cancelled",
    "node.skipped": "ok",
}
_OURS: Final = frozenset(
    (
        "step",
        "llm",
        "tool",
        "state",
        "snapshot",
        "file",
        "http",
        "test",
        "process",
        "queue.enqueue",
        "queue.dequeue",
        "queue.deliver",
        "prompt.assembly",
        "repair",
    )
)
_STATUSES: Final = {"completed": "ok", "failed": "error", "cancelled": "cancelled"}
_CODED: Final = ("interrupted", "timeout")
"""Error codes that are statuses of Vestige."""


def read_bundle(path: Path) -> Source:
    reader = Reader(str(path), load_bundle(path))
    source = Source(reader.run_id, reader.writer, reader.records(), reader.problems)
    source.notes.extend(reader.notes())
    return source


class Reader:
    """Reads one bundle's events into records."""

    def __init__(self, file: str, document: Object) -> None:
        self._file = file
        self._document = document
        self._run = object_of(document["run"])
        self._foreign_id = text_of(self._run["runId"])[:1000]
        self.run_id = derived_run_id(FORMAT, self._foreign_id)
        self.writer = derived_writer(FORMAT, self._foreign_id)
        self.problems: list[Problem] = []
        self._events = [each for each in list_of(document["events"]) if isinstance(each, dict)]
        self._spans = {
            text_of(span.get("spanId")): span
            for span in list_of(document.get("spans"))
            if isinstance(span, dict)
        }
        self._root = self._find_root()
        self._calls = Counter(
            _node(event) for event in self._events if event.get("type") == "agent.toolCalled"
        )
        self._returns = Counter(
            _node(event) for event in self._events if event.get("type") == "agent.toolReturned"
        )
        self._usages = Counter(
            _node(event) for event in self._events if event.get("type") == "provider.usage"
        )
        self._inside: dict[str, list[Object]] = {}
        """Node to the events that only add to its span, at most one of each kind."""
        self._open: dict[str, tuple[str, int]] = {}
        """Node or call to its span and start."""
        self._times: Counter[str] = Counter()
        self._seq = 0
        self._now_ns = 0
        self._last: Object = {}
        """The payload of the event that ended the run."""

    # --- the run ------------------------------------------------------------------------------

    def records(self) -> Iterator[KnownRecord]:
        self._look_ahead()
        first = self._events[0].get("timestamp") if self._events else None
        self._now_ns = started_ns = (
            parse_time_ns(self._run.get("startedAt")) or parse_time_ns(first) or 0
        )
        yield self._root_open(started_ns)
        for number, event in enumerate(self._events):
            self._now_ns = max(self._now_ns, parse_time_ns(event.get("timestamp")) or 0)
            if not isinstance(event.get("type"), str):
                self._problem(f"/events/{number}", "event-type", "an event without a type.")
                continue
            yield from self._event(event, event["type"])
        yield from self._end(started_ns)

    def _find_root(self) -> str:
        for span_id, span in self._spans.items():
            if span.get("name") == "openwop.run" and _SPAN_ID.fullmatch(span_id):
                return span_id
        return derived_span_id(FORMAT, self._foreign_id, "run")

    def _root_open(self, started_ns: int) -> SpanOpen:
        document, run = self._document, self._run
        host = object_of(document.get("host"))
        attributes: dict[str, Any] = {"openwop.redaction": document.get("redactionMode")}
        if self.run_id != self._foreign_id:
            attributes["openwop.run_id"] = self._foreign_id
        if host:
            attributes["openwop.host"] = (
                f"{text_of(host.get('name'))} {text_of(host.get('version'))}".strip()
            )
        metadata = object_of(run.get("metadata"))
        attributes = {**object_of(metadata.get("attributes")), **attributes}
        conversation = metadata.get("conversationId")
        inputs = run.get("inputs")
        self._seq += 1
        return SpanOpen(
            VERSION,
            self.writer,
            self._seq,
            started_ns,
            self.run_id,
            self._root,
            FORMAT,
            "run",
            clean_name(text_of(run.get("workflowId")) or "?"),
            None,
            clean_name(conversation) if isinstance(conversation, str) and conversation else None,
            clean_attributes(attributes),
            None,
            _body(inputs) if inputs else None,
        )

    def _end(self, started_ns: int) -> Iterator[KnownRecord]:
        run = self._run
        status = run.get("status")
        ended_ns = parse_time_ns(run.get("completedAt")) or parse_time_ns(run.get("endedAt"))
        ended_ns = max(ended_ns or self._now_ns, started_ns)
        writer, seq = derived_writer(FORMAT, f"{self._foreign_id}\0end"), 0
        partial_facts = self._partial()
        if partial_facts:
            partial = derived_writer(FORMAT, f"{self._foreign_id}\0partial")
            self._problem("", "truncated", f"{partial_facts}.", warning=True)
            yield SpanUpdate(
                VERSION, partial, 1, ended_ns, self.run_id, self._root, {PARTIAL: partial_facts}
            )
        if status not in ENDED:
            return
        for span_id, began_ns in self._open.values() if not partial_facts else ():
            seq += 1
            yield SpanClose(
                VERSION,
                writer,
                seq,
                ended_ns,
                self.run_id,
                span_id,
                "interrupted",
                max(0, ended_ns - began_ns),
            )
        error = object_of(run.get("error")) or object_of(self._last.get("error"))
        found = _status(_STATUSES[str(status)], error)
        outputs = self._last.get("outputs") if found == "ok" else None
        yield SpanClose(
            VERSION,
            writer,
            seq + 1,
            ended_ns,
            self.run_id,
            self._root,
            found,
            _took_ns(self._last, None, ended_ns - started_ns),
            _error(error) if found != "ok" else {},
            _body(_unwrapped(outputs)),
        )

    def _partial(self) -> str:
        """Describe the missing parts of a truncated bundle; empty if it is complete."""
        if self._document.get("truncated") is not True:
            return ""
        reason = text_of(self._document.get("truncatedReason"))[:100] or "no reason given"
        total = object_of(self._document.get("metrics")).get("eventCount")
        count = len(self._events)
        of = f" of {total}" if type(total) is int and total > count else ""
        return f"partial: the bundle holds {count}{of} events ({clean_text(reason)})"

    # --- events -------------------------------------------------------------------------------

    def _look_ahead(self) -> None:
        """Collect the events after a node's start that add to its span."""
        begun: set[str] = set()
        for event in self._events:
            kind, node = event.get("type"), _node(event)
            if kind == "node.started":
                begun.add(node)
            elif node in begun and (
                (kind == "agent.toolCalled" and self._calls[node] == 1)
                or (kind == "agent.toolReturned" and self._calls[node] == self._returns[node] == 1)
                or (kind == "provider.usage" and self._usages[node] == 1)
            ):
                self._inside.setdefault(node, []).append(event)

    def _event(self, event: Object, kind: str) -> Iterator[KnownRecord]:
        node = _node(event)
        if any(event is each for each in self._inside.get(node, ())):
            return
        if kind in TERMINAL:
            self._last = object_of(event.get("payload"))
        elif kind == "run.started":
            return
        elif kind == "node.started" and node:
            yield self._node_open(event, node)
        elif kind in _ENDS and node in self._open:
            yield self._node_close(event, kind, node)
        elif kind == "agent.toolCalled":
            yield self._call_open(event, node)
        elif kind == "agent.toolReturned" and self._call(event) in self._open:
            yield self._call_close(event)
        elif kind == "provider.usage":
            yield from self._usage(event, node)
        else:
            yield self._log(event, kind, node)

    def _node_open(self, event: Object, node: str) -> SpanOpen:
        payload = object_of(event.get("payload"))
        kind = text_of(payload.get("typeId"))
        inside = self._inside.get(node, ())
        seen = {each["type"] for each in inside}
        type_ = (
            kind
            if kind in _OURS
            else "tool"
            if "agent.toolCalled" in seen
            else "llm"
            if "provider.usage" in seen
            else "step"
        )
        attributes: dict[str, Any] = {}
        attempt = payload.get("attempt")
        if type(attempt) is int and attempt >= 0:
            attributes["attempt"] = attempt + 1
        if kind and kind != type_:
            attributes["node_type"] = kind
        inputs = payload.get("inputs")
        name = text_of(payload.get("name"))
        for each in inside:
            if each["type"] == "agent.toolCalled":
                call = object_of(each.get("payload"))
                inputs = call.get("inputs", inputs)
                name = name or text_of(call.get("toolName"))
                attributes |= {
                    "tool_name": call.get("toolName"),
                    "tool_call_id": call.get("callId"),
                }
        span_id = self._span_id(node)
        if span_id != node:
            attributes["node_id"] = node
        self._open[node] = (span_id, self._now_ns)
        parent = text_of(payload.get("parentNodeId")) or text_of(
            object_of(self._spans.get(node)).get("parentSpanId")
        )
        return self._opened(
            span_id, type_, name or node, self._inside_of(parent), attributes, inputs, payload
        )

    def _node_close(self, event: Object, kind: str, node: str) -> SpanClose:
        payload = object_of(event.get("payload"))
        error = object_of(payload.get("error"))
        attributes: dict[str, Any] = dict(object_of(payload.get("attributes")))
        outputs = payload.get("outputs")
        for each in self._inside.get(node, ()):
            inner = object_of(each.get("payload"))
            if each["type"] == "provider.usage":
                attributes |= _tokens(inner)
            elif each["type"] == "agent.toolReturned":
                outputs = inner.get("outcome", outputs)
                error = error or object_of(inner.get("error"))
        if kind == "node.skipped":
            attributes["outcome"] = "skip"
        status = _status(_ENDS[kind], error)
        if status != "ok":
            attributes |= _error(error)
        return self._closed(node, status, attributes, _unwrapped(outputs), payload)

    def _call(self, event: Object) -> str:
        return f"\0call {text_of(object_of(event.get('payload')).get('callId'))}"

    def _call_open(self, event: Object, node: str) -> SpanOpen:
        payload = object_of(event.get("payload"))
        key = self._call(event)
        span_id = self._span_id(key)
        self._open[key] = (span_id, self._now_ns)
        facts = {"tool_name": payload.get("toolName"), "tool_call_id": payload.get("callId")}
        name = text_of(payload.get("toolName")) or "tool"
        return self._opened(
            span_id, "tool", name, self._inside_of(node), facts, payload.get("inputs"), payload
        )

    def _call_close(self, event: Object) -> SpanClose:
        payload = object_of(event.get("payload"))
        error = object_of(payload.get("error"))
        failed = bool(error) or payload.get("status", "ok") != "ok"
        status = _status("error" if failed else "ok", error)
        facts = _error(error) if failed else {}
        return self._closed(self._call(event), status, facts, payload.get("outcome"), payload)

    def _usage(self, event: Object, node: str) -> Iterator[KnownRecord]:
        """Record a model call without a node: a span that ends at once."""
        payload = object_of(event.get("payload"))
        key = f"\0usage {self._seq}"
        self._open[key] = (self._span_id(key), self._now_ns)
        name = text_of(payload.get("model")) or "llm"
        yield self._opened(
            self._open[key][0], "llm", name, self._inside_of(node), {}, None, payload
        )
        yield self._closed(key, "ok", _tokens(payload), None, {})

    def _log(self, event: Object, kind: str, node: str) -> Log:
        payload = event.get("payload", event.get("data"))
        fields_of = object_of(payload)
        attributes: dict[str, Any] = {"event_id": event.get("eventId")}
        level, message, body = "info", kind, None
        component = FORMAT
        if kind == "log.appended":
            level = next((each for each in LEVELS if each == fields_of.get("level")), "info")
            message = text_of(fields_of.get("message"))
            fields = dict(object_of(fields_of.get("fields")))
            component = text_of(fields.pop("component", "")) or FORMAT
            error, body = object_of(fields.pop("error", None)), fields.pop("body", None)
            attributes |= fields | _error(
                {"code": error.get("type"), "message": error.get("message")}
            )
        else:
            attributes["event_type"] = kind
            body = payload if payload not in (None, {}) else None
        self._seq += 1
        return Log(
            VERSION,
            self.writer,
            self._seq,
            self._now_ns,
            self.run_id,
            clean_name(component),
            str(level),
            clean_message(message),
            self._inside_of(node),
            _clean_values(attributes),
            _body(body),
        )

    # --- spans --------------------------------------------------------------------------------

    def _span_id(self, key: str) -> str:
        """Return the node id as the span id if it is valid. A repeated node is another span."""
        self._times[key] += 1
        if self._times[key] == 1 and _SPAN_ID.fullmatch(key) and key != self._root:
            return key
        return derived_span_id(FORMAT, self._foreign_id, key, str(self._times[key]))

    def _inside_of(self, node: str) -> str:
        return self._open[node][0] if node in self._open else self._root

    def _opened(
        self,
        span_id: str,
        type_: str,
        name: str,
        parent: str,
        attributes: dict[str, Any],
        inputs: Any,
        payload: Object,
    ) -> SpanOpen:
        component = text_of(payload.get("component")) or text_of(payload.get("agentId")) or FORMAT
        self._seq += 1
        return SpanOpen(
            VERSION,
            self.writer,
            self._seq,
            self._now_ns,
            self.run_id,
            span_id,
            clean_name(component),
            type_,
            clean_name(name),
            parent,
            None,
            _clean_values(attributes),
            None,
            _body(inputs),
        )

    def _closed(
        self, key: str, status: str, attributes: dict[str, Any], outputs: Any, payload: Object
    ) -> SpanClose:
        span_id, began_ns = self._open.pop(key)
        span = object_of(self._spans.get(key))
        began, ended = parse_time_ns(span.get("startedAt")), parse_time_ns(span.get("endedAt"))
        exact_ns = ended - began if began is not None and ended is not None else None
        took_ns = _took_ns(payload, exact_ns, self._now_ns - began_ns)
        self._seq += 1
        return SpanClose(
            VERSION,
            self.writer,
            self._seq,
            self._now_ns,
            self.run_id,
            span_id,
            status,
            took_ns,
            _clean_values(attributes),
            _body(outputs),
        )

    # --- other parts ---------------------------------------------------------------------------

    def notes(self) -> Iterator[Note]:
        for annotation in list_of(self._document.get("annotations")):
            if not isinstance(annotation, dict):
                continue
            target = object_of(annotation.get("target"))
            node, event = text_of(target.get("nodeId")), text_of(target.get("eventId"))
            text = render_text(object_of(annotation.get("signal")), annotation.get("note"))
            own_id = text_of(annotation.get("annotationId"))[:200]
            yield Note(
                id=own_id or derived_uuid(FORMAT, self._foreign_id, "note", text),
                run_id=self.run_id,
                text=clean_message(text),
                created_ns=parse_time_ns(annotation.get("createdAt")) or 0,
                span_id=None
                if not node
                else node
                if _SPAN_ID.fullmatch(node)
                else derived_span_id(FORMAT, self._foreign_id, node, "1"),
                event_id=event[:200] or None,
                author=clean_name(text_of(object_of(annotation.get("actor")).get("principalRef")))
                or None,
            )

    def _problem(self, place: str, rule: str, message: str, *, warning: bool = False) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            severity: Literal["warning", "error"] = "warning" if warning else "error"
            self.problems.append(Problem(self._file, place, rule, message, "", severity))


def _node(event: Object) -> str:
    payload = object_of(event.get("payload"))
    return (text_of(event.get("nodeId")) or text_of(payload.get("nodeId")))[:1000]


def _took_ns(payload: Object, exact_ns: int | None, otherwise_ns: int) -> int:
    """A duration: of more digits than the payload's milliseconds, if it does not contradict
    them."""
    took = payload.get("durationMs")
    if isinstance(took, bool) or not isinstance(took, (int, float)) or not 0 <= took < 1e12:
        return otherwise_ns if exact_ns is None or exact_ns < 0 else exact_ns
    if exact_ns is not None and exact_ns // 1_000_000 == int(took):
        return exact_ns
    return int(took * 1_000_000)


def _status(status: str, error: Object) -> str:
    code = error.get("code")
    return str(code) if status == "error" and code in _CODED else status


def _error(error: Object) -> dict[str, Any]:
    details = object_of(error.get("details"))
    code, kind = text_of(error.get("code")), text_of(details.get("type"))
    facts = {
        "error.type": kind or code,
        "error.code": code if kind and code not in (*_CODED, kind.rpartition(".")[2]) else None,
        "error.message": error.get("message"),
        "error.stack": details.get("stack"),
    }
    return {
        key: truncate(clean_text(value), ATTRIBUTE_VALUE_MAX)
        for key, value in facts.items()
        if isinstance(value, str) and value
    }


def _tokens(usage: Object) -> dict[str, Any]:
    named = {
        "model": "model",
        "provider": "provider",
        "inputTokens": "input_tokens",
        "outputTokens": "output_tokens",
        "cacheReadTokens": "cache_read_tokens",
        "cacheWriteTokens": "cache_write_tokens",
        "costEstimateUsd": "cost_usd",
    }
    return {ours: usage[theirs] for theirs, ours in named.items() if usage.get(theirs) is not None}


def _clean_values(attributes: dict[str, Any]) -> Attributes:
    return clean_attributes({key: value for key, value in attributes.items() if value is not None})


def _unwrapped(outputs: Any) -> Any:
    """Unwrap an output: the format requires an object, so other values were put into one."""
    if isinstance(outputs, dict) and outputs.keys() == {"value"}:
        return outputs["value"]
    return outputs


def _body(value: Any) -> str | None:
    if value is None:
        return None
    return clean_text(value) if isinstance(value, str) else encode(value).decode()
