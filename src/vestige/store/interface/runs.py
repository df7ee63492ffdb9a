"""Find and load runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

import msgspec

from vestige.record.run import BodyRef, LogInfo, Run, RunInfo

Op = Literal[":", ">", "<", ">=", "<=", "="]
RunSort = Literal["started", "duration", "tokens", "spans", "errors", "name", "outcome"]
"""Columns of a run by which a list can be sorted."""


class Term(msgspec.Struct, frozen=True):
    """A condition on runs. Its language is in query/search/filters.py.

    `value` of `words` is a tuple of words, which are searched before: `also` has the runs. `value`
    of `run` is a tuple of short ids or prefixes of ids. `value` of `tag` is a tag of a note, in
    lower case and without `#`: a tag ends where its letters, digits, `_` and `-` end.
    """

    key: str
    op: Op
    value: Any
    negated: bool = False
    also: tuple[str, ...] = ()
    """The ids of runs with `text` in a body, or of all runs with `words`."""
    partial: bool = False
    """True if only the newest part of the store was searched for `words`."""


class RunInputsOutputs(msgspec.Struct, frozen=True):
    """The bodies at the beginning and the end of a run; None if there is none."""

    input: BodyRef | None = None
    output: BodyRef | None = None
    """Input and output of the run's own span."""
    agent_input: BodyRef | None = None
    """Input of its first agent."""
    request: BodyRef | None = None
    """Request of its first model call."""
    response: BodyRef | None = None
    """Response of its last model call."""

    def bodies(self) -> list[tuple[int, int]]:
        """Return the ids and sizes of the bodies that exist."""
        refs = (self.input, self.output, self.agent_input, self.request, self.response)
        return [(ref.id, ref.size_bytes) for ref in refs if ref is not None and ref.id is not None]


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
    sort: RunSort = "started"
    ascending: bool = False


class RunPage(msgspec.Struct, frozen=True):
    """Runs that match a filter, and where the search stopped if it reached its bound."""

    runs: Sequence[RunInfo]
    looked_at: int | None = None
    """The number of runs that were searched, if there are more."""
    last: str | None = None
    """The short id of the last run that was searched, if the runs are in order of time."""


class ConversationInfo(msgspec.Struct, frozen=True):
    """The sums over the runs of one conversation."""

    conversation_id: str
    runs: int
    failed: int
    first_ns: int
    input_tokens: int
    output_tokens: int


class RunReader(Protocol):
    """The methods that read runs."""

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

    def has_run(self, run_id: str) -> bool: ...

    def run_ids(self) -> Sequence[str]: ...

    def load_run(self, run_id: str, *, with_logs: bool = True) -> Run:
        """Return a run without its bodies.

        Without logs, log records are references that `read_log` resolves one by one.
        """

    def read_log(self, row: int) -> LogInfo:
        """Return a log record of a run that was loaded without logs."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Let all reads inside the block see the same state of the store."""

    def find_last_good_run(self, run_id: str) -> str | None:
        """Return the last successful run of the same name: before this one, or else after it."""

    def find_previous_run(self, run_id: str) -> str | None:
        """Return the previous run of the same conversation, or else of the same name."""

    def find_partial_runs(self, run_ids: Sequence[str]) -> set[str]:
        """Return the runs whose root span marks them as incomplete."""

    def read_run_inputs_outputs(self, run_ids: Sequence[str]) -> Mapping[str, RunInputsOutputs]:
        """Return where the inputs and outputs of runs are. Very long runs are left out."""

    def sum_body_bytes(self, run_id: str) -> int:
        """Return the uncompressed size of all bodies of a run's spans."""

    def read_debugging_hints(self, run_ids: Sequence[str] | None, limit: int) -> Sequence[object]:
        """Return recorded debugging hints as JSON texts, newest first; of some runs, or of all."""
