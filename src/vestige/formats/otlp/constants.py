"""Ids of runs and writers, and the names of what we add to a trace that we write."""

from __future__ import annotations

from typing import Final

from vestige.formats.protocol import derived_span_id, derived_uuid, derived_writer, is_uuid4
from vestige.record.external_seq import RANK_MAX, carrier_of

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


def carrier_of_trace(trace_id: str) -> str:
    """Spans come in any order and any number of times: they are known by their ids, and no writer
    could have counted them."""
    return carrier_of(derived_writer(FORMAT, trace_id))


def made_id_of(run_id: str) -> str:
    """The span that stands in for a run's first one."""
    return derived_span_id(FORMAT, run_id, "run")


def rank_of(duration_ns: int, is_run: bool) -> int:
    """Of spans that began at the same moment the longer one is first: what is around another takes
    longer."""
    return 1 if is_run else RANK_MAX - min(duration_ns.bit_length(), RANK_MAX - 2)


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
        SEQ,
        END_SEQ,
        ADDED,
        Keys.TYPE,
        Keys.COMPONENT,
        Keys.STATUS,
        Keys.ENDED_NS,
        Keys.REDACTED,
        Keys.SPAN_ID,
        Keys.PARENT_ID,
        Keys.CONVERSATION,
        Keys.LEVEL,
        Keys.MESSAGE,
        *_BODIES,
        *(key + more for key in _BODIES for more in (Keys.LOST, Keys.ORIGINAL)),
    )
)
