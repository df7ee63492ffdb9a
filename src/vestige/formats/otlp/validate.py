"""Validate an OTLP/JSON file, or one trace of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from vestige.errors import UnreadableError
from vestige.formats.otlp.parse_span import (
    OtelSpan,
    ReportProblem,
    get_trace_id,
    iter_raw_spans,
    parse_span,
)
from vestige.formats.otlp.trace_index import Trace, TraceFile, open_trace_file, split_trace_path
from vestige.formats.protocol import Problem
from vestige.limits import PROBLEMS_MAX


def validate_path(trace_path: Path) -> Sequence[Problem]:
    path, trace_id = split_trace_path(trace_path)
    if path.is_dir():
        from vestige.formats.otlp import find_runs

        problems = [problem for file in find_runs(path) for problem in validate_path(file)]
        return problems[:PROBLEMS_MAX]
    try:
        file = open_trace_file(path)
    except UnreadableError as error:
        return [Problem(str(path), "", "unreadable", str(error))]
    problems = []
    if trace_id is None or trace_id == next(iter(file.traces), None):
        problems += file.problems
    if not file.traces:
        problems.append(Problem(str(path), "", "no-trace", "has no traces (expected spans)."))
    for each_id, trace in file.traces.items():
        if trace_id not in (None, each_id):
            continue
        for problem in _TraceValidator(file, each_id, trace).problems():
            if len(problems) >= PROBLEMS_MAX:
                return problems
            problems.append(problem)
    return problems


class _TraceValidator:
    def __init__(self, file: TraceFile, id: str, trace: Trace) -> None:
        self._file, self._id, self._trace = file, id, trace
        self._span_problems: list[Problem] = []

    def problems(self) -> Iterator[Problem]:
        seen: dict[str, str] = {}
        parents: dict[str, tuple[str, str]] = {}
        roots = 0
        for location, span in self._spans():
            yield from self._flush()
            if span.id in seen:
                yield self._problem(
                    location,
                    "span-twice",
                    f"span {span.id} occurs again (first: {seen[span.id]}). The first is used.",
                    "warning",
                )
            seen.setdefault(span.id, location or "above")
            if not span.name:
                yield self._problem(location, "name", f"span {span.id} has no name.", "warning")
            if span.parent_id:
                parents.setdefault(span.parent_id, (location, span.id))
            else:
                roots += 1
        yield from self._flush()
        for parent, (location, child) in parents.items():
            if parent not in seen:
                yield self._problem(
                    location,
                    "parent-missing",
                    f"span {child}: parent {parent} is not in the file.",
                    "warning",
                )
        if seen and not roots:
            yield self._problem(
                "",
                "no-root",
                f"trace {self._id} has no root span: another program has it, or the program died.",
                "warning",
            )
        if roots > 1:
            yield self._problem(
                "",
                "roots",
                f"trace {self._id} has {roots} root spans (expected one).",
                "warning",
            )

    def _spans(self) -> Iterator[tuple[str, OtelSpan]]:
        for ref, document in self._file.documents(self._trace):
            report = self._reporter(str(ref))
            for raw, resource, scope in iter_raw_spans(document):
                if get_trace_id(raw) == self._id:
                    span = parse_span(raw, resource, scope, report)
                    if span is not None:
                        yield str(ref), span
                    else:
                        self._span_problems.clear()  # reported among the file's problems

    def _reporter(self, location: str) -> ReportProblem:
        def report(rule: str, message: str, severity: Literal["error", "warning"]) -> None:
            self._span_problems.append(self._problem(location, rule, message, severity))

        return report

    def _flush(self) -> Iterator[Problem]:
        problems, self._span_problems = self._span_problems, []
        yield from problems

    def _problem(
        self,
        location: str,
        rule: str,
        message: str,
        severity: Literal["error", "warning"] = "error",
    ) -> Problem:
        return Problem(str(self._file.path), location, rule, message, "", severity)
