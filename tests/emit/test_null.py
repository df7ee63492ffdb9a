"""A disabled recorder changes nothing; an unsampled run records warnings and errors."""

from __future__ import annotations

import asyncio
import os

import vestige
from vestige.emit.no_op import NULL_LOGGER, NULL_SPAN
from vestige.home import Home
from vestige.record.types import Log, SpanClose, SpanOpen
from vestige.testing import FakeRecorder


def test_a_disabled_recorder_is_a_no_op(home: Home) -> None:
    """VESTIGE_DISABLED=1: every call works, and not even the home is created."""
    os.environ["VESTIGE_DISABLED"] = "1"
    recorder = vestige.Recorder(home)

    with recorder.run("r", "c", {"a": 1}) as run:
        with run.child("s") as span:
            span.set_attributes(b=2)
            span.add_link("x")
            span.log.info("m")
            span.end(error=ValueError())
        log = recorder.logger("c")
        log.child(a=1).error("m", error=ValueError())
        log.record("info", "m", {})
        assert log.span("s") is NULL_SPAN
    assert recorder.secret("value") == "value"
    recorder.on_any(print)
    recorder.on_any(print)
    recorder.close()

    assert run is NULL_SPAN
    assert log is NULL_LOGGER
    assert (recorder.enabled, recorder.faults, recorder.writer) == (False, {}, "")
    assert recorder.redact_argv(["a", "b"]) == ["a", "b"]
    assert not home.root.exists()


def test_disabled_ambient_code_runs_as_if_unrecorded(home: Home) -> None:
    """`@trace` and `traced_run` too, and no thread is touched."""
    os.environ["VESTIGE_DISABLED"] = "1"

    @vestige.trace
    def double(n: int) -> int:
        return 2 * n

    async def agent() -> int:
        async with vestige.traced_run("r"):
            return double(21)

    assert double(4) == 8
    assert asyncio.run(agent()) == 42
    assert not vestige.current_span()
    assert not home.root.exists()


def test_config_toml_can_disable(home: Home) -> None:
    """A setting counts wherever it is made."""
    home.make()
    home.config.write_text("disabled = true\n")

    assert not vestige.Recorder(home).enabled


def test_disabling_works_even_when_the_config_is_broken(home: Home) -> None:
    """The one setting that must work when nothing else does."""
    home.make()
    home.config.write_text("level = = nonsense")
    os.environ["VESTIGE_DISABLED"] = "1"

    assert not vestige.Recorder(home).enabled


def test_an_unsampled_run_keeps_its_root_and_its_bad_news() -> None:
    """Warnings and errors are never sampled away; the rest is."""
    recorder = FakeRecorder(sample=0.0)

    with recorder.run("r", attributes={"a": 1}) as run:
        run.log.info("not kept")
        run.log.warn("kept")
        with run.child("step") as step, step.child("deeper") as deeper:
            deeper.log.debug("not kept")
            deeper.log.error("kept too", error=ValueError("x"))
            deeper.set_attributes(a=1)
        recorder.logger("other").info("not kept")
        recorder.logger("other").span("not kept either").end()

    mine = [record for record in recorder.records if record.run_id == run.run_id]
    assert [type(record) for record in mine] == [SpanOpen, Log, Log, SpanClose]
    assert [record.message for record in mine if isinstance(record, Log)] == ["kept", "kept too"]
    opened = mine[0]
    assert isinstance(opened, SpanOpen)
    assert opened.attributes == {"a": 1, "sampled": False}


def test_a_share_of_runs_is_sampled() -> None:
    """By run id, so that everything of a run agrees."""
    recorder = FakeRecorder(sample=0.5, clock=vestige._runtime.clock.SystemClock())

    sampled = sum(not recorder.run("r").muted for _ in range(400))

    assert 120 < sampled < 280
