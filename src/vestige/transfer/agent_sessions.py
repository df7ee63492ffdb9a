"""Find the sessions of coding agents on this machine, and import those that changed.

    found = discover_logs(store, find_agent_homes(os.environ))
    for result in import_logs(store, found): ...

A session is read again only if its files or its rows have changed, or if it is silent now, which
may end it. Files of agents are only read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vestige.errors import UnreadableError
from vestige.formats import get_format
from vestige.formats.protocol import RowState, derived_writer
from vestige.formats.session_files import is_silent, list_files, list_folders
from vestige.store.protocol import Store
from vestige.transfer.agent_homes import SESSION_FORMATS, AgentHome, read_row_states
from vestige.transfer.import_runs import ImportResult, OnProgress, find_reader, import_found

_ROW_MARK: Final = "#"
_WAL: Final = "-wal"
_SHARE_MAX: Final = 20
"""A session is read again after this many times the seconds that reading it took, so that
following it takes at most 5 % of a processor."""


@dataclass(frozen=True, slots=True)
class Session:
    """A session, and the state of its files."""

    path: Path
    format: str
    size_bytes: int
    changed_ns: int
    state: str

    @property
    def fact(self) -> str:
        """The key under which the store remembers the state that was imported."""
        return f"log {derived_writer(self.format, str(self.path.absolute()))}"


@dataclass(frozen=True, slots=True)
class DiscoveredLogs:
    """The sessions of one agent."""

    home: AgentHome
    sessions: Sequence[Session]
    new: Sequence[Session]
    """Those that are not imported, or have changed since."""
    problem: str = ""
    """The reason why not all sessions were found."""

    @property
    def size_bytes(self) -> int:
        # Sessions of a database share its file.
        files = {_file_of(session.path): session.size_bytes for session in self.sessions}
        return sum(files.values())

    @property
    def since_ns(self) -> int:
        """The time of the oldest file."""
        return min((session.changed_ns for session in self.sessions), default=0)


def discover_logs(store: Store | None, homes: Iterable[AgentHome]) -> list[DiscoveredLogs]:
    """Return the sessions of each home that has any. Without a store, all are new."""
    found = []
    for home in homes:
        sessions, problem = _inspect_home(home)
        if sessions or problem:
            new = [session for session in sessions if store is None or _is_new(store, session)]
            found.append(DiscoveredLogs(home, sessions, new, problem))
    return found


def _inspect_home(home: AgentHome) -> tuple[list[Session], str]:
    """Return the sessions of a home, and why some were not found."""
    sessions: list[Session] = []
    try:
        rows = home.read_row_states()
        sessions.extend(_inspect(path, home.format, rows) for path in home.find_sessions())
    except (UnreadableError, OSError) as error:  # one damaged home does not hide the others
        return sessions, str(error)
    return sessions, ""


def import_logs(
    store: Store, sessions: Iterable[Session], on_progress: OnProgress | None = None
) -> Iterator[ImportResult]:
    """Import sessions, oldest first, and remember their state."""
    for session in sorted(sessions, key=lambda each: each.changed_ns):
        failed = False
        reader = get_format(session.format)
        for result in import_found(store, reader, [session.path], on_progress):
            failed = failed or result.run_id is None
            yield result
        if not failed:
            store.set_fact(session.fact, session.state)


def import_and_remember(
    store: Store, path: Path, format: str | None = None, on_progress: OnProgress | None = None
) -> Iterator[ImportResult]:
    """Import the runs at a path. `discover_logs` then knows the sessions among them."""
    name, reader = find_reader(path, format)
    if name not in SESSION_FORMATS or reader is not get_format(name):
        yield from import_found(store, reader, reader.find_runs(path), on_progress)
        return
    sessions: dict[Path, Session] = {}

    def iter_inspected() -> Iterator[Path]:
        # The state before reading: what a program writes meanwhile is new at the next discovery.
        rows = read_row_states(name, path)
        for found in reader.find_runs(path):
            sessions[found] = _inspect(found, name, rows)
            yield found

    for result in import_found(store, reader, iter_inspected(), on_progress):
        session = sessions.get(result.path)
        if session is not None and result.run_id is not None:
            store.set_fact(session.fact, session.state)
        yield result


class LogFollower:
    """Imports sessions again whenever they have changed."""

    def __init__(
        self,
        store: Store,
        homes: Sequence[AgentHome],
        now: Callable[[], float],
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`now` returns seconds of a monotonic clock; `report` gets what cannot be read."""
        self._store = store
        self._homes = homes
        self._now = now
        self._report = report
        self._not_before: dict[Path, float] = {}

    def tick(
        self, seconds_max: float = math.inf, is_stopped: Callable[[], bool] = lambda: False
    ) -> int:
        """Import what has changed. Return the number of new records.

        The session that changed last comes first: a backlog of months does not delay the one that
        is being written. The rest is left to the next tick after `seconds_max`, or when
        `is_stopped` returns True.
        """
        count = 0
        began = self._now()

        def check_stop(_: int) -> None:
            if is_stopped():
                raise _StoppedError

        for session in self._find_changed():
            started = self._now()
            if is_stopped() or started - began > seconds_max:
                break
            if started < self._not_before.get(session.path, 0.0):
                continue
            try:
                for result in import_logs(self._store, [session], check_stop):
                    count += result.records
                    if result.run_id is None:
                        self._report(str(result.problems[-1]))
            except _StoppedError:
                break
            ended = self._now()
            self._not_before[session.path] = ended + _SHARE_MAX * (ended - started)
        return count

    def _find_changed(self) -> list[Session]:
        changed: list[Session] = []
        for logs in discover_logs(self._store, self._homes):
            changed += logs.new
            if logs.problem:
                self._report(logs.problem)
        return sorted(changed, key=lambda each: each.changed_ns, reverse=True)


class _StoppedError(Exception):
    """The follower was stopped between two batches of a session."""


def _is_new(store: Store, session: Session) -> bool:
    return store.get_fact(session.fact) != session.state


def _inspect(path: Path, format: str, rows: Mapping[str, RowState]) -> Session:
    size = changed_ns = 0
    for part in _list_parts(path, format):
        try:
            status = os.lstat(part)
        except OSError:
            continue
        size += status.st_size
        changed_ns = max(changed_ns, status.st_mtime_ns)
    file = _file_of(path)
    content = f"{size} {changed_ns}"
    # Sessions of a database share its file, so they are compared by their rows.
    row = rows.get(path.name.partition(_ROW_MARK)[2])
    if row is not None:
        content, changed_ns = row
    state = f"{content} {'silent' if is_silent(file, changed_ns) else 'recent'}"
    return Session(path, format, size, changed_ns, state)


def _list_parts(path: Path, format: str) -> list[Path]:
    """Return the files of a session: its own, those of sub-agents, and a database's log."""
    list_parts = getattr(get_format(format), "list_parts", None)
    if list_parts is not None:
        return list(list_parts(path))
    file = _file_of(path)
    parts = [file]
    if file != path:
        parts.append(file.with_name(file.name + _WAL))
    else:
        for folder in list_folders(path.with_suffix("")):
            parts += list_files(folder, ".jsonl")
    return parts


def _file_of(path: Path) -> Path:
    """Return the file of a session; a database has several, named after `#`."""
    return path.with_name(path.name.partition(_ROW_MARK)[0])
