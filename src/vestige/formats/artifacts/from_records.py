"""Write a stored run as a bundle: its `test` spans are the cases, its `file` spans the artifacts.

A run without test spans is refused: it is not a suite. The typed files are written from the run;
further files of an imported bundle are copied.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vestige.errors import UsageError
from vestige.formats.artifacts import constants
from vestige.formats.artifacts.file_structs import Git
from vestige.formats.artifacts.json_files.parsing import (
    NotJsonError,
    is_json,
    is_valid_json,
    parse_json,
    parse_quoted,
    parse_variables,
)
from vestige.formats.artifacts.write import NO_GIT, SuiteFacts, TraceFile, finish_bundle
from vestige.formats.protocol import RunToWrite
from vestige.formats.suite_records import TEST, render_time
from vestige.record.run import LogInfo, SpanInfo

_OUTCOME_OF = {"ok": "pass", "interrupted": "unknown", None: "unknown"}
_FRAME = frozenset(("suite_start", "case_start", "case_end", "suite_end"))
"""Kinds of events that come from spans; log lines cannot have them."""
_ASSERTION = {"pass": "assert_pass", "fail": "assert_fail", "skip": "assert_skip"}


def write_run(source: RunToWrite, target: Path) -> Path:
    """Write into a folder, as `<suite>/<timestamp>`, or to a target that does not exist."""
    info = source.run.info
    tests = [span for span in source.run.spans if span.type == TEST]
    if not tests:
        raise UsageError(
            f"{info.short_id}: no spans of type `test` in it: not a suite. Export it as another "
            f"format."
        )
    suite = _suite_of(source)
    timestamp = _timestamp_of(source)
    place = target / safe_name(suite) / timestamp if target.is_dir() else target
    with new_folder(place) as folder:
        trace = TraceFile(folder, suite, timestamp)
        owners = _write_files(source, folder)
        try:
            _write_trace(source, tests, trace, owners)
        finally:
            trace.close()
        finish_bundle(folder, _facts(source, suite, timestamp))
        folder.rename(place)
    return place


def safe_name(suite: str) -> str:
    """Return the name of a suite as a folder name."""
    return re.sub(r"[^\w.-]+", "_", suite).strip("._")[:100] or "suite"


class new_folder:  # noqa: N801  # used as a function
    """A folder beside the place where it will be; all or nothing."""

    def __init__(self, place: Path) -> None:
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise UsageError(f"{place}: is in the way (expected no such path). Name another.")
        place.parent.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix=".vestige-", dir=place.parent))

    def __enter__(self) -> Path:
        self._folder.chmod(0o755)
        return self._folder

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _write_trace(
    source: RunToWrite, tests: list[SpanInfo], trace: TraceFile, owners: dict[str, list[str]]
) -> None:
    logs: dict[str | None, list[LogInfo]] = {}
    for log in source.run.logs:
        logs.setdefault(log.span_id, []).append(log)
    info, root = source.run.info, _root(source)
    trace.write("suite_start", ts=_ts(info.started_ns), tool="vestige", run_id=info.id)
    of_suite = deque(
        sorted([*logs.get(None, ()), *logs.get(root.id if root else "", ())], key=_place)
    )
    for test in tests:
        while of_suite and _place(of_suite[0]) < (test.started_ns, test.seq or 0):
            _write_line(of_suite.popleft(), trace)
        outcome = _outcome(test)
        name = test.name
        attempt = test.attributes.get("attempt")
        more: dict[str, Any] = {"attempt": attempt} if type(attempt) is int else {}
        trace.write("case_start", ts=_ts(test.started_ns), case=name, span_id=test.id, **more)
        assertions = list(_iter_assertions(test, outcome, logs.get(test.id, [])))
        for time_ns, kind, message in assertions:
            trace.write(kind, ts=_ts(time_ns), case=name, message=message)
        ended_ns = test.started_ns + (test.duration_ns or 0)
        for path in owners.get(test.id, ()):
            trace.write("attachment", ts=_ts(ended_ns), case=name, path=path)
        elapsed = (test.duration_ns or 0) / 1e6
        trace.write("case_end", ts=_ts(ended_ns), case=name, status=outcome, elapsed_ms=elapsed)
    for log in of_suite:
        _write_line(log, trace)
    trace.write("suite_end", ts=_ts(info.ended_ns or info.last_ns))


def _write_line(log: LogInfo, trace: TraceFile) -> None:
    """Write a log record of no case, or of a case that the trace did not start."""
    kind, case = _kind(log), log.attributes.get("case")
    message = log.message if log.message != kind else ""
    trace.write(kind, ts=_ts(log.time_ns), case=str(case or ""), message=message)


def _kind(log: LogInfo) -> str:
    kind = log.attributes.get("kind")
    return kind if isinstance(kind, str) and kind and kind not in _FRAME else "log"


def _place(log: LogInfo) -> tuple[int, int]:
    """Return the sort key: the time, then the order of the writer, for coarse clocks."""
    return log.time_ns, log.seq or 0


def _ts(time_ns: int) -> str:
    return render_time(time_ns, exact=True)


def _iter_assertions(
    test: SpanInfo, outcome: str, logs: list[LogInfo]
) -> Iterator[tuple[int, str, str]]:
    """(time, kind, message): what was asserted. A case of which nothing is known but its end has
    one assertion: that it went so."""
    asserted = False
    for log in logs:
        kind = _kind(log)
        if kind == "attachment":
            continue
        asserted |= kind.startswith("assert_")
        yield log.time_ns, kind, log.message if log.message != kind else ""
    if not asserted and outcome in _ASSERTION:
        message = test.attributes.get("error.message") or test.attributes.get("message")
        yield test.started_ns + (test.duration_ns or 0), _ASSERTION[outcome], str(message or "")


def _outcome(test: SpanInfo) -> str:
    outcome = test.attributes.get("outcome")
    if outcome in ("pass", "fail", "skip", "unknown"):
        return str(outcome)
    return _OUTCOME_OF.get(test.status, "fail")


def _write_files(source: RunToWrite, folder: Path) -> dict[str, list[str]]:
    """Write captured files unchanged, by the span that contains them."""
    owners: dict[str, list[str]] = {}
    taken = {constants.BUNDLE, *constants.PART_OF}
    for span in source.run.spans:
        data = source.body(span.input) if span.type == "file" else None
        path = span.attributes.get("path")
        if data is None or not isinstance(path, str) or constants.fault_of_path(path) is not None:
            continue
        path = constants.plain(path)
        if is_json(path) and not is_valid_json(path, data):
            path += ".txt"  # evidence, and no document: it would make the bundle invalid
        if path in taken or "\\" in path or _is_in_the_way(path):
            continue
        place = folder / path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        except OSError:
            continue  # a name that this disk cannot hold, or a file where a folder should be
        taken.add(path)
        owners.setdefault(span.parent_id or "", []).append(path)
    for number, span in enumerate((span for span in source.run.spans if span.type == TEST), 1):
        output = source.body(span.output)
        path = f"cases/{number}/output.log"
        if output and path not in taken:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(output)
            owners.setdefault(span.id, []).append(path)
    return owners


def _is_in_the_way(path: str) -> bool:
    """Check for a folder with a typed file's name, or a file with its folder's name."""
    return any(
        f"{part}/".startswith(f"{path}/") or path.startswith(f"{part}/")
        for part in constants.PART_OF
    )


def _suite_of(source: RunToWrite) -> str:
    root = _root(source)
    suite = root.attributes.get("suite") if root is not None else None
    return suite if isinstance(suite, str) and suite else source.run.info.name


def _timestamp_of(source: RunToWrite) -> str:
    root = _root(source)
    timestamp = root.attributes.get("timestamp") if root is not None else None
    if isinstance(timestamp, str) and constants.SEED_TIMESTAMP.fullmatch(timestamp):
        return timestamp
    return re.sub(r"[-:Z]", "", render_time(source.run.info.started_ns)).replace("T", "_")


def _facts(source: RunToWrite, suite: str, timestamp: str) -> SuiteFacts:
    info, root = source.run.info, _root(source)
    known = root.attributes if root is not None else {}
    ended_ns = info.ended_ns or info.last_ns
    command, seed, clock_mode = (known.get(name) for name in ("command", "seed", "clock_mode"))
    return SuiteFacts(
        suite=suite,
        timestamp=timestamp,
        started_ns=info.started_ns,
        ended_ns=ended_ns,
        generated_ns=ended_ns,
        git=_git(known),
        command=command if isinstance(command, str) else f"vestige show {info.id}",
        seed=seed if type(seed) is int else 0,
        clock_mode=clock_mode if isinstance(clock_mode, str) else "wall",
        environment=parse_variables(_file(source, constants.ENVIRONMENT)),
        replay_environment=parse_quoted(_file(source, constants.REPLAY_ENVIRONMENT)),
        fixture_ids=_fixtures(known.get("fixture_ids")),
        notes=[] if info.outcome in ("ok", "error") else [f"the run was {info.outcome}"],
    )


def _file(source: RunToWrite, path: str) -> bytes:
    """Return the content of a recorded file; empty if the run has none under this path."""
    for span in source.run.spans:
        if span.type == "file" and span.attributes.get("path") == path:
            return source.body(span.input) or b""
    return b""


def _fixtures(value: object) -> list[str]:
    try:
        found = parse_json(value.encode()) if isinstance(value, str) else None
    except NotJsonError:
        return []
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _git(known: object) -> Git:
    values = (
        [known.get(f"git.{name}") for name in ("commit", "branch", "dirty")]
        if isinstance(known, dict)
        else [None] * 3
    )
    if isinstance(values[0], str):
        return Git(values[0], str(values[1] or "unknown"), values[2] is True)
    return NO_GIT


def _root(source: RunToWrite) -> SpanInfo | None:
    return next(
        (span for span in source.run.spans if span.type == "run" and span.parent_id is None), None
    )
