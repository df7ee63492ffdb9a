"""Read one AgentDbg run: a directory of either layout, or an export.

Damage is reported as a problem: a truncated last line, a line that is too long, no run.json. Only
a missing run is an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec

from vestige._runtime.clock import SYSTEM
from vestige.errors import UnreadableError
from vestige.formats.agentdbg.constants import FORMAT
from vestige.formats.agentdbg.detect import (
    META_FILE,
    SPANS_FILE,
    estimate_lines,
    is_linked_run,
    is_run,
    is_v2,
    read_whole,
)
from vestige.formats.agentdbg.file_structs import (
    EVENTS_FILE,
    RUN_FILE,
    SIDECAR_FILE,
    parse_timestamp,
)
from vestige.formats.agentdbg.liveness import is_dead
from vestige.formats.agentdbg.parse_event import (
    Line,
    NotAnEventError,
    as_utf8,
    event_of,
    parse_event,
    parse_loosely,
)
from vestige.formats.agentdbg.read_v02 import events_of
from vestige.formats.agentdbg.sidecar_records import find_sidecar, read_sidecar
from vestige.formats.agentdbg.to_records import EventReader, RunFacts
from vestige.formats.line_reader import LineReader, TooLong, open_file
from vestige.formats.protocol import (
    TIME_MAX_NS,
    Problem,
    Source,
    derived_run_id,
    derived_writer,
    is_uuid4,
)
from vestige.limits import EVENT_LINE_MAX, FIRST_PAGE_EVENTS, FIRST_PAGE_MIN, NAME_MAX, PROBLEMS_MAX
from vestige.record.types import KnownRecord


class Problems:
    """The problems that were found while reading, up to a bound."""

    def __init__(self) -> None:
        self.list: list[Problem] = []
        self.seen = 0

    def add(self, file: str, place: str, rule: str, message: str, hint: str = "") -> None:
        self.seen += 1
        if self.seen <= PROBLEMS_MAX:
            self.list.append(Problem(file, place, rule, message, hint, "warning"))


def read_run(path: Path) -> Source:
    """Read one run from a run directory or an export file."""
    if path.is_file():
        return _read_export(path)
    if is_linked_run(path):
        raise UnreadableError(
            f"{path}: a link to a run, which is not followed. Give the run's own path."
        )
    if not is_run(path):
        raise UnreadableError(f"{path}: no AgentDbg run (expected {RUN_FILE} or {EVENTS_FILE}).")
    return _read_later(path) if is_v2(path) else _read_directory(path)


def glance_at_run(path: Path) -> Source | None:
    """Return the first events of a long run, its end, and about how many others there are."""
    events_file = path / EVENTS_FILE
    if not is_run(path) or is_v2(path) or events_file.is_symlink():
        return None
    if not events_file.is_file() or events_file.stat().st_size < FIRST_PAGE_MIN:
        return None
    problems = Problems()
    run = load_json(path / RUN_FILE, problems)
    source_id = source_id_of(path, run, "run_id", problems)
    run_id = derived_run_id(FORMAT, source_id)
    reader = EventReader(run_id, source_id, _facts(run), _modified_ns(path))
    first = list(islice(read_lines(events_file, problems), FIRST_PAGE_EVENTS))
    unread = estimate_lines(events_file, FIRST_PAGE_EVENTS) - len(first)
    ours = any(map(_is_ours, first[:1]))

    def records() -> Iterator[KnownRecord]:
        yield from reader.read(first)
        yield from reader.finish(dead=_died(reader, events_file, ours))

    return Source(run_id, reader.writer, records(), problems.list, unread)


# --- a run directory -------------------------------------------------------------------------


def _read_directory(path: Path) -> Source:
    problems = Problems()
    run = load_json(path / RUN_FILE, problems)
    source_id = source_id_of(path, run, "run_id", problems)
    run_id = derived_run_id(FORMAT, source_id)
    writer = derived_writer(FORMAT, run_id)
    belongs, why_not = find_sidecar(path)
    if belongs:

        def damaged(line: int) -> None:
            problems.add(
                SIDECAR_FILE, f"line {line}", "line-invalid", "no record of ours; passed over."
            )

        records = read_sidecar(path, run_id, writer, damaged)
        return Source(run_id, writer, records, problems.list)
    if why_not:
        problems.add(
            SIDECAR_FILE, "", "sidecar-passed-over", f"not used: {why_not}. The events are."
        )
    events_file = path / EVENTS_FILE
    reader = EventReader(run_id, source_id, _facts(run), _modified_ns(path))
    records = _records(reader, events_file, problems)
    return Source(run_id, writer, records, problems.list)


def _records(reader: EventReader, events_file: Path, problems: Problems) -> Iterator[KnownRecord]:
    events = read_lines(events_file, problems)
    first = list(islice(events, 1))
    ours = any(map(_is_ours, first))
    yield from reader.read(chain(first, events))
    yield from reader.finish(dead=_died(reader, events_file, ours))
    if reader.duplicates:
        problems.add(
            EVENTS_FILE,
            "",
            "event-id-duplicate",
            f"{reader.duplicates} events have an id that another one has.",
        )


def _is_ours(first: Line) -> bool:
    return b'"vestige"' in bytes(first.meta)


def _died(reader: EventReader, file: Path, ours: bool) -> bool:
    return not reader.ended and is_dead(file, ours=ours, last_event_ns=reader.last_ns)


def read_lines(path: Path, problems: Problems) -> Iterator[Line]:
    """Yield the events of a file. Other lines are problems."""
    name = path.name
    if not path.exists() and not path.is_symlink():
        problems.add(name, "", "events-missing", "there is no such file.")
        return
    try:
        file = open_file(path)
    except UnreadableError as error:
        problems.add(name, "", "events-unreadable", str(error))
        return
    with file:
        lines = LineReader(file)
        for number, line in lines:
            if isinstance(line, TooLong):
                problems.add(
                    name,
                    f"line {number}",
                    "line-too-long",
                    f"{line.size_bytes} bytes (at most {EVENT_LINE_MAX}); passed over.",
                )
            elif line and not line.isspace():
                try:
                    event, forgiven = parse_event(line)
                except NotAnEventError as error:
                    problems.add(name, f"line {number}", "line-invalid", f"{error}; passed over.")
                    continue
                if forgiven is not None:
                    problems.add(name, f"line {number}", "line-odd", f"{forgiven}; read anyway.")
                yield event
        if lines.torn.strip():
            problems.add(
                name,
                "end",
                "line-torn",
                "the last line is unfinished; passed over.",
                "Its writer died, or still writes.",
            )


# --- the later layout ------------------------------------------------------------------------


def _read_later(path: Path) -> Source:
    problems = Problems()
    meta = load_json(path / META_FILE, problems)
    source_id = source_id_of(path, meta, "trace_id", problems)
    run_id = derived_run_id(FORMAT, source_id)
    reader = EventReader(run_id, source_id, _facts(meta), _modified_ns(path))
    spans_file = path / SPANS_FILE

    def records() -> Iterator[KnownRecord]:
        for span in _spans(spans_file, Problems()):
            if span.get("parent_span_id") is None and isinstance(span.get("span_id"), str):
                reader.know_root(span["span_id"])
        events = (event for span in _spans(spans_file, problems) for event in events_of(span))
        yield from reader.read(events)
        yield from reader.finish(dead=_died(reader, spans_file, False))

    return Source(run_id, reader.writer, records(), problems.list)


def _spans(path: Path, problems: Problems) -> Iterator[dict[str, Any]]:
    with open_file(path) as file:
        lines = LineReader(file)
        for number, line in lines:
            if isinstance(line, TooLong):
                problems.add(path.name, f"line {number}", "line-too-long", "passed over.")
            elif line and not line.isspace():
                try:
                    span = parse_loosely(line)
                    if not isinstance(span, dict):
                        raise NotAnEventError("no JSON object")
                except NotAnEventError as error:
                    problems.add(path.name, f"line {number}", "line-invalid", f"{error}")
                    continue
                yield span
        if lines.torn.strip():
            problems.add(path.name, "end", "line-torn", "the last line is unfinished.")


# --- an export -------------------------------------------------------------------------------


class _Export(msgspec.Struct):
    run: Any = None
    events: list[Line] = []


def _read_export(path: Path) -> Source:
    problems = Problems()
    data, forgiven = as_utf8(read_whole(path))
    if forgiven is not None:
        problems.add(path.name, "", "line-odd", f"{forgiven}; read anyway.")
    try:
        export = msgspec.json.decode(data, type=_Export)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        export = _export_loosely(path, data, problems)
    run = export.run if isinstance(export.run, dict) else {}
    source_id = run.get("run_id")
    if not isinstance(source_id, str) or not source_id:
        source_id = next((one.run_id for one in export.events if one.run_id), None) or path.stem
    run_id = derived_run_id(FORMAT, source_id[:NAME_MAX])
    reader = EventReader(run_id, source_id[:NAME_MAX], _facts(run), _modified_ns(path))

    def records() -> Iterator[KnownRecord]:
        yield from reader.read(export.events)
        # An export never goes on.
        yield from reader.finish(dead=True)

    return Source(run_id, reader.writer, records(), problems.list)


def _export_loosely(path: Path, data: bytes, problems: Problems) -> _Export:
    try:
        value = parse_loosely(data)
    except NotAnEventError as error:
        raise UnreadableError(f"{path}: {error}. Export the run again.") from None
    if not isinstance(value, dict) or not isinstance(value.get("events"), list):
        raise UnreadableError(f"{path}: no AgentDbg export (expected run and events).")
    events = []
    for number, one in enumerate(value["events"]):
        try:
            events.append(event_of(one))
        except NotAnEventError as error:
            problems.add(path.name, f"/events/{number}", "event-invalid", f"{error}; passed over.")
    return _Export(value.get("run"), events)


# --- parts -----------------------------------------------------------------------------------


def load_json(path: Path, problems: Problems) -> dict[str, Any]:
    if not path.exists() and not path.is_symlink():
        problems.add(path.name, "", "run-file-missing", "there is no such file.")
        return {}
    try:
        value = parse_loosely(read_whole(path))
    except (NotAnEventError, UnreadableError) as error:
        problems.add(path.name, "", "run-file-invalid", f"{error}; passed over.")
        return {}
    if not isinstance(value, dict):
        problems.add(path.name, "", "run-file-invalid", "no JSON object; passed over.")
        return {}
    return value


def source_id_of(path: Path, run: dict[str, Any], key: str, problems: Problems) -> str:
    """Return the run id: the name of the directory, as in AgentDbg itself."""
    name = path.absolute().name
    claimed = run.get(key)
    if is_uuid4(name) or _is_trace_id(name):
        if claimed not in (None, name):
            problems.add(
                RUN_FILE,
                f"/{key}",
                "run-id-differs",
                f"says {str(claimed)[:100]!r}; the directory's name is used.",
            )
        return name
    return claimed[:NAME_MAX] if isinstance(claimed, str) and claimed else name


def _is_trace_id(name: str) -> bool:
    return len(name) == 32 and all(letter in "0123456789abcdef" for letter in name)


def _facts(run: dict[str, Any]) -> RunFacts:
    name, status, took = run.get("run_name"), run.get("status"), run.get("duration_ms")
    return RunFacts(
        name=name if isinstance(name, str) else None,
        started_ns=parse_timestamp(run.get("started_at")),
        ended_ns=parse_timestamp(run.get("ended_at")),
        duration_ms=took if type(took) is int else None,
        status=status if status in ("ok", "error") else "running",
        last_event_ns=parse_timestamp(run.get("last_event_ts")),
    )


def _modified_ns(path: Path) -> int:
    try:
        return max(0, min(os.stat(path).st_mtime_ns, TIME_MAX_NS))
    except OSError:
        return SYSTEM.now_ns()
