"""Kill the server, the process that writes for it, or the ship, anywhere: nothing lost or
doubled.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from support.ship_server import Serving, ship, start_ship
from vestige.fleet.compression import pack
from vestige.home import Home
from vestige.limits import BODY_INLINE_MAX
from vestige.record.codec import render_line
from vestige.record.types import Log

KILLS = [3, pytest.param(60, marks=pytest.mark.full)]

PRODUCER = """
import select, sys, time
import vestige

recorder = vestige.Recorder()
big = "x" * {big_bytes}
with recorder.run("agent") as run:
    number = 0
    while not select.select([sys.stdin], [], [], 0)[0] and number < 20_000:
        body = f"ask {{number % 50}}"
        with run.span("chat", type="llm", attributes={{"model": "m"}}, body=body) as span:
            span.end(attributes={{"input_tokens": 3, "output_tokens": 2}})
        run.log.info("said", n=number)
        if number % 100 == 0:
            run.span("read", type="tool", body=big + str(number)).end()
        number += 1
        if number % 20 == 0:
            time.sleep(0.01)  # it writes for as long as there are kills
print(number)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kills", KILLS)
def test_kills_of_server_writer_and_ship_at_random_points_lose_and_double_nothing(
    home: Home, tmp_path: Path, kills: int
) -> None:
    """An agent on one machine, a collector beside it, a server on another; each dies in turn."""
    rng = random.Random(11)
    server = Serving(tmp_path / "server")
    key = server.key()
    server.start()
    producer = subprocess.Popen(
        [sys.executable, "-c", PRODUCER.format(big_bytes=BODY_INLINE_MAX + 1)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    for number in range(kills):
        shipping = start_ship(home, server.url, key)
        assert shipping.stderr is not None
        assert "Shipping" in shipping.stderr.readline()
        time.sleep(0.1 + rng.random() * 0.5)  # the moment of the kill is what is tested
        if number % 3 == 0:
            shipping.kill()
        elif number % 3 == 1:
            server.kill()
            server.start()
        else:
            kill_writer(server)
        if number % 2:
            subprocess.run([sys.executable, "-m", "vestige", "collect", "--once"], check=True)
        time.sleep(rng.random() * 0.3)  # the others go on meanwhile
        shipping.kill()
        shipping.communicate(timeout=120)
    out, _ = producer.communicate("stop\n", timeout=120)
    emitted = int(out)

    code, _, problems = ship(home, server.url, key)
    server.stop()

    assert code == 0, problems
    (run,) = (run for run in server.runs().values() if run.info.name == "agent")
    assert run.info.outcome == "ok"
    assert [log.attributes["n"] for log in run.logs] == list(range(emitted))
    assert run.info.input_tokens == 3 * emitted
    assert sum(span.type == "llm" for span in run.spans) == emitted
    reads = [span for span in run.spans if span.type == "tool"]
    assert len(reads) == (emitted + 99) // 100
    assert all(span.input is not None and span.input.id is not None for span in reads)


def kill_writer(server: Serving) -> None:
    """The process beside the server that writes what comes in, if it has started."""
    assert server.process is not None
    for child in psutil.Process(server.process.pid).children():
        if "vestige.fleet.server.ingest_process" in child.cmdline():
            child.kill()


@pytest.mark.slow
def test_what_was_acknowledged_is_there_after_the_server_is_killed(tmp_path: Path) -> None:
    """Requests one after the other; whatever got a 200 before the kill is in the store after it."""
    rng = random.Random(5)
    server = Serving(tmp_path / "server")
    key = server.key()
    acknowledged = 0
    for _ in range(3):
        server.start()
        acknowledged = post_until_killed(server, key, acknowledged, 0.05 + rng.random() * 0.5)

    server.start()
    server.stop()

    logs = {run_id: run.info.log_count for run_id, run in server.runs().items()}
    for number in range(1, acknowledged + 1):
        assert logs[run_of(number)] == 2


def post_until_killed(server: Serving, key: str, number: int, seconds: float) -> int:
    """Send on from `number`; so long after the first answer the server dies. The last that was
    acknowledged."""
    assert server.process is not None
    acknowledged = number
    killer = None
    while True:
        number = acknowledged + 1
        try:
            answer = server.post(pack(line(number) + line(number, seq=2)), key)
        except OSError:
            assert killer is not None
            killer.wait(120)
            server.process.communicate(timeout=120)
            return acknowledged
        if answer.status == 200:
            acknowledged = number
        if killer is None:
            command = [sys.executable, "-c", KILLER, str(server.process.pid), str(seconds)]
            killer = subprocess.Popen(command)


KILLER = "import os, sys, time; time.sleep(float(sys.argv[2])); os.kill(int(sys.argv[1]), 9)"


def run_of(number: int) -> str:
    return f"3d1957bd-0000-4000-8000-{number:012d}"


def line(number: int, seq: int = 1) -> bytes:
    return render_line(Log(1, f"{number:016x}", seq, 1_000, run_of(number), "a", "info", "said"))
