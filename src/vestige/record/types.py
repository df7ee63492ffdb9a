"""Record types. A record is one event that a process emitted, and one line of a journal.

There are four kinds. A span is written when it opens, when it gets attributes or links,
and when it closes, so that a killed program still shows its open spans:

    span-open     work began        (its body is the input)
    span-update   attributes and links that were set while it was open
    span-close    work ended        (its body is the output)
    log           a log record, inside or outside a span

Identity is `(writer, seq)`, never the content: two identical lines are two records.
Order within a run is by seq, never by time.

These types never create ids or read a clock, because reading a file must not.
Journal lines are in record/codec.py, values in record/coercion.py, and secrets in
record/redaction/redactor.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from vestige._runtime.msgspec_or_fallback import msgspec

VERSION: Final = 1

Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""An external number that every database can store. The decoder checks the range."""

Scalar = str | int | float | bool | None
Attributes = dict[str, Scalar]
Level = Literal["debug", "info", "warn", "error"]
LEVELS: Final[tuple[Level, ...]] = ("debug", "info", "warn", "error")
Status = Literal["ok", "error", "cancelled", "timeout", "interrupted"]
STATUSES: Final[tuple[Status, ...]] = ("ok", "error", "cancelled", "timeout", "interrupted")

MODEL_CALL_TYPES: Final = (
    "llm", "embedding", "image", "speech", "transcription", "moderation", "rerank", "reranker",
)  # fmt: skip
"""Types of spans that call a model, and whose tokens and cost count in the sums of a run."""

OWN_COMPONENT: Final = "vestige"
"""The component of records about Vestige itself: gaps, drops, crash records, stamps."""


class Link(msgspec.Struct, frozen=True, omit_defaults=True):
    """A causal link from its span to another span, which may belong to another run."""

    span_id: str
    run_id: str | None = None
    """None: the same run."""
    reason: str | None = None


class BodyInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The encoding of a body that is not the plain text in its line."""

    encoding: Literal["text", "base64"] = "text"
    """base64: the body is not UTF-8. Its line has it in base64; a file has the bytes themselves."""

    spilled_bytes: Count | None = None
    """The size of a body that is stored in the home's bodies/, under this record's identity."""

    sha256: str | None = None
    """The digest of the spilled file."""

    original_bytes: Count | None = None
    """The full size of a truncated body. The stored part ends with a marker."""

    original_sha256: str | None = None


class Record(msgspec.Struct, tag_field="kind", omit_defaults=True, gc=False):
    """The fields of all kinds."""

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
    """The number of redactions in this record, by rule."""
    extra: dict[str, Any] | None = None
    """Fields that this version does not know. record/codec.py writes them back in their place."""


class SpanUpdate(Record, tag="span-update", gc=False):
    """An open span got attributes or links, which must not wait for its end."""

    span_id: str
    attributes: Attributes = {}
    links: list[Link] | None = None
    redacted: dict[str, int] | None = None
    extra: dict[str, Any] | None = None


class SpanClose(Record, tag="span-close", gc=False):
    """Work ended."""

    span_id: str
    status: str
    """A status of STATUSES; text, so that a status of a newer version is kept."""
    duration_ns: Count
    attributes: Attributes = {}
    body: str | None = None
    body_info: BodyInfo | None = None
    redacted: dict[str, int] | None = None
    extra: dict[str, Any] | None = None


class Log(Record, tag="log", gc=False):
    """A log record."""

    component: str
    level: str
    """A level of LEVELS; text, so that a level of a newer version is kept."""
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
    """The complete object, including `kind`."""


KnownRecord = SpanOpen | SpanUpdate | SpanClose | Log
AnyRecord = KnownRecord | Unknown
