"""pytest-reportlog: one JSON object per line, written by pytest while it runs.

A session is a run, a test (its setup, call and teardown) is a span of type `test`. A log without
`SessionFinish` is from a killed session: the tests that were running are interrupted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from vestige.errors import UnreadableError, UsageError
from vestige.formats.protocol import TIME_MAX_NS, Problem, RunToWrite, Source
from vestige.formats.suite_records import CaseOutcome, SuiteRecords
from vestige.limits import ARTIFACT_LINE_MAX, BODY_INLINE_MAX, PROBLEMS_MAX, STACK_MAX
from vestige.record.types import Attributes, KnownRecord

_decode = msgspec.json.Decoder().decode
_TYPE = "$report_type"
_HEAD_LINES = 10_000
"""Lines that are searched for the first test. Each collected file has a line before it."""


def is_readable(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with open(path, "rb") as file:
            start = file.read(4096)
    except OSError:
        return False
    line = start.partition(b"\n")[0]
    return line.startswith(b"{") and b'"$report_type"' in line


def find_runs(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from filter(is_readable, sorted(path.glob("*.jsonl")))
    else:
        yield path


def read_run(path: Path) -> Source:
    if not is_readable(path):
        raise UnreadableError(f"{path}: not a pytest report log (expected lines with {_TYPE!r}).")
    suite = SuiteRecords("reportlog", _identity(path), "pytest")
    problems: list[Problem] = []
    return Source(suite.run_id, suite.writer, _Reader(path, suite, problems).records(), problems)


def validate_run(path: Path) -> Sequence[Problem]:
    """Return the lines that are not reports, as problems."""
    try:
        source = read_run(path)
    except UnreadableError as error:
        return [Problem(str(path), "", "reportlog-unreadable", str(error))]
    for _ in source.records:
        pass
    return source.problems


def write_run(run: RunToWrite, target: Path) -> Path:
    raise UsageError(
        "reportlog: cannot be written (only pytest writes it). Export as junit or artifacts."
    )


def _identity(path: Path) -> str:
    """Return a hash of the first test's line, which has a time and stays while the log grows."""
    with open(path, "rb") as file:
        for number, line in enumerate(_lines(file)):
            if b'"TestReport"' in line:
                return hashlib.sha256(line).hexdigest()
            if number > _HEAD_LINES:
                break
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _lines(file: Any) -> Iterator[bytes]:
    """Yield complete lines. A line over the limit is yielded as an empty one."""
    while line := file.readline(ARTIFACT_LINE_MAX + 1):
        if len(line) > ARTIFACT_LINE_MAX and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = file.readline(ARTIFACT_LINE_MAX + 1)
            yield b""
        else:
            yield line.rstrip(b"\r\n")


