"""Programs whose threads are greenlets (gevent), whenever that became so."""

from __future__ import annotations

import sys

import pytest

from support.programs import ReadRuns, RunProgram

PROGRAM = """
    import sys
    if "before" in sys.argv:
        import vestige
    from gevent import monkey; monkey.patch_all()
    import gevent, os, subprocess, threading, time
    import vestige

    def agent(number):
        with vestige.traced_run(f"agent {number}") as run:
            for step in range(3):
                with run.span(f"step {step}", type="tool") as span:
                    time.sleep(0.005)  # here another greenlet goes on
                    span.log.info(f"{number} is at {step}")

    gevent.joinall([gevent.spawn(agent, number) for number in range(20)], raise_error=True)
    threads = [threading.Thread(target=agent, args=(number,)) for number in range(20, 25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    child = os.fork()
    if child == 0:
        agent(25)
        sys.exit(0)
    os.waitpid(child, 0)
    print(threading.active_count())
"""


@pytest.mark.parametrize("how", ["before", "after", "below vestige run"])
def test_each_has_its_own_run_and_nobody_notices(
    run_program: RunProgram, read_runs: ReadRuns, how: str
) -> None:
    own = (sys.executable,)
    below = (sys.executable, "-m", "vestige", "run", "--", sys.executable)
    done = run_program(PROGRAM, how, command=below if how == "below vestige run" else own)

    assert done.stdout == "1\n", done.stderr  # it finds no thread that it did not start
    assert [line for line in done.stderr.splitlines() if not line.startswith("vestige:")] == []
    runs = {run.info.name: run for run in read_runs() if run.info.name.startswith("agent ")}
    assert len(runs) == 26
    for name, run in runs.items():
        assert [span.name for span in run.spans] == [name, "step 0", "step 1", "step 2"]
        number = name.removeprefix("agent ")
        assert [line.message for line in run.logs] == [
            f"{number} is at {step}" for step in range(3)
        ]
