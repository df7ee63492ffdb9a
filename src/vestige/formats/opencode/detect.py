"""Find sessions of OpenCode: rows of one database. Each has the path `opencode.db#<session>`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from vestige.formats.opencode.constants import DATABASES, NUMBER_SEPARATOR, TABLES
from vestige.formats.protocol import RowState
from vestige.formats.sqlite_source import add_to_parents, has_tables, list_columns, open_database
from vestige.limits import FOREIGN_RUNS_MAX

_ROWS: Final = ("message", "part")
_CHANGED: Final = "time_updated"


def is_session(path: Path) -> bool:
    """Return whether a path names one session of a database."""
    database, session_id = split_path(path)
    return bool(session_id) and has_tables(database, TABLES)


def find_database(path: Path) -> Path | None:
    """Return the database at a path, or in a data folder."""
    inner = [folder / name for folder in (path, path / "opencode") for name in DATABASES]
    for candidate in (path, *inner):
        if not candidate.is_symlink() and candidate.is_file() and has_tables(candidate, TABLES):
            return candidate
    return None


def find_sessions(path: Path) -> Iterator[Path]:
    """Yield a path for each session that is not a sub-agent's."""
    database = find_database(path)
    if database is None:
        return
    with open_database(database) as connection:
        rows = connection.execute(
            "SELECT id FROM session WHERE parent_id IS NULL"
            " OR parent_id NOT IN (SELECT id FROM session) ORDER BY time_created LIMIT ?",
            (FOREIGN_RUNS_MAX,),
        ).fetchall()
    for (session_id,) in rows:
        yield database.with_name(f"{database.name}{NUMBER_SEPARATOR}{session_id}")


def read_row_states(path: Path) -> dict[str, RowState]:
    """Return the state of each session: its number of messages and parts, and its last change."""
    database = find_database(path)
    if database is None:
        return {}
    with open_database(database) as connection:
        if not all(_CHANGED in list_columns(connection, table) for table in _ROWS):
            return {}
        parents = dict(connection.execute("SELECT id, parent_id FROM session").fetchall())
        states: dict[str, RowState] = {str(session_id): ("", 0) for session_id in parents}
        for table in _ROWS:
            rows = connection.execute(
                f"SELECT session_id, count(*), max({_CHANGED}) FROM {table} GROUP BY session_id"
            )
            for session_id, count, changed_ms in rows:
                text, changed_ns = states.get(str(session_id), ("", 0))
                time_ns = changed_ms * 1_000_000 if type(changed_ms) is int else 0
                changed = f"{text} {count} {changed_ms}"
                states[str(session_id)] = (changed, max(changed_ns, time_ns))
    return add_to_parents(states, parents)


def split_path(path: Path) -> tuple[Path, str]:
    """Return the database and the session of a path."""
    name, _, session_id = path.name.partition(NUMBER_SEPARATOR)
    return path.with_name(name), session_id
