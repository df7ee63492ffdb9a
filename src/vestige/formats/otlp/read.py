"""A trace of a file as a run.

Spans are read line by line, in the order of the file: what a record is does not depend on it. Log
records that tell a span's messages become part of that span, if it has none of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vestige.errors import UnreadableError
from vestige.formats.otlp.constants import carrier_of_trace, own_run_of, own_writer_of, run_of
from vestige.formats.otlp.detect import Trace, TraceFile, open_file, split_place
from vestige.formats.otlp.log_records import Lines, message_of
from vestige.formats.otlp.parse_span import (
    Event,
    OtelLine,
    OtelSpan,
    Tell,
    is_pending,
    parse_line,
    parse_span,
    raw_lines,
    raw_spans,
    trace_of,
    unheard,
)
from vestige.formats.otlp.to_records import made_run, records_of_span
from vestige.formats.protocol import Problem, Source
from vestige.limits import OTLP_LINES_ASIDE_MAX, PROBLEMS_MAX
from vestige.record.types import KnownRecord


def read_trace(place: Path) -> Source:
    path, trace_id = split_place(place)
    file = open_file(path)
    if not file.traces:
        why = f" ({file.problems[0].place}: {file.problems[0].message})" if file.problems else ""
        raise UnreadableError(f"{path}: no trace in it (expected OTLP/JSON with spans){why}.")
    first = next(iter(file.traces))
    wanted = trace_id or first
    trace = file.traces.get(wanted)
    if trace is None:
        raise UnreadableError(f"{path}: no trace {wanted} in it.")
    # What is wrong with the file as a whole is told once, with its first trace.
    problems = list(file.problems) if wanted == first else []
    records = _Reader(file, wanted, trace, problems).records()
    if trace.own:
        return Source(own_run_of(wanted), own_writer_of(wanted), records, problems)
    return Source(run_of(wanted), carrier_of_trace(wanted), records, problems, adds=True)


class _Reader:
    def __init__(self, file: TraceFile, id: str, trace: Trace, problems: list[Problem]) -> None:
        self._file, self._id, self._trace, self._problems = file, id, trace, problems
        self._talk: dict[str, list[Event]] = {}
        self._taken: set[str] = set()
        """Spans whose messages came as lines."""

    def records(self) -> Iterator[KnownRecord]:
        root = self._trace.shape.root(self._id, whole=True)
        if root is not None and root.made and not self._trace.own:
            yield from made_run(self._id, root)
        lines = Lines()
        if self._trace.lines:
            self._gather()
        for where, document in self._file.documents(self._trace):
            for span in self._spans(str(where), document):
                span.events += self._talk.pop(span.id, ())
                yield from records_of_span(span, root)
        for _, line in self._lines():
            if not (line.span_id in self._taken and message_of(line) is not None):
                yield lines.record_of(line)

    def _gather(self) -> None:
        """Messages that were told as log records, by their span."""
        held = 0
        for _, line in self._lines():
            event = message_of(line)
            if event is not None and held < OTLP_LINES_ASIDE_MAX:
                held += 1
                self._talk.setdefault(line.span_id, []).append(event)
        spans = {
            span.id
            for where, document in self._file.documents(self._trace)
            for span in self._spans(str(where), document, quiet=True)
        }
        self._taken = self._talk.keys() & spans if held < OTLP_LINES_ASIDE_MAX else set()
        if not self._taken:
            self._talk = {}

    def _spans(self, where: str, document: object, quiet: bool = False) -> Iterator[OtelSpan]:
        for raw, resource, scope in raw_spans(document):
            if trace_of(raw) == self._id:
                span = parse_span(raw, resource, scope, unheard if quiet else self._telling(where))
                if span is not None and not is_pending(span):
                    yield span

    def _lines(self) -> Iterator[tuple[str, OtelLine]]:
        if not self._trace.lines:
            return
        for where, document in self._file.documents(self._trace):
            for raw, resource, scope in raw_lines(document):
                if trace_of(raw) == self._id:
                    line = parse_line(raw, resource, scope, unheard)
                    if line is not None:
                        yield str(where), line

    def _telling(self, where: str) -> Tell:
        def tell(rule: str, message: str, severity: str) -> None:
            if severity == "error" and len(self._problems) < PROBLEMS_MAX:
                self._problems.append(Problem(str(self._file.path), where, rule, message))

        return tell
