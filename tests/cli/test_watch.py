"""Programs that spend, loop or break a policy are stopped, and the reason is in the run."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import signal
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import vestige
from vestige.home import Home

pytestmark = pytest.mark.slow

SPENDER = """
import sys, time, vestige
with vestige.Recorder().run("spender") as run:
    for number in range(int(sys.argv[1])):
        call = run.span("chat", "llm", {"model": "gpt-4o"})
        time.sleep(0.1)
        call.end(attributes={"input_tokens": 4000, "output_tokens": 0})  # $0.01
        run.span("look_up", "tool", body=f'{{"n": {number}}}').end(body="done")
"""


@pytest.fixture
def spender(tmp_path: Path) -> Path:
    path = tmp_path / "spender.py"
    path.write_text(SPENDER)
    return path


def _environment(home: Home) -> dict[str, str]:
    return {**os.environ, "VESTIGE_HOME": str(home.root), "VESTIGE_WEBHOOK_SECRET": "of-the-test"}


def _run(home: Home, spender: Path, calls: int, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vestige", "run", *options, "--"]
    command += [sys.executable, str(spender), str(calls)]
    return subprocess.run(
        command, capture_output=True, text=True, env=_environment(home), timeout=120
    )


def _calls(home: Home) -> int:
    with vestige.open(home) as debugger:
        run = debugger.list("name:spender").runs[0]
        loaded = debugger.store.load_run(run.id)
    return sum(span.type == "llm" and span.status == "ok" for span in loaded.spans)


def test_a_program_stops_within_one_call_of_its_budget(home: Home, spender: Path) -> None:
    """Each call costs $0.01. The run names the reason, not an unexpected exit."""
    result = _run(home, spender, 100, "--max-cost", "0.05")

    assert result.returncode == 128 + signal.SIGTERM
    assert "stopped: cost: Cost is $0.05 (limit $0.05)." in result.stderr
    assert _calls(home) in (5, 6)
    with vestige.open(home) as debugger:
        text = str(debugger.check(debugger.list("name:spender").runs[0].id))
    assert "crash/stopped" in text and "stopped by vestige run: cost: Cost is $0.05" in text


GRACEFUL = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"


@pytest.mark.parametrize("by", ["run", "watch"])
@pytest.mark.parametrize("graceful", [False, True])
def test_the_reason_of_a_stop_leads_the_findings(
    home: Home, spender: Path, by: str, graceful: bool
) -> None:
    """Also if the program ends itself without an error at SIGTERM. The cause is the last call."""
    if graceful:
        spender.write_text(SPENDER.replace("with", GRACEFUL + "with", 1))
    home.make()
    if by == "run":
        _run(home, spender, 100, "--max-cost", "0.03")
    else:
        command = [sys.executable, "-m", "vestige", "watch", "--max-cost", "0.03", "--stop"]
        watch = subprocess.Popen(command, env=_environment(home), stdout=subprocess.PIPE)
        try:
            command = [sys.executable, str(spender), "300"]
            subprocess.run(command, env=_environment(home), timeout=120)
            assert watch.stdout is not None and watch.stdout.readline()
        finally:
            watch.kill()
            watch.wait(timeout=60)
    with vestige.open(home) as debugger:
        answer = debugger.list("name:spender", examine=True)
        run = debugger.store.load_run(answer.runs[0].id)
        (finding, *_) = debugger.check(run.info.id).ordered()

    ended = [span for span in run.spans if span.type == "llm" and span.status == "ok"]
    assert finding.kind == answer.findings[run.info.id].kind == "crash/stopped"
    assert finding.message.startswith(f"stopped by vestige {by}: cost: Cost is $0.")
    assert finding.cause in {span.id for span in ended[2:]}, "a call from the third on"


def test_a_policy_stops_a_program_and_a_broken_one_does_not(
    home: Home, spender: Path, tmp_path: Path
) -> None:
    policy, broken = tmp_path / "policy.toml", tmp_path / "broken.toml"
    policy.write_text("[limits]\ntool_calls = 2\n")
    broken.write_text("[limits\n")

    stopped = _run(home, spender, 100, "--policy", str(policy))
    went_on = _run(home, spender, 3, "--policy", str(broken))

    assert stopped.returncode == 128 + signal.SIGTERM
    assert "policy/limit-tool-calls" in stopped.stderr
    assert went_on.returncode == 0 and "runs without the policy" in went_on.stderr
    assert _calls(home) == 3


def test_a_rule_that_is_broken_right_before_the_end_is_reported(home: Home, tmp_path: Path) -> None:
    program, policy = tmp_path / "quick.py", tmp_path / "policy.toml"
    program.write_text(SPENDER.replace("time.sleep(0.1)", ""))
    policy.write_text("[limits]\ntool_calls = 2\n")

    result = _run(home, program, 3, "--policy", str(policy))

    assert "policy/limit-tool-calls" in result.stderr


class _Hook(BaseHTTPRequestHandler):
    """Collects the bodies and signatures of requests."""

    received: list[tuple[bytes, str]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append((body, self.headers["X-Vestige-Signature"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_a_watch_stops_a_program_and_sends_one_signed_post(home: Home, spender: Path) -> None:
    _Hook.received = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hook)
    Thread(target=server.serve_forever, daemon=True).start()
    home.make()
    options = [
        "--max-cost",
        "0.03",
        "--stop",
        "--webhook",
        f"http://127.0.0.1:{server.server_port}",
    ]
    watch = subprocess.Popen(
        [sys.executable, "-m", "vestige", "watch", *options],
        env=_environment(home),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watch.stdout is not None
    program = subprocess.Popen([sys.executable, str(spender), "300"], env=_environment(home))
    line = watch.stdout.readline()
    code = program.wait(timeout=60)
    # After the first breach, the watch goes on with other programs until Ctrl-C.
    watch.send_signal(signal.SIGINT)
    status = watch.wait(timeout=60)
    server.shutdown()

    assert "stopped: cost: Cost is $" in line and code == -signal.SIGTERM
    assert status == 130
    ((body, signature),) = _Hook.received
    expected = hmac.new(b"of-the-test", body, hashlib.sha256).hexdigest()
    assert signature == f"sha256={expected}"
    assert json.loads(body)["code"] == "cost" and json.loads(body)["action"] == "stopped"
    with vestige.open(home) as debugger:
        (note,) = debugger.notes(debugger.list("name:spender").runs[0].id).notes
    assert note.text.startswith("Stopped: cost:") and note.author == "vestige watch"


def test_a_webhook_that_does_not_answer_leaves_no_program_unwatched(
    home: Home, spender: Path
) -> None:
    """The second program is stopped while the first POST waits for its answer."""
    home.make()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        watch = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "vestige",
                "watch",
                "--max-cost",
                "0.03",
                "--stop",
                f"--webhook={url}",
            ],
            env=_environment(home),
            stdout=subprocess.PIPE,
            text=True,
        )
        command = [sys.executable, str(spender), "300"]
        try:
            codes = []
            for _ in range(2):
                program = subprocess.Popen(command, env=_environment(home))
                codes.append(program.wait(timeout=60))
                silent.accept()[0].detach()  # The connection stays open, and nothing is answered.
        finally:
            watch.kill()
            watch.communicate(timeout=60)

    assert codes == [-signal.SIGTERM] * 2


LOOPER = """
import sys, time, vestige
with vestige.Recorder().run("looper") as run:
    for number in range(40):
        run.span("chat", "llm", {"model": "gpt-4o"}).end()
        run.span("look_up", "tool", body='{"order": "A-17"}').end(body="not found")
        time.sleep(0.1)
