"""All that is wrong with a file of OTLP/JSON, or with one trace of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from vestige.errors import UnreadableError
from vestige.formats.otlp.detect import Trace, TraceFile, open_file, split_place
from vestige.formats.otlp.parse_span import OtelSpan, Tell, parse_span, raw_spans, trace_of
from vestige.formats.protocol import Problem
from vestige.limits import PROBLEMS_MAX


def check_path(place: Path) -> Sequence[Problem]:
    path, trace_id = split_place(place)
    if path.is_dir():
        from vestige.formats.otlp import find_runs  # a folder: each of its files

        return [problem for each in find_runs(path) for problem in check_path(each)][:PROBLEMS_MAX]
    try:
        file = open_file(path)
    except UnreadableError as error:
        return [Problem(str(path), "", "unreadable", str(error))]
    wanted = (
        file.traces
        if trace_id is None
        else {trace_id: file.traces[trace_id]}
        if trace_id in file.traces
        else {}
    )
    problems: list[Problem] = []
    if trace_id is None or trace_id == next(iter(file.traces), None):
        problems += file.problems
    if not file.traces:
        problems.append(Problem(str(path), "", "no-trace", "no trace in it (expected spans)."))
    for each, trace in wanted.items():
        for problem in _Trace(file, each, trace).problems():
            if len(problems) >= PROBLEMS_MAX:
                return problems
            problems.append(problem)
    return problems


class _Trace:
    def __init__(self, file: TraceFile, id: str, trace: Trace) -> None:
        self._file, self._id, self._trace = file, id, trace
        self._found: list[Problem] = []

    def problems(self) -> Iterator[Problem]:
        seen: dict[str, str] = {}
        parents: dict[str, tuple[str, str]] = {}
        roots = 0
        for where, span in self._spans():
            yield from self._flush()
            if span.id in seen:
                yield self._problem(
                    where,
                    "span-twice",
                    f"span {span.id} was there before ({seen[span.id]}). The first one counts.",
                    "warning",
                )
            seen.setdefault(span.id, where or "above")
            if not span.name:
                yield self._problem(where, "name", f"span {span.id} has no name.", "warning")
            if span.parent_id:
                parents.setdefault(span.parent_id, (where, span.id))
            else:
                roots += 1
        yield from self._flush()
        for parent, (where, child) in parents.items():
            if parent not in seen:
                yield self._problem(
                    where,
                    "parent-missing",
                    f"span {child}: its parent {parent} is not in the file.",
                    "warning",
                )
        if seen and not roots:
            yield self._problem(
                "",
                "no-root",
                f"trace {self._id} has no span without a parent: the span that it began with is elsewhere, or its program died.",
                "warning",
            )
        if roots > 1:
            yield self._problem(
                "",
                "roots",
                f"trace {self._id} has {roots} spans without a parent (expected one).",
                "warning",
            )

    def _spans(self) -> Iterator[tuple[str, OtelSpan]]:
        for place, document in self._file.documents(self._trace):
            for raw, resource, scope in raw_spans(document):
                if trace_of(raw) == self._id:
                    span = parse_span(raw, resource, scope, self._telling(str(place)))
                    if span is not None:
                        yield str(place), span
                    else:
                        self._found.clear()  # told with the file: it has no place in a trace

    def _telling(self, where: str) -> Tell:
        def tell(rule: str, message: str, severity: Literal["error", "warning"]) -> None:
            self._found.append(self._problem(where, rule, message, severity))

        return tell

    def _flush(self) -> Iterator[Problem]:
        found, self._found = self._found, []
        yield from found

    def _problem(
        self, where: str, rule: str, message: str, severity: Literal["error", "warning"] = "error"
    ) -> Problem:
        return Problem(str(self._file.path), where, rule, message, "", severity)
