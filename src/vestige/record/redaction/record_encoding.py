"""Encode a record as its journal line, with its secrets masked.

    record, line = encode_redacted(record, redactor.scanner, redactor)

The one path from a record to bytes that are stored: encode, scan the line, redact only on a hit,
shorten a line that is too long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vestige.limits import LINE_MAX
from vestige.record.codec import encode
from vestige.record.types import KnownRecord

if TYPE_CHECKING:
    from vestige.record.redaction.redactor import Redactor
    from vestige.record.redaction.secret_scanner import Scanner


def encode_redacted(
    record: KnownRecord,
    scanner: Scanner | None,
    redactor: Redactor | None,
    line_max: int = LINE_MAX,
) -> tuple[KnownRecord, bytes]:
    """Return the record as it is stored, and its line. Without a scanner, nothing is redacted."""
    try:
        line = encode((record,))
    except Exception:  # noqa: BLE001  # surrogates or foreign types: clean, then encode
        from vestige.record.repair_record import clean_record

        record = clean_record(record)
        line = encode((record,))
    if scanner is not None and scanner.suspicious(line):
        assert redactor is not None
        record = redactor.record(record)
        line = encode((record,))
    if len(line) > line_max:
        from vestige.record.repair_record import shrink_record

        record = shrink_record(record)
        line = encode((record,))
    return record, line
