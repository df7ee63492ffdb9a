"""kill -9 of pytest, at any point: the bundle recovers to valid, and names what was running."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support.pytest_suites import (
    assert_valid,
    environment_for,
    make_project,
    only_bundle,
    pytest_command,
    run_pytest,
    statuses,
    vestige,
)
from vestige.artifacts import SuiteRecorder, recover
from vestige.errors import UsageError

# Each test reports its start and its end to a witness, in one write.
WITNESSED = """
    import os, time, pytest
    FD = os.open(os.environ["WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @pytest.mark.parametrize("number", range(60))
    def test_number(number, request, vestige_attach):
        os.write(FD, f"begin {request.node.nodeid}\\n".encode())
        if number % 3 == 0:
            vestige_attach('{"number": 1}', "state.json")
        time.sleep(0.02)  # long enough that a kill may fall into a test
        assert number % 5
        os.write(FD, f"end {request.node.nodeid}\\n".encode())
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize(
    "round_", [0, 1, *(pytest.param(n, marks=pytest.mark.full) for n in range(2, 30))]
)
def test_a_killed_session_recovers_and_names_what_was_running(
    tmp_path: Path, workers: str, round_: int
) -> None:
    """The whole group is killed after some number of lines, and some moment more."""
    chance = random.Random(f"{workers} {round_}")
    project = make_project(tmp_path / "shop", WITNESSED)
    witness = tmp_path / "witness"
    _kill_after(project, workers, witness, chance.randrange(1, 25), chance.random() * 0.03)
    begun = _open_tests(witness)
    done = vestige(project, "recover", "art")
    bundle = only_bundle(project / "art")
    unknown = {name for name, status in statuses(bundle).items() if status == "unknown"}

    assert done.returncode == 0, done.stderr
    assert_valid(bundle)
    # What began is known to have begun; a killed test may have been about to begin or to end.
    assert begun <= unknown | {
        name for name, status in statuses(bundle).items() if status == "fail"
    }
    assert len(unknown) <= max(1, int(workers))
    transcript = (bundle / "transcript/summary.txt").read_text()
    for name in unknown:
        assert f"the suite was killed while test_it.py::{name} was running" in transcript
        assert name in done.stdout
    assert vestige(project, "recover", "art").stdout == "art: nothing to recover.\n"


def _kill_after(project: Path, workers: str, witness: Path, lines: int, more_s: float) -> None:
    process = subprocess.Popen(
        pytest_command("--vestige-bundle", "art", "-n", workers, "-q"),
        cwd=project,
        env=environment_for(project, {"WITNESS": str(witness)}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        limit = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < limit:
            if witness.exists() and witness.read_bytes().count(b"\n") >= lines:
                break
            time.sleep(0.002)  # looking is the only way: the process must not know
        time.sleep(more_s)  # anywhere between two events
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _open_tests(witness: Path) -> set[str]:
    found: set[str] = set()
    for line in witness.read_text().splitlines():
        what, _, nodeid = line.partition(" ")
        name = nodeid.rpartition("::")[2]
        (found.add if what == "begin" else found.discard)(name)
    return found


@pytest.mark.slow
def test_a_suite_that_still_runs_is_left_alone(tmp_path: Path) -> None:
    """Its writer holds a lock; nothing is finished under its hands."""
    source = """
        import subprocess, sys
        def test_recovers_itself():
            command = [sys.executable, "-m", "vestige", "recover", "art"]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 2
            assert "still running" in done.stderr
    """
    project = make_project(tmp_path / "shop", source)
    done = run_pytest(project, "--vestige-bundle", "art")

    assert done.returncode == 0, done.stdout
    assert_valid(only_bundle(project / "art"))


def test_a_suite_in_this_process_is_left_alone_too(tmp_path: Path) -> None:
    """The lock belongs to the open file, not to the process."""
    suite = SuiteRecorder(tmp_path, "shop")
    with pytest.raises(UsageError, match="still running"):
        recover(suite.path)
    suite.finish()

    assert_valid(suite.path)
