"""Store records, and find what is missing or unfinished."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from vestige.record.tenant import DEFAULT_TENANT
from vestige.record.types import AnyRecord, Attributes, BodyInfo, Log, SpanClose

ReadSpill = Callable[[str, int, BodyInfo], bytes | None]
"""Reads a body that was too large for a journal line, by writer and seq. None: it is missing."""


class Position(msgspec.Struct, frozen=True):
    """The offset up to which a journal file has been stored."""

    writer: str
    generation: int
    offset: int


class WriterInfo(msgspec.Struct, frozen=True):
    """A process that writes a journal, as far as its records were stored."""

    writer: str
    pid: int | None
    supervisor: str | None
    first_ns: int
    last_ns: int
    last_seq: int
    missing: int
    """Seqs below `last_seq` that were never seen."""
    malformed: int
    dropped: int
    ended: str | None
    tenant: str = DEFAULT_TENANT


class OpenSpan(msgspec.Struct, frozen=True):
    """A span without an end, with the fields that crash detection needs."""

    run_id: str
    span_id: str
    type: str
    name: str
    seq: int | None
    started_ns: int
    parent_type: str | None
    """The type of the span that it is in; None if that is not in the run."""


class SupervisedEnd(msgspec.Struct, frozen=True):
    """The end of a supervised run: the attributes of its root span, and the time."""

    attributes: Attributes
    at_ns: int


class RootlessTrace(msgspec.Struct, frozen=True):
    """A trace from an external exporter whose root span has not arrived."""

    run_id: str
    writer: str
    tenant: str
    name: str | None
    """The name of its earliest span. None: it has only log records."""
    component: str | None
    started_ns: int
    last_ns: int


class RecordWriter(Protocol):
    """The methods that store records."""

    def append(
        self,
        records: Iterable[AnyRecord],
        position: Position | None = None,
        malformed: int = 0,
        tenant: str = DEFAULT_TENANT,
    ) -> int:
        """Store records and the journal position in one transaction. Return how many were new.

        A new run belongs to `tenant`. Raise ForeignRunError, and store nothing, if a record's
        run or writer belongs to another tenant.
        """

    def append_remote(
        self,
        records: Sequence[AnyRecord],
        ends: Sequence[tuple[str, str | None]] = (),
        tenant: str = DEFAULT_TENANT,
    ) -> tuple[int, int]:
        """Store records from another machine, and the reported ends of its writers.

        Return how many records were new, and how many writers ended.
        """

    def transaction(self) -> AbstractContextManager[None]:
        """Commit all writes inside the block at its end. A write that fails is undone alone."""

    def sync(self) -> None:
        """Flush committed data to disk. Call it before the source of the data is deleted."""

    def is_in_place(self) -> bool:
        """Return False if the store was deleted, moved or replaced, so that writes are lost."""

    def end_writer(self, writer: str, outcome: str) -> None: ...

    def stamp_writer(
        self, writer: WriterInfo, records: Iterable[Log | SpanClose], outcome: str
    ) -> None:
        """Store a crash stamp and the writer's outcome.

        If more records of the writer arrive, the stamp is withdrawn.
        """

    def finish_rootless_runs(self) -> int:
        """Mark recorded runs without a root span as interrupted, if all their writers ended.

        Return their number.
        """

    def mark_imported(self, run_ids: Iterable[str], at_ns: int) -> None:
        """Mark runs as imported. Retention counts their age from `at_ns`."""

    def delete_position(self, writer: str, generation: int) -> None: ...

    def get_fact(self, key: str) -> str | None:
        """Return a single value that `set_fact` stored."""

    def set_fact(self, key: str, value: str) -> None: ...


class WriterReader(Protocol):
    """The methods that read the state of writers and journals."""

    def positions(self) -> Mapping[tuple[str, int], int]:
        """Return the stored offset of each journal, by writer and generation."""

    def writers(self, unfinished: bool = False) -> Sequence[WriterInfo]:
        """Return all writers, or only those without an end or with open spans."""

    def has_writer(self, writer: str) -> bool: ...

    def has_seen(self, writer: str, seq: int) -> bool: ...

    def find_foreign_ids(
        self, run_ids: Iterable[str], writers: Iterable[str], tenant: str
    ) -> tuple[set[str], set[str]]:
        """Return those of the runs and of the writers that belong to other tenants."""

    def open_spans(self, writer: str) -> Sequence[OpenSpan]: ...

    def find_supervised_end(self, writer: str) -> SupervisedEnd | None:
        """Return the end of the run that contains the writer's process span, once it is known."""

    def find_running_remote_writers(self) -> set[str]:
        """Return writers on other machines whose end was not reported."""

    def find_silent_remote_writers(self, before_ns: int) -> set[str]:
        """Return those that have open spans, and of which nothing arrived since `before_ns`."""

    def find_rootless_traces(self, before_ns: int) -> Sequence[RootlessTrace]:
        """Return traces without a root span, of which nothing arrived since `before_ns`."""

    def find_remote_fault(self, writer: str) -> str | None:
        """Return the output of faulthandler that another machine sent for a writer."""
