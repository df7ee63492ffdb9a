"""The fake recorder for users' own tests: the real one, over a list."""

from __future__ import annotations

import os
from pathlib import Path

from vestige.testing import FakeClock, FakeRecorder


def test_what_a_program_recorded_can_be_asked_for() -> None:
    """Spans as opened, how each ended, and the lines said."""
    recorder = FakeRecorder()

    with recorder.run("triage") as run:
        run.log.info("started", goal="reply")
        with run.span("search", type="tool") as search:
            pass

    close = recorder.close_of(search.id)
    assert [span.name for span in recorder.spans] == ["triage", "search"]
    assert [(line.message, line.attributes) for line in recorder.logs] == [
        ("started", {"goal": "reply"})
    ]
    assert close is not None
    assert (close.status, close.duration_ns) == ("ok", 1_000_000)
    assert recorder.close_of("nobody") is None


def test_ids_and_times_count_up() -> None:
    """Tests see 1, 2, 3."""
    recorder = FakeRecorder(clock=FakeClock(start_ns=0, step_ns=1))

    run = recorder.run("r")
    span = run.child("s")

    assert int(span.id, 16) == int(run.id, 16) + 1
    times = [record.time_ns for record in recorder.records]  # type: ignore[union-attr]
    assert times == sorted(times)
    assert times[0] == 1


def test_it_leaves_no_trace_of_itself(tmp_path: Path) -> None:
    """No file, no hook for errors or signals, and nothing in the environment."""
    import signal
    import sys

    before = (sys.excepthook, signal.getsignal(signal.SIGTERM), dict(os.environ))
    with FakeRecorder(tmp_path / "home") as recorder, recorder.run("r"):
        during = (sys.excepthook, signal.getsignal(signal.SIGTERM), dict(os.environ))

    assert during == before
    assert not (tmp_path / "home").exists()


def test_redaction_is_the_real_one() -> None:
    """What a test sees is what would have been on disk."""
    recorder = FakeRecorder()
    recorder.secret("correct horse battery")

    recorder.logger("c").info("it is correct horse battery")

    assert "horse" not in recorder.logs[0].message
