"""A stored run as OpenWOP documents: one snapshot, events in order, spans, metrics, annotations.

    story = Story(RunToWrite(run, read_body), "mask")
    story.snapshot()                   # the run, as GET /v1/runs/{runId} answers
    for raw in story.events(): ...     # rendered, redacted; sequence counts from 0
    story.event_count                  # known without rendering any

    the run's root span     run.started, and one of run.completed, run.failed, run.cancelled
    another span            node.started; node.completed, node.failed or node.cancelled
    a span `tool`           also agent.toolCalled and agent.toolReturned
    a span `llm`            also provider.usage, when it ended
    a log record            log.appended

Bundle, event poll and snapshot all come from here, so they cannot differ. The event that ended
the run comes last, also if records were written after it.

Elsewhere: payloads are in formats/openwop/write_event_payloads.py, the assembly of a bundle in
formats/openwop/assemble.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final

from vestige.formats.openwop import cost_metrics, note_mapping
from vestige.formats.openwop.constants import FORMAT, NODE_ID, PROTOCOL_VERSION, Mode, status_of
from vestige.formats.openwop.host_redaction import HostDetails
from vestige.formats.openwop.redaction_modes import Privacy
from vestige.formats.openwop.times import render_time
from vestige.formats.openwop.write_event_payloads import EventPayloads, error_from, public
from vestige.formats.protocol import RunToWrite, derived_span_id
from vestige.formats.run_to_records import get_end_ns, order_moments
from vestige.limits import NAME_MAX, OPENWOP_BUNDLE_MAX, OPENWOP_PART_MAX
from vestige.record.coercion import truncate
from vestige.record.note import Note
from vestige.record.run import PARTIAL, BodyRef, LogInfo, RunInfo, SpanInfo
from vestige.record.types import OWN_COMPONENT

Payload = Callable[[], dict[str, Any]]
_ID_MAX: Final = 128
_OWN: Final = frozenset((PARTIAL, "traceparent", "sampled", "implicit", "command"))
"""Attributes of a root that are about the record or its process, not about the run."""


class Story:
    """A run under a redaction mode."""

    def __init__(
        self,
        source: RunToWrite,
        mode: Mode = "mask",
        *,
        key: bytes = b"",
        cap_bytes: int = OPENWOP_BUNDLE_MAX,
    ) -> None:
        """`key`: of the hashes. `cap_bytes`: of a bundle; its parts are bounded by it."""
        self._source = source
        self.info = info = source.run.info
        self.root = _root_of(source)
        self.root_id = self.root.id if self.root is not None else derived_span_id(FORMAT, info.id)
        root_attributes = self.root.attributes if self.root is not None else {}
        processes = [span.attributes for span in source.run.spans if span.type == "process"]
        machine = HostDetails(source.process, root_attributes, *processes)
        self.privacy = Privacy(mode, machine, key)
        self.cap_bytes = cap_bytes
        self.cut: list[str] = []
        """Parts of the run itself that are too large to go out whole."""
        self._node_ids = _node_ids_of(source.run.spans)
        self._payloads = EventPayloads(source, self.root_id, machine, self._node_ids)
        nodes: list[SpanInfo | LogInfo] = [*source.run.spans, *source.run.logs]
        if any(node.redacted for node in nodes):
            self.privacy.refuse()

    # --- the run ------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        return self.info.outcome != "running"

    @cached_property
    def snapshot(self) -> bytes:
        """Render the run's current state."""
        snapshot = {**summary(self.info), "inputs": self._inputs, "variables": self._variables}
        if self.has_ended and snapshot["status"] == "failed":
            snapshot["error"] = self._error
        if self._metadata:
            snapshot["metadata"] = self._metadata
        if self._cost is not None:
            snapshot["metrics"] = {"openwopCost": self._cost}
        return self.privacy.render(snapshot)

    @cached_property
    def _metadata(self) -> dict[str, Any]:
        """Return the attributes that the program set on the run."""
        metadata: dict[str, Any] = {}
        if self.info.conversation_id is not None:
            metadata["conversationId"] = truncate(self.info.conversation_id, NAME_MAX)
        own = public(self.root.attributes) if self.root is not None else {}
        own = {
            key: value
            for key, value in own.items()
            if key not in _OWN and not key.startswith("openwop.")
        }
        if own and len(self.privacy.render(own)) <= self._part_max:
            metadata["attributes"] = own
        elif own:
            self.cut.append("metadata")
        return metadata

    @property
    def _part_max(self) -> int:
        return min(OPENWOP_PART_MAX, self.cap_bytes // 8)

    @cached_property
    def _cost(self) -> dict[str, Any] | None:
        return cost_metrics.total(self._source.run.spans, self._source.prices)

    @cached_property
    def metrics(self) -> bytes:
        counts = {"nodeCount": self.node_count, "eventCount": self.event_count}
        return self.privacy.render({"openwopCost": self._cost, **counts})

    @cached_property
    def _inputs(self) -> dict[str, Any]:
        return self._part("inputs", self.root.input if self.root is not None else None) or {}

    @cached_property
    def _outputs(self) -> dict[str, Any] | None:
        return self._part("outputs", self.root.output if self.root is not None else None)

    @cached_property
    def _variables(self) -> dict[str, Any]:
        """Return the last recorded state."""
        for span in reversed(self._source.run.spans):
            if span.type in ("state", "snapshot") and (ref := span.input or span.output):
                return self._part("variables", ref) or {}
        return {}

    def _part(self, name: str, ref: BodyRef | None) -> dict[str, Any] | None:
        """A body that belongs to the run as a whole; one that is too large is replaced by its
        size."""
        if ref is None:
            return None
        most = self._part_max
        # Redaction and escapes may make it longer, so the exported text is checked again.
        if ref.size_bytes <= most:
            value = self._payloads.object(ref)
            if len(self.privacy.render(value)) <= most:
                return value
        self.cut.append(name)
        return {"truncated": True, "sizeBytes": ref.size_bytes}

    @cached_property
    def _error(self) -> dict[str, Any]:
        own = self.root.attributes if self.root is not None else {}
        failed = self._failed_node
        if "error.message" not in own and "error.type" not in own and failed is not None:
            own = failed.attributes
        elif failed is not None and failed.attributes.get("error.type") == own.get("error.type"):
            own = {"error.code": failed.attributes.get("error.code"), **own}
        stamp = next((log.message for log in self._source.run.logs if _is_stamp(log)), "")
        message = stamp or (
            "the program ended before the run did" if self.info.outcome == "interrupted" else ""
        )
        return error_from(own, self.info.outcome, message)

    @cached_property
    def _failed_node(self) -> SpanInfo | None:
        """Return the innermost node that failed last: the first one to look at."""
        nodes = [span for span in self._source.run.spans if span is not self.root]
        failed = [span for span in nodes if span.status not in ("ok", "cancelled", None)]
        parents = {span.parent_id for span in failed}
        return next((span for span in reversed(failed) if span.id not in parents), None)

    # --- events -------------------------------------------------------------------------------

    @cached_property
    def _moments(self) -> list[tuple[int, SpanInfo | LogInfo, bool]]:
        """Return (time, span or log, is its end) of all events between start and end of the run."""
        moments: list[tuple[int, SpanInfo | LogInfo, bool]] = []
        next_ns = self.info.last_ns
        for at, _, _, ends, _, node in reversed(order_moments(self._source)):
            if node is self.root:
                continue
            if ends and isinstance(node, SpanInfo):
                # The real end, unless that is after the next record.
                at = max(at, min(get_end_ns(self._source, node), next_ns))
            moments.append((at, node, ends))
            next_ns = at
        moments.reverse()
        return moments

    @cached_property
    def event_count(self) -> int:
        nodes = [span for span in self._source.run.spans if span is not self.root]
        count = sum(_count(span, ends=False) for span in nodes)
        count += sum(_count(span, ends=True) for span in nodes if span.status is not None)
        return 1 + count + len(self._source.run.logs) + self.has_ended

    @cached_property
    def node_count(self) -> int:
        """Return the number of distinct nodes in all events."""
        nodes = {span.id for span in self._source.run.spans if span is not self.root}
        spoken = {log.span_id for log in self._source.run.logs if log.span_id is not None}
        return len(nodes | spoken - {self.root_id})

    def events(self, after: int = -1) -> Iterator[bytes]:
        """Yield the events with a sequence above `after`; the others are only counted."""
        sequence = 0
        if after < 0:
            yield self._event(
                "run.started",
                f"{self.root_id}.started",
                self.info.started_ns,
                0,
                None,
                self._run_started,
            )
        last_ns = self.info.started_ns
        for at, node, ends in self._moments:
            last_ns = max(last_ns, at)
            count = _count(node, ends)
            if sequence + count > after:
                for number, (kind, key, payload) in enumerate(
                    self._iter_payloads(node, ends), sequence + 1
                ):
                    if number > after:
                        yield self._event(kind, key, last_ns, number, self._node_of(node), payload)
            sequence += count
        if self.has_ended and sequence + 1 > after:
            ended_ns = max(last_ns, self.info.ended_ns or 0)
            kind, payload = self._run_ended()
            yield self._event(kind, f"{self.root_id}.ended", ended_ns, sequence + 1, None, payload)

    def _iter_payloads(
        self, node: SpanInfo | LogInfo, ends: bool
    ) -> Iterator[tuple[str, str, Payload]]:  # as many as `_count` says
        payloads = self._payloads
        if isinstance(node, LogInfo):
            line = self._source.load_log(node)
            yield "log.appended", _line_key(line), lambda: payloads.line(line)
        elif not ends:
            yield "node.started", f"{node.id}.started", lambda: payloads.started(node)
            if node.type == "tool":
                yield "agent.toolCalled", f"{node.id}.called", lambda: payloads.called(node)
        else:
            if node.type == "tool":
                yield "agent.toolReturned", f"{node.id}.returned", lambda: payloads.returned(node)
            if cost_metrics.has_usage(node):
                yield "provider.usage", f"{node.id}.usage", lambda: payloads.usage(node)
            key = f"{node.id}.ended"
            if node.status == "ok":
                yield "node.completed", key, lambda: payloads.completed(node)
            elif node.status == "cancelled":
                yield "node.cancelled", key, lambda: payloads.cancelled(node)
            else:
                yield "node.failed", key, lambda: payloads.failed(node)

    def _event(
        self, kind: str, key: str, at_ns: int, sequence: int, node_id: str | None, payload: Payload
    ) -> bytes:
        run_id = self.info.id
        event: dict[str, Any] = {
            "eventId": self._event_id(key),
            "runId": run_id,
            "sequence": sequence,
            "type": kind,
            "timestamp": render_time(at_ns),
        }
        if node_id is not None:
            event["nodeId"] = node_id
        event["payload"] = payload()
        return self.privacy.render(event)

    def _event_id(self, key: str) -> str:
        # An id that came with an imported event is kept: it says so itself.
        return key[1:] if key.startswith("=") else f"{self.info.id}.{key}"

    def _node_of(self, node: SpanInfo | LogInfo) -> str | None:
        span_id = node.id if isinstance(node, SpanInfo) else node.span_id
        return None if span_id in (None, self.root_id) else self._payloads.node_id(span_id)

    def _run_started(self) -> dict[str, Any]:
        return {"workflowId": workflow_id(self.info), "inputs": self._inputs}

    def _run_ended(self) -> tuple[str, Payload]:
        status = status_of(self.info.outcome)
        took: dict[str, Any] = {}
        if self.info.duration_ns is not None:
            took["durationMs"] = self.info.duration_ns // 1_000_000
        if status == "completed":
            outputs = {} if self._outputs is None else {"outputs": self._outputs}
            return "run.completed", lambda: {**outputs, **took}
        if status == "cancelled":
            return "run.cancelled", lambda: took
        failed = self._failed_node
        where = {} if failed is None else {"failedNodeId": self._payloads.node_id(failed.id)}
        return "run.failed", lambda: {"error": self._error, **where, **took}

    # --- spans and notes ------------------------------------------------------------------------

    def spans(self) -> Iterator[bytes]:
        """Return spans in the shape of OpenTelemetry, with the attributes that may be exported."""
        info = self.info
        shared = {"openwop.run_id": info.id, "openwop.workflow_id": workflow_id(info)}
        own = {**shared, "openwop.protocol_version": PROTOCOL_VERSION, **_spent(self._cost)}
        parent, trace = _trace_of(self.root, info.id)
        ended_ns = info.ended_ns if self.has_ended else None
        yield self.privacy.render(
            _span("openwop.run", self.root_id, parent, trace, info.started_ns, ended_ns, own)
        )
        known = {span.id for span in self._source.run.spans}
        for span in self._source.run.spans:
            if span is self.root:
                continue
            attempt = span.attributes.get("attempt")
            attributes = {
                **shared,
                NODE_ID: self._payloads.node_id(span.id),
                "openwop.node_type": span.type or "step",
                "openwop.node_attempt": attempt - 1 if type(attempt) is int and attempt > 0 else 0,
                **_spent(cost_metrics.total([span], self._source.prices)),
            }
            inside = span.parent_id if span.parent_id in known else self.root_id
            end_ns = None if span.duration_ns is None else span.started_ns + span.duration_ns
            name = f"openwop.node.{span.type or 'step'}"
            yield self.privacy.render(
                _span(name, span.id, inside, trace, span.started_ns, end_ns, attributes)
            )

    def annotations(self) -> Iterator[bytes]:
        for note in self._source.notes:
            yield self._annotation(note)

    def annotation(self, note_id: str) -> bytes:
        """Return the annotation of a note."""
        return self._annotation(next(each for each in self._source.notes if each.id == note_id))

    def _annotation(self, note: Note) -> bytes:
        node_id = None if note.span_id is None else self._payloads.node_id(note.span_id)
        return self.privacy.render(note_mapping.annotation_of(note, node_id))

    def find_span(self, node_id: str) -> str | None:
        """Return the id of the span of a node; None if there is no such node."""
        if node_id == self.root_id:
            return node_id
        return next(
            (
                span.id
                for span in self._source.run.spans
                if self._payloads.node_id(span.id) == node_id
            ),
            None,
        )

    def has_event(self, event_id: str) -> bool:
        if event_id in (f"{self.info.id}.{self.root_id}.{when}" for when in ("started", "ended")):
            return True
        return any(
            self._event_id(key) == event_id
            for _, node, ends in self._moments
            for _, key, _ in self._iter_payloads(node, ends)
        )


def _node_ids_of(spans: Sequence[SpanInfo]) -> dict[str, str]:
    """The names that a program gave its nodes, where each is one span's only."""
    named = {span.id: span.attributes.get(NODE_ID) for span in spans}
    counts = Counter(named.values())
    return {
        span_id: name
        for span_id, name in named.items()
        if isinstance(name, str) and 0 < len(name) <= _ID_MAX and counts[name] == 1
    }


def summary(info: RunInfo) -> dict[str, Any]:
    """Return the entry of a run in a list, without reading the run."""
    values: dict[str, Any] = {
        "runId": info.id,
        "workflowId": workflow_id(info),
        "status": status_of(info.outcome),
        "startedAt": render_time(info.started_ns),
    }
    if info.outcome == "running":
        return {**values, "endedAt": None}
    ended = render_time(max(info.started_ns, info.ended_ns or info.last_ns))
    return {**values, "completedAt": ended, "endedAt": ended}


def workflow_id(info: RunInfo) -> str:
    return truncate(info.name, NAME_MAX) or "?"


def _root_of(source: RunToWrite) -> SpanInfo | None:
    roots = (span for span in source.run.spans if (span.type, span.parent_id) == ("run", None))
    return next(roots, None)


def _is_stamp(log: LogInfo) -> bool:
    return log.component == OWN_COMPONENT and "crash" in log.attributes


def _count(node: SpanInfo | LogInfo, ends: bool) -> int:
    """Count the events of a span's start or end without its content."""
    if isinstance(node, LogInfo):
        return 1
    count = 1 + (node.type == "tool")
    return count + (ends and cost_metrics.has_usage(node))


def _line_key(log: LogInfo) -> str:
    own = log.attributes.get("event_id")
    if isinstance(own, str) and 0 < len(own) <= _ID_MAX:
        return f"={own}"
    return f"{log.writer}.{log.seq}"


def _trace_of(root: SpanInfo | None, run_id: str) -> tuple[str | None, str]:
    """Return the caller's span that contains the run, if named, and the trace of both."""
    traceparent = root.attributes.get("traceparent") if root is not None else None
    parts = traceparent.split("-") if isinstance(traceparent, str) else []
    if len(parts) >= 4 and len(parts[1]) == 32 and len(parts[2]) == 16:
        return parts[2], parts[1]
    return None, run_id.replace("-", "")


def _spent(cost: dict[str, Any] | None) -> dict[str, Any]:
    if cost is None:
        return {}
    values = {
        f"openwop.cost.{key}": cost[key]
        for key in ("usd", "model", "provider", "duration_ms")
        if key in cost
    }
    return values | {f"openwop.cost.tokens.{key}": count for key, count in cost["tokens"].items()}


def _span(
    name: str,
    span_id: str,
    parent: str | None,
    trace: str,
    started_ns: int,
    ended_ns: int | None,
    attributes: dict[str, Any],
) -> dict[str, Any]:
    return {
        "name": name,
        "traceId": trace,
        "spanId": span_id,
        "parentSpanId": parent,
        "startedAt": render_time(started_ns),
        "endedAt": None if ended_ns is None else render_time(ended_ns),
        "attributes": attributes,
    }
