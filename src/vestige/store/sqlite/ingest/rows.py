"""The rows of a batch while it is folded, and the statements that read and write them.

A span's row is a struct in the order of its columns; a run's and a writer's hold what the
batch adds to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from vestige.limits import SUM_MAX
from vestige.store.sqlite.ingest.seq_ranges import SeqRanges

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode

BodyColumns = Sequence[int | str | None]
"""Body id, size, and a note if it was cut or lost. A list while its body waits to be kept."""

NO_ID, NO_SIZE, NO_TEXT = 0, -1, ""
"""Written as NULL. None would be too, but for each one Python's sqlite3 looks for an adapter, and
half of a span's columns are empty: that was a fifth of the work of taking it in."""

NO_BODY: BodyColumns = (NO_ID, NO_SIZE, NO_TEXT)

OWN_TYPES = frozenset(("run", "process"))
"""Spans that are a run's or a writer's own: those learn from them what they are."""


class WriterRow:
    """A writer's row while a batch is taken in."""

    __slots__ = (
        "carries",
        "dropped",
        "ended",
        "first_ns",
        "id",
        "last_ns",
        "pid",
        "process_span",
        "seen",
        "supervisor",
    )

    def __init__(self, id: int, seen: SeqRanges, first_ns: int, last_ns: int) -> None:
        self.id, self.seen, self.first_ns, self.last_ns = id, seen, first_ns, last_ns
        self.dropped = 0
        self.carries = False
        """It is a carrier: see store/sqlite/ingest/external_spans.py."""
        self.pid: int | None = None
        self.supervisor: str | None = None
        self.process_span: str | None = None
        self.ended: str | None = None


class RunRow:
    """What a batch adds to a run's row."""

    __slots__ = (
        "changes",
        "errors",
        "id",
        "input_tokens",
        "last_ns",
        "logs",
        "numbers",
        "output_tokens",
        "own",
        "run_id",
        "spans",
    )

    def __init__(self, id: int, numbers: int, run_id: str) -> None:
        self.id = id
        self.run_id = run_id
        self.numbers = numbers
        """Spans numbered before this batch."""
        self.spans = self.logs = self.errors = self.own = 0
        self.input_tokens = self.output_tokens = 0
        self.last_ns = 0
        self.changes: dict[str, Any] = {}


class SpanRow(msgspec.Struct, gc=False):
    """A span's row while it is being folded; fields in the order of the columns."""

    run: int
    number: int
    span_id: str
    writer: int
    seq: int | None
    """None: its opening was lost, or is yet to come."""
    parent_id: str | None
    started_ns: int
    type: str
    name: str
    component: str
    attributes: Any
    """Attributes; JSON text when it is written."""
    status: str | None = None
    duration_ns: int | None = None
    end_seq: int | None = None
    redacted: Any = None
    """Counts by rule; JSON text when it is written."""
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


def json_of(value: Mapping[str, Any] | None) -> str:
    """Attributes or counts as their column holds them."""
    return _encode(value).decode() if value else NO_TEXT


_EMPTY = {
    "attributes": "nullif(?, '')",
    "redacted": "nullif(?, '')",
    "body": f"nullif(?, {NO_ID})",
    "bytes": f"nullif(?, {NO_SIZE})",
    "info": "nullif(?, '')",
}
"""How a column is written that may be empty; by its name, or the end of it."""


def _value(column: str) -> str:
    return _EMPTY.get(column.rpartition("_")[2], "?")


def _values(columns: str) -> str:
    return ", ".join(_value(column) for column in columns.split(", "))


class Insert(NamedTuple):
    """The statements that insert rows: `first` also gives the row's id."""

    table: str
    first: str
    others: str


def _insert(table: str, columns: str) -> Insert:
    values = _values(columns)
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
"""The columns of a span that hardly one has: most batches are written without."""
SELECT_SPAN = f"SELECT {_COLUMNS}, id FROM spans WHERE span_id = ? AND run = ?"
SELECT_ABOVE = "SELECT type, seq, status, attributes FROM spans WHERE span_id = ? AND run = ?"
"""What must be known of the span that a model call stands in."""
SELECT_INNER = f"""
SELECT {_COLUMNS}, id FROM spans INDEXED BY spans_run
WHERE run = ? AND id > ? AND parent_id = ? AND type = 'llm' AND status IS NOT NULL AND seq IS NOT NULL
"""
"""Model calls inside a span, of the rows after it: an index of a run ends with the row's id, so
that nothing before it is read."""
SELECT_INNER_ANY = SELECT_INNER.replace("spans_run", "spans_carried").replace(
    "seq IS NOT NULL", "seq >= 4294967296"
)
"""Of all rows, where spans come in any order: see store/sqlite/ingest/external_spans.py."""
INSERT_SPANS = _insert("spans", _COLUMNS)
INSERT_COMMON_SPANS = _insert("spans", _COMMON)
UPDATE_SPAN = (
    "UPDATE spans SET " + ", ".join(f"{name} = {_value(name)}" for name in _COLUMNS.split(", "))
) + " WHERE id = ?"
_LOG_COLUMNS = (
    "run, span_id, writer, seq, time_ns, level, component, message, attributes, redacted, body,"
    " body_bytes, body_info"
)
INSERT_LOGS = _insert("logs", _LOG_COLUMNS)
TOP = """
SELECT max(coalesce((SELECT max(id) FROM main.{table}), 0),
  coalesce((SELECT CAST(value AS INTEGER) FROM main.facts WHERE key = '{table}_top'), 0))
"""
"""The highest id that a row of a table ever had, also when that row was pruned. A live view is
told of rows by their ids (store/sqlite/read/change_feed.py), so none is given twice."""
KEEP_TOP = """
INSERT OR REPLACE INTO facts SELECT '{table}_top', max(id) FROM {table} HAVING max(id) IS NOT NULL
"""
"""Before rows of a table are deleted."""
UPDATE_RUN = """
UPDATE runs SET last_ns = max(last_ns, ?), span_count = span_count + ?,
  log_count = log_count + ?, error_count = max(0, error_count + ?), own_count = own_count + ?,
  input_tokens = max(0, min(input_tokens + ?, {sum_max})),
  output_tokens = max(0, min(output_tokens + ?, {sum_max})){}
WHERE id = ?
""".replace("{sum_max}", str(SUM_MAX))
UPDATE_WRITER = f"""
UPDATE writers SET seen = ?, last_ns = ?, dropped = min(dropped + ?, {SUM_MAX}), pid = ?, supervisor = ?,
  process_span = ?, ended = ? WHERE id = ?
"""
