"""Redact records that another tool or machine wrote, as a recorder would have.

    records = masked(records, Redactor())

They are scanned in groups: most contain no secret, and a scan costs more than its bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vestige.record.codec import encode
from vestige.record.redaction.record_encoding import encode_redacted
from vestige.record.types import KnownRecord

if TYPE_CHECKING:
    from vestige.record.redaction.redactor import Redactor

_GROUP = 16
"""Records per scan. In a file with some secrets, most groups of this size have none."""


def masked(records: Sequence[KnownRecord], redactor: Redactor) -> list[KnownRecord]:
    """Return the records with their secrets masked. Long ones are not shortened."""
    found: list[KnownRecord] = []
    for at in range(0, len(records), _GROUP):
        group = records[at : at + _GROUP]
        if _may_have_secrets(group, redactor):
            scanner = redactor.scanner
            found += (encode_redacted(each, scanner, redactor, sys.maxsize)[0] for each in group)
        else:
            found += group
        redactor.complete_scanner()
    return found


def _may_have_secrets(records: Sequence[KnownRecord], redactor: Redactor) -> bool:
    try:
        return redactor.suspicious(encode(records))
    except Exception:  # noqa: BLE001  # lone surrogates: `encode_redacted` cleans them
        return True
