"""What a store can do: the narrow protocol, so that another engine can serve it too."""

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
    """How far a journal file has been taken in."""

    writer: str
    generation: int
    offset: int


class WriterInfo(msgspec.Struct, frozen=True):
    """One process's journal, as far as it was taken in."""

    writer: str
    pid: int | None
    supervisor: str | None
    first_ns: int
    last_ns: int
    last_seq: int
    missing: int
    """Records that should have been there: numbers never seen before the last one."""
    malformed: int
    dropped: int
    ended: str | None
    tenant: str = DEFAULT_TENANT


class OpenSpan(msgspec.Struct, frozen=True):
    """A span without an end, and what a crash stamp needs of it."""

    run_id: str
    span_id: str
    type: str
    name: str
    seq: int | None
    started_ns: int


class SupervisedEnd(msgspec.Struct, frozen=True):
    """How a supervised run ended: its root's attributes, and when."""

    attributes: Attributes
    at_ns: int


Op = Literal[":", ">", "<", ">=", "<=", "="]


class Term(msgspec.Struct, frozen=True):
    """One condition on runs (query/search/filters.py has the language)."""

    key: str
    op: Op
    value: Any
    negated: bool = False
    also: tuple[str, ...] = ()
    """Of `text`: runs that have it in a body."""


class RunFilter(msgspec.Struct, frozen=True):
    """Which runs to list."""

    failed: bool = False
    since_ns: int | None = None
    name: str | None = None
    """Contained in the run's name."""
    conversation_id: str | None = None
    like: str | None = None
    """Contained in its name, a span's name or attributes, or a log line."""
    tenant_of: str | None = None
    """A run's id: only runs of the same tenant."""
    of_process: str | None = None
    """A run's id: only it, and the runs that its process opened."""
    name_is: str | None = None
    outcome: str | None = None
    before_ns: int | None = None
    after: str | None = None
    """A run's short id: those that a list has after it."""
    with_implicit: bool = False
    limit: int | None = None
    terms: tuple[Term, ...] = ()
    """All must hold."""
    newest_of_conversation: bool = False
    """Of each conversation only the newest run that is wanted."""


class RunPage(msgspec.Struct, frozen=True):
    """Runs; and how far one looked for them, where that has a bound."""

    runs: Sequence[RunInfo]
    looked_at: int | None = None
    """So many runs were looked into, and there are more."""
    last: str | None = None
    """The short id of the last of them."""


class ConversationInfo(msgspec.Struct, frozen=True):
    """What the runs of one conversation add up to."""

    conversation_id: str
    runs: int
    failed: int
    first_ns: int
    input_tokens: int
    output_tokens: int


class RetentionPolicy(msgspec.Struct, frozen=True):
    """What to keep. None: without bound."""

    age_max_s: float | None
    body_bytes_max: int | None


class Pruned(msgspec.Struct, frozen=True):
    """What a retention pass removed, or would remove."""

    runs: int
    spans: int
    bodies: int
    freed_bytes: int


class Headless(msgspec.Struct, frozen=True):
    """A trace of which nothing came for long, and never its first span."""

    run_id: str
    writer: str
    tenant: str
    name: str | None
    """Of its earliest span; None: only lines came."""
    component: str | None
    started_ns: int
    last_ns: int


class SpanRef(msgspec.Struct, frozen=True):
    """Where something was found: a span of a run; or the run itself, span_id None."""

    run_id: str
    span_id: str | None
    short_id: str
    type: str
    name: str


class CheckResult(msgspec.Struct, frozen=True):
    """What one check said of a run; nothing: it passed."""

    name: str
    version: int
    findings: Sequence[Finding]


class SearchQuery(msgspec.Struct, frozen=True):
    """What to search for, and where."""

    pattern: re.Pattern[str]
    """Matches the text as it was meant, and as JSON writes it."""
    literals: tuple[str, ...]
    """One of these is part of every match in a name, a message or attributes; none: not known."""
    ignore_case: bool
    """Whether a literal may be in upper or lower case (of ASCII: others have none here)."""
    run_id: str | None
    parts: tuple[str, ...]
    """Of `attrs`, `logs`, `bodies`: searched in this order."""
    expression: bool = False
    """The pattern is the user's own: nobody knows how long it takes."""


class Hit(msgspec.Struct, frozen=True):
    """One stretch of text in which something was found, told once wherever it is repeated."""

    cursor: str
    """To go on after it."""
    place: SpanRef
    part: str
    """`attrs`, `log`, `input`, `output`, `log body`."""
    before: str
    match: str
    after: str
    start_byte: int | None
    """Of the match in its body."""
    count: int
    """Matches in this stretch."""
    bodies: int
    """Bodies that contain this stretch."""


class Searched(msgspec.Struct, frozen=True):
    """Hits; and where the search stopped early, if it did."""

    hits: Sequence[Hit]
    cursor: str | None
    stopped: str
    """Why it stopped: words for the reader; empty when all was searched."""


