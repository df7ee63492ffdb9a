"""Records that somebody carries here for others: whole spans, in any order, as often as they like.

A writer counts its records, and what was taken in before is known by its number. OpenTelemetry's
exporters and collectors cut a trace anywhere, shuffle it and send it again; nobody counts. So a
carrier has a name that tells what it is. What it brings is known by the span that it is of, and a
number only says where in that span it stands:

    seq_of(rank, 1)             # a span's opening; its events and its close follow
    seq_of(STAND_IN, 1)         # of a span that stands in for the run's first one until that comes
    line_seq(digest)            # a line that is known by what it says

The rank orders spans that began at the same moment, the lowest first. The number of each is exact
in a double, as browsers read it.

Elsewhere: store/sqlite/ingest/external_spans.py takes them in; formats/otlp makes them.
"""

from __future__ import annotations

from typing import Final

STAND_IN: Final = 0
RANK_MAX: Final = 0x7F

_CARRIER: Final = "carried-"
_PLACES: Final = 32
"""Bits of a number that count within a span."""
_LINE: Final = 1 << 52
"""Above every rank; the rest of a line's number is of its digest."""


def carrier_of(name: str) -> str:
    """No writer of a journal is called so: theirs are 16 hex digits."""
    return _CARRIER + name


def is_carrier(writer: str) -> bool:
    return writer.startswith(_CARRIER)


def seq_of(rank: int, place: int) -> int:
    return rank << _PLACES | place


def is_stand_in(seq: int) -> bool:
    return seq >> _PLACES == STAND_IN


def line_seq(digest: bytes) -> int:
    return _LINE | int.from_bytes(digest[:8], "big") >> 12


def is_line(seq: int) -> bool:
    return seq >= _LINE


def voice(writer: str, span_id: str | None, seq: int | None) -> str:
    """Whose own order a record stands in: its writer's; of what was carried, its span's, and a
    line stands for itself. The clock decides between voices, and at the same moment their names."""
    if not writer.startswith(_CARRIER):
        return writer
    if seq is None or seq >= _LINE:
        return f"ff{seq or 0:014x}"
    return f"{seq >> _PLACES:02x}{span_id}"
