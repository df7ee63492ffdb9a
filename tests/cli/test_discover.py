"""`vestige import --discover` and `collect --logs`: sessions of agents on this machine."""

from __future__ import annotations

import hashlib
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agent_logs import DATA
from support.programs import WAIT_S
from vestige.errors import NotFoundError, StoreError
from vestige.store.open import open_store
from vestige.store.protocol import RunFilter

SESSION = "5a3a2b1c-0000-4000-8000-000000000001.jsonl"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A user's folder with sessions of five agents."""
    user = tmp_path / "user"
    for source, target in (
        ("claude_code/projects", ".claude/projects"),
        ("codex/sessions", ".codex/sessions"),
        ("gemini_cli/tmp", ".gemini/tmp"),
    ):
        shutil.copytree(DATA / source, user / target)
    data = user / ".local" / "share" / "opencode"
    data.mkdir(parents=True)
    shutil.copy(DATA / "opencode" / "opencode.db", data)
    task = user / ".config/Code/User/globalStorage/saoudrizwan.claude-dev/tasks/17"
    task.mkdir(parents=True)
    (task / "api_conversation_history.json").write_text(
        '[{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]'
    )
    return user


def environment(user: Path) -> dict[str, str]:
    return {"HOME": str(user), "VESTIGE_HOME": str(user / "vestige"), "PATH": os.environ["PATH"]}


def run(user: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vestige", *arguments],
        env=environment(user),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def fingerprint(user: Path) -> dict[str, tuple[str, int]]:
    """Return the content and the time of each file of the agents."""
    return {
        str(path.relative_to(user)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
        )
        for path in sorted(user.rglob("*"))
        if path.is_file() and "vestige" not in path.relative_to(user).parts
    }


def names(user: Path) -> list[str]:
    with open_store(user / "vestige" / "store.db", readonly=True) as store:
        return [info.name for info in store.list_runs(RunFilter(limit=100))]


def test_discover_lists_and_imports_only_with_consent(machine: Path) -> None:
    before = fingerprint(machine)
    listed = run(machine, "import", "--discover")
    assert listed.returncode == 0, listed.stderr
    rows = {line[:12].strip(): line.split() for line in listed.stdout.splitlines()[1:6]}
    assert rows["Claude Code"][2:4] == ["3", "3"]
    assert rows["OpenCode"][1:3] == ["2", "2"]
    assert "vestige import --discover --yes" in listed.stdout
    assert not (machine / "vestige").exists()

    imported = run(machine, "import", "--discover", "--yes")
    assert imported.returncode == 0, imported.stderr
    assert len(names(machine)) == 9
    assert "All sessions are imported." in run(machine, "import", "--discover").stdout
    assert fingerprint(machine) == before


def test_discover_knows_the_sessions_of_a_plain_import(machine: Path) -> None:
    project = machine / ".claude" / "projects" / "-home-dev-calc"
    database = machine / ".local" / "share" / "opencode" / "opencode.db"
    assert run(machine, "import", str(project), str(database)).returncode == 0

    listed = run(machine, "import", "--discover").stdout
    rows = {line[:12].strip(): line.split() for line in listed.splitlines()[1:6]}
    assert rows["Claude Code"][2:4] == ["3", "0"]
    assert rows["OpenCode"][1:3] == ["2", "0"]
    assert rows["Codex"][2] != "0"

    with open(project / SESSION, "ab") as file:
        file.write(b'{"type":"summary","summary":"more"}\n')
    listed = run(machine, "import", "--discover").stdout
    rows = {line[:12].strip(): line.split() for line in listed.splitlines()[1:6]}
    assert rows["Claude Code"][2:4] == ["3", "1"]


def test_discover_asks_on_a_terminal(machine: Path) -> None:
    for reply, expected in ((b"n\n", False), (b"y\n", True)):
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", "vestige", "import", "--discover"],
            env=environment(machine),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        ) as process:
            os.close(theirs)
            os.write(ours, reply)
            output = b"".join(_read(ours))
            assert process.wait(WAIT_S) == 0, output
        assert b"Import 9 sessions? [y/N]" in output
        assert (machine / "vestige" / "store.db").exists() is expected


