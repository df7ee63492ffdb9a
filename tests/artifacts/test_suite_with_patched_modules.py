"""Tests put something of their own in the place of files, time and chance, and are recorded all the
same.

What pytest survives, it survives with a bundle too; what is evidence is on the real disk, and
nothing of ours in a test's.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.programs import load
from support.pytest_suites import (
    assert_valid,
    environment_for,
    files_of,
    make_project,
    only_bundle,
    read_events,
    statuses,
)
from vestige.home import Home

TARGETS = (
    "os.write",
    "os.open",
    "os.close",
    "os.fstat",
    "os.mkdir",
    "os.makedirs",
    "os.unlink",
    "os.rename",
    "os.link",
    "os.fsync",
    "os.path.exists",
    "os.path.isfile",
    "os.path.lexists",
    "os.urandom",
    "os.getpid",
    "builtins.open",
    "io.open",
    "pathlib.Path.mkdir",
    "pathlib.Path.write_bytes",
    "pathlib.Path.open",
    "hashlib.sha256",
    "time.time_ns",
    "time.monotonic_ns",
    "threading.Thread.start",
    "fcntl.flock",
    "json.dumps",
)

REPLACED = """
    import pytest, vestige
    from unittest import mock

    def broken(*arguments, **named):
        raise RuntimeError("replaced")

    @pytest.fixture
    def replaced(request):
        target, how = request.param
        with mock.patch(target, **({"side_effect": broken} if how == "raises" else {})):
            yield

    @pytest.mark.parametrize("replaced", %r, indirect=True, ids=str)
    @pytest.mark.parametrize("fails", [False, True])
    def test_it(replaced, fails):
        print("said")
        with vestige.traced_run("agent") as run:
            run.log.info("inside")
        assert not fails, "wrong"

    def test_last(): pass
"""

FAKE = """
    import os, pytest, time, vestige

    def test_before(): pass

    def test_in_it(fs):
        # As many as have the numbers of our own files.
        files = [open(f"/own-{number}", "w") for number in range(40)]
        with vestige.traced_run("agent") as run:
            run.span("search", type="tool").end(body="found " * 100_000)
        time.sleep(1.3)  # the journal is looked at once a second
        for file in files:
            file.close()
        assert {open(f"/own-{number}").read() for number in range(40)} == {""}

    def test_fails_in_it(fs, vestige_attach):
        fs.create_file("/made.txt", contents="only there")
        vestige_attach("/made.txt")
        vestige_attach("said", "note.txt")
        print("printed there")
        assert not os.path.exists("/etc"), "no"
        assert 0, "wrong there"

    def test_after(vestige_attach, tmp_path):
        (tmp_path / "real.txt").write_text("on disk")
        vestige_attach(tmp_path / "real.txt")
"""


def run_with(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-pno:cacheprovider", "-pvestige_pytest", *arguments],
        cwd=project,
        env=environment_for(project),
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("how", ["raises", "mock"])
def test_a_session_goes_on_whatever_its_tests_replace(tmp_path: Path, how: str) -> None:
    project = make_project(tmp_path / "shop", REPLACED % [(target, how) for target in TARGETS])
    bare = run_with(project)
    done = run_with(project, "--vestige-bundle", "art")

    assert "INTERNALERROR" not in bare.stdout + done.stdout, done.stdout
    assert done.returncode == bare.returncode == 1
    assert (
        done.stdout.splitlines()[-1].split(" in ")[0]
        == bare.stdout.splitlines()[-1].split(" in ")[0]
    )
    bundle = only_bundle(project / "art")
    assert_valid(bundle)
    failed = [case for case, status in statuses(bundle).items() if status == "fail"]
    assert len(failed) >= len(TARGETS)
    for case in failed:
        assert "Error" in files_of(bundle, case)["failure.txt"], case


def test_a_fake_file_system_gets_nothing_of_ours_and_takes_nothing(tmp_path: Path) -> None:
    project = make_project(tmp_path / "shop", FAKE)
    done = run_with(project, "-ppyfakefs.pytest_plugin", "--vestige-bundle", "art")

    assert "1 failed, 3 passed" in done.stdout, done.stdout
    assert "cannot write" not in done.stdout + done.stderr
    bundle = only_bundle(project / "art")
    assert_valid(bundle)
    assert [
        event["kind"] for event in read_events(bundle) if event["case"].endswith("test_in_it")
    ] == [
        "case_start",
        "assert_pass",
        "case_end",
    ]
    outcomes = {
        path.name: path.read_text(encoding="utf-8") for path in (bundle / "cases").rglob("*.txt")
    }
    assert outcomes["made.txt"] == "only there"
    assert (outcomes["note.txt"], outcomes["stdout.txt"], outcomes["real.txt"]) == (
        "said",
        "printed there\n",
        "on disk",
    )
    assert "wrong there" in outcomes["failure.txt"]
    runs = {run.info.name: run for run in load(Home(tmp_path / "home"))}
    assert {span.name for span in runs["agent"].spans} >= {"search"}
    assert len([span for span in runs["shop"].spans if span.type == "test" and span.status]) == 4


@pytest.mark.parametrize("options", [(), ("-pxdist", "-n1")])
def test_what_is_recorded_in_another_time_is_of_today(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Else it would be too old to be kept, or the newest run of all for years."""
    project = make_project(
        tmp_path / "shop",
        """
        import datetime, time, pytest, time_machine, vestige

        @pytest.mark.parametrize("when", ["1985-10-26", "2085-10-26"])
        def test_travels(when):
            with time_machine.travel(when, tick=False), vestige.traced_run(when) as run:
                assert str(datetime.date.today()) == when
                run.span("search").end()
    """,
    )
    before_ns = time.time_ns()
    done = run_with(project, "--vestige-bundle", "art", *options)
    after_ns = time.time_ns()

    assert "2 passed" in done.stdout, done.stdout
    runs = [run for run in load(Home(tmp_path / "home")) if not run.info.implicit]
    assert {"1985-10-26", "2085-10-26", "shop"} <= {run.info.name for run in runs}
    for span in (span for run in runs for span in run.spans):
        assert before_ns <= span.started_ns <= after_ns, span
