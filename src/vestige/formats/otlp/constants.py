"""Ids of runs and writers, and the attribute names that Vestige adds to exported traces."""

from __future__ import annotations

from typing import Final

from vestige.formats.protocol import derived_span_id, derived_uuid, derived_writer, is_uuid4
from vestige.record.otlp_sequence_numbers import RANK_MAX, external_writer

FORMAT: Final = "otlp"

SEQ: Final = "vestige.seq"
"""Position of a span's start, or of a log record, in its run.

A span with this attribute was exported by Vestige.
"""
END_SEQ: Final = "vestige.end_seq"
ADDED: Final = "vestige.added"
"""Keys that repeat Vestige's attributes under the names of the GenAI conventions."""
TRACE_ID: Final = "otel.trace_id"
RECORDED_BY: Final = "vestige.writer"
"""Attribute of a resource: the writer whose journal has the spans, too."""
SYNTHETIC: Final = "otel.made"
"""Marks a run that does not correspond to a span of its trace."""


def external_run_id(trace_id: str) -> str:
    """Return the run id of another program's trace. It never equals the id of a recorded run."""
    return derived_uuid(FORMAT, trace_id)


def own_run_id(trace_id: str) -> str:
    """Return the id of the run that Vestige exported as this trace: the ids are the same."""
    t = trace_id
    run_id = f"{t[:8]}-{t[8:12]}-{t[12:16]}-{t[16:20]}-{t[20:]}"
    return run_id if is_uuid4(run_id) else external_run_id(trace_id)


def own_writer_id(trace_id: str) -> str:
    return derived_writer(FORMAT, f"{trace_id}\0own")


def external_writer_id(trace_id: str) -> str:
    """Return the writer id of a trace whose spans may arrive in any order and more than once.

    Its records are identified by span ids, because the sender does not number them.
    """
    return external_writer(derived_writer(FORMAT, trace_id))


def synthetic_root_id(run_id: str) -> str:
    """Return the id of the span that replaces a missing root span."""
    return derived_span_id(FORMAT, run_id, "run")


def start_rank(duration_ns: int, is_run: bool) -> int:
    """Rank spans that start together: longer ones first, since parents outlast children."""
    return 1 if is_run else RANK_MAX - min(duration_ns.bit_length(), RANK_MAX - 2)


class Keys:
    """Attribute names for facts that no convention covers."""

    TYPE: Final = "vestige.type"
    COMPONENT: Final = "vestige.component"
    STATUS: Final = "vestige.status"
    ENDED_NS: Final = "vestige.ended_ns"
    """Wall-clock end, where it differs from start plus duration (a monotonic clock)."""
    INPUT: Final = "vestige.input"
    OUTPUT: Final = "vestige.output"
    BODY: Final = "vestige.body"
    LOST: Final = ".lost"
    """Suffix of a body's key: the body is missing, and this was its size."""
    ORIGINAL: Final = ".original_bytes"
    """Suffix of a body's key: the body was truncated from this size."""
    REDACTED: Final = "vestige.redacted"
    SPAN_ID: Final = "vestige.span_id"
    """A span id that is not a valid W3C id; on a log record, the id of its span."""
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
        *(key + suffix for key in _BODIES for suffix in (Keys.LOST, Keys.ORIGINAL)),
    )
)
