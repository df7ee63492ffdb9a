"""The origin and the forks of a run, from what `vestige replay` records."""

from __future__ import annotations

import json
import shlex
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

import vestige
from support.programs import RunProgram
from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.query.ids.lineage import Family, find_family
from vestige.recorder import Recorder
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore

ON_THE_WIRE = {"method": "POST", "url": "https://api.example/v1/chat", "attempt": 1}
VESTIGE_RUN = (sys.executable, "-m", "vestige", "run", "--")
SECRET = "sk-" + "lineage81c77e20b35d6cQv4f9a"


def record_agent(recorder: Recorder, **attributes: Any) -> tuple[str, list[str]]:
    """Record a run of three model calls. Return its id and those of the calls."""
    attributes |= {"command": json.dumps(["python", "my agent.py"])}
    with recorder.run("agent.py", attributes=attributes) as run:
        calls = [run.child("chat", "llm", ON_THE_WIRE) for _ in range(3)]
        for call in calls:
            call.end()
    return run.run_id, [call.id for call in calls]


def families(home: Home) -> list[Family]:
    """Return the families of all runs, oldest run first."""
    catch_up(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        runs = sorted(store.list_runs(RunFilter()), key=lambda run: run.started_ns)
        return [find_family(store, store.load_run(run.id)) for run in runs]


def test_a_list_marks_forks_and_replays(home: Home) -> None:
    """Their names are equal to that of their origin. The origin may be in another store."""
    with Recorder(home, crash_hooks=False) as recorder:
        origin, calls = record_agent(recorder)
        record_agent(recorder, **{"replay.run": origin, "replay.span": calls[1]})
        record_agent(recorder, **{"replay.run": origin})
        record_agent(recorder, **{"replay.run": "0123456789abcdef0123456789abcdef"})
    with vestige.open(home) as debugger:
        answer = debugger.list()

    first, forked, replayed, elsewhere = reversed(answer.data()["runs"])
    text = str(answer)
    assert not first.keys() & {"fork_of", "replay_of"}
    assert forked["fork_of"] == replayed["replay_of"] == first["short_id"]
    assert elsewhere["replay_of"] == "0123456789abcdef0123456789abcdef"
    assert f"agent.py (fork of {first['short_id']})" in text
    assert f"agent.py (replay of {first['short_id']})" in text


def test_a_fork_is_marked_if_its_root_was_read_late(home: Home) -> None:
    """A child process of `vestige run` may be read before it."""
    with Recorder(home, crash_hooks=False) as recorder:
        origin, calls = record_agent(recorder)
        fork = recorder.run("agent.py", attributes={"replay.run": origin, "replay.span": calls[1]})
        fork.child("chat", "llm").end()
        catch_up(home)
        with SqliteStore.open(home.store) as store:
            first, second = store.load_run(fork.run_id).spans[:2]
        assert (first.type, second.type) == ("run", "llm")
        fork.end()
    with sqlite3.connect(home.store) as connection:  # as if the root had come last
        connection.execute(
            "UPDATE spans SET id = (SELECT max(id) + 1 FROM spans) WHERE span_id = ?", (fork.id,)
        )
    with vestige.open(home) as debugger:
        listed = debugger.list().data()["runs"]

    assert [run.get("fork_of") for run in listed] == [listed[1]["short_id"], None]


def test_a_run_knows_its_forks_and_a_fork_its_origin(home: Home) -> None:
    change = {"path": ["messages", 0, "content"], "value": f"use {SECRET}", "before": '"x"'}
    with Recorder(home, crash_hooks=False) as recorder:
        origin, calls = record_agent(recorder)
        fork = {"replay.run": origin, "replay.span": calls[1], "replay.set": json.dumps([[change]])}
        record_agent(recorder, **fork)
        record_agent(recorder, **{"replay.run": origin})
        with recorder.run("unrelated", attributes={"note": origin}):
            pass

    first, forked, replayed, unrelated = families(home)

    assert [each.run.short_id for each in first.forks] == [
        replayed.run.short_id,
        forked.run.short_id,
    ]
    assert first.forks[1].forked_at == f"{first.run.short_id}.s3"
    assert first.forks[1].changes[0].startswith("messages[0].content=use ")
    assert SECRET not in first.forks[1].changes[0]
    assert (first.can_fork, first.command) == (True, "python 'my agent.py'")
    assert forked.origin is not None
    assert (forked.origin.run, forked.origin.span) == (
        first.run.short_id,
        f"{first.run.short_id}.s3",
    )
    assert forked.live_from == f"{forked.run.short_id}.s3"
    assert replayed.origin is not None and replayed.live_from is None
    assert (unrelated.origin, unrelated.can_fork, list(unrelated.forks)) == (None, False, [])


def test_attributes_that_cannot_be_read_are_left_out(home: Home) -> None:
    with Recorder(home, crash_hooks=False) as recorder:
        origin, _ = record_agent(recorder)
        broken = {"replay.run": origin, "replay.span": "gone", "replay.set": "[[{"}
        with recorder.run("fork", attributes={**broken, "command": "not JSON"}):
            pass

    first, forked = families(home)

    assert (first.forks[0].forked_at, first.forks[0].changes) == ("gone", [])
    assert (forked.changes, forked.live_from) == ([], None)
    assert "not JSON" not in (forked.command or "")


OWN_RUN = """
import sys, vestige

with vestige.Recorder().run("main"):
    pass
"""


@pytest.mark.parametrize("supervised", [False, True])
def test_the_command_is_that_of_the_program_that_opened_the_run(
    home: Home, run_program: RunProgram, supervised: bool
) -> None:
    """A run that a program opens itself has no command of its own."""
    python = (sys.executable,)
    run_program(OWN_RUN, "a b", command=(*VESTIGE_RUN, *python) if supervised else python)

    (main,) = (family for family in families(home) if family.run.name == "main")

    assert main.command is not None
    program, file, argument = shlex.split(main.command)
    assert Path(program).name.startswith("python")
    assert Path(file).name == "program.py"
    assert argument == "a b"
