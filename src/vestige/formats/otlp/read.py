"""Read one trace of a file as a run.

Spans are read in the order of the file; their records do not depend on it. Log records that are
chat messages become input and output of their span, if it has none of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vestige.errors import UnreadableError
from vestige.formats.otlp.claude_spans import EventJoiner, normalize_span, share_tool_status
from vestige.formats.otlp.constants import (
    external_run_id,
    external_writer_id,
    own_run_id,
    own_writer_id,
)
from vestige.formats.otlp.log_records import LogRecordConverter, to_message_event
from vestige.formats.otlp.parse_span import (
    Event,
    OtelLogRecord,
    OtelSpan,
    ReportProblem,
    get_trace_id,
    ignore_problem,
    is_pending,
    iter_raw_log_records,
    iter_raw_spans,
    parse_log_record,
    parse_span,
)
from vestige.formats.otlp.to_records import span_to_records, synthetic_run_records
from vestige.formats.otlp.trace_index import Trace, TraceFile, open_trace_file, split_trace_path
from vestige.formats.protocol import Problem, Source
from vestige.limits import OTLP_PENDING_LOGS_MAX, PROBLEMS_MAX
from vestige.record.types import KnownRecord


def read_trace(trace_path: Path) -> Source:
    path, trace_id = split_trace_path(trace_path)
    file = open_trace_file(path)
    if not file.traces:
        why = f" ({file.problems[0].place}: {file.problems[0].message})" if file.problems else ""
        raise UnreadableError(f"{path}: has no traces (expected OTLP/JSON with spans){why}.")
    first_id = next(iter(file.traces))
    trace_id = trace_id or first_id
    trace = file.traces.get(trace_id)
    if trace is None:
        raise UnreadableError(f"{path}: has no trace {trace_id}.")
    # Problems of the file itself are reported once, with its first trace.
    problems = list(file.problems) if trace_id == first_id else []
    records = _TraceReader(file, trace_id, trace, problems).records()
    if trace.own:
        return Source(own_run_id(trace_id), own_writer_id(trace_id), records, problems)
    run_id, writer = external_run_id(trace_id), external_writer_id(trace_id)
    return Source(run_id, writer, records, problems, mergeable=True)


class _TraceReader:
    def __init__(self, file: TraceFile, id: str, trace: Trace, problems: list[Problem]) -> None:
        self._file, self._id, self._trace, self._problems = file, id, trace, problems
        self._messages: dict[str, list[Event]] = {}
        """Chat messages that were sent as log records, by span id."""
        self._merged: set[str] = set()
        """Spans that contain their chat messages, which are then not log records of the run."""
        self._joiner = EventJoiner()

    def records(self) -> Iterator[KnownRecord]:
        root = self._trace.root_finder.root(self._id, complete=True)
        if root is not None and root.synthetic and not self._trace.own:
            yield from synthetic_run_records(self._id, root)
        if self._trace.log_records:
            self._collect()
        for ref, document in self._file.documents(self._trace):
            spans = list(self._spans(document, self._reporter(str(ref))))
            share_tool_status(spans)
            for span in spans:
                span.events += self._messages.pop(span.id, ())
                self._joiner.apply(span)
                yield from span_to_records(span, root)
        converter = LogRecordConverter()
        for number, log_record in enumerate(self._log_records()):
            if number in self._joiner.joined:
                continue
            if log_record.span_id not in self._merged or to_message_event(log_record) is None:
                yield converter.to_record(log_record)

    def _collect(self) -> None:
        """Collect the chat messages and bodies that can be merged into spans of this trace."""
        count = 0
        for number, log_record in enumerate(self._log_records()):
            self._joiner.add_log_record(number, log_record)
            event = to_message_event(log_record)
            if event is not None and count < OTLP_PENDING_LOGS_MAX:
                count += 1
                self._messages.setdefault(log_record.span_id, []).append(event)
        span_ids: set[str] = set()
        for _, document in self._file.documents(self._trace):
            for span in self._spans(document, ignore_problem):
                self._joiner.add_span(span)
                span_ids.add(span.id)
        self._joiner.join()
        if count < OTLP_PENDING_LOGS_MAX:
            self._merged = self._messages.keys() & span_ids
        if not self._merged:
            self._messages = {}

    def _spans(self, document: object, report: ReportProblem) -> Iterator[OtelSpan]:
        for raw, resource, scope in iter_raw_spans(document):
            if get_trace_id(raw) == self._id:
                span = parse_span(raw, resource, scope, report)
                if span is not None and not is_pending(span):
                    normalize_span(span)
                    yield span

    def _log_records(self) -> Iterator[OtelLogRecord]:
        if not self._trace.log_records:
            return
        for _, document in self._file.documents(self._trace):
            for raw, resource, scope in iter_raw_log_records(document):
                if get_trace_id(raw) == self._id:
                    log_record = parse_log_record(raw, resource, scope, ignore_problem)
                    if log_record is not None:
                        yield log_record

    def _reporter(self, location: str) -> ReportProblem:
        def report(rule: str, message: str, severity: str) -> None:
            if severity == "error" and len(self._problems) < PROBLEMS_MAX:
                self._problems.append(Problem(str(self._file.path), location, rule, message))

        return report
