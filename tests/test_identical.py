"""The agent's result is identical to a run without recording, whatever goes wrong with
recording.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.programs import SmallDisk, load, run_in
from vestige.home import Home

AGENT = """
import asyncio, math, os, shutil, sys, threading
from concurrent.futures import ThreadPoolExecutor
import vestige

class Raising:
    def __str__(self): raise RuntimeError("no text of me")
    __repr__ = __str__
    def __bool__(self): raise RuntimeError("no truth in me")

class Hidden:
    @property
    def __class__(self): raise RuntimeError("no class")

around = [1]; around.append(around)
ODD = {
    "nan": math.nan, "inf": -math.inf, "huge": 10**5000, "bytes": b"\\xff", "surrogate": "\\ud800",
    "\\udfff": 1, "cycle": around, "raising": Raising(), "hidden": Hidden(), "set": {1, 2}, 7: None,
    "lambda": lambda: 1, "deep": eval("[" * 90 + "]" * 90), "long": "x" * 10**6,
}

def misuse(span):
    span.set_attributes(ODD)
    span.set_attributes(["no", "mapping"])
    span.add_link(Raising(), Raising(), Raising())
    span.log.info(Raising(), **{str(key): value for key, value in ODD.items()})
    span.log.error("x", error="no exception")
    span.child(Raising(), type=None, attributes=ODD, body=Raising()).end(status=7, body=around)
    span.child("x", attributes=Raising(), body="\\ud800" * 300_000).end(attributes=7)
    span.end(); span.end()

@vestige.trace
def square(n, *odd):
    return n * n

@vestige.trace
async def slow_square(n):
    await asyncio.sleep(0)
    return square(n)

@vestige.trace
def count(n):
    for number in range(n):
        yield number

async def agent(recorder):
    async with recorder.run("agent", conversation_id=42, attributes=ODD, body=ODD) as run:
        numbers = await asyncio.gather(*map(slow_square, range(5)))
        misuse(run.child("misuse"))
        if "delete" in sys.argv:
            shutil.rmtree(os.environ["VESTIGE_HOME"], ignore_errors=True)
        for number in range(300):
            run.log.info("x" * 500, number=number)
        with ThreadPoolExecutor(2) as pool:
            numbers += pool.map(square, range(3), [Raising(), around, Hidden()])
        run.child("long", body="y" * 400_000).end()
        numbers += list(count(4))
        try:
            with run.child("fails"):
                raise ValueError("expected")
        except ValueError as error:
            numbers.append(str(error))
        return numbers

recorder = vestige.Recorder()
recorder.on_any(lambda record: 1 / 0)
print(asyncio.run(agent(recorder)))
threading.Thread(target=lambda: print("thread done")).start()
sys.exit(5)
"""


@pytest.fixture
def disk(small_disk: SmallDisk) -> Path:
    """A disk of 64 KiB."""
    return small_disk("64k")


def is_identical(home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
    bare = run_in(home, AGENT, *arguments, env={"VESTIGE_DISABLED": "1"})
    recorded = run_in(home, AGENT, *arguments)

    assert "Traceback" not in bare.stderr
    assert (recorded.stdout, recorded.returncode) == (bare.stdout, bare.returncode)
    assert (bare.returncode, "expected" in bare.stdout, "thread done" in bare.stdout) == (
        5,
        True,
        True,
    )
    return recorded


def test_with_hostile_values_and_misuse(tmp_path: Path) -> None:
    """Unserialisable, recursive and raising attributes, NaN, surrogates, a broken listener."""
    home = Home(tmp_path / "home")

    recorded = is_identical(home)

    (run,) = [run for run in load(home) if run.info.name == "agent"]
    faults = [
        line
        for run in load(home)
        for line in run.logs
        if line.message.startswith("misuse or failure")
    ]
    assert recorded.stderr == ""
    assert (run.info.outcome, run.info.conversation_id) == ("ok", "42")
    assert len(run.logs) == 302
    assert not [name for line in faults for name in line.attributes if "lost" in name]
    assert {"span ended twice", "listener raised ZeroDivisionError"} <= set(faults[-1].attributes)


def test_when_the_home_is_deleted_midway(tmp_path: Path) -> None:
    """Its files go on into nowhere, then in a new home."""
    is_identical(Home(tmp_path / "home"), "delete")


def test_when_the_disk_is_full(disk: Path) -> None:
    """Said once on stderr, and nowhere else."""
    program = disk / "program.py"
    program.write_text(AGENT)  # its own room, taken before the disk is filled

    recorded = is_identical(Home(disk / "home"))

    assert recorded.stderr.count("vestige:") == 1


def test_when_the_disk_is_read_only(disk: Path) -> None:
    """Nothing can be written at all."""
    (disk / "program.py").write_text(AGENT)
    home = Home(disk / "home")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)

    recorded = is_identical(home)

    assert recorded.stderr.count("vestige:") == 1
    assert "Read-only file system" in recorded.stderr


def test_when_the_home_is_a_file(tmp_path: Path) -> None:
    """Another program put it there."""
    (tmp_path / "home").write_text("in the way")

    recorded = is_identical(Home(tmp_path / "home"))

    assert recorded.stderr.count("vestige:") == 1
