"""The state of the store changes with every commit, and reading it releases no locks."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from support.http_server import record_collected
from vestige.home import Home
from vestige.server.server_state import Server
from vestige.store.sqlite.sqlite_store import SqliteStore

CHECKPOINT = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1], timeout=0) as db:
    db.execute("INSERT OR REPLACE INTO facts VALUES ('looked', hex(randomblob(8)))")
    db.commit()
    print(db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
"""


def checkpoint(home: Home) -> bool:
    """In another process: write, then empty the log. Whether that could be done."""
    done = subprocess.run(
        [sys.executable, "-c", CHECKPOINT, str(home.store)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip() == "0"


def test_a_look_lets_go_of_no_lock_of_a_reader_in_this_process(home: Home) -> None:
    """SQLite's locks are the process's: closing any file of its own that it has locked loses them
    (https://sqlite.org/howtocorrupt.html, 2.2). Then another process would empty the log under a
    reader, which reports a damaged store, or reads what never was."""
    record_collected(home)
    server = Server(home)
    reader = sqlite3.connect(f"file:{home.store}?mode=ro", uri=True, isolation_level=None)
    reader.execute("BEGIN")
    before = reader.execute("SELECT count(*) FROM spans").fetchone()
    server.state()
    server.state()
    emptied = checkpoint(home)
    after = reader.execute("SELECT count(*) FROM spans").fetchone()
    reader.execute("COMMIT")
    free = checkpoint(home)
    reader.close()
    server.close()

    assert not emptied, "the log was emptied during a read"
    assert before == after
    assert free


def test_every_commit_changes_it_and_nothing_else_does(home: Home) -> None:
    record_collected(home)
    server = Server(home)
    first, again = server.state(), server.state()
    checkpoint(home)
    second = server.state()
    server.close()

    assert first == again != second


def test_a_store_that_is_replaced_is_another_state(home: Home) -> None:
    record_collected(home)
    server = Server(home)
    states = [server.state()]
    for path in home.root.glob("store.db*"):
        os.rename(path, path.with_name(f"old-{path.name}"))
    states.append(server.state())
    record_collected(home, "another")
    states.append(server.state())
    server.close()

    assert len(set(states)) == 3


def test_a_store_that_is_linked_to_is_seen_to_change(home: Home, tmp_path: Path) -> None:
    """`vestige ui PATH/store.db` serves a link to it. The file itself stays as it is while a
    collector has it open: a page would see nothing new."""
    record_collected(home)
    linked = Home(tmp_path / "linked")
    linked.root.mkdir()
    linked.store.symlink_to(home.store)
    server = Server(linked)
    with SqliteStore.open(home.store):  # as a collector does: the log is not emptied
        before = server.state()
        record_collected(home, "next")
        after = server.state()
    server.close()

    assert before != after
