"""Read one session of Goose with its sub-agents, from its database or its file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from vestige.errors import UnreadableError
from vestige.formats.goose.constants import MESSAGE_TABLE, SESSION_TABLE
from vestige.formats.goose.detect import find_sessions, is_session_file, split_path
from vestige.formats.goose.to_records import Message, SessionReader
from vestige.formats.line_reader import JsonLines, Problems
from vestige.formats.protocol import Source
from vestige.formats.provider_bodies import Object
from vestige.formats.session_files import estimate_unread, is_long, is_silent, take_head, to_text
from vestige.formats.sqlite_source import (
    Connection,
    list_columns,
    open_database,
    read_with_subagents,
)
from vestige.record.types import KnownRecord

_FACTS: Final = {
    "working_dir": "cwd",
    "name": "title",
    "description": "title",
    "provider_name": "provider",
    "goose_mode": "mode",
}
"""Columns of a session that become attributes of the run."""


class Line(msgspec.Struct, gc=False):
    """A line of a session's file: its facts first, then messages."""

    id: Any = None
    role: Any = None
    created: Any = None
    content: Any = None
    metadata: Any = None
    working_dir: Any = None
    description: Any = None


LINES = JsonLines(Line)


def read_session(path: Path) -> Source:
    """Read the session of a path `sessions.db#<id>`, or of a file."""
    if is_session_file(path):
        return _read_file(path)
    database, session_id = split_path(path)
    if not session_id:
        first = next(find_sessions(path), None)
        if first is None:
            raise UnreadableError(f"{path}: no Goose session found.")
        database, session_id = split_path(first)
    with open_database(database) as connection:
        created = _read_session_row(connection, database, session_id).get("created_at")
    # Numbers of sessions begin again each day and on each machine.
    reader = SessionReader(session_id, f"{session_id} {created}")
    problems = Problems(str(database))
    records = read_with_subagents(reader, database, problems, _read_rows)
    builder = reader.builder
    return Source(builder.run_id, builder.writer, records, problems.list, mergeable=True)


def read_session_head(path: Path) -> Source | None:
    """Read the beginning of a long session's file."""
    if not is_long(path) or not is_session_file(path):
        return None
    source = _read_file(path)
    head = list(take_head(source.records))
    source.records, source.unread = iter(head), estimate_unread(path, len(head))
    return source


# --- the database -----------------------------------------------------------------------------


def _read_rows(
    reader: SessionReader, connection: Connection, database: Path, problems: Problems
) -> Iterator[KnownRecord]:
    row = _read_session_row(connection, database, reader.session_id)
    reader.add_facts({name: row[column] for column, name in _FACTS.items() if row.get(column)})
    optional = [
        name if name in list_columns(connection, MESSAGE_TABLE) else "NULL"
        for name in ("message_id", "metadata_json")
    ]
    rows = connection.execute(
        f"SELECT id, role, created_timestamp, content_json, {', '.join(optional)} FROM messages"
        " WHERE session_id = ? ORDER BY id",
        (reader.session_id,),
    )
    for number, (row_id, role, created, content, message_id, metadata) in enumerate(rows, 1):
        parts = _decode(content)
        if not isinstance(parts, list):
            problems.add(f"message {row_id}", "row-invalid", "not a list of contents; skipped.")
            continue
        key = to_text(message_id) or str(number)
        details = _decode(metadata) if metadata else None
        size = len(content) if isinstance(content, str) else 256
        reader.add(Message(key, to_text(role), created, parts, details), size)
        yield from reader.builder.drain()
    yield from reader.builder.end(is_dead=is_silent(database, reader.builder.last_ns))


def _read_session_row(connection: Connection, database: Path, session_id: str) -> Object:
    columns = sorted(list_columns(connection, SESSION_TABLE) & {*_FACTS, "created_at"})
    row = connection.execute(
        f"SELECT {', '.join(columns)} FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()
    if row is None:
        raise UnreadableError(f"{database}: no session {session_id}.")
    return dict(zip(columns, row, strict=True))


def _decode(text: Any) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError):
        return None


# --- a file -----------------------------------------------------------------------------------


def _read_file(path: Path) -> Source:
    problems = Problems(str(path))
    reader = SessionReader(path.stem, path.stem)
    records = _read_lines(reader, path, problems)
    builder = reader.builder
    return Source(builder.run_id, builder.writer, records, problems.list, mergeable=True)


def _read_lines(reader: SessionReader, path: Path, problems: Problems) -> Iterator[KnownRecord]:
    for number, size, line in LINES.read(path, problems):
        if line.role is None:
            reader.add_facts({"cwd": line.working_dir, "title": line.description})
        elif isinstance(line.content, list):
            key = to_text(line.id) or str(number)
            message = Message(key, to_text(line.role), line.created, line.content, line.metadata)
            reader.add(message, size)
            yield from reader.builder.drain()
    yield from reader.builder.end(is_dead=is_silent(path, reader.builder.last_ns))
