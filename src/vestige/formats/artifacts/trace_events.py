"""Find cases in trace events: their starts, assertions and ends. Pure.

    for step in iter_steps(events): step.action, step.case, step.event

In the first era a case ends where the next one starts. In later eras cases may run in parallel, and
only `case_end` events end a case. Every step names its case. A case that still ran at the end of a
truncated trace is `lost`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec
from msgspec import UNSET

from vestige.formats.artifacts.file_structs import Counts, TraceEvent
from vestige.formats.artifacts.json_files.parsing import NotJsonError, parse_json
from vestige.formats.times_and_outcomes import (
    CaseOutcome,
    parse_outcome,
    parse_time_ns,
    render_time,
)

Action = Literal["suite", "open", "event", "close", "end", "lost"]

_quick_event = msgspec.json.Decoder(TraceEvent).decode


class CaseResult(Protocol):
    """A case as the typed files need it, from its trace or from its writer."""

    name: str
    attachments: list[str]

    @property
    def failures(self) -> list[str]: ...

    @property
    def assertions(self) -> int: ...

    @property
    def outcome(self) -> CaseOutcome: ...

    @property
    def duration_ms(self) -> int: ...


class Case(msgspec.Struct):
    """A case, up to the current event of the trace."""

    number: int
    name: str
    start: TraceEvent
    end: TraceEvent | None = None
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = msgspec.field(default_factory=list)
    attachments: list[str] = msgspec.field(default_factory=list)

    @property
    def assertions(self) -> int:
        return self.passed + self.failed + self.skipped

    @property
    def outcome(self) -> CaseOutcome:
        if self.end is not None and isinstance(self.end.status, str):
            return parse_outcome(self.end.status)
        if self.failed:
            return "fail"
        return "skip" if self.skipped and not self.passed else "pass"

    @property
    def duration_ms(self) -> int:
        end = self.end
        if end is not None and end.elapsed_ms is not UNSET:
            return max(0, int(end.elapsed_ms))
        began, ended = parse_time_ns(self.start.ts), parse_time_ns(end.ts) if end else None
        return (
            max(0, (ended - began) // 1_000_000) if began is not None and ended is not None else 0
        )

    def take(self, event: TraceEvent) -> None:
        kind = event.kind
        if kind == "assert_pass":
            self.passed += 1
        elif kind == "assert_fail":
            self.failed += 1
            self.failures.append(event.message)
        elif kind == "assert_skip":
            self.skipped += 1
        elif kind == "attachment" and isinstance(event.path, str):
            self.attachments.append(event.path)


class Step(NamedTuple):
    """An event and its meaning."""

    action: Action
    case: Case | None
    event: TraceEvent


def iter_steps(events: Iterable[TraceEvent], explicit: bool = False) -> Iterator[Step]:
    """Iterate over the steps of a trace. `explicit`: it has `case_end` events."""
    running: dict[str, Case] = {}
    count = 0
    last: TraceEvent | None = None
    for event in unfold(events):
        last = event
        case = running.get(event.case) if event.case else None
        if event.kind == "suite_start":
            explicit = explicit or event.tool is not UNSET
            yield Step("suite", None, event)
        elif event.kind == "case_start":
            for other in list(running.values()) if not explicit else [case] if case else []:
                yield _close(running, other, event)
            count += 1
            running[event.case] = Case(count, event.case, event)
            yield Step("open", running[event.case], event)
        elif event.kind == "case_end" and case is not None:
            case.end = event
            yield _close(running, case, event)
        elif event.kind == "suite_end":
            for other in list(running.values()):
                yield _close(running, other, event)
            yield Step("end", None, event)
        else:
            if case is not None:
                case.take(event)
            yield Step("event", case, event)
    if last is not None:
        yield from (Step("lost", case, last) for case in running.values())


def unfold(events: Iterable[TraceEvent]) -> Iterator[TraceEvent]:
    """Yield the events, with the three of a passing case where a large suite's trace has one."""
    for event in events:
        if event.folded is not True or event.kind != "case_end":
            yield event
            continue
        span_id, event.span_id, event.folded = event.span_id, UNSET, UNSET
        yield msgspec.structs.replace(
            event,
            kind="case_start",
            ts=_start_of(event),
            span_id=span_id,
            elapsed_ms=UNSET,
            status=UNSET,
        )
        yield msgspec.structs.replace(event, kind="assert_pass", assertion_id="a1", status=UNSET)
        yield event


def _start_of(end: TraceEvent) -> str:
    ended_ns = parse_time_ns(end.ts)
    elapsed_ms = end.elapsed_ms
    if ended_ns is None or elapsed_ms is UNSET or not 0 <= elapsed_ms < ended_ns / 1e6:
        return end.ts
    return render_time(ended_ns - int(elapsed_ms * 1e6), exact=True)


def _close(running: dict[str, Case], case: Case, event: TraceEvent) -> Step:
    del running[case.name]
    return Step("close", case, event)


def parse_events(lines: Sequence[bytes]) -> Iterable[TraceEvent]:
    """Return the events of complete lines. Lines that are not events are skipped."""
    try:
        return [_quick_event(line) for line in lines]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        found = (parse_event(line) for line in lines if not line.isspace())
        return [event for event in found if isinstance(event, TraceEvent)]


def parse_event(line: bytes) -> TraceEvent | str:
    """A line of a trace; or why it is none. What is missing in it is made up for."""
    try:
        return _quick_event(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    try:
        value = parse_json(line)
    except NotJsonError as error:
        return error.message
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        return "is not an event (expected an object with a `kind`)."
    text = {
        key: value.get(key) if isinstance(value.get(key), str) else ""
        for key in ("suite", "run_timestamp", "ts", "kind", "case", "message")
    }
    counters = Counts(0, 0, 0, 0)
    try:
        counters = msgspec.convert(value.get("counters"), Counts)
    except (msgspec.ValidationError, UnicodeEncodeError):  # or a text with a lone surrogate
        pass
    return TraceEvent(1, counters=counters, **text)  # type: ignore[arg-type]  # all of them texts
