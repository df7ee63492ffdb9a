"""Tests replace files, time and randomness while they record, without an effect on records."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.programs import ReadRuns, RunProgram, load
from vestige.home import Home

TARGETS = (
    "os.write",
    "os.open",
    "os.close",
    "os.fstat",
    "os.stat",
    "os.mkdir",
    "os.rename",
    "os.replace",
    "os.unlink",
    "os.listdir",
    "os.fsync",
    "os.getpid",
    "os.getppid",
    "os.getcwd",
    "os.urandom",
    "os.putenv",
    "os.path.exists",
    "builtins.open",
    "io.open",
    "pathlib.Path.mkdir",
    "pathlib.Path.open",
    "pathlib.Path.read_text",
    "pathlib.Path.stat",
    "hashlib.sha256",
    "time.time_ns",
    "time.monotonic_ns",
    "threading.Thread.start",
    "fcntl.flock",
    "fcntl.fcntl",
    "json.dumps",
    "signal.signal",
)


@pytest.mark.parametrize("how", ["raises", "mock"])
def test_what_is_recorded_meanwhile_is_there(
    tmp_path: Path, run_program: RunProgram, how: str
) -> None:
    done = run_program(f"""
        import os, pathlib, sys
        from unittest import mock
        import vestige

        def broken(*arguments, **named):
            raise RuntimeError("replaced")

        def use(recorder, name):
            with recorder.run(name) as run:
                run.span("call", type="llm", body="in").end(body="out" * 200_000)
                run.log.info("line")

        old = vestige.Recorder({str(tmp_path / "old")!r})
        use(old, "before")
        for target in {TARGETS!r}:
            with mock.patch(target, **({{"side_effect": broken}} if {how!r} == "raises" else {{}})):
                use(old, target)
                with vestige.Recorder({str(tmp_path)!r} + "/" + target) as new:
                    use(new, target)
        old.close()
        print("done")
    """)

    assert done.stdout == "done\n", done.stderr
    names = [run.info.name for run in load(Home(tmp_path / "old")) if not run.info.implicit]
    assert sorted(names) == sorted(("before", *TARGETS))
    for target in TARGETS:
        runs = [run for run in load(Home(tmp_path / target)) if not run.info.implicit]
        assert [run.info.name for run in runs] == [target]
        (run,) = runs
        assert [span.name for span in run.spans] == [target, "call"]


def test_a_recorder_that_cannot_begin_is_tried_again(
    run_program: RunProgram, read_runs: ReadRuns
) -> None:
    done = run_program("""
        import time
        from unittest import mock
        import vestige

        with mock.patch("os.path.abspath", side_effect=RuntimeError("replaced")):
            for _ in range(3):
                with vestige.traced_run("unseen") as run:
                    run.log.info("line")
        time.sleep(0.2)  # longer than until it is tried again
        with vestige.traced_run("seen"):
            pass
    """)

    assert done.returncode == 0, done.stderr
    assert (
        done.stderr.count(
            "vestige: recording is off, and tried again later (RuntimeError: replaced)."
        )
        == 1
    )
    assert [run.info.name for run in read_runs() if not run.info.implicit] == ["seen"]


def test_ids_are_not_those_that_a_test_wants(tmp_path: Path, run_program: RunProgram) -> None:
    done = run_program(f"""
        from unittest import mock
        import vestige

        home = {str(tmp_path / "own")!r}
        with mock.patch("os.urandom", return_value=b"0" * 16), vestige.Recorder(home) as recorder:
            print(len({{recorder.run("agent").run_id for _ in range(9)}}))
    """)

    assert done.stdout == "9\n", done.stderr