class Rows(msgspec.Struct, frozen=True):
    """What a query of the user's gave."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    more: bool


class Store(Protocol):
    """Where records rest."""

    # --- the collector's side --------------------------------------------------------------

    def append(
        self,
        records: Iterable[AnyRecord],
        position: Position | None = None,
        malformed: int = 0,
        tenant: str = DEFAULT_TENANT,
    ) -> int:
        """Take records in, and the position with them, in one transaction. How many were new.

        A new run is the tenant's. ForeignRunError: a record is for a run, or of a writer, that is
        another's; then none of them is kept.
        """

    def append_pieces(self, pieces: Iterable[Sequence[AnyRecord] | SpanBatch]) -> int:
        """The same of records that come some at a time, or as whole spans; each piece is asked for when the
        one before it is taken in."""

    def remote_alive(self) -> set[str]:
        """Writers of other machines that may still write: only those machines know."""

    def remote_silent(self, before_ns: int) -> set[str]:
        """Of them, those with open spans of which nothing came since."""

    def headless(self, before_ns: int) -> Sequence[Headless]:
        """Carried traces whose first span has not come, and nothing else since."""

    def find_remote_fault(self, writer: str) -> str | None:
        """What faulthandler left on another machine."""

    def positions(self) -> Mapping[tuple[str, int], int]: ...

    def forget_position(self, writer: str, generation: int) -> None: ...

    def sync(self) -> None:
        """What was committed survives a power cut from here on: before anything that it was read
        from is deleted."""

    def writers(self, unfinished: bool = False) -> Sequence[WriterInfo]:
        """All writers, or only those without an end or with spans still open."""

    def find_supervised_end(self, writer: str) -> SupervisedEnd | None:
        """The end of the run that this writer's process span stands in, once that is known."""

    def open_spans(self, writer: str) -> Sequence[OpenSpan]: ...

    def has_seen(self, writer: str, seq: int) -> bool: ...

    def has_run(self, run_id: str) -> bool: ...

    def end_writer(self, writer: str, how: str) -> None: ...

    def mark_imported(self, run_ids: Iterable[str], at_ns: int) -> None:
        """These came from a file: their age counts from then."""

    def together(self) -> AbstractContextManager[None]:
        """What is appended inside is committed at the end, all at once."""

    def prune(self, policy: RetentionPolicy, now_ns: int, dry_run: bool = False) -> Pruned: ...

    def pin(self, run_id: str, pinned: bool = True) -> None: ...

    def store_findings(self, run: RunInfo, results: Sequence[CheckResult]) -> None:
        """Keep what checks said of a finished run, unless it has grown since it was read."""

    def add_note(self, note: Note, tenant: str | None = None) -> bool:
        """Keep a note, masked; False: one with this id is there. NotFoundError: no such run, or,
        with a tenant, none of its own."""

    def forget_note(self, run_id: str, note_id: str, tenant: str | None = None) -> bool:
        """False: there was none."""

    # --- the query side ----------------------------------------------------------------------

    def list_runs(self, wanted: RunFilter) -> Sequence[RunInfo]: ...

    def look_for_runs(self, wanted: RunFilter) -> RunPage:
        """As `list_runs`; terms that look into runs are asked of so many only."""

    def conversations(self, run_ids: Sequence[str]) -> Mapping[str, ConversationInfo]:
        """Of each run that is part of one: all its runs, of the same tenant. Two tenants may call
        theirs alike."""

    def find_runs(self, id_or_prefix: str) -> Sequence[RunInfo]: ...

    def load_run(self, run_id: str, *, with_lines: bool = True) -> Run:
        """Its skeleton. Without lines: for who reads few of them, one by one (`read_log`)."""

    def read_log(self, row: int) -> LogInfo:
        """A line of a run that was loaded without them."""

    def read_body(self, body_id: int, start: int = 0, end: int | None = None) -> bytes: ...

    def read_bodies(self, body_ids: Sequence[int]) -> Iterable[tuple[int, bytes]]:
        """Whole bodies with their ids, all at once; those that are gone or damaged are left out."""

    def run_ids(self) -> Sequence[str]: ...

    def find_spans(self, id_or_prefix: str) -> Sequence[SpanRef]:
        """Spans with this id, short id, or an id that begins so (at least 4 characters)."""

    def find_attribute(self, value: str, limit: int = 20) -> Sequence[SpanRef]:
        """Spans (or runs, for a line outside any span) that hold exactly this value."""

    def links_to(self, run_id: str, span_id: str) -> Sequence[tuple[SpanRef, str | None]]:
        """Who points at a span, and the reason given."""

    def search(
        self, wanted: SearchQuery, after: str | None = None, limit: int = 100
    ) -> Searched: ...

    def query(self, sql: str, skip: int, limit: int) -> Rows:
        """A read-only query of the user's, bounded in time and rows."""

    def notes(self, run_id: str) -> Sequence[Note]:
        """What was said about a run, oldest first."""

    def check_results(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[CheckResult]]:
        """What was stored by `store_findings`, by run id."""

    def close(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close; an engine's own errors, met while reading, become a StoreError."""
