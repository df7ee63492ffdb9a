"""Validate a run directory, a folder of them, or an export against the AgentDbg v0.1 format.

All problems are reported with their location, not only the first. Extensions that the specification
allows (other event types) are warnings.

Elsewhere: the rules of payloads are in formats/agentdbg/payload_rules.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from vestige.errors import UnreadableError
from vestige.formats.agentdbg import detect
from vestige.formats.agentdbg.file_structs import (
    EVENT_TYPES,
    EVENTS_FILE,
    RUN_FILE,
    SPEC_VERSION,
    Counts,
    no_counts,
)
from vestige.formats.agentdbg.parse_event import NotAnEventError, parse_loosely
from vestige.formats.agentdbg.payload_rules import (
    Found,
    check_payload,
    is_count,
    is_int,
    is_object,
    is_text,
    is_timestamp,
    is_uuid,
    or_null,
)
from vestige.formats.line_reader import LineReader, TooLong, open_file
from vestige.formats.protocol import Problem, is_uuid4
from vestige.limits import PROBLEMS_MAX

_Rule = tuple[Callable[[Any], bool], str]
_ENVELOPE: dict[str, _Rule] = {
    "spec_version": (lambda value: value == SPEC_VERSION, f'"{SPEC_VERSION}"'),
    "event_id": (is_uuid, "a UUIDv4"),
    "run_id": (is_uuid, "a UUIDv4"),
    "parent_id": (or_null(is_uuid), "a UUIDv4 or null"),
    "event_type": (is_text, "a string"),
    "ts": (is_timestamp, "UTC with milliseconds and Z"),
    "duration_ms": (or_null(is_count), "a whole number of milliseconds, or null"),
    "name": (is_text, "a string"),
    "payload": (is_object, "an object"),
    "meta": (is_object, "an object"),
}
_RUN: dict[str, _Rule] = {
    "spec_version": (lambda value: value == SPEC_VERSION, f'"{SPEC_VERSION}"'),
    "run_id": (is_uuid, "a UUIDv4"),
    "run_name": (or_null(is_text), "a string or null"),
    "started_at": (is_timestamp, "UTC with milliseconds and Z"),
    "ended_at": (or_null(is_timestamp), "UTC with milliseconds and Z, or null"),
    "duration_ms": (or_null(is_count), "a whole number of milliseconds, or null"),
    "status": (lambda value: value in ("running", "ok", "error"), "running, ok or error"),
    "counts": (is_object, "an object"),
    "last_event_ts": (or_null(is_timestamp), "UTC with milliseconds and Z, or null"),
}
_COUNTS = ("llm_calls", "tool_calls", "errors", "loop_warnings")
_RECOVER = "If its program is dead: `vestige store recover`."


def check_path(path: Path) -> Sequence[Problem]:
    """Return all findings at a path."""
    if path.is_file():
        return _check_export(path)
    if detect.is_linked_run(path):
        return [Problem(str(path), "", "run-is-link", "a link, which is not followed.")]
    folder = None if detect.is_run(path) else detect.runs_folder(path)
    if folder is None and not detect.is_run(path):
        raise UnreadableError(f"{path}: no AgentDbg run (expected {RUN_FILE} or {EVENTS_FILE}).")
    problems: list[Problem] = []
    for run in [path] if folder is None else detect.run_directories(folder):
        checker = _Checker("" if folder is None else f"{run.name}/")
        checker.directory(run)
        problems += checker.problems
    return problems


def _check_export(path: Path) -> Sequence[Problem]:
    checker = _Checker("", path.name)
    try:
        value = parse_loosely(detect.read_whole(path))
    except NotAnEventError as error:
        checker.add("", "json", f"{error}.")
        return checker.problems
    if not is_object(value) or not isinstance(value.get("events"), list):
        checker.add("", "export", "no export (expected spec_version, run and events).")
        return checker.problems
    if value.get("spec_version") != SPEC_VERSION:
        checker.add("/spec_version", "spec-version", f'expected "{SPEC_VERSION}".')
    checker.run(value.get("run"), None)
    for number, event in enumerate(value["events"]):
        checker.event(f"/events/{number}", event)
    checker.end()
    return checker.problems


class _Checker:
    """Collect the problems of one run."""

    def __init__(self, prefix: str, file: str | None = None) -> None:
        self._prefix = prefix
        self._file = file
        self.problems: list[Problem] = []
        self._run: dict[str, Any] | None = None
        self._run_id: str | None = None
        self._counts: Counts = no_counts()
        self._ids: set[str] = set()
        self._refers: list[tuple[str, str, str]] = []
        self._patterns: set[str] = set()
        self._events = 0
        self._ends = 0
        self._after_end = ""

    def add(
        self,
        place: str,
        rule: str,
        message: str,
        hint: str = "",
        *,
        warning: bool = False,
        file: str | None = None,
    ) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            name = self._prefix + (file or self._file or EVENTS_FILE)
            severity: Literal["warning", "error"] = "warning" if warning else "error"
            self.problems.append(Problem(name, place, rule, message, hint, severity))

    # --- a directory -----------------------------------------------------------------------------

    def directory(self, path: Path) -> None:
        if detect.is_v2(path):
            self.add(
                "", "layout", "the later v0.2 layout; this checks v0.1.", file=detect.SPANS_FILE
            )
            return
        name = path.absolute().name
        if not is_uuid4(name):
            self.add(
                "",
                "run-directory-name",
                f"the directory is called {name[:100]!r} (expected the run's id, a UUIDv4).",
                "AgentDbg does not find it under this name.",
                file=RUN_FILE,
            )
        self.run(self._load(path / RUN_FILE), name if is_uuid4(name) else None)
        for number, line in self._lines(path / EVENTS_FILE):
            self._line(number, line)
        self.end()

    def _load(self, path: Path) -> Any:
        try:
            return _strictly(detect.read_whole(path))
        except UnreadableError as error:
            self.add("", "run-file", str(error), file=RUN_FILE)
        except NotAnEventError as error:
            self.add("", "json", f"{error}.", file=RUN_FILE)
        return None

    def _lines(self, path: Path) -> Iterator[tuple[int, bytes]]:
        try:
            file = open_file(path)
        except UnreadableError as error:
            self.add("", "events-file", str(error))
            return
        with file:
            lines = LineReader(file)
            for number, line in lines:
                if isinstance(line, TooLong):
                    self.add(f"line {number}", "line-too-long", f"{line.size_bytes} bytes.")
                else:
                    yield number, line
            if lines.torn.strip():
                self.add("end", "line-torn", "the last line is unfinished.", _RECOVER)

    def _line(self, number: int, line: bytes) -> None:
        place = f"line {number}"
        if not line.strip():
            self.add(place, "line-empty", "no event in it.", warning=True)
            return
        try:
            value = _strictly(line)
        except NotAnEventError as error:
            self.add(place, "json", f"{error} (expected one JSON object per line).")
            try:
                value = parse_loosely(line)
            except NotAnEventError:
                return
        self.event(f"{place} ", value)

    # --- run.json --------------------------------------------------------------------------------

    def run(self, value: Any, name: str | None) -> None:
        file = None if self._file else RUN_FILE
        at = "/run" if self._file else ""
        self._run_id = name
        if value is None:
            return
        if not is_object(value):
            self.add(at, "type", "expected an object.", file=file)
            return
        self._run = value
        self._fields(at, value, _RUN, file)
        counts = value.get("counts")
        if is_object(counts):
            for key in _COUNTS:
                if not is_count(counts.get(key)):
                    self.add(
                        f"{at}/counts/{key}",
                        "type",
                        "expected a whole number, 0 or more.",
                        file=file,
                    )
            for key in counts.keys() - set(_COUNTS):
                self.add(f"{at}/counts/{key}", "field-unknown", "not of the format.", file=file)
        run_id = value.get("run_id")
        if name is not None and is_text(run_id) and run_id != name:
            self.add(f"{at}/run_id", "run-id-differs", "not the name of its directory.", file=file)
        self._run_id = name or (run_id if is_text(run_id) else None)
        self._lifecycle(at, value, file)

    def _lifecycle(self, at: str, run: dict[str, Any], file: str | None) -> None:
        status = run.get("status")
        if status == "running":
            if run.get("ended_at") is not None:
                self.add(f"{at}/ended_at", "lifecycle", "set, but the run is running.", file=file)
            if run.get("duration_ms") not in (None, 0):
                self.add(
                    f"{at}/duration_ms", "lifecycle", "set, but the run is running.", file=file
                )
        elif status in ("ok", "error"):
            for key in ("ended_at", "duration_ms", "last_event_ts"):
                if key in run and run[key] is None:
                    self.add(
                        f"{at}/{key}", "lifecycle", f"null, but the run is {status}.", file=file
                    )
        ended, started = run.get("ended_at"), run.get("started_at")
        if is_timestamp(ended) and is_timestamp(started) and ended < started:
            self.add(f"{at}/ended_at", "lifecycle", "before started_at.", file=file)

    # --- events ----------------------------------------------------------------------------------

    def event(self, place: str, event: Any) -> None:
        if not is_object(event):
            self.add(place.strip(), "type", "expected an object.")
            return
        self._events += 1
        self._fields(place, event, _ENVELOPE, None)
        self._identity(place, event)
        kind = event.get("event_type")
        if is_text(kind):
            self._counts.add(kind)
            self._order(place, kind)
            if kind not in EVENT_TYPES:
                self.add(
                    f"{place}/event_type",
                    "event-type-unknown",
                    f"{kind[:100]!r} is not of v0.1.",
                    warning=True,
                )
        payload = event.get("payload")
        if is_object(payload) and is_text(kind):
            for found in check_payload(kind, payload):
                self._add_found(f"{place}/payload", found)
            self._about_others(place, kind, payload)

    def _add_found(self, place: str, found: Found) -> None:
        pointer, rule, message, warning = found
        self.add(f"{place}{pointer}", rule, message, warning=warning)

    def _identity(self, place: str, event: dict[str, Any]) -> None:
        event_id = event.get("event_id")
        if is_text(event_id):
            if event_id in self._ids:
                self.add(f"{place}/event_id", "event-id-duplicate", "another event has it.")
            self._ids.add(event_id)
        run_id = event.get("run_id")
        if self._run_id is not None and is_text(run_id) and run_id != self._run_id:
            self.add(f"{place}/run_id", "run-id-differs", "not the id of this run.")
        if is_text(event.get("parent_id")):
            self._refer(f"{place}/parent_id", "parent-missing", event["parent_id"])

    def _refer(self, place: str, rule: str, event_id: str) -> None:
        if event_id not in self._ids and len(self._refers) < 10 * PROBLEMS_MAX:
            self._refers.append((place, rule, event_id))

    def _order(self, place: str, kind: str) -> None:
        if self._events == 1 and kind != "RUN_START":
            self.add(f"{place}/event_type", "run-start", "the first event is not RUN_START.")
        elif self._events > 1 and kind == "RUN_START":
            self.add(f"{place}/event_type", "run-start", "a run starts once.")
        if self._ends and not self._after_end:
            self._after_end = place
        if kind == "RUN_END":
            self._ends += 1
            if self._ends == 2:
                self.add(f"{place}/event_type", "run-end", "a run ends once.")

    def _about_others(self, place: str, kind: str, payload: dict[str, Any]) -> None:
        if kind == "LOOP_WARNING":
            pattern = payload.get("pattern")
            if is_text(pattern):
                if pattern in self._patterns:
                    self.add(
                        f"{place}/payload/pattern",
                        "loop-duplicate",
                        "warned of before (once per run for each pattern).",
                    )
                self._patterns.add(pattern)
            evidence = payload.get("evidence_event_ids")
            for each in evidence if isinstance(evidence, list) else ():
                if is_text(each):
                    self._refer(f"{place}/payload/evidence_event_ids", "evidence-missing", each)
        elif kind == "RUN_END" and self._run is not None:
            status = self._run.get("status")
            if status in ("ok", "error") and payload.get("status") not in (None, status):
                self.add(f"{place}/payload/status", "status-differs", f"run.json says {status}.")
            self._summary(place, payload.get("summary"))

    def _summary(self, place: str, summary: Any) -> None:
        for key in _COUNTS[:3] if is_object(summary) else ():
            counted = getattr(self._counts, key)
            if is_int(summary.get(key)) and summary[key] != counted:
                self.add(
                    f"{place}/payload/summary/{key}",
                    "counts-differ",
                    f"there are {counted}.",
                    warning=True,
                )

    def end(self) -> None:
        """Check the rules that depend on all events."""
        for place, rule, event_id in self._refers:
            if event_id not in self._ids:
                self.add(place, rule, "no such event in this run.", warning=True)
        if not self._events:
            self.add("", "events-none", "no events.", warning=self._run is None)
        run = self._run or {}
        file = None if self._file else RUN_FILE
        at = "/run" if self._file else ""
        if run.get("status") in ("ok", "error"):
            if self._events and not self._ends:
                self.add("", "run-end", "the run is finished, but has no RUN_END.")
            counts = run.get("counts")
            counts = counts if is_object(counts) else {}
            for key in _COUNTS:
                counted = getattr(self._counts, key)
                if is_int(counts.get(key)) and counts[key] != counted:
                    self.add(
                        f"{at}/counts/{key}",
                        "counts-differ",
                        f"says {counts[key]}, and there are {counted}.",
                        file=file,
                    )
        elif run.get("status") == "running" and self._ends:
            self.add(
                f"{at}/status", "lifecycle", "running, but there is a RUN_END.", _RECOVER, file=file
            )
        if self._after_end:
            self.add(self._after_end.strip(), "run-end", "an event after the RUN_END.")

    def _fields(
        self, place: str, value: dict[str, Any], rules: dict[str, _Rule], file: str | None
    ) -> None:
        for key, (holds, expected) in rules.items():
            if key not in value:
                self.add(
                    f"{place}/{key}", "field-missing", f"missing (expected {expected}).", file=file
                )
            elif not holds(value[key]):
                self.add(
                    f"{place}/{key}",
                    "type",
                    f"{_short(value[key])} (expected {expected}).",
                    file=file,
                )
        for key in value.keys() - rules.keys():
            self.add(
                f"{place}/{key[:100]}",
                "field-unknown",
                "not of the format (put it into meta).",
                file=file,
            )


def _strictly(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise NotAnEventError("JSON nested too deeply") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise NotAnEventError(f"not strict JSON ({str(error)[:200]})") from None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
