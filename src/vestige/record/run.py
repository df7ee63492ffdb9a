"""Run: what happened in one run, folded from its records. What views and formats exchange.

A `Run` is the skeleton: spans with their attributes and body sizes, log lines, links.
Bodies are fetched by reference, when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter, itemgetter
from typing import Final, Literal, TypeVar

import msgspec

from vestige.record.types import Attributes

PARTIAL: Final = "bundle.partial"
"""Attribute of a root span whose run is not all here: what is missing, in words."""

Outcome = Literal["running", "ok", "error", "cancelled", "timeout", "interrupted"]


class BodyRef(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Where a body is and how large; `cut` says what is missing, if anything is."""

    id: int | None
    """None: there was one, and it is lost; `cut` says why."""
    size_bytes: int
    cut: str | None = None


class RunInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run as a list shows it."""

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

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class SpanInfo(msgspec.Struct, frozen=True, gc=False):
    """One span as it stands: its opening, updates and close folded together."""

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
    """None: still open."""
    duration_ns: int | None
    attributes: Attributes
    redacted: dict[str, int]
    input: BodyRef | None
    output: BodyRef | None
    end_seq: int | None = None
    """Of its close, by whoever closed it."""


class LogInfo(msgspec.Struct, frozen=True, gc=False):
    """One line said."""

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
    """Set: only its place is here; what it says is read when it is needed."""


class LinkInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A causal edge of this run."""

    span_id: str
    target_run: str | None
    target_span: str
    reason: str | None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run's skeleton. Spans and logs in the order in which they happened."""

    info: RunInfo
    spans: list[SpanInfo]
    logs: list[LogInfo]
    links: list[LinkInfo]


def partial_of(run: Run) -> str:
    """What is missing of a run that came in a truncated bundle; empty: it is whole."""
    found = (span.attributes.get(PARTIAL) for span in run.spans if span.parent_id is None)
    return next((told for told in found if isinstance(told, str)), "")


Node = SpanInfo | LogInfo
N = TypeVar("N", SpanInfo, LogInfo, Node)
T = TypeVar("T")


def in_order(nodes: Iterable[N]) -> list[N]:
    """Spans and lines as they happened (`put_in_order`)."""
    return put_in_order(nodes, attrgetter("writer"), _seq, time_ns)


def put_in_order(
    things: Iterable[T],
    writer_of: Callable[[T], str],
    seq_of: Callable[[T], int],
    time_of: Callable[[T], int],
) -> list[T]:
    """Each writer's own order is by seq and never by the clock; between writers the clock
    decides, held so that it never runs back within one."""
    by_writer: dict[str, list[T]] = {}
    for thing in things:
        by_writer.setdefault(writer_of(thing), []).append(thing)
    for own in by_writer.values():
        own.sort(key=seq_of)
    if len(by_writer) <= 1:
        return next(iter(by_writer.values()), [])
    placed: list[tuple[int, str, int, T]] = []
    for writer, own in by_writer.items():
        latest = 0
        for thing in own:
            latest = max(latest, time_of(thing))
            placed.append((latest, writer, seq_of(thing), thing))
    placed.sort(key=itemgetter(0, 1, 2))
    return [thing for *_, thing in placed]


def time_ns(node: Node) -> int:
    """When it happened, or began."""
    return node.started_ns if isinstance(node, SpanInfo) else node.time_ns


def _seq(node: Node) -> int:
    return node.seq or 0
