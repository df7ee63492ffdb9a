"""The interface of a store, and the types of its arguments and results.

Code outside store/ calls only this interface, so another engine can replace SQLite.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from vestige.record.finding import Finding
from vestige.record.note import Note
from vestige.record.run import LogInfo, Run, RunInfo
from vestige.record.tenant import DEFAULT_TENANT
from vestige.record.types import AnyRecord, Attributes

if TYPE_CHECKING:
    from vestige.store.span_batches import SpanBatch


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


class SupervisedEnd(msgspec.Struct, frozen=True):
    """The end of a supervised run: the attributes of its root span, and the time."""

    attributes: Attributes
    at_ns: int


Op = Literal[":", ">", "<", ">=", "<=", "="]


class Term(msgspec.Struct, frozen=True):
    """A condition on runs. Its language is in query/search/filters.py."""

    key: str
    op: Op
    value: Any
    negated: bool = False
    also: tuple[str, ...] = ()
    """Of `text`: runs that have it in a body."""


class RunFilter(msgspec.Struct, frozen=True):
    """A selection of runs. All conditions must hold."""

    failed: bool = False
    since_ns: int | None = None
    name: str | None = None
    """A part of the run's name."""
    conversation_id: str | None = None
    like: str | None = None
    """A part of the run's name, a span's name or attributes, or a log message."""
    tenant_of: str | None = None
    """A run id: select only runs of the same tenant."""
    of_process: str | None = None
    """A run id: select only this run, and the runs that its process opened."""
    name_is: str | None = None
    outcome: str | None = None
    before_ns: int | None = None
    after: str | None = None
    """The short id of a run: select only runs that follow it in the list."""
    with_implicit: bool = False
    limit: int | None = None
    terms: tuple[Term, ...] = ()
    newest_of_conversation: bool = False
    """Select only the newest matching run of each conversation."""


class RunPage(msgspec.Struct, frozen=True):
    """Runs that match a filter, and where the search stopped if it reached its bound."""

    runs: Sequence[RunInfo]
    looked_at: int | None = None
    """The number of runs that were searched, if there are more."""
    last: str | None = None
    """The short id of the last run that was searched."""


class ConversationInfo(msgspec.Struct, frozen=True):
    """The sums over the runs of one conversation."""

    conversation_id: str
    runs: int
    failed: int
    first_ns: int
    input_tokens: int
    output_tokens: int


class RetentionPolicy(msgspec.Struct, frozen=True):
    """The limits of a retention pass. None means no limit."""

    age_max_s: float | None
    body_bytes_max: int | None


class PruneResult(msgspec.Struct, frozen=True):
    """The counts that a retention pass removed, or would remove."""

    runs: int
    spans: int
    bodies: int
    freed_bytes: int


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


class SpanRef(msgspec.Struct, frozen=True):
    """A reference to a span, or to a run if `span_id` is None."""

    run_id: str
    span_id: str | None
    short_id: str
    type: str
    name: str


class CheckResult(msgspec.Struct, frozen=True):
    """The findings of one check on a run. The check passed if there are none."""

    name: str
    version: int
    findings: Sequence[Finding]


class SearchQuery(msgspec.Struct, frozen=True):
    """A full-text search: its pattern and its scope."""

    pattern: re.Pattern[str]
    """Matches the text both plain and as it is escaped in JSON."""
    literals: tuple[str, ...]
    """Every match in a name, message or attribute contains one of these. Empty: unknown."""
    ignore_case: bool
    """True if literals match in any case. It applies to ASCII letters only."""
    run_id: str | None
    parts: tuple[str, ...]
    """Any of `attrs`, `logs` and `bodies`, in the order of the search."""
    expression: bool = False
    """True if the user wrote the pattern, so matching may take arbitrarily long."""


class Hit(msgspec.Struct, frozen=True):
    """A text that matches. A text that occurs in several bodies is one hit."""

    cursor: str
    """The cursor to continue the search after this hit."""
    span_ref: SpanRef
    part: str
    """`attrs`, `log`, `input`, `output`, `log body`."""
    before: str
    match: str
    after: str
    start_byte: int | None
    """The offset of the match in its body."""
    count: int
    """The number of matches in this text."""
    bodies: int
    """The number of bodies that contain this text."""


class SearchResult(msgspec.Struct, frozen=True):
    """Hits, and the cursor at which the search stopped if it is not complete."""

    hits: Sequence[Hit]
    cursor: str | None
    stopped: str
    """The reason why it stopped, for people to read; empty if the search is complete."""


