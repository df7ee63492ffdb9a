"""Store spans and log records from OpenTelemetry exporters: redacted, each once.

    spans = open_spans(data, "otlp-traces-json", redactor)      # pure
    result = store_spans(store, spans, tenant)                  # in the caller's transaction
    result = yield from store_in_steps(store, spans, tenant)    # or in several transactions

Their writers are not processes, so they are marked as ended at once. A trace never changes a run
that was recorded here or that belongs to another tenant. The refused part of a request is counted,
and the rest is stored.

Elsewhere: spans become records in formats/otlp; the route is server/routes/otlp.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Final

from vestige._runtime import clock
from vestige.errors import ForeignRunError, ParcelError, UnreadableError
from vestige.fleet.server.id_collisions import rename_collisions
from vestige.formats.otlp.constants import SYNTHETIC
from vestige.formats.otlp.export_request import parse_export_request
from vestige.record.redaction.bulk_redaction import masked
from vestige.record.redaction.redactor import Redactor
from vestige.record.types import KnownRecord, Log, SpanOpen
from vestige.store.protocol import Store

KINDS: Final = {
    f"otlp-{signal}-{encoding}": (signal, encoding)
    for signal in ("traces", "logs")
    for encoding in ("json", "protobuf")
}
"""Kinds of a delivery, besides journal lines: signal and encoding."""

STEP_RUNS: Final = 200
"""Runs stored in one step. A request may contain thousands, and other requests wait meanwhile."""

Runs = dict[str, list[KnownRecord]]
HasJournal = Callable[[str], bool]
"""True if the data directory has the journal of a writer."""

_WRITER: Final = re.compile("[0-9a-f]{16}")


@dataclass(slots=True)
class Spans:
    """The records of one request, redacted."""

    runs: Runs
    own: dict[str, str]
    """Runs that Vestige itself exported, with their writers."""
    rejected: int
    message: str
    recorded: dict[str, Runs] = field(default_factory=dict)
    """Runs whose spans a journal has, too, by its writer."""

    def add(self, other: Spans) -> None:
        """Add the records of another request."""
        for run_id, records in other.runs.items():
            self.runs.setdefault(run_id, []).extend(records)
        self.own.update(other.own)


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The result of storing a request."""

    records: int
    new: int
    rejected: int
    """Number of rejected spans or log records."""
    message: str


def open_spans(data: bytes, kind: str, redactor: Redactor) -> Spans:
    """Parse and redact a request. Raises ParcelError if it is invalid."""
    try:
        request = parse_export_request(data, *KINDS[kind])
    except UnreadableError as error:
        raise ParcelError(str(error)) from None
    recorded: dict[str, Runs] = {}
    for writer, records in request.recorded.items():
        if _WRITER.fullmatch(writer):
            recorded[writer] = _group(records, redactor)
        else:
            request.records += records
    runs = _group(request.records, redactor)
    return Spans(runs, request.own, request.rejected, redactor.text(request.message), recorded)


def _group(records: list[KnownRecord], redactor: Redactor) -> Runs:
    runs: Runs = {}
    for record in masked(records, redactor):
        runs.setdefault(record.run_id, []).append(record)
    return runs


def store_spans(store: Store, spans: Spans, tenant: str) -> IngestResult:
    """Store all runs of a request."""
    steps = store_in_steps(store, spans, tenant)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: IngestResult = ended.value
            return result


def store_in_steps(
    store: Store, spans: Spans, tenant: str, has_journal: HasJournal = lambda writer: False
) -> Generator[None, None, IngestResult]:
    """Store some runs in each step. Between steps the caller may commit or store other requests.

    Spans that a recorded process has also written to its journal are accepted and not stored.
    """
    for writer, runs in spans.recorded.items():
        if not has_journal(writer) and not _is_stored(store, writer, tenant):
            for run_id, found in runs.items():
                spans.runs.setdefault(run_id, []).extend(found)
    records = new = 0
    rejected, message = spans.rejected, spans.message
    for sent in _steps(spans.runs):
        runs = _under_own_ids(store, sent, tenant)
        accepted, refused = _split_refused(store, runs, spans.own)
        try:
            new += _store_runs(store, accepted, tenant)
            records += sum(map(len, accepted.values()))
        except ForeignRunError:
            # One of the runs is another tenant's: store them one by one.
            for run_id, run_records in accepted.items():
                try:
                    new += _store_runs(store, {run_id: run_records}, tenant)
                    records += len(run_records)
                except ForeignRunError as error:
                    refused[run_id] = str(error)
        rejected += sum(_count(runs[run_id]) for run_id in refused)
        message = message or next(iter(refused.values()), "")
        yield
    return IngestResult(records, new, rejected, message)


def _is_stored(store: Store, writer: str, tenant: str) -> bool:
    """Return whether records of a writer were stored for this tenant."""
    return store.has_writer(writer) and not store.find_foreign_ids([], [writer], tenant)[1]


def _steps(runs: Runs) -> Iterator[Runs]:
    items = list(runs.items())
    for at in range(0, len(items), STEP_RUNS):
        yield dict(items[at : at + STEP_RUNS])


def _under_own_ids(store: Store, runs: Runs, tenant: str) -> Runs:
    """Return the runs by the ids under which they are stored for this tenant."""
    renamed = rename_collisions(
        store, [record for records in runs.values() for record in records], tenant
    )
    return {renamed.runs.get(run_id, run_id): records for run_id, records in runs.items()}


def _split_refused(store: Store, runs: Runs, own: dict[str, str]) -> tuple[Runs, dict[str, str]]:
    """Return the runs to store, and the reasons why others are refused."""
    refused = {
        run_id: f"run {run_id}: was recorded here and is not changed."
        for run_id in runs
        if run_id in own and _is_recorded(store, run_id, own[run_id])
    }
    accepted = {run_id: records for run_id, records in runs.items() if run_id not in refused}
    return accepted, refused


def _count(records: list[KnownRecord]) -> int:
    """Count the spans of a trace without synthesized ones, or else the log records."""
    spans = [record for record in records if isinstance(record, SpanOpen)]
    logs = sum(isinstance(record, Log) for record in records)
    return sum(not span.attributes.get(SYNTHETIC) for span in spans) if spans else logs


def _store_runs(store: Store, runs: Runs, tenant: str) -> int:
    """Store runs. Raises ForeignRunError, and stores none, if one is another tenant's."""
    records = [record for run_records in runs.values() for record in run_records]
    with store.transaction():
        new = store.append(records, tenant=tenant)
        if new:
            for writer in {record.writer for record in records}:
                store.end_writer(writer, "imported")
            store.mark_imported(runs, clock.SYSTEM.now_ns())
    return new


def _is_recorded(store: Store, run_id: str, writer: str) -> bool:
    """Return whether the run is in the store and was not stored from this writer's trace."""
    return store.has_run(run_id) and not store.has_writer(writer)
