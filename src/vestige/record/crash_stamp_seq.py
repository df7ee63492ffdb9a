"""The seqs of crash stamps: records that a collector writes about a writer that seems dead.

The writer may still be alive, and its next records must not be mistaken for those of the stamp.
So stamps have their own range, which no writer reaches. It is below the seqs of external log
records (otlp_sequence_numbers.py), and exact in a double, because browsers read it as one.
"""

from __future__ import annotations

from typing import Final

STAMP_SEQ_MIN: Final = 1 << 48
STAMP_SEQ_END: Final = 1 << 52


def stamp_seq(last_seq: int, index: int) -> int:
    """Return the seq of a stamp's record, which sorts after the records of the writer."""
    return min(STAMP_SEQ_MIN + last_seq + index, STAMP_SEQ_END - 1)


def is_stamp(seq: int | None) -> bool:
    return seq is not None and STAMP_SEQ_MIN <= seq < STAMP_SEQ_END
