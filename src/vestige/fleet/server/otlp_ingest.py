"""Spans and log records that OpenTelemetry's exporters send, into the store: masked, each once.

    spans = open_spans(data, OTLP_TRACES_JSON, redactor)       # pure
    receipt = keep_spans(store, spans, tenant)                 # in the caller's transaction
    receipt = yield from keep_in_steps(store, spans, tenant)   # or in several, one after another

Their writers are nobody's processes: they have ended as soon as they are known. A run that was
recorded here is never changed by a trace that claims its id, and a run of another tenant neither:
what is refused of a request is counted, and the rest of it is kept.

Elsewhere: what a span becomes, formats/otlp; the route, server/routes/otlp.py.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final

from vestige._runtime import clock
from vestige.errors import ForeignRunError, ParcelError, UnreadableError
from vestige.formats.otlp.constants import SYNTHETIC
from vestige.formats.otlp.export_request import parse_export_request
from vestige.record.redaction.bulk_redaction import masked
from vestige.record.redaction.redactor import Redactor
from vestige.record.types import KnownRecord, Log, SpanOpen
from vestige.store.sqlite.sqlite_store import SqliteStore

KINDS: Final = {
    f"otlp-{signal}-{encoding}": (signal, encoding)
    for signal in ("traces", "logs")
    for encoding in ("json", "protobuf")
}
"""What a delivery may be, beside journal lines."""


@dataclass(slots=True)
class Spans:
    """What one request brought, masked."""

    runs: dict[str, list[KnownRecord]]
    own: dict[str, str]
    """Of them, those that we wrote once, with their writers."""
    rejected: int
    message: str


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What became of it."""

    records: int
    new: int
    rejected: int
    """Spans or log records."""
    message: str


def open_spans(data: bytes, kind: str, redactor: Redactor) -> Spans:
    """ParcelError: it is no such request."""
    try:
        taken = parse_export_request(data, *KINDS[kind])
    except UnreadableError as error:
        raise ParcelError(str(error)) from None
    runs: dict[str, list[KnownRecord]] = {}
    for record in masked(taken.records, redactor):
        runs.setdefault(record.run_id, []).append(record)
    return Spans(runs, taken.own, taken.rejected, redactor.text(taken.message))


STEP_RUNS: Final = 200
"""Runs that are stored together: a request may be of thousands, and others wait meanwhile."""

Runs = dict[str, list[KnownRecord]]


def keep_spans(store: SqliteStore, spans: Spans, tenant: str) -> IngestResult:
    """Store all of it."""
    steps = keep_in_steps(store, spans, tenant)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            kept: IngestResult = ended.value
            return kept


def keep_in_steps(
    store: SqliteStore, spans: Spans, tenant: str
) -> Generator[None, None, IngestResult]:
    """Store some runs in each step. Between steps the caller may commit, or serve another client."""
    records = new = 0
    rejected, message = spans.rejected, spans.message
    for runs in _steps(spans.runs):
        ours, refused = _sort_out(store, runs, spans.own)
        try:
            new += _keep_runs(store, ours, tenant)
            records += sum(map(len, ours.values()))
        except ForeignRunError:
            # One of them is another tenant's: find out which, and keep the others.
            for run_id, own in ours.items():
                try:
                    new += _keep_runs(store, {run_id: own}, tenant)
                    records += len(own)
                except ForeignRunError as error:
                    refused[run_id] = str(error)
        rejected += sum(_count(runs[run_id]) for run_id in refused)
        message = message or next(iter(refused.values()), "")
        yield
    return IngestResult(records, new, rejected, message)


def _steps(runs: Runs) -> Iterator[Runs]:
    items = list(runs.items())
    for at in range(0, len(items), STEP_RUNS):
        yield dict(items[at : at + STEP_RUNS])


def _sort_out(store: SqliteStore, runs: Runs, own: dict[str, str]) -> tuple[Runs, dict[str, str]]:
    """The runs to store, and why others are not."""
    refused = {
        run_id: f"run {run_id}: was recorded here, and stays as it is."
        for run_id in runs
        if run_id in own and _is_recorded(store, run_id, own[run_id])
    }
    return {run_id: each for run_id, each in runs.items() if run_id not in refused}, refused


def _count(records: list[KnownRecord]) -> int:
    """How many spans they are, or log records; what we made of a trace does not count."""
    spans = [record for record in records if isinstance(record, SpanOpen)]
    lines = sum(isinstance(record, Log) for record in records)
    return sum(not span.attributes.get(SYNTHETIC) for span in spans) if spans else lines


def _keep_runs(store: SqliteStore, runs: Runs, tenant: str) -> int:
    """Store whole runs; ForeignRunError: one of them is another tenant's, and none was stored."""
    records = [record for own in runs.values() for record in own]
    with store.transaction():
        new = store.append(records, tenant=tenant)
        if new:
            for writer in {record.writer for record in records}:
                store.end_writer(writer, "imported")
            store.mark_imported(runs, clock.SYSTEM.now_ns())
    return new


def _is_recorded(store: SqliteStore, run_id: str, writer: str) -> bool:
    """Is it here, and did it come by another way?"""
    return store.has_run(run_id) and not store.has_writer(writer)
