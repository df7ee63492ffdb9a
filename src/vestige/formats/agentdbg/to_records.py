"""Convert AgentDbg events to records: a run, calls with exact bodies, logs of errors and loops.

    RUN_START, RUN_END        the root span, type run
    LLM_CALL, TOOL_CALL       a span llm, tool that ends at `ts` and began `duration_ms` before
    STATE_UPDATE              a span state
    ERROR, LOOP_WARNING       a log line of its parent's span
    anything else             a log line with the payload as its body

Sequence numbers follow the file, so a longer file yields the same records and then the new ones.
Records that are not in the file (the end of a run left `running`) have their own writer.

Files are located in detect.py, lines parsed in parse_event.py, payloads converted to attributes in
payload_attributes.py. The opposite direction is in from_records.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec

from vestige.formats.agentdbg.constants import (
    END_EVENT_ID,
    EVENT_ID,
    FORMAT,
    INSTANT,
    LOOP_EVIDENCE,
    LOOP_PATTERN,
    LOOP_REPETITIONS,
    LOOP_WINDOW,
    META,
    RUN_TIMES,
    START_TS,
    root_span_id,
)
from vestige.formats.agentdbg.file_structs import META_KEY, parse_timestamp, timestamp
from vestige.formats.agentdbg.parse_event import NULL, Line, take_text, take_value
from vestige.formats.agentdbg.payload_attributes import (
    INT_MAX,
    body_of,
    bounded,
    bounded_name,
    error_fields,
    error_of,
    keep_rest,
    llm_attributes,
    restore,
    text_of_json,
    word_of,
)
from vestige.formats.protocol import TIME_MAX_NS, derived_span_id, derived_writer, span_hash
from vestige.limits import MESSAGE_MAX
from vestige.record.coercion import flat, truncate
from vestige.record.types import (
    OWN_COMPONENT,
    STATUSES,
    VERSION,
    Attributes,
    KnownRecord,
    Log,
    SpanClose,
    SpanOpen,
    SpanUpdate,
)

COMPONENT = "agentdbg"
"""The component of records of another tool. Exported records keep their own component."""

_MS = 1_000_000
_NULL = b"null"
_NOTHING: dict[str, Any] = {}


class RunFacts(msgspec.Struct):
    """The plausible values of run.json."""

    name: str | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    duration_ms: int | None = None
    status: str = "running"
    last_event_ns: int | None = None


class EventReader:
    """Turns the events of one run into records, in order."""

    def __init__(self, run_id: str, source_id: str, facts: RunFacts, fallback_ns: int) -> None:
        self.run_id = run_id
        self.writer = derived_writer(FORMAT, run_id)
        self.root = root_span_id(run_id)
        self._source_id = source_id
        self._facts = facts
        self._seq = 0
        self._seen: set[str] = set()
        self._start_id: str | None = None
        self._started_ns = fallback_ns
        self.last_ns = fallback_ns
        self._last: Line | None = None
        self._meta: dict[str, Any] = _NOTHING
        self._our_meta: dict[str, Any] = _NOTHING
        self._span_hash = span_hash(FORMAT, run_id)
        self._handlers: dict[str, Callable[[Line, int], KnownRecord]] = {
            "RUN_START": self._run_start,
            "RUN_END": self._run_end,
            "ERROR": self._error_line,
            "LOOP_WARNING": self._loop_line,
        }
        self._error: Attributes = {}
        self.ended = False
        self.duplicates = 0

    def know_root(self, event_id: str) -> None:
        """Set the event that is the run itself, if only the end of the file names it."""
        self._start_id = event_id

    def read(self, events: Iterable[Line]) -> Iterator[KnownRecord]:
        """Yield all records of the file. The root comes first."""
        events = iter(events)
        first = next(events, None)
        yield self._open_root(first)
        if first is not None:
            yield from self._event(first)
            yield from chain.from_iterable(map(self._event, events))

    # --- the run ---------------------------------------------------------------------------------

    def _open_root(self, first: Line | None) -> SpanOpen:
        started_ns = self._facts.started_ns
        if started_ns is None and first is not None:
            started_ns = parse_timestamp(first.ts)
        self._started_ns = self.last_ns = self._started_ns if started_ns is None else started_ns
        name = self._facts.name
        if not name and first is not None and first.event_type == "RUN_START":
            name = first.name
        return SpanOpen(
            VERSION,
            self.writer,
            self._next(),
            self._started_ns,
            self.run_id,
            self.root,
            COMPONENT,
            "run",
            bounded_name(name or self._source_id),
            None,
            None,
            {} if self._source_id == self.run_id else {"source_run_id": self._source_id},
        )

    def _run_start(self, event: Line, time_ns: int) -> KnownRecord:
        self._start_id = self._start_id or event.event_id
        payload = event.payload
        attributes: Attributes = {}
        for key, name in (("python_version", "python"), ("platform", "platform"), ("cwd", "cwd")):
            if (text := take_text(payload.pop(key, None))) is not None:
                attributes[name] = bounded(text)
        if (argv := take_text(payload.pop("argv", None))) is not None:
            attributes["argv"] = bounded(argv)
        payload.pop("run_name", None)
        if time_ns != self._started_ns:
            attributes[START_TS] = timestamp(time_ns)
        keep_rest(payload, attributes)
        self._add_own(event, attributes)
        return SpanUpdate(
            VERSION, self.writer, self._next(), time_ns, self.run_id, self.root, attributes
        )

    def _run_end(self, event: Line, time_ns: int) -> KnownRecord:
        self.ended = True
        payload = event.payload
        status = self._status(payload)
        attributes: Attributes = {}
        self._add_own(event, attributes)
        if EVENT_ID in attributes:
            attributes[END_EVENT_ID] = attributes.pop(EVENT_ID)
        summary = take_value(payload.pop("summary", None))
        took = summary.get("duration_ms") if isinstance(summary, dict) else None
        if status != "ok":
            attributes |= self._error
            if status == "error" and self._error.get("error.type") == "Interrupted":
                status = "interrupted"
        attributes.pop(META, None)
        duration_ns = _duration(took, time_ns - self._started_ns)
        if times := self._other_times(time_ns, duration_ns):
            attributes[RUN_TIMES] = msgspec.json.encode(times).decode()
        return self.close_root(time_ns, status, duration_ns, attributes)

    def _other_times(self, time_ns: int, duration_ns: int) -> dict[str, Any]:
        """Return the times of run.json that differ from those of the RUN_END event."""
        facts = self._facts
        times: dict[str, Any] = {}
        for name, ns in (("ended_at", facts.ended_ns), ("last_event_ts", facts.last_event_ns)):
            if ns is not None and ns != time_ns:
                times[name] = timestamp(ns)
        if facts.duration_ms is not None and facts.duration_ms != duration_ns // _MS:
            times["duration_ms"] = facts.duration_ms
        return times

    def close_root(
        self, time_ns: int, status: str, duration_ns: int, attributes: Attributes
    ) -> SpanClose:
        return SpanClose(
            VERSION,
            self.writer,
            self._next(),
            time_ns,
            self.run_id,
            self.root,
            status,
            duration_ns,
            attributes,
        )

    def finish(self, *, dead: bool) -> Iterator[KnownRecord]:
        """Yield an end that only run.json has, or that was never written.

        It has its own writer, because a run that continues after all needs the next number.
        """
        facts = self._facts
        if self.ended or (facts.status == "running" and not dead):
            return
        self.writer, self._seq = derived_writer(FORMAT, f"{self.run_id}/end"), 0
        if facts.status == "running":
            # The clock orders writers: this comes after all that was written.
            self.last_ns = min(self.last_ns + 1, TIME_MAX_NS)
            last = self._last
            after = f" after {last.event_type} {last.name}"[:200] if last is not None else ""
            yield Log(
                VERSION,
                self.writer,
                self._next(),
                self.last_ns,
                self.run_id,
                OWN_COMPONENT,
                "error",
                f"run left unfinished: nobody writes to it any more{after}",
                self.root,
                {"crash": True},
            )
            end_ns, status, attributes = self.last_ns, "interrupted", Attributes()
        else:
            end_ns = facts.ended_ns if facts.ended_ns is not None else self.last_ns
            status = "ok" if facts.status == "ok" else "error"
            attributes = {} if status == "ok" else self._error
        took = _duration(facts.duration_ms, end_ns - self._started_ns)
        yield self.close_root(end_ns, status, took, attributes)

    # --- events ----------------------------------------------------------------------------------

    def _event(self, event: Line) -> tuple[KnownRecord, ...]:
        time_ns = parse_timestamp(event.ts)
        self.last_ns = time_ns = self.last_ns if time_ns is None else time_ns
        self._last = event
        kind = event.event_type
        self._meta = self._our_meta = _NOTHING
        meta = bytes(event.meta)
        if meta != b"{}" and meta != _NULL:
            self._take_meta(event.meta)
        if kind in _SPANS:
            return self._span(event, time_ns)
        handle = self._handlers.get(kind, self._unknown)
        return (handle(event, time_ns),)

    def _take_meta(self, raw: msgspec.Raw) -> None:
        """Split `meta` into the caller's part and the part that Vestige wrote."""
        meta = take_value(raw)
        if isinstance(meta, dict):
            ours = meta.pop(META_KEY, None)
            self._meta = meta
            self._our_meta = ours if isinstance(ours, dict) else _NOTHING

    def _span(self, event: Line, time_ns: int) -> tuple[KnownRecord, ...]:
        kind, begin, end = _SPANS[event.event_type]
        payload = event.payload
        attributes: Attributes = {}
        before = body_of(payload.pop(begin, NULL), begin, attributes)
        after = body_of(payload.pop(end, NULL), end, attributes)
        status = "ok"
        closing: Attributes = {}
        if kind != "state":
            status = self._status(payload)
            error = payload.pop("error", None)
            if error is not None and bytes(error) != _NULL:
                closing = error_of(error)
        if kind == "llm":
            llm_attributes(payload, attributes, event.name)
        elif kind == "tool":
            tool_name = word_of(payload.pop("tool_name", None))
            if tool_name is not None and tool_name != event.name:
                attributes["tool_name"] = bounded(tool_name)
        if payload:
            keep_rest(payload, attributes)
        self._add_own(event, attributes)
        component, type_ = COMPONENT, kind
        if self._our_meta:
            component, type_ = self._ours("component", COMPONENT), self._ours("type", kind)
        opening = self._open_span(event, time_ns, component, type_, attributes, before)
        return opening, self._close_span(opening, time_ns, status, closing, after)

    def _open_span(
        self,
        event: Line,
        time_ns: int,
        component: str,
        type_: str,
        attributes: Attributes,
        body: str | None,
    ) -> SpanOpen:
        if event.duration_ms is None:
            attributes[INSTANT] = True
            started_ns = time_ns
        else:
            started_ns = time_ns - min(max(0, event.duration_ms) * _MS, time_ns)
        span_id = self._span_id(event)
        name = bounded_name(event.name or _SPANS[event.event_type][0])
        parent = self.root if event.parent_id is None else self._parent(event)
        return SpanOpen(
            VERSION,
            self.writer,
            self._next(),
            started_ns,
            self.run_id,
            span_id,
            component,
            type_,
            name,
            parent,
            None,
            attributes,
            None,
            body,
        )

    def _close_span(
        self, opening: SpanOpen, time_ns: int, status: str, attributes: Attributes, body: str | None
    ) -> SpanClose:
        return SpanClose(
            VERSION,
            self.writer,
            self._next(),
            time_ns,
            self.run_id,
            opening.span_id,
            status,
            time_ns - opening.time_ns,
            attributes,
            body,
        )

    def _error_line(self, event: Line, time_ns: int) -> Log:
        error = error_fields(event.payload)
        around = self._parent(event)
        attributes = dict(error)
        self._add_own(event, attributes)
        if around == self.root:
            # As it was restored: the payload has the name of the class alone.
            self._error = {
                key: attributes[key] for key in ("error.type", "error.message") if key in attributes
            }
        for key in ("error_type", "type", "message", "stack", "details"):
            event.payload.pop(key, None)
        keep_rest(event.payload, attributes)
        message = str(error.get("error.message") or event.name or "error")
        return self._log(event, time_ns, "error", message, around, attributes)

    def _loop_line(self, event: Line, time_ns: int) -> Log:
        payload = event.payload
        pattern = take_text(payload.pop("pattern", None)) or event.name
        attributes: Attributes = {LOOP_PATTERN: bounded(pattern)}
        for key, name in (("repetitions", LOOP_REPETITIONS), ("window_size", LOOP_WINDOW)):
            attributes[name] = flat(take_value(payload.pop(key, None)))
        evidence = take_text(payload.pop("evidence_event_ids", None))
        attributes[LOOP_EVIDENCE] = bounded(evidence or "[]")
        keep_rest(payload, attributes)
        self._add_own(event, attributes)
        message = f"loop: {pattern}, {attributes[LOOP_REPETITIONS]} times"
        return self._log(event, time_ns, "warn", message, self._parent(event), attributes)

    def _unknown(self, event: Line, time_ns: int) -> Log:
        attributes: Attributes = {"event_type": bounded_name(event.event_type)}
        if event.duration_ms is not None:
            attributes["duration_ms"] = max(-INT_MAX, min(event.duration_ms, INT_MAX))
        body = (
            msgspec.json.encode(event.payload).decode(errors="replace") if event.payload else None
        )
        message = event.name or event.event_type or "event"
        return self._log(event, time_ns, "info", message, self._parent(event), attributes, body)

    def _log(
        self,
        event: Line,
        time_ns: int,
        level: str,
        message: str,
        span_id: str,
        attributes: Attributes,
        body: str | None = None,
    ) -> Log:
        return Log(
            VERSION,
            self.writer,
            self._next(),
            time_ns,
            self.run_id,
            self._ours("component", COMPONENT),
            level,
            truncate(message, MESSAGE_MAX),
            span_id,
            attributes,
            body,
        )

    # --- parts -----------------------------------------------------------------------------------

    def _add_own(self, event: Line, attributes: Attributes) -> None:
        """Add the attributes of every event: its id and the caller's `meta`."""
        if self._our_meta:
            restore(self._our_meta, attributes)
        if self._meta:
            attributes[META] = bounded(text_of_json(self._meta))
        if event.event_id is not None:
            attributes[EVENT_ID] = bounded_name(event.event_id)

    def _ours(self, key: str, otherwise: str) -> str:
        value = self._our_meta.get(key)
        return bounded_name(value) if isinstance(value, str) and value else otherwise

    def _status(self, payload: dict[str, msgspec.Raw]) -> str:
        """Return the payload's status, or the exact one of an event that we wrote."""
        text = word_of(payload.pop("status", None))
        exact = self._our_meta.get("status")
        if exact in STATUSES:
            return str(exact)
        return "ok" if text is None or text == "ok" else "error"

    def _span_id(self, event: Line) -> str:
        event_id = event.event_id or f"#{self._seq}"
        span_id = self._span_hash(event_id)
        if span_id in self._seen:
            self.duplicates += 1
            span_id = derived_span_id(FORMAT, self.run_id, event_id, str(self._seq))
        self._seen.add(span_id)
        return span_id

    def _parent(self, event: Line) -> str:
        if event.parent_id is None or event.parent_id == self._start_id:
            return self.root
        return self._span_hash(event.parent_id)

    def _next(self) -> int:
        self._seq += 1
        return self._seq


_SPANS = {
    "LLM_CALL": ("llm", "prompt", "response"),
    "TOOL_CALL": ("tool", "args", "result"),
    "STATE_UPDATE": ("state", "state", "diff"),
}


def _duration(took_ms: Any, otherwise_ns: int) -> int:
    if type(took_ms) is int and 0 <= took_ms < 2**40:
        return took_ms * _MS
    return max(0, otherwise_ns)
