"""Ordinary log lines land in the current span, with their extra fields and traceback."""

from __future__ import annotations

import logging
import threading

import pytest

import vestige
from support.programs import ReadRuns, RunProgram
from vestige.testing import FakeRecorder


@pytest.fixture
def recorder() -> FakeRecorder:
    return FakeRecorder()


@pytest.fixture
def log(recorder: FakeRecorder) -> logging.Logger:
    logger = logging.Logger("shop.cart")  # on its own: pytest listens to the others
    logger.addHandler(vestige.LoggingHandler(recorder))
    return logger


def test_a_line_lands_in_the_current_span(recorder: FakeRecorder, log: logging.Logger) -> None:
    """Its logger's name is the component, its extra fields are attributes."""
    with recorder.run("r") as run:
        log.info("%d items", 3, extra={"cart_id": "k-1", "nested": {"a": 1}})

    (line,) = recorder.logs
    assert (line.component, line.level, line.message) == ("shop.cart", "info", "3 items")
    assert (line.span_id, line.run_id) == (run.id, run.run_id)
    assert line.attributes["cart_id"] == "k-1"
    assert line.attributes["nested"] == '{"a":1}'
    assert str(line.attributes["code.file"]).startswith(__file__)
    assert "thread" not in line.attributes


@pytest.mark.parametrize(
    ("number", "level"),
    [
        (5, "debug"),
        (10, "debug"),
        (20, "info"),
        (25, "info"),
        (30, "warn"),
        (40, "error"),
        (50, "error"),
    ],
)
def test_levels_are_translated(
    recorder: FakeRecorder, log: logging.Logger, number: int, level: str
) -> None:
    """Those in between too."""
    log.setLevel(1)
    log.log(number, "x")

    assert recorder.logs[0].level == level


def test_a_traceback_comes_along(recorder: FakeRecorder, log: logging.Logger) -> None:
    """`log.exception` is an error with its whole story."""
    try:
        raise ValueError("bad")
    except ValueError:
        log.exception("failed", stack_info=True)

    attributes = recorder.logs[0].attributes
    assert attributes["error.type"] == "ValueError"
    assert "raise ValueError" in str(attributes["error.stack"])
    assert "Stack (most recent call last)" in str(attributes["stack"])


def test_a_line_of_another_thread_says_so(recorder: FakeRecorder, log: logging.Logger) -> None:
    """The main thread is understood."""
    thread = threading.Thread(target=log.info, args=("x",), name="worker-7")
    thread.start()
    thread.join()

    assert recorder.logs[0].attributes["thread"] == "worker-7"


def test_a_bad_line_is_kept_as_far_as_it_goes(
    recorder: FakeRecorder, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong arguments, a message that raises, odd extras: nothing is raised, printed or lost."""

    class Raising:
        def __str__(self) -> str:
            raise RuntimeError

        __repr__ = __str__

    log.info("%d of %d", 1)
    log.info(Raising())
    log.info("x", extra={"odd": Raising(), "\ud800": float("nan")})

    first, second, third = recorder.logs
    assert first.message == "%d of %d (1,)"
    assert "<unprintable Raising>" in second.message
    assert third.attributes["odd"] == "<unprintable Raising>"
    assert third.attributes["\\ud800"] == "NaN"
    assert capsys.readouterr().err == ""


def test_without_a_recorder_it_uses_the_process_s_own(home: object, read_runs: object) -> None:
    """`logging.getLogger().addHandler(vestige.LoggingHandler())` is all that one writes."""
    log = logging.Logger("plain")
    log.addHandler(vestige.LoggingHandler())

    with vestige.traced_run("r"):
        log.warning("hello")
    vestige.default_recorder().close()

    runs = {run.info.name: run for run in read_runs()}  # type: ignore[operator]
    assert [line.message for line in runs["r"].logs] == ["hello"]


@pytest.mark.parametrize("used_before", [True, False])
def test_a_line_that_is_logged_while_the_program_exits_is_no_crash(
    run_program: RunProgram, read_runs: ReadRuns, used_before: bool
) -> None:
    """The end is recorded by then: a new recorder could not record one."""
    program = """
        import atexit, logging, vestige
        atexit.register(logging.warning, "bye")
        logging.getLogger().addHandler(vestige.LoggingHandler())
        """
    if used_before:
        program += "vestige.traced_run('r').end()"
    done = run_program(program)

    assert done.returncode == 0
    assert {run.info.outcome for run in read_runs()} == ({"ok"} if used_before else set())


def test_a_thread_that_outlives_the_main_one_is_recorded(
    run_program: RunProgram, read_runs: ReadRuns
) -> None:
    """The program does not end before its last thread does."""
    run_program(
        """
        import threading, vestige
        def work():
            threading.main_thread().join()
            vestige.traced_run("late").end()
        threading.Thread(target=work).start()
        """
    )

    runs = read_runs()
    assert "late" in {run.info.name for run in runs}
    assert {run.info.outcome for run in runs} == {"ok"}


def test_a_line_that_is_logged_while_the_recorder_is_made_waits_for_nobody(
    run_program: RunProgram, read_runs: ReadRuns
) -> None:
    """Python may look for garbage at any point, and what it finds may log."""
    done = run_program(
        """
        import gc, logging, vestige
        logging.getLogger().addHandler(vestige.LoggingHandler())

        class Session:
            def __init__(self): self.itself = self
            def __del__(self): logging.warning("unclosed session")

        gc.collect()
        Session()
        logging.warning("first")
        """
    )

    assert done.returncode == 0
    assert any(line.message == "first" for run in read_runs() for line in run.logs)
