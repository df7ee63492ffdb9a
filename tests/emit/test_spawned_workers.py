"""Work of multiprocessing workers belongs to the run in which they were started."""

from __future__ import annotations

import sys

import pytest

from support.programs import ReadRuns, RunProgram

PLAIN = (sys.executable,)
VESTIGE_RUN = (sys.executable, "-m", "vestige", "run", "--", sys.executable)

PROGRAM = """
import multiprocessing as mp, os, sys, vestige

@vestige.trace
def square(number):
    return number * number

if __name__ == "__main__":
    method, has_run = sys.argv[1:]
    recorder = vestige.Recorder()
    context = mp.get_context(method)
    if has_run == "run":
        with recorder.run("parent"), context.Pool(2) as pool:
            pool.map(square, range(6))
            pool.close()
            pool.join()
    else:
        with context.Pool(2) as pool:
            pool.map(square, range(6))
            pool.close()
            pool.join()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_traced_calls_of_a_worker_are_spans_of_the_run_that_started_it(
    run_program: RunProgram, read_runs: ReadRuns, method: str
) -> None:
    done = run_program(PROGRAM, method, "run")

    assert done.returncode == 0, done.stderr
    runs = read_runs()
    (parent,) = (run for run in runs if run.info.name == "parent")
    assert sum(span.name == "square" for span in parent.spans) == 6
    assert not [run for run in runs if run.info.name == "square"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_traced_calls_of_a_worker_without_a_run_around_it_are_runs(
    run_program: RunProgram, read_runs: ReadRuns, method: str
) -> None:
    done = run_program(PROGRAM, method, "no run")

    assert done.returncode == 0, done.stderr
    assert sum(run.info.name == "square" for run in read_runs()) == 6


POOL = """
import multiprocessing as mp, sys, vestige

@vestige.tool
def square(number):
    return number * number

if __name__ == "__main__":
    with mp.get_context(sys.argv[1]).Pool(3) as pool:
        pool.map(square, range(6))
"""


@pytest.mark.parametrize(
    ("method", "supervised"),
    [("fork", False), ("forkserver", False), ("fork", True), ("spawn", True), ("forkserver", True)],
)
def test_workers_that_a_pool_stops_are_no_errors(
    run_program: RunProgram, read_runs: ReadRuns, method: str, supervised: bool
) -> None:
    """The pool ends them with SIGTERM: idle, at their end, or between two records of it."""
    for _ in range(3):
        done = run_program(POOL, method, command=VESTIGE_RUN if supervised else PLAIN)
        assert done.returncode == 0, done.stderr

    runs = read_runs()
    assert sum(span.name == "square" for run in runs for span in run.spans) == 18
    assert {run.info.outcome for run in runs} == {"ok"}
    assert sum(run.info.error_count for run in runs) == 0
