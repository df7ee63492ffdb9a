"""Find sessions of Goose. Links are not followed.

~/.local/share/goose/sessions/       sessions.db; each session has the path `sessions.db#<id>`
<name>.jsonl                         a session of an older version, which has no database
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from vestige.errors import UnreadableError
from vestige.formats.goose.constants import (
    DATABASE,
    MESSAGE_COLUMNS,
    MESSAGE_TABLE,
    NUMBER_SEPARATOR,
    SESSION_TABLE,
    SUBAGENT,
    SUFFIX,
)
from vestige.formats.line_reader import read_head
from vestige.formats.protocol import RowState
from vestige.formats.session_files import list_files
from vestige.formats.sqlite_source import add_to_parents, has_tables, list_columns, open_database
from vestige.limits import FOREIGN_RUNS_MAX

_HEAD: Final = 4 * 1024
_TABLES: Final = frozenset([SESSION_TABLE, MESSAGE_TABLE])


def is_session(path: Path) -> bool:
    """Return whether a path names one session of a database, or a file of one session."""
    database, session_id = split_path(path)
    return _is_database(database) if session_id else is_session_file(path)


def is_session_file(path: Path) -> bool:
    """Return whether a file begins like a session: its first line has the working folder."""
    if path.suffix != SUFFIX or path.is_symlink() or not path.is_file():
        return False
    head = read_head(path, _HEAD).split(b"\n", 1)[0]
    return b'"working_dir"' in head and b'"message_count"' in head


def find_database(path: Path) -> Path | None:
    """Return the database at a path, or in a data folder."""
    inner = (path / DATABASE, path / "sessions" / DATABASE, path / "goose" / "sessions" / DATABASE)
    return next((candidate for candidate in (path, *inner) if _is_database(candidate)), None)


def find_sessions(path: Path) -> Iterator[Path]:
    """Yield a path for each session that is not a sub-agent's."""
    database = find_database(path)
    if database is not None:
        yield from _find_rows(database)
    for folder in (path, path / "sessions"):
        yield from (file for file in list_files(folder, SUFFIX) if is_session_file(file))


def _find_rows(database: Path) -> Iterator[Path]:
    with open_database(database) as connection:
        # Older versions have neither sub-agents nor types.
        is_own = "1"
        if {"session_type", "parent_session_id"} <= list_columns(connection, SESSION_TABLE):
            is_own = (
                "session_type != ? OR parent_session_id IS NULL"
                " OR parent_session_id NOT IN (SELECT id FROM sessions)"
            )
        rows = connection.execute(
            f"SELECT id FROM sessions WHERE ({is_own}) AND id IN"
            " (SELECT session_id FROM messages) ORDER BY created_at, id LIMIT ?",
            (FOREIGN_RUNS_MAX,) if is_own == "1" else (SUBAGENT, FOREIGN_RUNS_MAX),
        ).fetchall()
    for (session_id,) in rows:
        yield database.with_name(f"{database.name}{NUMBER_SEPARATOR}{session_id}")


def read_row_states(path: Path) -> dict[str, RowState]:
    """Return the state of each session: its number of messages, and the latest one."""
    database = find_database(path)
    if database is None:
        return {}
    with open_database(database) as connection:
        parent = "NULL"
        if "parent_session_id" in list_columns(connection, SESSION_TABLE):
            parent = "parent_session_id"
        parents = dict(connection.execute(f"SELECT id, {parent} FROM sessions").fetchall())
        rows = connection.execute(
            "SELECT session_id, count(*), max(id), max(created_timestamp) FROM messages"
            " GROUP BY session_id"
        )
        states: dict[str, RowState] = {
            str(session_id): (
                f"{count} {last}",
                created_s * 1_000_000_000 if type(created_s) is int else 0,
            )
            for session_id, count, last, created_s in rows
        }
    return add_to_parents(states, parents)


def split_path(path: Path) -> tuple[Path, str]:
    """Return the database and the session of a path."""
    name, _, session_id = path.name.partition(NUMBER_SEPARATOR)
    return path.with_name(name), session_id


def _is_database(path: Path) -> bool:
    if path.is_symlink() or not has_tables(path, _TABLES):
        return False
    try:
        with open_database(path) as connection:
            return list_columns(connection, MESSAGE_TABLE) >= MESSAGE_COLUMNS
    except UnreadableError:
        return False
