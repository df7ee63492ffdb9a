"""A program that leaves by `sys.exit("gave up")` has said so, and has not ended well."""

from __future__ import annotations

import sys

import pytest

from conftest import ReadRuns, RunProgram
from vestige.record.run import LogInfo, SpanInfo

SUPERVISED = (sys.executable, "-m", "vestige", "run", "--", sys.executable)

PLAIN = """
import sys, vestige
vestige.Recorder()
def work():
    try:
        sys.exit(STATUS)
    finally:
        pass
work()
"""

IN_ASYNCIO = """
import asyncio, sys, vestige
vestige.Recorder()
async def work():
    await asyncio.sleep(0)
    sys.exit(STATUS)
async def main():
    await asyncio.create_task(work())
asyncio.run(main())
"""

CAUGHT = """
import sys, vestige
vestige.Recorder()
kept = []
def work():
    try:
        sys.exit(STATUS)
    except SystemExit as error:
        kept.append(error)
work()
try:
    sys.exit(STATUS)
except SystemExit:
    pass
"""

IN_THREAD = """
import sys, threading, vestige
vestige.Recorder()
thread = threading.Thread(target=sys.exit, args=(STATUS,))
thread.start()
thread.join()
"""


def told(read_runs: ReadRuns) -> tuple[SpanInfo, list[LogInfo]]:
    """The program's process span, and its last words."""
    runs = read_runs()
    spans = [span for run in runs for span in run.spans if span.type == "process"]
    (span,) = [span for span in spans if "program.py" in span.name]
    return span, [log for run in runs for log in run.logs if "last_words" in log.attributes]


@pytest.mark.parametrize("program", [PLAIN, IN_ASYNCIO])
@pytest.mark.parametrize("command", [(sys.executable,), SUPERVISED])
def test_the_text_of_an_exit_is_an_error_line_and_the_process_failed(
    run_program: RunProgram, read_runs: ReadRuns, program: str, command: tuple[str, ...]
) -> None:
    """What it prints and its exit code are as without us."""
    done = run_program(program.replace("STATUS", "'gave up'"), command=command)
    process, (line,) = told(read_runs)

    assert (done.returncode, done.stderr) == (1, "gave up\n")
    assert (process.status, process.attributes["exit_code"]) == ("error", 1)
    assert line.level == "error"
    assert (line.attributes["error.type"], line.attributes["error.message"]) == (
        "SystemExit",
        "gave up",
    )


def test_a_secret_in_the_text_is_masked(run_program: RunProgram, read_runs: ReadRuns) -> None:
    """It is a line like any other."""
    run_program(PLAIN.replace("STATUS", "'bad key sk-ant-api03-' + 'a1B2' * 20"))
    _, (line,) = told(read_runs)

    assert "a1B2a1B2" not in str(line.attributes)


@pytest.mark.parametrize(("status", "code"), [("3", 3), ("True", 1)])
def test_a_number_is_the_process_spans_end_and_no_line(
    run_program: RunProgram, read_runs: ReadRuns, status: str, code: int
) -> None:
    """There is nothing more to say."""
    done = run_program(PLAIN.replace("STATUS", status))
    process, lines = told(read_runs)

    assert done.returncode == code
    assert (process.status, process.attributes["exit_code"], lines) == ("error", code, [])


@pytest.mark.parametrize(
    ("program", "status"),
    [
        (PLAIN, "None"),
        (PLAIN, "0"),
        (PLAIN, "False"),
        (CAUGHT, "'gave up'"),
    ],
)
def test_an_exit_that_is_a_success_or_is_caught_is_nothing(
    run_program: RunProgram, read_runs: ReadRuns, program: str, status: str
) -> None:
    """The program went on, or ended well."""
    done = run_program(program.replace("STATUS", status))
    process, lines = told(read_runs)

    assert done.returncode == 0
    assert (process.status, lines) == ("ok", [])
    assert "exit_code" not in process.attributes


def test_an_exit_of_a_thread_is_not_the_programs(
    run_program: RunProgram, read_runs: ReadRuns
) -> None:
    """Only the thread ends by it."""
    done = run_program(IN_THREAD.replace("STATUS", "'gave up'"))
    process, _ = told(read_runs)

    assert (done.returncode, process.status) == (0, "ok")


def test_the_real_function_comes_back(run_program: RunProgram) -> None:
    """When the recorder is closed, and at once with `last_words=False`."""
    done = run_program(
        """
        import sys
        real = sys.exit
        import vestige
        with vestige.Recorder(last_words=False):
            print(sys.exit is real)
        with vestige.Recorder():
            print(sys.exit is real)
        print(sys.exit is real)
        """
    )

    assert done.stdout.split() == ["True", "False", "True"]
