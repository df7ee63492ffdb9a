"""A home in which nothing can be written still answers: a full disk, a snapshot mounted
read-only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from support.commands import vestige
from support.programs import SmallDisk
from support.recordings import record
from vestige.collector.loop import catch_up, hold
from vestige.home import Home
from vestige.limits import BODY_INLINE_MAX, HTTP_THREADS
from vestige.recorder import Recorder
from vestige.server import viewer_assets
from vestige.store.sqlite.sqlite_store import SqliteStore

KILLED = """
import os, sys
from vestige.recorder import Recorder

run = Recorder(sys.argv[1], crash_hooks=False).run("killed")
run.log.info("the last word")
os.kill(os.getpid(), 9)
"""
COLLECTOR_KILLED = """
import os, sys
from vestige.collector.loop import hold
from vestige.home import get_home

with hold(get_home(sys.argv[1])) as collector:
    collector.tick()
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def disk(small_disk: SmallDisk) -> Path:
    """A disk of 4 MiB."""
    return small_disk("4m")


def python(source: str, home: Home) -> None:
    subprocess.run([sys.executable, "-c", source, str(home.root)], timeout=120)


def with_killed(disk: Path) -> Home:
    """A home with a run that is stored, and one whose journal no collector has seen."""
    home = Home(disk / "home")
    record(home, "stored", spans=0)
    catch_up(home)
    python(KILLED, home)
    return home


def fill(disk: Path) -> None:
    with open(disk / "ballast", "wb", buffering=0) as file, pytest.raises(OSError, match="space"):
        while True:
            file.write(b"\0" * 4096)


def make_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


def _temporary(home: Home) -> dict[str, str]:
    folder = home.root.parent.parent / "temporary"
    folder.mkdir(exist_ok=True)
    return {"TMPDIR": str(folder)}


