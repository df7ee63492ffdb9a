"""Spans and log records that OpenTelemetry's exporters send, into the store: masked, each once.

    spans = open_spans(data, OTLP_TRACES_JSON, redactor)       # pure
    receipt = keep_spans(store, spans, tenant)                 # in the caller's transaction

Their writers are nobody's processes: they have ended as soon as they are known. A run that was
recorded here is never changed by a trace that claims its id, and a run of another tenant neither:
what is refused of a request is counted, and the rest of it is kept.

Elsewhere: what a span becomes, formats/otlp; the route, server/routes/otlp.py.
"""

from __future__ import annotations

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


def keep_spans(store: SqliteStore, spans: Spans, tenant: str) -> IngestResult:
    records = new = 0
    rejected, message = spans.rejected, spans.message
    for run_id, own in spans.runs.items():
        try:
            if run_id in spans.own and _is_recorded(store, run_id, spans.own[run_id]):
                raise ForeignRunError(
                    f"run {run_id}: was recorded here, and stays as it is.", run_id
                )
            new += _keep_run(store, run_id, own, tenant)
            records += len(own)
        except ForeignRunError as error:
            rejected += _count(own)
            message = message or str(error)
    return IngestResult(records, new, rejected, message)


def _count(records: list[KnownRecord]) -> int:
    """How many spans they are, or log records; what we made of a trace does not count."""
    spans = [record for record in records if isinstance(record, SpanOpen)]
    lines = sum(isinstance(record, Log) for record in records)
    return sum(not span.attributes.get(SYNTHETIC) for span in spans) if spans else lines


def _keep_run(store: SqliteStore, run_id: str, records: list[KnownRecord], tenant: str) -> int:
    with store.together():
        new = store.append(records, tenant=tenant)
        if new:
            for writer in {record.writer for record in records}:
                store.end_writer(writer, "imported")
            store.mark_imported([run_id], clock.SYSTEM.now_ns())
    return new


def _is_recorded(store: SqliteStore, run_id: str, writer: str) -> bool:
    """Is it here, and did it come by another way?"""
    return store.has_run(run_id) and not store.has_writer(writer)
