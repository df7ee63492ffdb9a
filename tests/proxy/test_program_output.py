"""What programs that are not Python print is recorded, and arrives unchanged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from time import sleep

import pytest

from support.programs import WAIT_S, load
from vestige.home import Home
from vestige.limits import PRINTS_AT_ONCE

pytestmark = pytest.mark.slow

RUN = (sys.executable, "-m", "vestige", "run", "-q")
PRINTING = "echo first; echo second >&2; printf '\\033[31mred\\033[0m\\nno end'"


@pytest.fixture(autouse=True)
def _recorded_home(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy", "NODE_OPTIONS"):
        monkeypatch.delenv(name, raising=False)


def printed(home: Home) -> list[tuple[str, str]]:
    logs = [log for run in load(home) for log in run.logs]
    return [(log.component, log.message) for log in logs if log.component in ("stdout", "stderr")]


def run_shell(code: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    command = [*RUN, *options, "--", "sh", "-c", code]
    return subprocess.run(command, capture_output=True, timeout=WAIT_S, check=False)


def test_the_output_of_a_program_is_recorded(home: Home) -> None:
    done = run_shell(f"{PRINTING}; exit 3")

    assert done.stdout == b"first\n\x1b[31mred\x1b[0m\nno end"
    assert done.stderr == b"second\n"
    assert done.returncode == 3
    assert sorted(printed(home)) == [
        ("stderr", "second"),
        ("stdout", "first"),
        ("stdout", "no end"),
        ("stdout", "red"),
    ]
    spans = {span.id: span for run in load(home) for span in run.spans}
    logs = [log for run in load(home) for log in run.logs if log.component == "stdout"]
    assert {spans[log.span_id or ""].type for log in logs} == {"run"}


def test_streams_of_one_pipe_keep_their_order(home: Home) -> None:
    command = [*RUN, "--", "sh", "-c", "for n in 1 2 3; do echo out $n; echo err $n >&2; done"]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=WAIT_S, check=True
    )

    assert done.stdout == b"out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n"
    assert [text for _, text in printed(home)] == done.stdout.decode().splitlines()


@pytest.mark.skipif(
    sys.platform != "linux", reason="a file is read where its position is not shared"
)
@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_a_file_is_left_to_the_program(home: Home, tmp_path: Path, mode: str) -> None:
    path = tmp_path / "out.txt"
    path.write_bytes(b"before\n")
    with path.open(mode) as file:
        command = [*RUN, "--", "sh", "-c", "test -f /proc/self/fd/1 && echo file"]
        subprocess.run(command, stdout=file, timeout=WAIT_S, check=True)

    assert path.read_bytes() == (b"before\n" if mode == "ab" else b"") + b"file\n"
    assert printed(home) == [("stdout", "file")]


def test_secrets_and_binary_output_are_not_recorded(home: Home) -> None:
    key = "sk-proj-" + "a1B2c3D4e5" * 4
    done = run_shell(f"echo key {key}; sleep 0.5; printf 'a\\000b'; echo text")

    assert done.stdout == f"key {key}\na\0btext\n".encode()
    assert key not in str(printed(home))
    assert printed(home)[-1] == (
        "stdout",
        "stdout is binary, and is not recorded from here on",
    )


def test_much_output_passes_and_is_counted(home: Home) -> None:
    lines = 100 * PRINTS_AT_ONCE
    done = run_shell(f"seq {lines}")

    assert done.stdout == b"".join(b"%d\n" % number for number in range(1, lines + 1))
    logs = [log for run in load(home) for log in run.logs if log.component == "stdout"]
    left_out = sum(log.attributes.get("left_out", 0) for log in logs)
    recorded = [log for log in logs if log.message.isdecimal()]
    assert left_out + len(recorded) == lines
    assert len(recorded) < lines / 10


def test_a_closed_pipe_stops_the_program(home: Home) -> None:
    code = "yes; echo $? >&2"
    command = [*RUN, "--", "sh", "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"y\n"
        process.stdout.close()
        assert process.stderr.read() == b"%d\n" % (128 + signal.SIGPIPE)


def test_output_goes_on_after_the_end(home: Home) -> None:
    """As without us: a pipe ends with the last program that holds it."""
    done = run_shell("echo now; (sleep 2; echo later) &")

    assert done.stdout == b"now\nlater\n"
    assert printed(home) == [("stdout", "now")]


def test_the_program_goes_on_if_vestige_is_killed(home: Home) -> None:
    code = "echo $PPID; sleep 1; echo end"
    command = [*RUN, "--", "sh", "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        os.kill(int(process.stdout.readline()), signal.SIGKILL)
        assert process.stdout.read() == b"end\n"
        assert process.wait() == -signal.SIGKILL
    for _ in range(100):
        if ("stdout", "end") in printed(home):
            break
        sleep(0.1)
    assert ("stdout", "end") in printed(home)


@pytest.mark.parametrize("switch", ["--no-prints", "--no-wire"])
def test_the_output_is_not_recorded_if_that_is_off(home: Home, switch: str) -> None:
    assert run_shell("echo text", switch).stdout == b"text\n"
    assert printed(home) == []