class QueryRows(msgspec.Struct, frozen=True):
    """The result of a user's SQL query."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    more: bool


class Store(Protocol):
    """The operations of a store."""

    # --- writing -----------------------------------------------------------------------------

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

    def append_batches(self, batches: Iterable[Sequence[AnyRecord] | SpanBatch]) -> int:
        """Store batches of records or of complete spans in one transaction.

        Return how many records were new. Each batch is requested after the previous one was
        added, so batches can be made on demand.
        """

    def find_running_remote_writers(self) -> set[str]:
        """Return writers on other machines whose end was not reported."""

    def find_silent_remote_writers(self, before_ns: int) -> set[str]:
        """Return those that have open spans, and of which nothing arrived since `before_ns`."""

    def find_rootless_traces(self, before_ns: int) -> Sequence[RootlessTrace]:
        """Return traces without a root span, of which nothing arrived since `before_ns`."""

    def find_remote_fault(self, writer: str) -> str | None:
        """Return the output of faulthandler that another machine sent for a writer."""

    def positions(self) -> Mapping[tuple[str, int], int]: ...

    def delete_position(self, writer: str, generation: int) -> None: ...

    def sync(self) -> None:
        """Flush committed data to disk. Call it before the source of the data is deleted."""

    def writers(self, unfinished: bool = False) -> Sequence[WriterInfo]:
        """Return all writers, or only those without an end or with open spans."""

    def find_supervised_end(self, writer: str) -> SupervisedEnd | None:
        """Return the end of the run that contains the writer's process span, once it is known."""

    def open_spans(self, writer: str) -> Sequence[OpenSpan]: ...

    def has_seen(self, writer: str, seq: int) -> bool: ...

    def has_run(self, run_id: str) -> bool: ...

    def end_writer(self, writer: str, outcome: str) -> None: ...

    def mark_imported(self, run_ids: Iterable[str], at_ns: int) -> None:
        """Mark runs as imported. Retention counts their age from `at_ns`."""

    def transaction(self) -> AbstractContextManager[None]:
        """Commit all writes inside the block at its end. A write that fails is undone alone."""

    def prune(self, policy: RetentionPolicy, now_ns: int, dry_run: bool = False) -> PruneResult: ...

    def pin(self, run_id: str, pinned: bool = True) -> None: ...

    def store_findings(self, run: RunInfo, results: Sequence[CheckResult]) -> None:
        """Store the results of checks on a finished run, unless it changed after it was read."""

    def add_note(self, note: Note, tenant: str | None = None) -> bool:
        """Store a redacted note. Return False if a note with this id exists.

        Raise NotFoundError if there is no such run, or if it is not one of `tenant`.
        """

    def delete_note(self, run_id: str, note_id: str, tenant: str | None = None) -> bool:
        """Delete a note. Return False if there is no such note."""

    # --- reading -----------------------------------------------------------------------------

    def list_runs(self, run_filter: RunFilter) -> Sequence[RunInfo]: ...

    def search_runs(self, run_filter: RunFilter) -> RunPage:
        """Return the runs that match, like `list_runs`, but search a bounded number of them.

        The bound applies to terms that need the spans, log records or findings of runs.
        """

    def conversations(self, run_ids: Sequence[str]) -> Mapping[str, ConversationInfo]:
        """Return the conversation of each run that has one, with sums over all its runs.

        Only runs of the same tenant count, because tenants may use equal conversation ids.
        """

    def find_runs(self, id_or_prefix: str) -> Sequence[RunInfo]: ...

    def load_run(self, run_id: str, *, with_logs: bool = True) -> Run:
        """Return a run without its bodies.

        Without logs, log records are references that `read_log` resolves one by one.
        """

    def read_log(self, row: int) -> LogInfo:
        """Return a log record of a run that was loaded without logs."""

    def read_body(self, body_id: int, start: int = 0, end: int | None = None) -> bytes: ...

    def read_bodies(self, body_ids: Sequence[int]) -> Iterable[tuple[int, bytes]]:
        """Return complete bodies with their ids, without those that are missing or damaged."""

    def run_ids(self) -> Sequence[str]: ...

    def find_spans(self, id_or_prefix: str) -> Sequence[SpanRef]:
        """Return spans by id, short id, or a prefix of an id of at least 4 characters."""

    def find_attribute(self, value: str, limit: int = 20) -> Sequence[SpanRef]:
        """Return spans that have exactly this attribute value, or runs for a log outside spans."""

    def links_to(self, run_id: str, span_id: str) -> Sequence[tuple[SpanRef, str | None]]:
        """Return the spans that link to a span, with the reasons of the links."""

    def search(
        self, query: SearchQuery, after: str | None = None, limit: int = 100
    ) -> SearchResult: ...

    def query(self, sql: str, skip: int, limit: int) -> QueryRows:
        """Run a user's read-only query, bounded in time and rows."""

    def notes(self, run_id: str) -> Sequence[Note]:
        """Return the notes on a run, oldest first."""

    def check_results(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[CheckResult]]:
        """Return the results that `store_findings` stored, by run id."""

    def close(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close the store, and convert an error of the engine to a StoreError."""
