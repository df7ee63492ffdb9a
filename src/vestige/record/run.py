"""Run: what happened in one run, folded from its records. What views and formats exchange.

A `Run` is the skeleton: spans with their attributes and body sizes, log lines, links.
Bodies are fetched by reference, when somebody asks.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from vestige.record.types import Attributes

Outcome = Literal["running", "ok", "error", "cancelled", "timeout", "interrupted"]


class BodyRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a body is and how large; `cut` says what is missing, if anything is."""

    id: int | None
    """None: there was one, and it is lost; `cut` says why."""
    size_bytes: int
    cut: str | None = None


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
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


class SpanInfo(msgspec.Struct, frozen=True, kw_only=True):
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


class LogInfo(msgspec.Struct, frozen=True, kw_only=True):
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


class LinkInfo(msgspec.Struct, frozen=True, kw_only=True):
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
