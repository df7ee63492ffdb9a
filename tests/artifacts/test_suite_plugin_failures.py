"""The pytest plugin at bad moments: results are reported, and pytest goes on as without it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support.pytest_suites import (
    assert_valid,
    files_of,
    make_project,
    only_bundle,
    run_pytest,
    statuses,
)
from vestige._runtime.file_locks import is_held
from vestige.artifacts import SuiteRecorder, SuiteWriter, recover
from vestige.errors import UsageError


def test_a_forked_child_does_not_finish_the_suite_of_its_parent(tmp_path: Path) -> None:
    """A child that leaves a test with `sys.exit` goes through the end of the session, as pytest has
    it.
    """
    source = """
        import os, sys

        def test_forks():
            child = os.fork()
            if child == 0:
                sys.exit(0)
            os.waitpid(child, 0)

        def test_after(): assert 0, "reported"
    """
    folder = make_project(tmp_path / "p", source)

    done = run_pytest(folder, "--vestige-bundle", "out")

    assert done.returncode == 1
    bundle = only_bundle(folder / "out")
    assert_valid(bundle)
    assert statuses(bundle) == {"test_forks": "pass", "test_after": "fail"}
    assert "killed" not in (bundle / "trace/events.jsonl").read_text()


def test_a_forked_child_that_leaves_the_block_of_a_suite_ends_nothing(tmp_path: Path) -> None:
    with SuiteRecorder(tmp_path, "shop") as suite:
        case = suite.case("forks")
        child = os.fork()
        if child == 0:
            try:
                suite.__exit__(SystemExit, SystemExit(0), None)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        case.end()

        assert not (suite.path / "bundle.json").exists()

    assert_valid(suite.path)
    assert statuses(suite.path) == {"forks": "pass"}


def test_a_test_that_fails_after_its_subtests_tells_both(tmp_path: Path) -> None:
    """Its own exception and what it printed are kept; that subtests failed is not said once
    more.
    """
    source = """
        import unittest

        def test_both(subtests):
            with subtests.test("part"): assert 1 == 2
            print("printed after")
            raise RuntimeError("its own")

        def test_parts_only(subtests):
            with subtests.test("part"): assert 1 == 2
            print("printed after")

        class TestOld(unittest.TestCase):
            def test_old(self):
                with self.subTest(part=1): self.fail("part")
                raise RuntimeError("its own")
    """
    folder = make_project(tmp_path / "p", source)

    run_pytest(folder, "--vestige-bundle", "out")

    bundle = only_bundle(folder / "out")
    assert_valid(bundle)
    failures = {
        case["case"].rpartition("::")[2]: [failure["message"] for failure in case["failures"]]
        for case in map(json.loads, (bundle / "scenarios/scenarios.jsonl").read_text().splitlines())
    }
    assert failures == {
        "test_both": ["[part]: assert 1 == 2", "RuntimeError: its own"],
        "test_parts_only": ["[part]: assert 1 == 2"],
        "test_old": ["(part=1): AssertionError: part", "RuntimeError: its own"],
    }
    for case in ("test_both", "test_parts_only"):
        assert files_of(bundle, case)["stdout.txt"] == "printed after\n"


def test_a_broken_file_whose_failure_cannot_be_kept_ends_the_session_as_ever(
    tmp_path: Path,
) -> None:
    """A disk that takes no more must not become an INTERNALERROR of pytest."""
    folder = make_project(tmp_path / "p", "import nowhere_to_be_found")
    in_the_way = """
        import pathlib

        def pytest_collection():
            next(pathlib.Path("out").glob("*/*")).joinpath("cases").write_text("in the way")
    """
    (folder / "conftest.py").write_text(textwrap.dedent(in_the_way))

    done = run_pytest(folder, "--vestige-bundle", "out")

    assert done.returncode == 2
    assert "INTERNALERROR" not in done.stdout + done.stderr
    assert statuses(only_bundle(folder / "out")) == {"test_it.py": "fail"}


def test_a_look_at_the_cache_is_no_session(tmp_path: Path) -> None:
    folder = make_project(tmp_path / "p", "def test_ok(): pass", "vestige_bundle = out")

    done = run_pytest(folder, "-p", "cacheprovider", "--cache-show")

    assert done.returncode == 0
    assert not (folder / "out").exists()


def test_a_user_whose_name_is_no_utf8_can_run_a_suite(tmp_path: Path) -> None:
    folder = make_project(tmp_path / "p", "def test_ok(): pass")

    done = run_pytest(folder, "--vestige-bundle", "out", env={"USER": "a\udcff"})

    assert done.returncode == 0
    assert_valid(only_bundle(folder / "out"))


@pytest.mark.slow
def test_what_a_worker_could_not_write_fails_the_session(tmp_path: Path) -> None:
    """A failed test may be among it: the bundle is not reported as complete."""
    source = """
        import resource, signal

        NONE = resource.RLIM_INFINITY

        def test_fills():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, NONE))

        def test_lost(): pass

        def test_room(): resource.setrlimit(resource.RLIMIT_FSIZE, (NONE, NONE))
    """
    folder = make_project(tmp_path / "p", source, "vestige_record = false\n")

    done = run_pytest(folder, "--vestige-bundle", "out", "-n1")

    assert "3 passed" in done.stdout
    assert done.returncode == 1
    assert "events could not be written" in done.stdout


def test_a_suite_of_several_processes_is_locked_until_it_is_finished(tmp_path: Path) -> None:
    """Its trace is assembled again: a recovery at that time must not take it for dead."""
    locked = []

    class Watched(SuiteRecorder):
        def _known(self) -> dict[str, tuple[int, str]]:
            locked.append(is_held(self.path / "trace/events.jsonl"))
            with pytest.raises(UsageError, match="still running"):
                recover(tmp_path)
            return super()._known()

    suite = Watched(tmp_path, "shop")
    worker = SuiteWriter.worker(suite.path, suite.suite, suite.timestamp, "gw0")
    worker.case("pays").end()
    worker.close()

    suite.finish()

    assert locked == [True]
    assert not is_held(suite.path / "trace/events.jsonl")
    assert "killed" not in (suite.path / "transcript/summary.txt").read_text()


@pytest.mark.slow
def test_a_test_that_runs_in_every_worker_is_a_case_in_each(tmp_path: Path) -> None:
    """With `--dist each` they run side by side; one that fails is not hidden by one that passes."""
    source = """
        import os

        WORKER = os.environ.get("PYTEST_XDIST_WORKER")

        def test_here(): assert WORKER != "gw1"

        def test_dies():
            if WORKER == "gw0": os._exit(3)
    """
    folder = make_project(tmp_path / "p", source, "vestige_record = false\n")

    run_pytest(folder, "--vestige-bundle", "out", "--dist", "each", "--tx", "2*popen")

    bundle = only_bundle(folder / "out")
    assert_valid(bundle)
    assert statuses(bundle) == {
        "test_here @gw0": "pass",
        "test_here @gw1": "fail",
        "test_dies @gw0": "fail",
        "test_dies @gw1": "pass",
    }
    command = shlex.split((bundle / "repro.txt").read_text())
    assert {"test_it.py::test_here", "test_it.py::test_dies"} <= set(command)


@pytest.mark.slow
def test_many_files_of_one_name_cost_as_much_as_any_others(tmp_path: Path) -> None:
    """A test with thousands of failing subtests has as many `failure.txt`: it must not take minutes
    for it.
    """
    program = """
        import sys
        from vestige.artifacts import SuiteRecorder

        suite = SuiteRecorder(sys.argv[1], "shop")
        case = suite.case("pays")
        for _ in range(6_000):
            last = case.write("failure.txt", "x")
        print(last.rpartition("/")[2])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.stdout == "failure-6000.txt\n"
