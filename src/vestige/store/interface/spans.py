"""Find spans, and read the fields that a question needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec


class SpanRef(msgspec.Struct, frozen=True):
    """A reference to a span, or to a run if `span_id` is None."""

    run_id: str
    span_id: str | None
    short_id: str
    type: str
    name: str


class SpanFacts(msgspec.Struct, frozen=True):
    """The fields of a span that a comparison of groups needs."""

    run_id: str
    type: str
    name: str
    component: str
    status: str | None
    attributes: dict[str, Any]
    output_body: int | None


class Ancestor(NamedTuple):
    """A span of a path to the root."""

    span_id: str
    parent_id: str | None
    type: str


class SpanReader(Protocol):
    """The methods that find spans."""

    def find_spans(self, id_or_prefix: str) -> Sequence[SpanRef]:
        """Return spans by id, short id, or a prefix of an id of at least 4 characters."""

    def find_attribute(self, value: str, limit: int = 20) -> Sequence[SpanRef]:
        """Return spans that have exactly this attribute value, or runs for a log outside spans."""

    def links_to(self, run_id: str, span_id: str) -> Sequence[tuple[SpanRef, str | None]]:
        """Return the spans that link to a span, with the reasons of the links."""

    def find_previous_span(self, run_id: str, type: str, name: str) -> tuple[str, str] | None:
        """Return the run and span id of the last such span in earlier runs of the conversation."""

    def read_span_facts(self, run_ids: Sequence[str], spans_max: int) -> Iterator[SpanFacts]:
        """Yield the first `spans_max` spans of each run, in the order of arrival."""

    def read_ancestry(self, run_id: str, span_ids: Sequence[str]) -> Sequence[Ancestor]:
        """Return spans and their ancestors, in the order of start."""


# --- the outline of a run -------------------------------------------------------------------------


class OutlineSpan(NamedTuple):
    """A span of an outline."""

    row: int
    number: int
    span_id: str
    parent_id: str | None
    writer: int
    """A key of `OutlineRows.writers`."""
    seq: int
    started_ns: int
    type: str
    name: str
    component: str
    status: str | None
    duration_ns: int | None
    attributes: str | None
    """JSON."""
    input_body: int | None
    input_bytes: int | None
    output_bytes: int | None
    opening_is_missing: int
    """1 if its span-open record has not arrived."""
    parent_is_missing: int
    """1 if its parent has not arrived."""


class OutlineLog(NamedTuple):
    """A log record of an outline, with the beginning of its message."""

    row: int
    seq: int
    span_id: str | None
    writer: int
    time_ns: int
    level: str
    component: str
    message: str
    message_length: int
    attributes: str | None


class OutlineLink(NamedTuple):
    """A link of an outline."""

    row: int
    span_id: str
    target_run: str | None
    target_span: str
    reason: str | None


class OutlineRows(msgspec.Struct, frozen=True):
    """New and changed rows of a run."""

    spans: Sequence[OutlineSpan]
    logs: Sequence[OutlineLog]
    links: Sequence[OutlineLink]
    writers: Mapping[int, str]
    numbers: Mapping[str, int]
    """The numbers of the spans, and of other spans that the rows refer to, by span id."""
    cursor: str
    """The cursor to continue after these rows."""
    more: bool


class Losses(msgspec.Struct, frozen=True):
    """Counts of the parts of a run that are redacted, truncated or missing.

    Dropped, missing and malformed records are those of all processes that wrote the run.
    """

    redactions: dict[str, int]
    """Keyed by rule."""
    bodies_cut: int
    bodies_lost: int
    records_dropped: int
    records_missing: int
    lines_malformed: int
    not_sampled: bool


class OutlineReader(Protocol):
    """The methods that read a run as rows, for the viewer."""

    def read_outline(
        self, short_id: str, after: str | None, limit: int, message_max: int
    ) -> OutlineRows:
        """Return at most `limit` new spans, logs and links, and the current rows of open spans.

        `after` is the cursor of earlier rows. Raise ValueError if it is not valid.
        """

    def read_losses(self, short_id: str) -> Losses: ...
