"""Run: the content of one run, built from its records. Views and formats exchange it.

A `Run` is the skeleton: spans with their attributes and body sizes, log lines, links.
Bodies are loaded by reference, on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter, itemgetter
from typing import Final, Literal, TypeVar

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.record.types import Attributes

PARTIAL: Final = "bundle.partial"
"""Attribute of the root span of a partial run: a description of what is missing."""

Outcome = Literal["running", "ok", "error", "cancelled", "timeout", "interrupted", "unknown"]

OUTCOME: Final = "run.outcome"
"""Attribute of the end of a root span: the outcome of the run where it is not the span's status."""

UNKNOWN: Final = "unknown"
"""Outcome of a run whose recording has an end, but does not state how it ended."""

NOT_FAILED: Final = ("ok", "running", UNKNOWN)
"""Outcomes of runs that are not listed or counted as failed."""


class BodyRef(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The location and size of a body. `cut` describes the missing part, if any."""

    id: int | None
    """None: the body is missing, and `cut` has the reason."""
    size_bytes: int
    cut: str | None = None


class RunInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The row of one run in a list."""

    id: str
    short_id: str
    name: str
    outcome: str
    started_ns: int
    ended_ns: int | None
    duration_ns: int | None
    last_ns: int
    span_count: int
    log_count: int
    error_count: int
    conversation_id: str | None
    component: str | None
    input_tokens: int
    output_tokens: int
    pinned: bool
    implicit: bool
    process_run: str | None = None
    missing_count: int = 0
    """Missing records: dropped on a full disk, or deleted with their journal."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def elapsed_ns(self) -> int:
        """Return the duration; of an open run, until its last record. 0 if no time is known."""
        return self.last_ns - self.started_ns if self.duration_ns is None else self.duration_ns


class SpanInfo(msgspec.Struct, frozen=True, gc=False):
    """A span, merged from its opening, updates and close."""

    id: str
    short_id: str
    parent_id: str | None
    writer: str
    seq: int | None
    started_ns: int
    type: str
    name: str
    component: str
    status: str | None
    """None: the span is still open."""
    duration_ns: int | None
    attributes: Attributes
    redacted: dict[str, int]
    input: BodyRef | None
    output: BodyRef | None
    end_seq: int | None = None
    """The seq of its close."""


class LogInfo(msgspec.Struct, frozen=True, gc=False):
    """A log record."""

    span_id: str | None
    writer: str
    seq: int
    time_ns: int
    level: str
    component: str
    message: str
    attributes: Attributes
    redacted: dict[str, int]
    body: BodyRef | None
    row: int | None = None
    """Set if the content is not loaded yet: the row to read it from."""


class LinkInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A causal link of this run."""

    span_id: str
    target_run: str | None
    target_span: str
    reason: str | None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run without its bodies. Spans and logs are in the order of time."""

    info: RunInfo
    spans: list[SpanInfo]
    logs: list[LogInfo]
    links: list[LinkInfo]


def partial_of(run: Run) -> str:
    """Return the missing part of a run from a truncated bundle; empty if the run is complete."""
    found = (span.attributes.get(PARTIAL) for span in run.spans if span.parent_id is None)
    return next((text for text in found if isinstance(text, str)), "")


Node = SpanInfo | LogInfo
N = TypeVar("N", SpanInfo, LogInfo, Node)
T = TypeVar("T")


def in_order(nodes: Iterable[N]) -> list[N]:
    """Return spans and log records in the order of time (`put_in_order`)."""
    return put_in_order(nodes, attrgetter("writer"), _seq, time_ns)


def put_in_order(
    items: Iterable[T],
    writer_of: Callable[[T], str],
    seq_of: Callable[[T], int],
    time_of: Callable[[T], int],
) -> list[T]:
    """Order items of one writer by seq, and items of different writers by time.

    Within a writer, a time that is earlier than the previous one counts as equal to it.
    """
    by_writer: dict[str, list[T]] = {}
    for item in items:
        by_writer.setdefault(writer_of(item), []).append(item)
    for own in by_writer.values():
        own.sort(key=seq_of)
    if len(by_writer) <= 1:
        return next(iter(by_writer.values()), [])
    placed: list[tuple[int, str, int, T]] = []
    for writer, own in by_writer.items():
        latest = 0
        for item in own:
            latest = max(latest, time_of(item))
            placed.append((latest, writer, seq_of(item), item))
    placed.sort(key=itemgetter(0, 1, 2))
    return [item for *_, item in placed]


def time_ns(node: Node) -> int:
    """Return the time of a log record, or the start of a span."""
    return node.started_ns if isinstance(node, SpanInfo) else node.time_ns


def _seq(node: Node) -> int:
    return node.seq or 0
