"""Databases of other programs, read without locking or changing them.

    with open_database(path) as connection: ...

The database is opened read-only. A live writer goes on: readers of a WAL database never block it.
A database in another mode is read as it is on disk, because a reader's lock could stop its writer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote

from vestige.errors import UnreadableError
from vestige.formats.line_reader import Problems, read_head
from vestige.formats.protocol import RowState
from vestige.record.types import KnownRecord

Connection = sqlite3.Connection
_AGENTS_MAX: Final = 1_000
MAGIC: Final = b"SQLite format 3\0"
_WAL_VERSION: Final = 2
"""At offset 18 of the header: the database is in WAL mode."""
_TIMEOUT_S: Final = 1.0
_LENGTH_MAX: Final = 64 * 1024 * 1024
"""Longest text of a row. A damaged or hostile database cannot request more memory."""


def is_database(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and read_head(path, 16) == MAGIC


def has_tables(path: Path, tables: frozenset[str]) -> bool:
    """Return whether a file is a database with these tables. Never raises."""
    if not is_database(path):
        return False
    try:
        with open_database(path) as connection:
            rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return tables <= {name for (name,) in rows}
    except UnreadableError:
        return False


def list_columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of a table's columns, which differ between versions of a program."""
    return {
        name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
    }


def add_to_parents(
    states: dict[str, RowState], parents: Mapping[str, str | None]
) -> dict[str, RowState]:
    """Return the states with those of sub-agents added to the session that they belong to."""
    found = dict(states)
    for session_id, (text, changed_ns) in states.items():
        parent, seen = parents.get(session_id), {session_id}
        while parent is not None and parent in states and parent not in seen:
            seen.add(parent)
            of_parent = found[parent]
            found[parent] = (f"{of_parent[0]} {text}", max(of_parent[1], changed_ns))
            parent = parents.get(parent)
    return {key: (sha256(text.encode()).hexdigest(), time) for key, (text, time) in found.items()}


def _decode_text(data: bytes) -> str:
    """Decode a text of a row. Invalid UTF-8 is replaced: one row must not hide the others."""
    return data.decode("utf-8", "replace")


@contextmanager
def open_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for reading. Errors of SQLite are UnreadableError."""
    header = read_head(path, 100)
    if header[:16] != MAGIC:
        raise UnreadableError(f"{path}: not a SQLite database.")
    is_wal = len(header) > 18 and header[18] == _WAL_VERSION
    wal = path.with_name(f"{path.name}-wal")
    # Without a WAL file, opening would create one beside the database.
    mode = "mode=ro" if is_wal and wal.exists() else "mode=ro&immutable=1"
    connection = None
    try:
        connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?{mode}", uri=True, timeout=_TIMEOUT_S
        )
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LENGTH_MAX)
        connection.execute("PRAGMA query_only = 1")
        connection.text_factory = _decode_text
        # The schema is trusted: indexes of agents' databases use JSON functions, which older
        # versions of SQLite refuse otherwise. No function here writes, loads or reads a file.
        yield connection
    except sqlite3.Error as error:
        raise UnreadableError(f"{path}: cannot be read ({error}).") from None
    finally:
        if connection is not None:
            connection.close()


class SessionReader(Protocol):
    """A reader of one session, which collects the sub-agents that the session started."""

    session_id: str

    @property
    def agents(self) -> Sequence[Any]:
        """The sub-agents, each with the `session_id` of its own session."""

    def open_subagent(self, agent: Any) -> Any:
        """Return the reader of a sub-agent's session."""


Reader = TypeVar("Reader", bound=SessionReader)


def read_with_subagents(
    reader: Reader,
    database: Path,
    problems: Problems,
    read_rows: Callable[[Reader, Connection, Path, Problems], Iterator[KnownRecord]],
) -> Iterator[KnownRecord]:
    """Yield the records of a session, then those of its sub-agents."""
    with open_database(database) as connection:
        connection.execute("BEGIN")  # one state of the database for all rows
        yield from read_rows(reader, connection, database, problems)
        waiting = list(reader.agents)
        seen = {reader.session_id}
        while waiting and len(seen) < _AGENTS_MAX:
            agent = waiting.pop(0)
            if agent.session_id in seen:
                continue
            seen.add(agent.session_id)
            inner = reader.open_subagent(agent)
            try:
                yield from read_rows(inner, connection, database, problems)
            except UnreadableError as error:  # the session of a sub-agent was deleted
                problems.add(agent.session_id, "session-missing", str(error))
            waiting += inner.agents
