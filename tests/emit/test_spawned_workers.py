"""Work of multiprocessing workers belongs to the run in which they were started."""

from __future__ import annotations

import pytest

from support.programs import ReadRuns, RunProgram

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
