"""Write the merged rows of a batch in a few statements.

    if not write_spans(connection, spans): ...      # some exist already: merge and write again
    write_runs(connection, runs)

The caller owns the transaction.

Elsewhere: how records become rows, batch_ingest.py; the statements, batch_rows.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any

from vestige.limits import SUM_MAX
from vestige.store.sqlite.ingest.batch_rows import (
    HIGHEST_ID,
    INSERT_COMMON_SPANS,
    INSERT_SPANS,
    NO_RARE,
    NO_TEXT,
    UPDATE_RUN,
    UPDATE_SPAN,
    UPDATE_WRITER,
    Insert,
    RunRow,
    SpanRow,
    WriterRow,
    render_json,
)


def write_spans(connection: sqlite3.Connection, spans: Iterable[SpanRow]) -> bool:
    """Write spans. Return False, and write nothing, if a new span exists already."""
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
            render_json(span.attributes),
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
            more = (render_json(span.redacted), input_info, output_info)
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
    """Insert rows with ids that no row ever had.

    Only the first row has an explicit id. SQLite assigns the next ones, which is faster.
    """
    if rows:
        (highest,) = connection.execute(HIGHEST_ID.format(table=statements.table)).fetchone()
        connection.execute(statements.first, (highest + 1, *rows[0]))
        connection.executemany(statements.others, rows[1:])


def write_runs(connection: sqlite3.Connection, runs: Iterable[RunRow]) -> None:
    """Add the counts and changes of a batch to its runs."""
    for run in runs:
        # Findings may be different now, even if no count of the run has changed.
        connection.execute("DELETE FROM findings WHERE run = ?", (run.id,))
        # Column names come from batch_ingest.py and external_spans.py, never from a caller.
        names = "".join(f", {name} = ?" for name in run.changes)
        connection.execute(
            UPDATE_RUN.format(names),
            (
                run.last_ns,
                run.spans,
                run.logs,
                run.errors,
                run.own,
                min(run.missing, SUM_MAX),
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
