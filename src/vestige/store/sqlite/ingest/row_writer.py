"""Write the rows of a batch once it is folded: all of them, in a few statements.

    if not write_spans(connection, spans): ...      # some were there already: merge, and write again
    write_runs(connection, runs)

Functions over a connection; the caller owns the transaction.

Elsewhere: how records become rows, store/sqlite/ingest/batch_ingest.py; the statements themselves, store/sqlite/ingest/rows.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any

from vestige.limits import SUM_MAX
from vestige.store.sqlite.ingest.rows import (
    INSERT_COMMON_SPANS,
    INSERT_SPANS,
    NO_RARE,
    NO_TEXT,
    TOP,
    UPDATE_RUN,
    UPDATE_SPAN,
    UPDATE_WRITER,
    Insert,
    RunRow,
    SpanRow,
    WriterRow,
    json_of,
)


def write_spans(connection: sqlite3.Connection, spans: Iterable[SpanRow]) -> bool:
    """False: some were there already, and nothing was written."""
    new: list[tuple[Any, ...]] = []
    rare: list[tuple[Any, ...]] = []
    changed = []
    all_common = True
    for span in spans:
        input_id, input_bytes, input_info = span.input
        output_id, output_bytes, output_info = span.output
        row = (
            span.run,
            span.number,
            span.span_id,
            span.writer,
            span.seq,
            span.parent_id,
            span.started_ns,
            span.type,
            span.name,
            span.component,
            json_of(span.attributes),
            span.status,
            span.duration_ns,
            span.end_seq,
            input_id,
            input_bytes,
            output_id,
            output_bytes,
        )
        more: tuple[Any, ...] = NO_RARE
        if span.redacted or input_info != NO_TEXT or output_info != NO_TEXT:
            more = (json_of(span.redacted), input_info, output_info)
            all_common = False
        if span.id is None:
            new.append(row)
            rare.append(more)
        else:
            changed.append((*row, *more, span.id))
    connection.execute("SAVEPOINT spans")
    try:
        if all_common:
            insert(connection, INSERT_COMMON_SPANS, new)
        else:
            rows = [row + more for row, more in zip(new, rare, strict=True)]
            insert(connection, INSERT_SPANS, rows)
    except sqlite3.IntegrityError:
        connection.execute("ROLLBACK TO spans")
        return False
    connection.executemany(UPDATE_SPAN, changed)
    connection.execute("RELEASE spans")
    return True


def insert(connection: sqlite3.Connection, statements: Insert, rows: list[Any]) -> None:
    """The first row gets an id above all that ever were; the others get the next ones from SQLite,
    which is faster than giving each."""
    if rows:
        (top,) = connection.execute(TOP.format(table=statements.table)).fetchone()
        connection.execute(statements.first, (top + 1, *rows[0]))
        connection.executemany(statements.others, rows[1:])


def write_runs(connection: sqlite3.Connection, runs: Iterable[RunRow]) -> None:
    """What a batch adds to each."""
    for run in runs:
        # What was said of it may be otherwise now, even where no count of it has changed.
        connection.execute("DELETE FROM findings WHERE run = ?", (run.id,))
        # The names are ours, from store/sqlite/ingest/batch_ingest.py and store/sqlite/ingest/external_spans.py, never a caller's.
        names = "".join(f", {name} = ?" for name in run.changes)
        connection.execute(
            UPDATE_RUN.format(names),
            (
                run.last_ns,
                run.spans,
                run.logs,
                run.errors,
                run.own,
                min(run.input_tokens, SUM_MAX),
                min(run.output_tokens, SUM_MAX),
                *run.changes.values(),
                run.id,
            ),
        )


def write_writers(connection: sqlite3.Connection, writers: Iterable[WriterRow]) -> None:
    for writer in writers:
        connection.execute(
            UPDATE_WRITER,
            (
                writer.seen.render(),
                writer.last_ns,
                min(writer.dropped, SUM_MAX),
                writer.pid,
                writer.supervisor,
                writer.process_span,
                writer.ended,
                writer.id,
            ),
        )
