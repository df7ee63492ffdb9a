"""Read one session of OpenCode with its sub-agents, from its database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from vestige.errors import UnreadableError
from vestige.formats.line_reader import Problems
from vestige.formats.opencode.detect import find_sessions, split_path
from vestige.formats.opencode.to_records import Message, SessionReader
from vestige.formats.protocol import Source
from vestige.formats.session_files import is_silent
from vestige.formats.sqlite_source import Connection, read_with_subagents
from vestige.record.types import KnownRecord


def read_session(path: Path) -> Source:
    """Read the session of a path `opencode.db#<session>`; the first one of a database."""
    database, session_id = split_path(path)
    if not session_id:
        first = next(find_sessions(path), None)
        if first is None:
            raise UnreadableError(f"{path}: no OpenCode session found.")
        database, session_id = split_path(first)
    problems = Problems(str(database))
    reader = SessionReader(session_id, database=database.name)
    builder = reader.builder
    records = read_with_subagents(reader, database, problems, _read_rows)
    return Source(builder.run_id, builder.writer, records, problems.list, mergeable=True)


def read_session_head(path: Path) -> Source | None:
    return None  # a session is read by its rows, not from the beginning of a file


def _read_rows(
    reader: SessionReader, connection: Connection, database: Path, problems: Problems
) -> Iterator[KnownRecord]:
    columns = "title, directory, version"
    row = connection.execute(
        f"SELECT {columns} FROM session WHERE id = ?", (reader.session_id,)
    ).fetchone()
    if row is None:
        raise UnreadableError(f"{database}: no session {reader.session_id}.")
    reader.add_facts(*row)
    rows = connection.execute(
        "SELECT id, time_created, data FROM message WHERE session_id = ? ORDER BY time_created, id",
        (reader.session_id,),
    )
    for message_id, created, data in rows:
        parts = connection.execute(
            "SELECT id, data FROM part WHERE message_id = ? ORDER BY id", (message_id,)
        )
        message = Message(
            str(message_id),
            created if type(created) is int else 0,
            _decode(data, str(message_id), problems),
            [(str(part_id), _decode(text, str(part_id), problems)) for part_id, text in parts],
        )
        reader.add(message)
        yield from reader.builder.drain()
    yield from reader.builder.end(is_dead=is_silent(database, reader.builder.last_ns))


def _decode(data: Any, place: str, problems: Problems) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError):
        value = None
    if isinstance(value, dict):
        return value
    problems.add(place, "row-invalid", "not a JSON object; skipped.")
    return {}
