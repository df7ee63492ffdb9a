"""The SQL that finds the first inputs and the last outputs of runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

from vestige.record.run import BodyRef
from vestige.store.interface.runs import RunInputsOutputs

SPANS_MAX: Final = 5_000
"""Spans of a run that is read for a list."""


def read_run_inputs_outputs(
    connection: sqlite3.Connection, run_ids: Sequence[str]
) -> dict[str, RunInputsOutputs]:
    """Return the bodies at both ends of each run."""
    rows = connection.execute(_ENDS, (msgspec.json.encode(list(run_ids)).decode(), SPANS_MAX))
    return {
        run_id: RunInputsOutputs(*(_ref(*bodies[at : at + 2]) for at in range(0, 10, 2)))
        for run_id, *bodies in rows
    }


def _ref(body: int | None, size_bytes: int | None) -> BodyRef | None:
    return None if body is None else BodyRef(body, size_bytes or 0)


_ENDS = """
WITH ends AS (
  SELECT r.run_id AS run_id,
    min(s.id) FILTER (WHERE s.type = 'run' AND s.parent_id IS NULL) AS root,
    min(s.id) FILTER (WHERE s.type = 'agent' AND s.input_body IS NOT NULL) AS agent,
    min(s.id) FILTER (WHERE s.type = 'llm' AND s.input_body IS NOT NULL) AS first,
    max(s.id) FILTER (WHERE s.type = 'llm' AND s.output_body IS NOT NULL) AS last
  FROM runs r JOIN json_each(?) w ON w.value = r.run_id JOIN spans s ON s.run = r.id
  WHERE r.span_count <= ? GROUP BY r.id
)
SELECT e.run_id, a.input_body, a.input_bytes, a.output_body, a.output_bytes,
  b.input_body, b.input_bytes, c.input_body, c.input_bytes, d.output_body, d.output_bytes
FROM ends e
LEFT JOIN spans a ON a.id = e.root LEFT JOIN spans b ON b.id = e.agent
LEFT JOIN spans c ON c.id = e.first LEFT JOIN spans d ON d.id = e.last
"""