class _Reader:
    def __init__(self, path: Path, suite: SuiteRecords, problems: list[Problem]) -> None:
        self._path, self._suite, self._problems = path, suite, problems
        self._time_ns = 0
        self._running: dict[str, dict[str, Any]] = {}
        """State of each running test, by nodeid."""
        self._count = 0
        self._counts = {"pass": 0, "fail": 0, "skip": 0, "unknown": 0}
        self._opened = self._ended = False

    def records(self) -> Iterator[KnownRecord]:
        for report in self._reports():
            kind = report.get(_TYPE)
            if kind == "TestReport":
                yield from self._test(report)
            elif kind == "CollectReport" and report.get("outcome") == "failed":
                yield from self._begin()
                message = f"collecting {report.get('nodeid')}: {_message(report)[0]}"
                yield self._suite.log(None, "error", message, self._time_ns)
                self._counts["fail"] += 1
            elif kind == "WarningMessage":
                yield from self._begin()
                yield self._suite.log(None, "warn", str(report.get("message")), self._time_ns)
            elif kind == "SessionFinish":
                self._ended = True
                yield from self._begin()
                # These tests have no teardown report: their worker died, or pytest was stopped.
                for case in self._running.values():
                    yield self._close(case, "fail" if case["outcome"] == "fail" else "unknown")
                self._running.clear()
                failed = self._counts["fail"] or report.get("exitstatus") not in (0, 5)
                attributes: Attributes = {"total": self._count, **self._counts}
                if isinstance(report.get("exitstatus"), int):
                    attributes["exit_status"] = report["exitstatus"]
                yield self._suite.close("error" if failed else "ok", self._time_ns, attributes)
        if not self._ended:
            yield from self._begin()
            error: Attributes = {
                "error.type": "Interrupted",
                "error.message": "the log has no SessionFinish",
            }
            keys = [case["key"] for case in self._running.values()]
            yield from self._suite.interrupt(keys, self._time_ns, error)

    def _reports(self) -> Iterator[dict[str, Any]]:
        with open(self._path, "rb") as file:
            for number, line in enumerate(_lines(file), 1):
                try:
                    report = _decode(line) if line.strip() else {}
                except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                    report = None
                if isinstance(report, dict):
                    yield report
                elif len(self._problems) < PROBLEMS_MAX:
                    message = "is not a report (expected a JSON object)."
                    self._problems.append(
                        Problem(str(self._path), f"line {number}", "reportlog-line", message)
                    )

    def _begin(self) -> Iterator[KnownRecord]:
        if not self._opened:
            self._opened = True
            yield self._suite.open(self._time_ns, {"suite": "pytest"})

    def _test(self, report: dict[str, Any]) -> Iterator[KnownRecord]:
        nodeid, when = str(report.get("nodeid")), report.get("when")
        began = _ns(report.get("start")) or self._time_ns
        self._time_ns = max(self._time_ns, began) if not self._opened else self._time_ns
        yield from self._begin()
        case = self._running.get(nodeid)
        if case is None:
            self._count += 1
            case = self._running[nodeid] = {
                "key": str(self._count),
                "began": began,
                "outcome": "pass",
                "output": [],
                "facts": {},
            }
            yield self._suite.open_case(case["key"], nodeid, began)
        self._time_ns = max(self._time_ns, _ns(report.get("stop")) or began)
        self._add_phase(case, report)
        if when == "teardown":
            del self._running[nodeid]
            yield self._close(case, case["outcome"])

    def _close(self, case: dict[str, Any], outcome: CaseOutcome) -> KnownRecord:
        self._counts[outcome] += 1
        output = "".join(case["output"])[:BODY_INLINE_MAX]
        return self._suite.close_case(
            case["key"],
            outcome,
            self._time_ns,
            max(0, self._time_ns - case["began"]),
            case["facts"],
            output or None,
        )

    def _add_phase(self, case: dict[str, Any], report: dict[str, Any]) -> None:
        outcome, when = report.get("outcome"), report.get("when")
        message, stack = _message(report)
        facts: Attributes = case["facts"]
        if isinstance(report.get("duration"), (int, float)):
            facts[f"{when}_s"] = report["duration"]
        if outcome == "failed" and case["outcome"] != "fail":
            case["outcome"] = "fail"
            facts["error.type"] = "TestFailed" if when == "call" else f"TestFailed in {when}"
            facts["error.message"], facts["error.stack"] = message, stack[:STACK_MAX]
        elif outcome == "skipped" and case["outcome"] == "pass":
            case["outcome"] = "skip"
            facts["message"] = str(report.get("wasxfail") or message)
        elif outcome == "rerun":
            count = facts.get("reruns", 0)
            facts["reruns"] = (count if isinstance(count, int) else 0) + 1
        # A later phase repeats the sections of the earlier ones.
        sections = report.get("sections")
        output = [
            f"----- {section[0]} -----\n{section[1]}\n"
            for section in (sections if isinstance(sections, list) else ())
            if isinstance(section, list) and len(section) == 2
        ]
        case["output"] = output or case["output"]


def _message(report: dict[str, Any]) -> tuple[str, str]:
    """Return the message and the traceback of a test that failed or was skipped."""
    longrepr = report.get("longrepr")
    if isinstance(longrepr, str):
        return longrepr.strip().rpartition("\n")[2], longrepr
    if isinstance(longrepr, list) and longrepr:
        return str(longrepr[-1]), ""
    if not isinstance(longrepr, dict):
        return "", ""
    crash = longrepr.get("reprcrash")
    message = str(crash.get("message", "")) if isinstance(crash, dict) else ""
    traceback = longrepr.get("reprtraceback")
    entries = traceback.get("reprentries") if isinstance(traceback, dict) else None
    lines: list[str] = []
    for entry in entries if isinstance(entries, list) else ():
        data = entry.get("data") if isinstance(entry, dict) else None
        own = data.get("lines") if isinstance(data, dict) else None
        lines.extend(str(line) for line in (own if isinstance(own, list) else ()))
    return message, "\n".join(lines)


def _ns(value: object) -> int | None:
    if isinstance(value, (int, float)) and 0 < value < TIME_MAX_NS / 1e9:
        return int(value * 1e9)
    return None
