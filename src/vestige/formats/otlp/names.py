"""Ids of runs and writers, and the names of what we add to a trace that we write."""

from __future__ import annotations

from typing import Final

from vestige.formats.base import derived_uuid, derived_writer, is_uuid4

FORMAT: Final = "otlp"

SEQ: Final = "vestige.seq"
"""The place of a span's opening, or of a line, in its run. A span that has it was written by us."""
END_SEQ: Final = "vestige.end_seq"
ADDED: Final = "vestige.added"
"""Keys that say again, by the conventions, what ours say."""
TRACE_ID: Final = "otel.trace_id"
MADE: Final = "otel.made"
"""Of a run that is no span of its trace."""


def run_of(trace_id: str) -> str:
    """The run that somebody else's trace is. Never that of a run recorded by us."""
    return derived_uuid(FORMAT, trace_id)


def own_run_of(trace_id: str) -> str:
    """The run that we wrote as a trace: its id is the trace's."""
    t = trace_id
    found = f"{t[:8]}-{t[8:12]}-{t[12:16]}-{t[16:20]}-{t[20:]}"
    return found if is_uuid4(found) else run_of(trace_id)


def own_writer_of(trace_id: str) -> str:
    return derived_writer(FORMAT, f"{trace_id}\0own")


def made_writer_of(trace_id: str, what: str) -> str:
    """Of a run that is no span; it comes before all that began at the same moment."""
    name = derived_writer(FORMAT, f"{trace_id}\0{what}")
    return f"00{name[:14]}"


def span_writer_of(trace_id: str, span_id: str, duration_ns: int, is_run: bool) -> str:
    """One writer for each span: spans come in any order and any number of times, and a writer's
    numbers would have to know them all. The clock orders writers, and of those that began at the
    same moment the name does: so it begins with how long the span took, the longest first, as what
    is around another takes longer."""
    rank = 0 if is_run else 0x7F - min(duration_ns.bit_length(), 0x7E)
    name = derived_writer(FORMAT, f"{trace_id}\0{span_id}")
    return f"{rank:02x}{name[:14]}"


class Keys:
    """What stands beside a span's own attributes in a trace of ours."""

    TYPE: Final = "vestige.type"
    COMPONENT: Final = "vestige.component"
    STATUS: Final = "vestige.status"
    ENDED_NS: Final = "vestige.ended_ns"
    """By the wall clock, where a duration of another clock does not lead there."""
    INPUT: Final = "vestige.input"
    OUTPUT: Final = "vestige.output"
    BODY: Final = "vestige.body"
    LOST: Final = ".lost"
    """After one of these: there was a body of this size, and it is gone."""
    ORIGINAL: Final = ".original_bytes"
    """After one of these: it was cut from this size."""
    REDACTED: Final = "vestige.redacted"
    SPAN_ID: Final = "vestige.span_id"
    """An id that is none of W3C's; of a line, whose it is."""
    PARENT_ID: Final = "vestige.parent_id"
    CONVERSATION: Final = "vestige.conversation_id"
    LEVEL: Final = "vestige.level"
    MESSAGE: Final = "vestige.message"
    RUN_ID: Final = "vestige.run_id"
    REASON: Final = "vestige.reason"


_BODIES: Final = (Keys.INPUT, Keys.OUTPUT, Keys.BODY)
OWN_KEYS: Final = frozenset(
    (
        SEQ, END_SEQ, ADDED, Keys.TYPE, Keys.COMPONENT, Keys.STATUS, Keys.ENDED_NS, Keys.REDACTED,
        Keys.SPAN_ID, Keys.PARENT_ID, Keys.CONVERSATION, Keys.LEVEL, Keys.MESSAGE, *_BODIES,
        *(key + more for key in _BODIES for more in (Keys.LOST, Keys.ORIGINAL)),
    )
)  # fmt: skip
