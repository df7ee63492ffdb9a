"""A row of the table of runs as a `RunInfo`, the same in all engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vestige.record.run import RunInfo


def to_run_info(row: Sequence[Any]) -> RunInfo:
    """Return the run of a row: its columns in the order of the fields below."""
    return RunInfo(
        id=row[0],
        short_id=f"r{row[1]}",
        name=row[2] or "?",
        outcome=row[3],
        started_ns=row[4],
        ended_ns=row[5],
        duration_ns=row[6],
        last_ns=row[7],
        span_count=row[8],
        log_count=row[9],
        error_count=row[10],
        conversation_id=row[11],
        component=row[12],
        input_tokens=row[13],
        output_tokens=row[14],
        pinned=bool(row[15]),
        implicit=bool(row[16]),
        process_run=row[17],
        missing_count=row[18],
    )
