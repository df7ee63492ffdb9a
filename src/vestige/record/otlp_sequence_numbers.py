"""Seqs of records from external exporters (OTLP), which arrive in any order and more than once.

A writer of ours numbers its records, so that duplicates are recognized by their seq.
OpenTelemetry's exporters and collectors do not number records: they split a trace anywhere,
reorder it and send it again. So their records have a writer name with a prefix, they are
identified by their span, and the seq is only the position within that span:

    external_seq(rank, 1)           # a span's opening; its events and its close follow
    external_seq(PLACEHOLDER, 1)    # a placeholder for the root span until that arrives
    log_seq(digest)                 # a log record, identified by its content

The rank orders spans that began at the same moment, the lowest first. All seqs are exact in a
double, because browsers read them as one.

The records are built in formats/otlp and stored by store/sqlite/ingest/external_spans.py.
"""

from __future__ import annotations

from typing import Final

PLACEHOLDER: Final = 0
RANK_MAX: Final = 0x7F

_PREFIX: Final = "carried-"
_POSITION_BITS: Final = 32
"""Bits of a seq that count within a span."""
_LOG_SEQ_MIN: Final = 1 << 52
"""Above every rank. The rest of a log record's seq comes from its digest."""


def external_writer(name: str) -> str:
    """Return the writer name of an exporter. Writers of journals have 16 hex digits instead."""
    return _PREFIX + name


def is_external_writer(writer: str) -> bool:
    return writer.startswith(_PREFIX)


def external_seq(rank: int, position: int) -> int:
    return rank << _POSITION_BITS | position


def is_placeholder_seq(seq: int) -> bool:
    return seq >> _POSITION_BITS == PLACEHOLDER


def log_seq(digest: bytes) -> int:
    return _LOG_SEQ_MIN | int.from_bytes(digest[:8], "big") >> 12


def is_log_seq(seq: int) -> bool:
    return seq >= _LOG_SEQ_MIN


def order_group(writer: str, span_id: str | None, seq: int | None) -> str:
    """Return the group within which records are ordered by seq.

    That is the writer, or the span of an external record, or an external log record by itself.
    Between groups the time decides, and at the same moment the group's name.
    """
    if not writer.startswith(_PREFIX):
        return writer
    if seq is None or seq >= _LOG_SEQ_MIN:
        return f"ff{seq or 0:014x}"
    return f"{seq >> _POSITION_BITS:02x}{span_id}"
