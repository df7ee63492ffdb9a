"""Mask records that another tool or machine wrote: as a recorder of ours would have written them.

    records = masked(records, Redactor())
    lines = masked_lines(records, Redactor())       # for another process

They are looked at some at a time: most hold nothing, and a look costs more than the
bytes looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vestige.record import sanitize
from vestige.record.codec import encode
from vestige.record.types import KnownRecord

if TYPE_CHECKING:
    from vestige.record.redaction.redactor import Redactor

_LOOKED_AT_ONCE = 16
"""Of a file with a secret here and there, most groups of this size are still without."""


def masked(records: Sequence[KnownRecord], redactor: Redactor) -> list[KnownRecord]:
    """The records, with every secret in them masked: a foreign tool may have kept it in clear."""
    found: list[KnownRecord] = []
    for some, _ in _looked_at(records, redactor):
        found.extend(some)
    return found


def masked_lines(records: Sequence[KnownRecord], redactor: Redactor) -> Iterator[bytes]:
    """The same, encoded (`line.decode_known` is the way back): most were for the look at them."""
    for some, lines in _looked_at(records, redactor):
        yield lines or encode(some)


def _looked_at(
    records: Sequence[KnownRecord], redactor: Redactor
) -> Iterator[tuple[Sequence[KnownRecord], bytes]]:
    """Some at a time, masked, with their lines if nothing had to be."""
    suspicious = redactor.suspicious
    for at in range(0, len(records), _LOOKED_AT_ONCE):
        some = records[at : at + _LOOKED_AT_ONCE]
        try:
            lines = encode(some)
        except Exception:  # noqa: BLE001  # lone surrogates: a file may hold them escaped
            lines = b""
        if not lines or suspicious(lines):
            some, lines = [_masked_one(record, redactor) for record in some], b""
        yield some, lines


def _masked_one(record: KnownRecord, redactor: Redactor) -> KnownRecord:
    try:
        line = encode((record,))
    except Exception:  # noqa: BLE001  # as above
        record = sanitize.clean_record(record)
        line = encode((record,))
    return redactor.record(record) if redactor.suspicious(line) else record
