"""Read a bundle into records: the suite is a run, each case a span of type `test` in it.

Trace events become records in their order; logs, screenshots and attachments become spans of type
`file`, under their case where it is known. Without a `suite_end` the suite was killed: it and
the cases that were running are interrupted.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from vestige.errors import UnreadableError
from vestige.formats.artifacts import constants
from vestige.formats.artifacts.file_structs import TraceEvent
from vestige.formats.artifacts.json_files.parsing import NotJsonError, parse_json
from vestige.formats.artifacts.read import Item, Tree, UnreadablePartError
from vestige.formats.artifacts.trace_events import Case, Step, iter_steps, parse_event
from vestige.formats.protocol import Problem, Source, is_uuid4
from vestige.formats.suite_records import SuiteRecords, parse_time_ns
from vestige.limits import (
    ARTIFACT_BODY_MAX,
    ARTIFACT_JSON_MAX,
    ARTIFACT_LINE_MAX,
    PROBLEMS_MAX,
)
from vestige.record.coercion import flat
from vestige.record.types import Attributes, KnownRecord, Link

IDENTITY_LINES = 8
"""Lines that identify a foreign trace: enough to distinguish two, and unchanged when it grows."""

_LEVELS = {"assert_fail": "error", "expected_actual_diff": "warn"}
_OWN = frozenset(
    (*constants.UNLISTED, *(part.path for part in constants.PART_OF.values() if part.type))
)
"""Files whose content is in the spans and logs already."""


def read_tree(tree: Tree) -> Source:
    """Read one bundle. UnreadableError if it has no trace."""
    problems: list[Problem] = []
    try:
        head = _read_head(tree)
    except UnreadablePartError as error:
        raise UnreadableError(f"{tree.name}/{constants.TRACE}: {error.message}") from None
    if not head:
        raise UnreadableError(
            f"{tree.name}: no trace in it (expected events in {constants.TRACE}). See `vestige "
            f"validate`."
        )
    first = parse_event(head[0])
    suite = first.suite if isinstance(first, TraceEvent) and first.suite else tree.name
    run_id = first.run_id if isinstance(first, TraceEvent) and first.run_id is not UNSET else None
    recorded = run_id if isinstance(run_id, str) and is_uuid4(run_id) else None
    # Ours has an id. Of others, two of one suite and second differ in how they begin.
    identity = recorded or hashlib.sha256(b"\n".join(head)).hexdigest()
    records = SuiteRecords("artifacts", identity, suite)
    reader = _Reader(tree, records, problems, recorded)
    return Source(records.run_id, records.writer, reader.records(), problems)


def _read_head(tree: Tree) -> list[bytes]:
    """Return the first lines that are not empty."""
    data = tree.read(constants.TRACE, 2 * ARTIFACT_LINE_MAX) or b""
    lines = [line for line in data.split(b"\n")[:64] if line.strip()]
    return lines[:IDENTITY_LINES]


class _Reader:
    """A bundle that is being read."""

    def __init__(
        self, tree: Tree, suite: SuiteRecords, problems: list[Problem], recorded: str | None
    ) -> None:
        self._tree = tree
        self._suite = suite
        self._problems = problems
        self._recorded = recorded
        """The run in which our own recorder wrote the suite down, if it did."""
        self._time_ns = 0
        self._opened = self._ended = False
        self._ends_ns: dict[str, int] = {}
        """When a case ended, by its key."""
        self._cases: dict[str, str] = {}
        """The key of the last case of a name."""
        self._owners: dict[str, str] = {}
        """The name of the case to which a file belongs."""

    def records(self) -> Iterator[KnownRecord]:
        lost: list[str] = []
        failures = unknown = 0
        for step in iter_steps(self._events(), self._has_ends()):
            self._time_ns = parse_time_ns(step.event.ts) or self._time_ns
            if not self._opened:
                self._opened = True
                yield self._suite.open(self._time_ns, self._facts(step.event))
            if step.action == "lost" and step.case is not None:
                lost.append(str(step.case.number))
            elif step.action == "close" and step.case is not None:
                failures += step.case.outcome == "fail"
                unknown += step.case.outcome == "unknown"
                yield self._close_case(step)
            elif step.action == "end" and not self._ended:
                self._ended = True
                failed = step.event.counters.fail or failures
                status = "error" if failed else "interrupted" if unknown else "ok"
                yield self._suite.close(status, self._time_ns, self._counts(step))
            elif step.action not in ("suite", "lost", "close", "end"):
                yield from self._convert_step(step)
        if not self._ended:
            yield from self._interrupted(lost)
        yield from self._files()

    # --- the trace --------------------------------------------------------------------------------

    def _events(self) -> Iterator[TraceEvent]:
        for number, line in self._lines():
            if not line or line.isspace():
                continue
            event = parse_event(line)
            if isinstance(event, TraceEvent):
                yield event
            else:
                self._note(constants.TRACE, f"line {number}", "trace-line", event)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of the trace, with an incomplete last one, which a kill may leave."""
        rest, number = b"", 0
        for chunk in self._chunks(constants.TRACE):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                number += 1
                yield number, line
            if len(rest) > ARTIFACT_LINE_MAX:
                self._note(
                    constants.TRACE,
                    f"line {number + 1}",
                    "trace-line",
                    "is too long; the rest was not read.",
                )
                return
        yield number + 1, rest

    def _chunks(self, path: str) -> Iterator[bytes]:
        try:
            yield from self._tree.chunks(path) or ()
        except UnreadablePartError as error:
            self._note(path, "", error.rule, error.message)

    def _has_ends(self) -> bool:
        tail = b""
        for chunk in self._chunks(constants.TRACE):
            if b'"case_end"' in tail + chunk:
                return True
            tail = chunk[-16:]
        return False

    def _convert_step(self, step: Step) -> Iterator[KnownRecord]:
        event, case = step.event, step.case
        if step.action == "open" and case is not None:
            key = str(case.number)
            self._cases[case.name] = key
            attributes: Attributes = {} if event.attempt is UNSET else {"attempt": event.attempt}
            yield self._suite.open_case(
                key, case.name, self._time_ns, attributes, self._link(event)
            )
            return
        if event.kind == "attachment" and isinstance(event.path, str) and case is not None:
            self._owners[event.path] = case.name
        attributes = {"kind": event.kind}
        for name in ("assertion_id", "elapsed_ms", "path"):
            value = getattr(event, name)
            if value is not UNSET:
                attributes[name] = value
        if case is None and event.case:
            attributes["case"] = event.case
        yield self._suite.log(
            None if case is None else str(case.number),
            _LEVELS.get(event.kind, "info"),
            event.message or event.kind,
            self._time_ns,
            attributes,
        )

    def _link(self, event: TraceEvent) -> Link | None:
        """Link to the span of the run that was recorded while the case ran."""
        if self._recorded is None or not isinstance(event.span_id, str):
            return None
        return Link(event.span_id, self._recorded, "recorded")

    def _close_case(self, step: Step) -> KnownRecord:
        case = step.case
        assert case is not None
        key = str(case.number)
        self._ends_ns[key] = self._time_ns
        elapsed = None if case.end is None or case.end.elapsed_ms is UNSET else case.end.elapsed_ms
        duration = int(elapsed * 1e6) if elapsed is not None and 0 <= elapsed < 1e12 else None
        return self._suite.close_case(key, case.outcome, self._time_ns, duration, _case_facts(case))

    def _counts(self, step: Step) -> Attributes:
        counters = step.event.counters
        return {
            "total": counters.total,
            "pass": counters.passed,
            "fail": counters.fail,
            "skip": counters.skip,
        }

    def _interrupted(self, lost: list[str]) -> Iterator[KnownRecord]:
        if not self._opened:
            yield self._suite.open(0)
        keys = set(lost)
        names = [name for name, key in self._cases.items() if key in keys]
        running = f"; running: {', '.join(names[:5])}" if names else ""
        error: Attributes = {
            "error.type": "Interrupted",
            "error.message": f"the trace has no suite_end{running}",
        }
        yield from self._suite.interrupt(lost, self._time_ns, error)

    def _facts(self, event: TraceEvent) -> Attributes:
        """Read the suite's facts from meta.json, repro.json and fixtures.json, as far as they are
        there."""
        facts: Attributes = {"suite": event.suite, "timestamp": event.run_timestamp}
        if self._recorded is not None:
            facts["recorded_run_id"] = self._recorded
        meta, repro = self._json("meta.json"), self._json("repro.json")
        git = meta.get("git")
        for name in ("commit", "branch", "dirty"):
            _take(facts, f"git.{name}", git.get(name) if isinstance(git, dict) else None)
        for name in ("command", "seed", "clock_mode"):
            _take(facts, name, repro.get(name))
        fixtures = self._json("fixtures.json").get("fixture_ids")
        if fixtures and isinstance(fixtures, list):
            facts["fixture_ids"] = flat(fixtures)
        return facts

    # --- files ------------------------------------------------------------------------------------

    def _files(self) -> Iterator[KnownRecord]:
        self._owners = {**self._known_owners(), **self._owners}
        for number, item in enumerate(self._tree.items(), 1):
            if item.path in _OWN or item.read is None:
                continue
            try:
                yield from self._file(item, number)
            except UnreadablePartError as error:
                self._note(item.path, "", error.rule, error.message)

    def _file(self, item: Item, number: int) -> Iterator[KnownRecord]:
        """Record a file `number` nanoseconds after its case, so that files keep their order."""
        hasher, size = hashlib.sha256(), 0
        chunks: list[bytes] | None = []
        for chunk in item.chunks():
            size += len(chunk)
            hasher.update(chunk)
            if chunks is not None:
                chunks.append(chunk)
                if size > ARTIFACT_BODY_MAX:
                    chunks = None
        owner = self._owners.get(item.path) or item.path.partition("/")[0]
        key = self._cases.get(owner)
        time_ns = self._ends_ns.get(key, self._time_ns) if key is not None else self._time_ns
        data = None if chunks is None else b"".join(chunks)
        yield from self._suite.file(
            item.path,
            key,
            time_ns + number,
            size,
            hasher.hexdigest(),
            data,
            {"kind": constants.kind_of(item.path)},
        )

    def _known_owners(self) -> dict[str, str]:
        """Return the case of each path, from the manifest of later eras and the writer's notes."""
        found: dict[str, str] = {}
        cases = self._json("manifest.json").get("cases")
        for case in cases if isinstance(cases, list) else ():
            if isinstance(case, dict) and isinstance(case.get("artifacts"), list):
                for path in case["artifacts"]:
                    if isinstance(path, str):
                        found[posixpath.normpath(path)] = str(case.get("name"))
        notes = self._text(constants.CASE_ARTIFACTS)
        for line in notes.splitlines():
            name, tab, path = line.partition("\t")
            if tab:
                found[path] = name
        return found

    def _json(self, path: str) -> dict[str, Any]:
        try:
            value = parse_json(self._read(path))
        except NotJsonError:
            return {}
        return value if isinstance(value, dict) else {}

    def _text(self, path: str) -> str:
        return self._read(path).decode(errors="replace")

    def _read(self, path: str) -> bytes:
        try:
            return (self._tree.read(path, ARTIFACT_JSON_MAX) or b"")[:ARTIFACT_JSON_MAX]
        except UnreadablePartError:
            return b""

    def _note(self, path: str, place: str, rule: str, message: str) -> None:
        if len(self._problems) < PROBLEMS_MAX:
            self._problems.append(Problem(f"{self._tree.name}/{path}", place, rule, message))


def _case_facts(case: Case) -> Attributes:
    facts: Attributes = {"passed": case.passed, "failed": case.failed, "skipped": case.skipped}
    if case.outcome == "fail":
        facts["error.type"] = "TestFailed"
    if case.failures:
        facts["error.message"] = case.failures[0]
    elif case.end is not None and case.end.message:
        facts["error.message" if case.outcome in ("fail", "unknown") else "message"] = (
            case.end.message
        )
    return facts


def _take(facts: Attributes, name: str, value: Any) -> None:
    if isinstance(value, (str, int, bool)):
        facts[name] = value


__all__ = ["read_tree"]
