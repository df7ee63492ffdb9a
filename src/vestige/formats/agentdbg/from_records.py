"""Convert records to AgentDbg events: one at a time, in order, each event at most once.

    mapper = Mapper(run_id)
    for record in records:                 # SpanOpen, SpanUpdate, SpanClose, Log of one run
        for event in mapper.take(record):
            file.write(render_event(event))
    mapper.run_file()                      # run.json as of now

    span run                  RUN_START when it opens; RUN_END when it closes, and ERROR before
    span llm, tool            LLM_CALL, TOOL_CALL when it closes; a failure is in its payload
    span state, snapshot      STATE_UPDATE when it closes
    any other span            nothing, but an ERROR if it failed with an exception
    log with `error.type`     ERROR
    log with `loop.pattern`   LOOP_WARNING

An exception that leaves several spans is one ERROR, in the innermost. `parent_id` is the id of the
nearest ancestor with an event. Event ids derive from span ids, so it is known before that event is
written. Pure, and the same for a live run and for an exported one.

Elsewhere: payloads are in formats/agentdbg/event_payload.py, limits of texts and redaction in
formats/agentdbg/event_values.py, the opposite direction in formats/agentdbg/to_records.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from vestige.formats.agentdbg.constants import (
    END_EVENT_ID,
    EVENT_ID,
    FORMAT,
    INSTANT,
    LOOP_PATTERN,
    PAYLOAD,
    RUN_TIMES,
    START_TS,
    root_span_id,
)
from vestige.formats.agentdbg.event_payload import (
    FAILED_RUN_KNOWN,
    LLM_KNOWN,
    OWN_KNOWN,
    PLAIN_STATUS,
    RUN_KNOWN,
    TOOL_KNOWN,
    EventPayloads,
    ReadSpilled,
    status_of,
)
from vestige.formats.agentdbg.event_values import Shaper
from vestige.formats.agentdbg.file_structs import (
    META_KEY,
    SPEC_VERSION,
    Event,
    EventType,
    RunFile,
    no_counts,
    parse_timestamp,
    timestamp,
)
from vestige.formats.protocol import derived_span_id, derived_uuid, is_uuid4, uuid_hash
from vestige.record.types import (
    Attributes,
    KnownRecord,
    Log,
    SpanClose,
    SpanOpen,
    SpanUpdate,
)

_TYPES: Final[dict[str, EventType]] = {
    "llm": "LLM_CALL",
    "tool": "TOOL_CALL",
    "state": "STATE_UPDATE",
    "snapshot": "STATE_UPDATE",
}
_NO_EVENTS: Final[Sequence[Event]] = ()
_Errors = set[tuple[Any, Any]]


class _Open:
    """The state of an open span."""

    __slots__ = ("around", "attributes", "event_id", "event_type", "opened", "reported")

    def __init__(self, opened: SpanOpen, event_type: str | None, event_id: str, around: str | None):
        self.opened = opened
        self.attributes: Attributes = opened.attributes
        self.event_type = event_type
        self.event_id = event_id
        """Its own event's; of a span without one, that of the nearest around."""
        self.around = around
        """The event that its own event is inside of."""
        self.reported: _Errors | None = None
        """Errors inside that have their ERROR event."""


