"""What a store can do: the narrow protocol, so that another engine can serve it too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from vestige.record.run import Run, RunInfo
from vestige.record.types import AnyRecord, Attributes


@dataclass(frozen=True, slots=True)
class Position:
    """How far a journal file has been taken in."""

    writer: str
    generation: int
    offset: int


@dataclass(frozen=True, slots=True)
class WriterInfo:
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


@dataclass(frozen=True, slots=True)
class OpenSpan:
    """A span without an end, and what a crash stamp needs of it."""

    run_id: str
    span_id: str
    type: str
    name: str
    seq: int | None
    started_ns: int


@dataclass(frozen=True, slots=True)
class SupervisedEnd:
    """How a supervised run ended: its root's attributes, and when."""

    attributes: Attributes
    at_ns: int


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs to list."""

    failed: bool = False
    since_ns: int | None = None
    name: str | None = None
    conversation_id: str | None = None
    with_implicit: bool = False
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """What to keep. None: without bound."""

    age_max_s: float | None
    body_bytes_max: int | None


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a retention pass removed, or would remove."""

    runs: int
    spans: int
    bodies: int
    freed_bytes: int


class Store(Protocol):
    """Where records rest."""

    # --- the collector's side --------------------------------------------------------------

    def append(
        self, records: Iterable[AnyRecord], position: Position | None = None, malformed: int = 0
    ) -> int:
        """Take records in, and the position with them, in one transaction. How many were new."""

    def positions(self) -> Mapping[tuple[str, int], int]: ...

    def forget_position(self, writer: str, generation: int) -> None: ...

    def writers(self, unfinished: bool = False) -> Sequence[WriterInfo]:
        """All writers, or only those without an end or with spans still open."""

    def find_supervised_end(self, writer: str) -> SupervisedEnd | None:
        """The end of the run that this writer's process span stands in, once that is known."""

    def open_spans(self, writer: str) -> Sequence[OpenSpan]: ...

    def has_seen(self, writer: str, seq: int) -> bool: ...

    def end_writer(self, writer: str, how: str) -> None: ...

    def prune(self, policy: RetentionPolicy, now_ns: int, dry_run: bool = False) -> Pruned: ...

    def pin(self, run_id: str, pinned: bool = True) -> None: ...

    # --- the query side ----------------------------------------------------------------------

    def list_runs(self, wanted: RunFilter) -> Sequence[RunInfo]: ...

    def find_runs(self, id_or_prefix: str) -> Sequence[RunInfo]: ...

    def load_run(self, run_id: str) -> Run: ...

    def read_body(self, body_id: int, start: int = 0, end: int | None = None) -> bytes: ...

    def run_ids(self) -> Sequence[str]: ...

    def close(self) -> None: ...