@pytest.mark.parametrize("reply", [b"n\n", b"y\n"])
def test_ui_offers_the_sessions_on_a_terminal_before_it_serves(machine: Path, reply: bytes) -> None:
    before = fingerprint(machine)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "vestige", "ui", "--no-browser", "--port", "0"],
        env=environment(machine),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        try:
            output = _read_until(ours, b"[y/N]")
            assert b"Import 9 sessions?" in output and b"running at" not in output
            os.write(ours, reply)
            shown = _read_until(ours, b"(Ctrl-C to stop)")
        finally:
            process.send_signal(signal.SIGINT)
            b"".join(_read(ours))
        process.wait(WAIT_S)
    assert b"Vestige is running at http://127.0.0.1:" in shown
    assert (b"Claude Code: 3 sessions" in shown) is (reply == b"y\n")
    imported = names(machine) if (machine / "vestige" / "store.db").exists() else []
    assert len(imported) == (9 if reply == b"y\n" else 0)
    assert fingerprint(machine) == before


def _read_until(fd: int, text: bytes) -> bytes:
    """Return what a terminal shows up to a text. Fail when it is closed before."""
    shown = b""
    while text not in shown:
        data = os.read(fd, 4096)
        assert data, shown
        shown += data
    return shown


def _read(fd: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(fd, 4096)
        except OSError:  # the other side is closed
            break
        if not data:
            break
        yield data
    os.close(fd)


def test_list_points_out_sessions_when_there_are_no_runs(machine: Path) -> None:
    shown = run(machine, "list")
    assert "found 9 sessions of Claude Code, Codex, Gemini CLI, OpenCode, Cline" in shown.stderr
    assert shown.returncode == 2
    assert "found" not in run(machine, "list", "--json").stderr


def test_a_damaged_session_does_not_stop_the_others(machine: Path) -> None:
    (machine / ".local/share/opencode/opencode.db").write_bytes(b"SQLite format 3\0" + b"x" * 500)
    next((machine / ".gemini").rglob("session-*.jsonl")).chmod(0o000)
    done = run(machine, "import", "--discover", "--yes")
    assert "Traceback" not in done.stderr
    assert len(names(machine)) >= 6


def test_discover_refuses_paths(machine: Path) -> None:
    assert run(machine, "import", "--discover", "x").returncode == 2
    assert run(machine, "import").returncode == 2


def test_collect_follows_a_session_while_it_is_written(machine: Path) -> None:
    live = machine / ".claude" / "projects" / "-home-dev-calc" / SESSION
    lines = live.read_bytes().splitlines(keepends=True)
    live.write_bytes(b"".join(lines[:20]))
    process = subprocess.Popen(
        [sys.executable, "-m", "vestige", "store", "collect", "--logs"],
        env=environment(machine),
        stderr=subprocess.PIPE,
    )
    try:
        _wait_for_spans(machine, 10)
        with open(live, "ab") as file:
            file.write(b"".join(lines[20:]))
        _wait_for_spans(machine, 30)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT_S)
    assert process.returncode == 0


def _wait_for_spans(user: Path, count: int) -> None:
    """Wait until a run with the first session's files has this many spans."""
    import time

    deadline = time.monotonic() + WAIT_S
    store_file = user / "vestige" / "store.db"
    while time.monotonic() < deadline:
        if _count_spans(store_file) >= count:
            return
        time.sleep(0.2)
    raise AssertionError(f"no run with {count} spans")


def _count_spans(store_file: Path) -> int:
    try:
        with open_store(store_file, readonly=True) as store:
            return len(store.load_run(SESSION.removesuffix(".jsonl")).spans)
    except (StoreError, NotFoundError):  # not created yet, or without the run
        return 0
