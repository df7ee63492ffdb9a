"""Runs are alike by their task, not by their name."""

from __future__ import annotations

import vestige
from support.trajectories import reply, request, user
from vestige._runtime.clock import FakeClock
from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.query.trajectory.task import is_same_task
from vestige.recorder import Recorder

FRAME = "You have one question to answer. It is important that you find the correct answer. "


def test_the_last_successful_run_is_one_of_the_same_task(home: Home) -> None:
    with Recorder(home, last_words=False, clock=FakeClock()) as recorder:
        for question in ("Who won in 1998?", "How tall is the tower?", "Who won in 1998?"):
            with recorder.run("main") as run:
                body = request([user(FRAME + question)])
                run.child("chat", "llm", body=body).end(body=reply("I do not know."))
    catch_up(home)

    with vestige.open(home.root) as debugger:
        runs = debugger.list(everything=True).data()["runs"]
        good = debugger.overview(runs[0]["id"]).data()["good_run"]
        other = debugger.overview(runs[1]["id"]).data()["good_run"]

    assert good is not None and good["id"] != runs[1]["id"]
    assert other is None


def test_tasks_that_differ_in_one_word_of_a_long_frame_are_different() -> None:
    frame = " ".join(f"word{number}" for number in range(60))

    assert is_same_task(f"{frame} Paris", f"{frame}  Paris ")
    assert not is_same_task(f"{frame} 4 red cars", f"{frame} 9 blue boats")
