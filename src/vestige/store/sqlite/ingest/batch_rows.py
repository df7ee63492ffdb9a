"""The rows of a batch in memory, and the statements that read and write them.

The row of a span is a struct in the order of its columns. Rows of runs and writers contain the
changes that the batch makes to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from vestige.limits import SUM_MAX
from vestige.record.types import MODEL_CALL_TYPES
from vestige.store.sqlite.ingest.seq_ranges import SeqRanges

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode

BodyColumns = Sequence[int | str | None]
"""Body id, size, and a note if it is truncated or missing. A list while its body is pending."""

NO_ID, NO_SIZE, NO_TEXT = 0, -1, ""
"""Written as NULL. For each None, sqlite3 looks up an adapter. Half of a span's columns are
empty, so that took a fifth of the time of an ingest."""

NO_BODY: BodyColumns = (NO_ID, NO_SIZE, NO_TEXT)

OWN_TYPES = frozenset(("run", "process"))
"""Types of spans that describe a run or a writer."""


class WriterRow:
    """The row of a writer."""

    __slots__ = (
        "dropped",
        "ended",
        "first_ns",
        "id",
        "is_external",
        "is_stamped",
        "last_ns",
        "pid",
        "process_span",
        "seen",
        "supervisor",
    )

    def __init__(self, id: int, seen: SeqRanges, first_ns: int, last_ns: int) -> None:
        self.id, self.seen, self.first_ns, self.last_ns = id, seen, first_ns, last_ns
        self.dropped = 0
        self.is_external = False
        """True for an external exporter (external_spans.py)."""
        self.is_stamped = False
        """True if a collector took it for dead (withdraw_crash_stamps.py)."""
        self.pid: int | None = None
        self.supervisor: str | None = None
        self.process_span: str | None = None
        self.ended: str | None = None


class RunRow:
    """The changes of a batch to the row of a run."""

    __slots__ = (
        "changes",
        "errors",
        "id",
        "input_tokens",
        "last_ns",
        "logs",
        "missing",
        "output_tokens",
        "own",
        "run_id",
        "spans",
        "spans_before",
    )

    def __init__(self, id: int, spans_before: int, run_id: str) -> None:
        self.id = id
        self.run_id = run_id
        self.spans_before = spans_before
        """The number of spans before this batch, from which new ones are numbered."""
        self.spans = self.logs = self.errors = self.own = self.missing = 0
        self.input_tokens = self.output_tokens = 0
        self.last_ns = 0
        self.changes: dict[str, Any] = {}


class SpanRow(msgspec.Struct, gc=False):
    """The row of a span. Fields are in the order of the columns."""

    run: int
    number: int
    span_id: str
    writer: int
    seq: int | None
    """None: the opening is missing, or has not arrived yet."""
    parent_id: str | None
    started_ns: int
    type: str
    name: str
    component: str
    attributes: Any
    status: str | None = None
    duration_ns: int | None = None
    end_seq: int | None = None
    redacted: Any = None
    """Counts of redactions by rule."""
    input: BodyColumns = NO_BODY
    output: BodyColumns = NO_BODY
    id: int | None = None
    """None: not in the table yet."""


def load_span(row: tuple[Any, ...]) -> SpanRow:
    *plain, in_id, in_bytes, out_id, out_bytes, redacted, in_info, out_info, span_row = row
    span = SpanRow(*plain)
    span.attributes = _decode(span.attributes) if span.attributes else {}
    span.redacted = _decode(redacted) if redacted else None
    span.input = (in_id, in_bytes, in_info)
    span.output = (out_id, out_bytes, out_info)
    span.id = span_row
    return span


def render_json(value: Mapping[str, Any] | None) -> str:
    """Render attributes or counts for their column."""
    return _encode(value).decode() if value else NO_TEXT


_NULLABLE = {
    "attributes": "nullif(?, '')",
    "redacted": "nullif(?, '')",
    "body": f"nullif(?, {NO_ID})",
    "bytes": f"nullif(?, {NO_SIZE})",
    "info": "nullif(?, '')",
}
"""SQL for the values of columns that may be empty, by the end of the column's name."""