def ask(home: Home, *arguments: str) -> tuple[Any, str]:
    """A question in a process of its own: the JSON, and what is said beside it."""
    done = subprocess.run(
        [sys.executable, "-m", "vestige", *arguments, "--home", str(home.root), "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **_temporary(home)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def names(home: Home) -> tuple[list[str], str]:
    listed, warning = ask(home, "list")
    return [f"{run['name']} {run['outcome']}" for run in listed["runs"]], warning


@pytest.mark.parametrize("spoil", [fill, make_read_only])
def test_what_is_stored_is_there_though_nothing_can_be_written(disk: Path, spoil: Any) -> None:
    home = Home(disk / "home")
    record(home, "stored", spans=0)
    catch_up(home)
    spoil(disk)

    listed, warning = names(home)

    assert listed == ["stored ok"]
    assert warning == ""


@pytest.mark.parametrize("spoil", [fill, make_read_only])
def test_what_no_collector_has_seen_is_there_too(disk: Path, spoil: Any) -> None:
    """The journal of a program that died is read into a copy, and stays."""
    home = with_killed(disk)
    spoil(disk)
    before = sorted(home.journal.iterdir())

    listed, warning = names(home)
    shown, _ = ask(home, "show")

    assert listed == ["killed interrupted", "stored ok"]
    assert warning.count("\n") == 1
    assert "cannot be written" in warning and "I/O error" not in warning
    assert "the last word" in json.dumps(shown)
    assert sorted(home.journal.iterdir()) == before
    assert not list((disk.parent / "temporary").iterdir())


@pytest.mark.parametrize("spoil", [fill, make_read_only])
def test_what_a_killed_collector_left_in_its_log_is_there_too(disk: Path, spoil: Any) -> None:
    """SQLite reads a log only where it may make files: elsewhere it would be passed over in
    silence.
    """
    home = Home(disk / "home")
    record(home, "in the log", spans=0)
    python(COLLECTOR_KILLED, home)
    assert (home.root / "store.db-wal").stat().st_size
    (home.root / "store.db-shm").unlink()
    spoil(disk)

    listed, warning = names(home)

    assert listed == ["in the log ok"]
    assert "cannot be written" in warning


def test_nothing_but_a_journal_is_enough(disk: Path) -> None:
    home = Home(disk / "home")
    python(KILLED, home)
    make_read_only(disk)

    listed, _ = names(home)

    assert listed == ["killed interrupted"]


def test_a_body_that_cannot_be_read_holds_up_neither_answers_nor_the_dead(home: Home) -> None:
    """What waits for it is said; other writers that died are stamped meanwhile."""
    with Recorder(home, crash_hooks=False) as recorder, recorder.run("long") as run:
        run.child("chat", type="llm", body="long " * BODY_INLINE_MAX).end()
    (body,) = home.bodies.iterdir()
    body.unlink()
    body.symlink_to(body)  # not even root can open that
    python(KILLED, home)

    listed, warning = names(home)
    with hold(home) as collector, pytest.raises(OSError, match="symbolic links"):
        assert collector is not None
        collector.tick()

    assert listed == ["killed interrupted"]
    assert "some records could not be imported" in warning


def test_a_log_that_cannot_be_read_is_no_silence(disk: Path) -> None:
    """Of a store that is asked directly, too."""
    home = Home(disk / "home")
    record(home, "in the log", spans=0)
    python(COLLECTOR_KILLED, home)
    (home.root / "store.db-shm").unlink()
    make_read_only(disk)

    with pytest.raises(Exception, match="Copy the folder"):
        SqliteStore.open(home.store, readonly=True)


def serving(command: str, home: Home) -> tuple[subprocess.Popen[str], list[str], str]:
    """A server as a process, what it said till it served, and its address."""
    more = ["--no-browser", "--port", "0"] if command == "ui" else ["--no-log"]
    process = subprocess.Popen(
        [sys.executable, "-m", "vestige", command, *more, "--port", "0", "--home", str(home.root)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **_temporary(home)},
    )
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("Vestige is running at "):
            return process, lines, line.split()[4]
    raise AssertionError(lines)


def served_names(address: str) -> list[str]:
    base, _, token = address.partition("?token=")
    request = urllib.request.Request(
        f"{base}api/v1/list", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return [f"{run['name']} {run['outcome']}" for run in json.load(answer)["runs"]]


@pytest.mark.slow
@pytest.mark.skipif(not viewer_assets.is_built(), reason="run `python hatch_build.py`")
@pytest.mark.parametrize("spoil", [fill, make_read_only])
def test_the_viewer_shows_a_copy(disk: Path, spoil: Any) -> None:
    """With what no collector has seen; it says so, and the copy is gone with it."""
    home = with_killed(disk)
    spoil(disk)
    process, lines, address = serving("ui", home)
    try:
        listed = served_names(address)
    finally:
        process.terminate()
        process.communicate(timeout=120)

    assert listed == ["killed interrupted", "stored ok"]
    assert "cannot be written" in lines[0]
    assert process.returncode == 0
    assert not list((disk.parent / "temporary").iterdir())


@pytest.mark.slow
def test_a_server_on_a_full_disk_serves_what_is_stored_and_goes_on_when_there_is_room(
    disk: Path,
) -> None:
    """After the home becomes writable, it no longer reads the copy."""
    home = Home(disk / "home")
    record(home, "stored", spans=0)
    catch_up(home)
    fill(disk)
    process, _, address = serving("serve", home)
    try:
        full = served_names(address)
        (disk / "ballast").unlink()
        record(home, "next", spans=0)
        catch_up(home)
        room = [served_names(address) for _ in range(2 * HTTP_THREADS)]  # whichever thread it is
    finally:
        process.terminate()
        process.communicate(timeout=120)

    assert full == ["stored ok"]
    assert room == [["next ok", "stored ok"]] * len(room)
    assert process.returncode == 0


@pytest.mark.parametrize("command", ["list", "check", "doctor"])
def test_an_empty_home_on_a_read_only_disk_is_explained(disk: Path, command: str) -> None:
    home = Home(disk / "home")
    home.root.mkdir()
    make_read_only(disk)

    result = vestige(command, "--home", home.root)

    assert (result.exit_code, "nothing is recorded" in result.output) == (2, True)
    assert "Set VESTIGE_HOME" in result.output
