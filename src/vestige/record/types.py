"""The record: one fact that a process emitted, and one line of a journal.

Four kinds. A span is written when it opens, when something is learned about it
and when it closes, so that a killed program still shows what was in flight:

    span-open     work began        (its body is the input)
    span-update   attributes and links that were set while it was open
    span-close    work ended        (its body is the output)
    log           a line said, inside a span or outside any

Identity is `(writer, seq)`, never the content: two identical lines are two facts.
Order within a run is by seq, never by clock.

Types here never mint ids or look at a clock: reading a file back must not.
Elsewhere: record <-> journal line in record/codec.py; what a value may be in
record/coercion.py; secrets in record/redaction/redactor.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

VERSION: Final = 1

Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""A number from outside that every database can hold; the decoder checks it."""

Scalar = str | int | float | bool | None
Attributes = dict[str, Scalar]
Level = Literal["debug", "info", "warn", "error"]
LEVELS: Final[tuple[Level, ...]] = ("debug", "info", "warn", "error")
Status = Literal["ok", "error", "cancelled", "timeout", "interrupted"]
STATUSES: Final[tuple[Status, ...]] = ("ok", "error", "cancelled", "timeout", "interrupted")

OWN_COMPONENT: Final = "vestige"
"""The component of what Vestige says about itself: gaps, drops, last words, stamps."""


class Link(msgspec.Struct, frozen=True, omit_defaults=True):
    """A causal edge from the span that carries it to another span, perhaps of another run."""

    span_id: str
    run_id: str | None = None
    """None: the same run."""
    reason: str | None = None


class BodyInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one must know to read a body that is not simply the text in its line."""

    encoding: Literal["text", "base64"] = "text"
    """base64: the bytes were no UTF-8; the line or file holds them encoded (a file: as they are)."""

    spilled_bytes: Count | None = None
    """The body is in the home's bodies/ under this record's identity, and has this size."""

    sha256: str | None = None
    """Of the spilled file."""

    original_bytes: Count | None = None
    """Set when the body was cut: the size it had. The kept part ends with a marker that says so."""

    original_sha256: str | None = None


class Record(msgspec.Struct, tag_field="kind", omit_defaults=True, gc=False):
    """What all kinds share."""

    v: int
    writer: str
    seq: Count
    time_ns: Count
    run_id: str


class SpanOpen(Record, tag="span-open", gc=False):
    """Work began."""

    span_id: str
    component: str
    type: str
    name: str
    parent_id: str | None = None
    conversation_id: str | None = None
    attributes: Attributes = {}
    links: list[Link] | None = None
    body: str | None = None
    body_info: BodyInfo | None = None
    redacted: dict[str, int] | None = None
    """How often each redaction rule acted on this record."""
    extra: dict[str, Any] | None = None
    """Fields that this version does not know; record/codec.py writes them back where they were."""


class SpanUpdate(Record, tag="span-update", gc=False):
    """Something was learned about an open span, and must not wait for its end."""

    span_id: str
    attributes: Attributes = {}
    links: list[Link] | None = None
    redacted: dict[str, int] | None = None
    extra: dict[str, Any] | None = None


class SpanClose(Record, tag="span-close", gc=False):
    """Work ended."""

    span_id: str
    status: str
    """One of STATUSES; text, so that a status of a newer version is kept."""
    duration_ns: Count
    attributes: Attributes = {}
    body: str | None = None
    body_info: BodyInfo | None = None
    redacted: dict[str, int] | None = None
    extra: dict[str, Any] | None = None


class Log(Record, tag="log", gc=False):
    """A line said."""

    component: str
    level: str
    """One of LEVELS; text, so that a level of a newer version is kept."""
    message: str
    span_id: str | None = None
    attributes: Attributes = {}
    body: str | None = None
    body_info: BodyInfo | None = None
    redacted: dict[str, int] | None = None
    extra: dict[str, Any] | None = None


class Unknown(msgspec.Struct, gc=False):
    """A record of a kind that this version does not know, kept as it came."""

    kind: str
    writer: str
    seq: int
    run_id: str | None
    fields: dict[str, Any]
    """The whole object, `kind` included."""


KnownRecord = SpanOpen | SpanUpdate | SpanClose | Log
AnyRecord = KnownRecord | Unknown
