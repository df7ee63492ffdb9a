"""Following agents' sessions: the live one first, only what changed, and no damage to the rest."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from support.agent_logs import DATA, imported, load_runs, of_type
from vestige.formats.codex.detect import find_sessions, index_threads
from vestige.store.protocol import RunFilter, Store
from vestige.transfer.agent_homes import AgentHome
from vestige.transfer.agent_sessions import LogFollower, discover_logs, import_logs

CLAUDE = DATA / "claude_code" / "projects" / "-home-dev-calc"
CODEX = DATA / "codex" / "sessions"


@pytest.fixture
def project(tmp_path: Path) -> AgentHome:
    """A home of Claude Code whose sessions changed one after the other, the third one last."""
    home = tmp_path / ".claude"
    target = home / "projects" / "-calc"
    shutil.copytree(CLAUDE, target)
    for path in target.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    for number, path in enumerate(sorted(target.glob("*.jsonl"))):
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return AgentHome("Claude Code", "claude_code", home)


def count_runs(store: Store) -> int:
    return len(store.list_runs(RunFilter(limit=100)))


def clock(step: float) -> Callable[[], float]:
    return count(0.0, step).__next__


def test_the_session_that_changed_last_is_imported_first(
    project: AgentHome, tmp_path: Path
) -> None:
    newest = max(project.find_sessions(), key=lambda path: path.stat().st_mtime_ns)
    with imported(tmp_path) as store:
        follower = LogFollower(store, [project], clock(3.0))
        follower.tick(seconds_max=5.0)
        (only,) = load_runs(store)
        assert only.spans[0].attributes["source_session_id"] == newest.stem
        follower.tick()
        assert count_runs(store) == 3


def test_a_stopped_follower_ends_between_two_batches_and_goes_on_later(
    project: AgentHome, tmp_path: Path
) -> None:
    checks = count()
    with imported(tmp_path) as store:
        LogFollower(store, [project], clock(0.0)).tick(is_stopped=lambda: next(checks) > 0)
        first = count_runs(store)
        LogFollower(store, [project], clock(0.0)).tick()
        assert (first, count_runs(store)) == (1, 3)


@pytest.mark.parametrize(
    ("format", "sample", "statement"),
    [
        (
            "opencode",
            "opencode/opencode.db",
            "UPDATE part SET time_updated = time_updated + 1 WHERE session_id = ?",
        ),
        (
            "goose",
            "goose/sessions.db",
            "INSERT INTO messages (session_id, role, content_json, created_timestamp)"
            " VALUES (?, 'user', '[]', 1800000000)",
        ),
    ],
)
def test_only_the_session_of_a_database_that_changed_is_read_again(
    format: str, sample: str, statement: str, tmp_path: Path
) -> None:
    database = tmp_path / Path(sample).name
    shutil.copy(DATA / sample, database)
    home = AgentHome(format, format, database)
    with imported(tmp_path) as store:
        (logs,) = discover_logs(store, [home])
        assert len(logs.new) == len(logs.sessions) == 2
        assert all(result.records for result in import_logs(store, logs.new))
        changed = logs.sessions[0]
        with sqlite3.connect(database) as connection:
            connection.execute(statement, (changed.path.name.partition("#")[2],))
        connection.close()
        (logs,) = discover_logs(store, [home])
        assert [session.path for session in logs.new] == [changed.path]


def test_a_change_of_a_sub_agent_in_a_database_is_a_change_of_its_session(tmp_path: Path) -> None:
    database = tmp_path / "opencode.db"
    shutil.copy(DATA / "opencode" / "opencode.db", database)
    home = AgentHome("OpenCode", "opencode", database)
    with imported(tmp_path) as store:
        (logs,) = discover_logs(store, [home])
        list(import_logs(store, logs.new))
        with sqlite3.connect(database) as connection:
            ((child, parent),) = connection.execute(
                "SELECT id, parent_id FROM session WHERE parent_id IS NOT NULL"
            ).fetchall()
            connection.execute("UPDATE part SET time_updated = 1 WHERE session_id = ?", (child,))
        connection.close()
        (logs,) = discover_logs(store, [home])
        assert [session.path.name for session in logs.new] == [f"opencode.db#{parent}"]


def test_a_damaged_home_is_reported_and_does_not_hide_the_others(
    project: AgentHome, tmp_path: Path
) -> None:
    database = tmp_path / "opencode.db"
    with sqlite3.connect(database) as connection:
        for table in ("session", "message", "part"):
            connection.execute(f"CREATE TABLE {table} (x)")
    connection.close()
    reports: list[str] = []
    homes = [AgentHome("OpenCode", "opencode", database), project]
    with imported(tmp_path) as store:
        LogFollower(store, homes, clock(0.0), reports.append).tick()
        assert count_runs(store) == 3
    assert len(reports) == 1 and str(database) in reports[0]


def test_a_sub_agent_that_starts_later_belongs_to_its_rollout(tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    shutil.copytree(CODEX, root)
    inner = next(path for path in root.rglob("*.jsonl") if b"parent_thread_id" in _head(path))
    content = inner.read_bytes()
    inner.unlink()
    runs = len(list(find_sessions(root)))
    before = dict(index_threads(root))
    inner.write_bytes(content)

    assert len(index_threads(root)) == len(before) + 1
    assert len(list(find_sessions(root))) == runs
    with imported(tmp_path, root) as store:
        agents = [span for run in load_runs(store) for span in of_type(run, "agent")]
        assert len(agents) == 1


def _head(path: Path) -> bytes:
    return path.read_bytes()[:4096]