def _placeholder(column: str) -> str:
    return _NULLABLE.get(column.rpartition("_")[2], "?")


class Insert(NamedTuple):
    """The statements that insert rows. `first` has an explicit id."""

    table: str
    first: str
    others: str


def _insert(table: str, columns: str) -> Insert:
    values = ", ".join(_placeholder(column) for column in columns.split(", "))
    return Insert(
        table,
        f"INSERT INTO {table}(id, {columns}) VALUES (?, {values})",
        f"INSERT INTO {table}({columns}) VALUES ({values})",
    )


_COMMON = (
    "run, number, span_id, writer, seq, parent_id, started_ns, type, name, component, attributes,"
    " status, duration_ns, end_seq, input_body, input_bytes, output_body, output_bytes"
)
_COLUMNS = f"{_COMMON}, redacted, input_info, output_info"
NO_RARE = (NO_TEXT, NO_TEXT, NO_TEXT)
"""The values of columns that few spans have. Most batches are written without these columns."""
SELECT_SPAN = f"SELECT {_COLUMNS}, id FROM spans WHERE span_id = ? AND run = ?"
SELECT_OUTER = "SELECT type, seq, status, attributes FROM spans WHERE span_id = ? AND run = ?"
IS_MODEL_CALL = f"type IN ({', '.join(map(repr, MODEL_CALL_TYPES))})"
"""The same condition as that of the index `spans_carried`, which could not be used otherwise."""
SELECT_INNER = f"""
SELECT {_COLUMNS}, id FROM spans INDEXED BY spans_run
WHERE run = ? AND id > ? AND parent_id = ? AND {IS_MODEL_CALL} AND status IS NOT NULL
  AND seq IS NOT NULL
"""
"""Model calls inside a span, in rows after it. The index ends with the row id, so earlier rows
are not read."""
SELECT_INNER_EXTERNAL = SELECT_INNER.replace("spans_run", "spans_carried").replace(
    "seq IS NOT NULL", "seq >= 4294967296"
)
"""Model calls inside a span, in any row, for spans that arrive out of order."""
INSERT_SPANS = _insert("spans", _COLUMNS)
INSERT_COMMON_SPANS = _insert("spans", _COMMON)
UPDATE_SPAN = (
    "UPDATE spans SET "
    + ", ".join(f"{name} = {_placeholder(name)}" for name in _COLUMNS.split(", "))
) + " WHERE id = ?"
_LOG_COLUMNS = (
    "run, span_id, writer, seq, time_ns, level, component, message, attributes, redacted, body,"
    " body_bytes, body_info"
)
INSERT_LOGS = _insert("logs", _LOG_COLUMNS)
HIGHEST_ID = """
SELECT max(coalesce((SELECT max(id) FROM main.{table}), 0),
  coalesce((SELECT CAST(value AS INTEGER) FROM main.facts WHERE key = '{table}_top'), 0))
"""
"""The highest id that a row of a table ever had, even if it was pruned. Ids are never reused,
because they are the cursors of the change feed (store/sqlite/read/change_feed.py)."""
SAVE_HIGHEST_ID = """
INSERT OR REPLACE INTO facts SELECT '{table}_top', max(id) FROM {table} HAVING max(id) IS NOT NULL
"""
"""Run this before rows of a table are deleted."""
UPDATE_RUN = """
UPDATE runs SET last_ns = max(last_ns, ?), span_count = span_count + ?,
  log_count = log_count + ?, error_count = max(0, error_count + ?), own_count = own_count + ?,
  missing_count = min(missing_count + ?, {sum_max}),
  input_tokens = max(0, min(input_tokens + ?, {sum_max})),
  output_tokens = max(0, min(output_tokens + ?, {sum_max})){}
WHERE id = ?
""".replace("{sum_max}", str(SUM_MAX))
UPDATE_WRITER = f"""
UPDATE writers SET seen = ?, last_ns = ?, dropped = min(dropped + ?, {SUM_MAX}), pid = ?,
  supervisor = ?, process_span = ?, ended = ? WHERE id = ?
"""