"""
SILENT = """
import time, vestige
with vestige.Recorder().run("silent") as run:
    run.span("look_up", "tool").end()
    time.sleep(120)
"""


def _wait_until_stopped(pid: int) -> None:
    """Wait for the state T: a busy machine delivers a signal some time after it was sent."""
    for _ in range(600):
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return
        time.sleep(0.1)
    raise AssertionError("not stopped")


@pytest.mark.parametrize(
    ("source", "options", "code", "action"),
    [
        (LOOPER, ["--loop", "--pause"], "loop", "paused"),
        (SILENT, ["--silence", "1s", "--stop"], "silence", "stopped"),
    ],
)
def test_a_watch_acts_on_a_loop_and_on_silence(
    home: Home, tmp_path: Path, source: str, options: list[str], code: str, action: str
) -> None:
    """A paused program goes on when it gets SIGCONT."""
    home.make()
    path = tmp_path / "program.py"
    path.write_text(source)
    program = subprocess.Popen([sys.executable, str(path)], env=_environment(home))
    watch = subprocess.Popen(
        [sys.executable, "-m", "vestige", "watch", *options],
        env=_environment(home),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert watch.stdout is not None
        line = watch.stdout.readline()
        assert f"{action}: {code}: " in line
        if action == "paused":
            _wait_until_stopped(program.pid)
            program.send_signal(signal.SIGCONT)
            assert program.wait(timeout=60) == 0
        else:
            assert program.wait(timeout=60) == -signal.SIGTERM
    finally:
        program.kill()
        watch.send_signal(signal.SIGINT)
        watch.wait(timeout=60)
    with vestige.open(home) as debugger:
        (note,) = debugger.notes(debugger.list().runs[0].id).notes
    assert note.text.startswith(f"{action.capitalize()}: {code}: ")


def test_a_killed_watch_harms_nothing(home: Home, spender: Path) -> None:
    home.make()
    command = [sys.executable, "-m", "vestige", "watch", "--max-cost", "99", "--stop"]
    watch = subprocess.Popen(command, env=_environment(home))
    program = subprocess.Popen([sys.executable, str(spender), "8"], env=_environment(home))
    watch.kill()
    watch.wait(timeout=60)

    assert program.wait(timeout=60) == 0
    assert _calls(home) == 8
    command = [sys.executable, "-m", "vestige", "watch", "r1", "--loop"]
    again = subprocess.run(command, env=_environment(home), capture_output=True, text=True)
    assert (again.returncode, again.stdout) == (0, "r1 has ended.\n")


def test_a_watch_without_a_rule_or_with_a_bad_address_is_a_usage_error(home: Home) -> None:
    command = [sys.executable, "-m", "vestige", "watch"]
    for options, message in (
        ([], "no rule"),
        (["--loop", "--stop", "--pause"], "exclude each other"),
        (["--loop", "--webhook", "file:///etc/passwd"], "is not a web address"),
    ):
        result = subprocess.run(
            [*command, *options], capture_output=True, text=True, env=_environment(home), timeout=60
        )

        assert result.returncode == 2 and message in result.stderr
