"""Kill the collector wherever it happens to be: nothing is lost, and nothing is doubled."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter

import pytest

from support.programs import ReadRuns
from vestige.home import Home
from vestige.journal.writer import JournalWriter
from vestige.limits import BODY_INLINE_MAX
from vestige.record.codec import render_line
from vestige.record.types import Log
from vestige.recorder import Recorder
from vestige.store.sqlite.sqlite_store import SqliteStore

KILLS = [10, pytest.param(200, marks=pytest.mark.full)]

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
        if number % 500 == 0:
            run.span("read", type="tool", body=big + str(number)).end()
        number += 1
        if number % 20 == 0:
            time.sleep(0.01)  # it writes for as long as the collectors are killed
print(number)
"""

# A collector without a pause between its ticks: wherever the kill lands, it is at work.
COLLECTOR = """
from vestige.collector.loop import hold
from vestige.home import get_home
with hold(get_home()) as collector:
    print("ready", flush=True)
    while collector is not None:
        collector.tick()
"""


def start_collector() -> subprocess.Popen[bytes]:
    collector = subprocess.Popen([sys.executable, "-c", COLLECTOR], stdout=subprocess.PIPE)
    assert collector.stdout is not None
    assert collector.stdout.readline() == b"ready\n"
    return collector


@pytest.mark.slow
@pytest.mark.parametrize("kills", KILLS)
def test_a_collector_killed_at_random_points_loses_nothing_and_doubles_nothing(
    home: Home, read_runs: ReadRuns, kills: int
) -> None:
    """Rows and offset are one transaction: after any kill, every sum is what was emitted."""
    rng = random.Random(7)
    producer = subprocess.Popen(
        [sys.executable, "-c", PRODUCER.format(big_bytes=BODY_INLINE_MAX + 1)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    for _ in range(kills):
        collector = start_collector()
        time.sleep(rng.random() * 0.08)  # the moment of the kill is what is tested
        collector.kill()
        collector.communicate(timeout=120)
    out, _ = producer.communicate("stop\n", timeout=120)
    emitted = int(out)
    big = -(-emitted // 500)
    (run,) = [run for run in read_runs() if run.info.name == "agent"]
    with SqliteStore.open(home.store, readonly=True) as store:
        (writer,) = store.writers()
        sums = {
            name: (count, tokens)
            for name, count, tokens in store._connection.execute(
                "SELECT name, sum(count), sum(input_tokens) FROM rollups GROUP BY name"
            )
        }
        bodies = {store.read_body(span.input.id or 0) for span in run.spans if span.input}

    assert producer.returncode == 0
    assert emitted > 1000
    assert Counter(span.name for span in run.spans) == {"agent": 1, "chat": emitted, "read": big}
    assert {span.status for span in run.spans} == {"ok"}
    assert [log.attributes["n"] for log in run.logs] == list(range(emitted))
    assert (run.info.span_count, run.info.log_count) == (1 + emitted + big, emitted)
    assert (run.info.input_tokens, run.info.output_tokens) == (3 * emitted, 2 * emitted)
    assert (sums["chat"], sums["read"][0]) == ((emitted, 3 * emitted), big)
    assert len(bodies) == 50 + big
    assert (writer.missing, writer.malformed, writer.ended) == (0, 0, "exited")
    assert list(home.journal.iterdir()) == list(home.bodies.iterdir()) == []


def test_journals_rotated_without_a_collector_are_caught_up_and_deleted(
    home: Home, read_runs: ReadRuns
) -> None:
    """Generations wait on disk for a reader; then all lines are stored and no file is left."""
    line_bytes = 64 * 1024
    with Recorder(home) as recorder, recorder.run("agent") as run:
        journal = JournalWriter(home, "aaaaaaaaaaaaaaaa", rotate_bytes=line_bytes)
        for seq in range(1, 2001):
            line = Log(
                1, journal.writer, seq, 1, run.run_id, "agent", "info", f"line {seq} " + "x" * 200
            )
            assert journal.write(render_line(line))
        waiting = [generation for name, generation, _ in home.journal_files() if name == "a" * 16]
        journal.close()
    (loaded,) = [loaded for loaded in read_runs() if loaded.info.name == "agent"]

    assert len(waiting) > 5
    assert [int(log.message.split()[1]) for log in loaded.logs] == list(range(1, 2001))
    assert home.journal_files() == []
    with SqliteStore.open(home.store, readonly=True) as store:
        assert dict(store.positions()) == {}


@pytest.mark.slow
def test_a_tail_goes_on_through_rotations_while_they_happen(
    home: Home, read_runs: ReadRuns
) -> None:
    """The position is (writer, generation, offset): a live collector follows every rotation."""
    collector = start_collector()
    journal = JournalWriter(home, "bbbbbbbbbbbbbbbb", rotate_bytes=16 * 1024)
    for seq in range(1, 5001):
        journal.write(
            render_line(Log(1, journal.writer, seq, 1, "r" * 8, "agent", "info", f"l {seq}"))
        )
        if seq % 50 == 0:
            time.sleep(0.001)  # so that the collector reads while it grows
    journal.close()
    collector.kill()
    collector.communicate(timeout=120)
    (run,) = read_runs()

    assert [int(log.message.split()[1]) for log in run.logs] == list(range(1, 5001))
    assert home.journal_files() == []