class Mapper:
    """Turns the records of one run into events. `process` describes the program that ran."""

    def __init__(
        self,
        run_id: str,
        *,
        process: Mapping[str, Any] | None = None,
        shaper: Shaper | None = None,
        read_spilled: ReadSpilled | None = None,
    ) -> None:
        self.run_id = run_id
        self._event_id = uuid_hash(FORMAT, run_id)
        """Return the same id as `span_event_id`."""
        self.counts = no_counts()
        self.events = 0
        self._process = process or {}
        self._payloads = EventPayloads(run_id, shaper, read_spilled)
        self._open: dict[str, _Open] = {}
        self._root: SpanOpen | None = None
        self._root_event: str | None = None
        self._end: tuple[SpanClose, int] | None = None
        self._started_ns: int | None = None
        self._last_ns: int | None = None
        self._times: Any = None
        """The values of the run.json of an imported run."""
        self._event_counts: dict[tuple[str, str], int] = {}
        self._used: set[str] = set()

    # --- input -----------------------------------------------------------------------------------

    def take(self, record: KnownRecord) -> Sequence[Event]:
        """Return the events that a record completes: usually none or one."""
        if isinstance(record, SpanOpen):
            return self._opened(record)
        if isinstance(record, SpanClose):
            return self._closed(record)
        if isinstance(record, SpanUpdate):
            span = self._open.get(record.span_id)
            if span is not None and record.attributes:
                span.attributes = {**span.attributes, **record.attributes}
            return _NO_EVENTS
        return self._logged(record)

    def take_both(self, opened: SpanOpen, closed: SpanClose) -> Sequence[Event]:
        """Return the events of a span that opened and closed at once, with nothing inside."""
        event_type = _TYPES.get(opened.type)
        if event_type is None or self._root is None:
            return [*self._opened(opened), *self._closed(closed)]
        attributes = opened.attributes
        if EVENT_ID in attributes:
            event_id = self._span_event_id(opened.span_id, attributes)
        else:
            event_id = self._event_id(opened.span_id)
        if closed.attributes:
            attributes = {**attributes, **closed.attributes}
        around = self._around(opened)
        return [self._call(event_type, event_id, around, opened, closed, attributes)]

    def run_file(self) -> RunFile:
        """Return run.json after the records so far."""
        ended = self._end
        started_ns = self._started_ns or 0
        run = RunFile(
            SPEC_VERSION,
            self.run_id,
            self._payloads.string(self._root.name) if self._root is not None else None,
            timestamp(started_ns),
            None if ended is None else timestamp(ended[1]),
            None if ended is None else ended[0].duration_ns // 1_000_000,
            "running" if ended is None else status_of(ended[0].status),
            msgspec.structs.replace(self.counts),
            None if ended is None or self._last_ns is None else timestamp(self._last_ns),
        )
        return run if ended is None else _with_times(run, self._times)

    # --- spans -----------------------------------------------------------------------------------

    def _opened(self, record: SpanOpen) -> Sequence[Event]:
        if self._started_ns is None:
            self._started_ns = record.time_ns
        around = self._around(record)
        if record.parent_id is None and record.type == "run" and self._root is None:
            return [self._run_start(record)]
        event_type = _TYPES.get(record.type)
        if event_type is not None:
            event_id = self._span_event_id(record.span_id, record.attributes)
        else:
            event_id = around or ""
        self._open[record.span_id] = _Open(record, event_type, event_id, around)
        if record.type == "process" and not self._process:
            self._process = record.attributes
        return _NO_EVENTS

    def _around(self, record: SpanOpen) -> str | None:
        parent = self._open.get(record.parent_id) if record.parent_id is not None else None
        return self._root_event if parent is None else parent.event_id

    def _run_start(self, record: SpanOpen) -> Event:
        self._root = record
        self._started_ns = record.time_ns
        self._root_event = self._span_event_id(record.span_id, record.attributes)
        known = record.attributes.get(EVENT_ID)
        if (
            record.span_id == root_span_id(self.run_id)
            and isinstance(known, str)
            and is_uuid4(known)
        ):
            self._root_event = known
        self._open[record.span_id] = _Open(record, "RUN_START", self._root_event, None)
        start_ns = parse_timestamp(record.attributes.get(START_TS))
        return self._event(
            "RUN_START",
            self._root_event,
            None,
            record.time_ns if start_ns is None else start_ns,
            None,
            record.name,
            self._payloads.run_start(record, self._process),
            self._payloads.meta(record, record.attributes, RUN_KNOWN),
            record.attributes,
        )

    def _closed(self, record: SpanClose) -> Sequence[Event]:
        span = self._open.pop(record.span_id, None)
        if span is None:
            return _NO_EVENTS  # closed twice, or its opening was lost: nothing to tell it by
        if record.attributes:
            span.attributes = {**span.attributes, **record.attributes}
        if span.event_type == "RUN_START":
            return self._run_ended(span, record)
        if span.event_type is None:
            return self._step_ended(span, record)
        self._pass_on(span)
        opened = span.opened
        return [
            self._call(
                _TYPES[opened.type], span.event_id, span.around, opened, record, span.attributes
            )
        ]

    def _call(
        self,
        event_type: EventType,
        event_id: str,
        around: str | None,
        opened: SpanOpen,
        closed: SpanClose,
        attributes: Attributes,
    ) -> Event:
        payloads = self._payloads
        if event_type == "LLM_CALL":
            payload, known = payloads.llm(opened, closed, attributes), LLM_KNOWN
        elif event_type == "TOOL_CALL":
            payload, known = payloads.tool(opened, closed, attributes), TOOL_KNOWN
        else:
            payload, known = payloads.state(opened, closed, attributes), OWN_KNOWN
        meta = payloads.meta(opened, attributes, known, closed.status)
        duration = None if attributes.get(INSTANT) is True else closed.duration_ns // 1_000_000
        return self._event(
            event_type,
            event_id,
            around,
            closed.time_ns,
            duration,
            opened.name,
            payload,
            meta,
            attributes,
        )

    def _run_ended(self, span: _Open, record: SpanClose) -> Sequence[Event]:
        self._end = (record, record.time_ns)
        self._times = span.attributes.get(RUN_TIMES)
        events = []
        if record.status != "ok" and not self._is_reported(span):
            events.append(self._failure(span, record, span.event_id))
        payload = {
            "status": status_of(record.status),
            "summary": {
                "llm_calls": self.counts.llm_calls,
                "tool_calls": self.counts.tool_calls,
                "errors": self.counts.errors,
                "duration_ms": record.duration_ns // 1_000_000,
            },
        }
        end_id = span.attributes.get(END_EVENT_ID)
        if not (isinstance(end_id, str) and is_uuid4(end_id)):
            end_id = derived_uuid(FORMAT, self.run_id, record.span_id, "RUN_END")
        meta = {META_KEY: {"status": record.status}} if record.status not in PLAIN_STATUS else {}
        events.append(
            self._event(
                "RUN_END",
                end_id,
                span.event_id,
                record.time_ns,
                record.duration_ns // 1_000_000,
                "run_end",
                payload,
                meta,
                {},
            )
        )
        return events

    def _step_ended(self, span: _Open, record: SpanClose) -> Sequence[Event]:
        """Yield an ERROR if a span without its own event failed."""
        is_clean = record.status == "ok" or "error.type" not in span.attributes
        if is_clean or self._is_reported(span):
            self._pass_on(span)
            return _NO_EVENTS
        self._report(span)
        self._pass_on(span)
        return [self._failure(span, record, span.around)]

    def _failure(self, span: _Open, record: SpanClose, around: str | None) -> Event:
        attributes = span.attributes
        error = self._payloads.error(attributes, record.status)
        event_id = self._nth_id("ERROR", record.span_id)
        known = FAILED_RUN_KNOWN if span.event_type == "RUN_START" else OWN_KNOWN
        meta = self._payloads.meta(span.opened, attributes, known, record.status)
        name = str(error["error_type"])
        return self._event(
            "ERROR", event_id, around, record.time_ns, None, name, error, meta, attributes
        )

    # --- errors are reported once ----------------------------------------------------------------

    def _report(self, span: _Open) -> None:
        if span.reported is None:
            span.reported = set()
        span.reported.add(_error_key(span.attributes))

    def _is_reported(self, span: _Open) -> bool:
        return span.reported is not None and _error_key(span.attributes) in span.reported

    def _pass_on(self, span: _Open) -> None:
        """Mark errors as reported on the enclosing span, which would report them again."""
        if span.reported and span.opened.parent_id is not None:
            parent = self._open.get(span.opened.parent_id)
            if parent is not None:
                parent.reported = span.reported | (parent.reported or set())

    # --- lines -----------------------------------------------------------------------------------

    def _logged(self, record: Log) -> Sequence[Event]:
        if self._started_ns is None:
            self._started_ns = record.time_ns
        attributes = record.attributes
        span = self._open.get(record.span_id) if record.span_id is not None else None
        if LOOP_PATTERN in attributes:
            event_type: EventType = "LOOP_WARNING"
            payload = self._payloads.loop(attributes)
            name = str(payload["pattern"])
        elif "error.type" in attributes:
            event_type = "ERROR"
            payload = self._payloads.error(attributes, "error", record.message)
            name = str(payload["error_type"])
            if span is not None:
                if span.reported is None:
                    span.reported = set()
                span.reported.add(_error_key(attributes))
        else:
            return _NO_EVENTS
        around = span.event_id or None if span is not None else self._root_event
        meta = self._payloads.meta(record, attributes, OWN_KNOWN)
        event_id = self._log_event_id(record, event_type)
        return [
            self._event(
                event_type, event_id, around, record.time_ns, None, name, payload, meta, attributes
            )
        ]

    def _log_event_id(self, record: Log, event_type: str) -> str:
        known = record.attributes.get(EVENT_ID)
        if isinstance(known, str) and is_uuid4(known) and known not in self._used:
            self._used.add(known)
            return known
        return self._nth_id(event_type, record.span_id or "")

    # --- parts -----------------------------------------------------------------------------------

    def _event(
        self,
        event_type: EventType,
        event_id: str,
        around: str | None,
        time_ns: int,
        duration_ms: int | None,
        name: str,
        payload: dict[str, Any],
        meta: dict[str, Any],
        attributes: Attributes,
    ) -> Event:
        if PAYLOAD in attributes:
            payload = payload | self._payloads.more(attributes)
        self.counts.add(event_type)
        self.events += 1
        self._last_ns = time_ns
        return Event(
            SPEC_VERSION,
            event_id,
            self.run_id,
            around or None,
            event_type,
            timestamp(time_ns),
            duration_ms,
            self._payloads.string(name),
            payload,
            meta,
        )

    # --- ids -------------------------------------------------------------------------------------

    def _span_event_id(self, span_id: str, attributes: Attributes) -> str:
        """Return the event id with which a span was imported, else one from the span's id."""
        known = attributes.get(EVENT_ID)
        if (
            isinstance(known, str)
            and is_uuid4(known)
            and span_id == derived_span_id(FORMAT, self.run_id, known)
        ):
            return known
        return self._event_id(span_id)

    def _nth_id(self, event_type: str, span_id: str) -> str:
        """Return the id of an event of which a span may have several."""
        number = self._event_counts[event_type, span_id] = (
            self._event_counts.get((event_type, span_id), 0) + 1
        )
        return derived_uuid(FORMAT, self.run_id, span_id, event_type, str(number))


def _with_times(run: RunFile, text: Any) -> RunFile:
    """Replace the times with those of the imported run's run.json."""
    try:
        times = msgspec.json.decode(text, type=_RunTimes) if isinstance(text, str) else None
    except msgspec.DecodeError:
        times = None
    if times is None:
        return run
    changes = {
        key: value for key, value in msgspec.structs.asdict(times).items() if value is not None
    }
    return msgspec.structs.replace(run, **changes)


class _RunTimes(msgspec.Struct):
    ended_at: str | None = None
    duration_ms: int | None = None
    last_event_ts: str | None = None


def _error_key(attributes: Attributes) -> tuple[Any, Any]:
    return attributes.get("error.type"), attributes.get("error.message")
