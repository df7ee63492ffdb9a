"""What dead captures leave, and what `vestige store recover` makes of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support.commands import vestige
from support.programs import RunProgram
from vestige.debug import AgentInfo, DebugBundle, DebugBundleBuilder, Session
from vestige.debug.recover import recover_spool, recover_spools
from vestige.home import Home

PROGRAM = """
import logging, os, signal, sys
from vestige.debug import *

session = Session()
builder = DebugBundleBuilder(session=session, agent=AgentInfo("doomed", "b", "c"), tags={"t": "1"})
how = sys.argv[1]

def die():
    os.kill(os.getpid(), signal.SIGKILL)

with builder.capture():
    logging.getLogger("app").debug("working")
    for number in range(5):
        session.dispatcher.dispatch(ToolInvoked(name=f"t{number}", session_id=session.session_id))
    builder.add_filesystem(MemoryFilesystem({".env": "A=1"}))
    if how == "inside":
        die()
    if how == "half a line":
        path = builder._begun().spool.home.journal_files()[0][2]
        with open(path, "ab") as file:
            file.write(b'{"kind":"log","v":1,"wri')
        die()
    if how == "exit":
        sys.exit(3)
    if how == "forgotten":
        os._exit(0)
bundle = builder.finalize()
if how == "finalized":
    die()
bundle.export("out/")
if how == "exported":
    die()
"""


def recovered(home: Home) -> DebugBundle:
    done = vestige("recover")
    (path,) = home.bundles.iterdir()

    assert done.exit_code == 0, done.output
    assert str(path) in done.output
    assert list(home.spool.iterdir()) == []
    return DebugBundle.load(path)


@pytest.mark.parametrize("how", ["inside", "half a line", "forgotten"])
def test_a_killed_capture_becomes_an_interrupted_bundle_with_all_up_to_the_kill(
    home: Home, run_program: RunProgram, how: str
) -> None:
    """On disk it is a failure with error.type Interrupted; snapshots, logs and files are there."""
    done = run_program(PROGRAM, how)
    bundle = recovered(home)

    assert done.returncode == (0 if how == "forgotten" else -signal.SIGKILL), done.stderr
    assert bundle.execution.outcome == "interrupted"
    assert bundle.manifest.execution.outcome == "failure"
    assert (bundle.manifest.execution.error or {})["type"] == "Interrupted"
    assert (bundle.agent.name, dict(bundle.tags)) == ("doomed", {"t": "1"})
    assert [len(one.slices[0].items) if one.slices else 0 for one in bundle.snapshots] == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]
    assert [entry.message for entry in bundle.logs] == ["working"]
    assert bundle.read_file("workspace/.env") == b"A=1"


def test_a_bundle_that_was_finalized_but_not_exported_is_what_it_would_have_been(
    home: Home, run_program: RunProgram
) -> None:
    """Its outcome was known."""
    run_program(PROGRAM, "finalized")

    assert recovered(home).execution.outcome == "success"


def test_doctor_tells_of_a_dead_capture_and_how_to_recover_it(
    home: Home, run_program: RunProgram
) -> None:
    """Nobody need know of spools to learn that there is a bundle to be had; once made, it is
    quiet.
    """
    run_program("import vestige; vestige.Recorder().run('r').end()")
    run_program(PROGRAM, "inside")
    run_program(PROGRAM, "exported")
    with DebugBundleBuilder(session=Session(), agent=AgentInfo("a", "b", "c")).capture():
        report = vestige("doctor")
    vestige("recover")
    after = vestige("doctor")

    assert report.exit_code == 1
    assert "never exported: 1 (make them: vestige store recover)" in report.output
    assert "never exported" not in after.output


def test_a_home_elsewhere_with_nothing_but_a_capture_is_recovered_by_its_path(
    home: Home, run_program: RunProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No recorder wrote there yet, so there is no journal; it is a home all the same."""
    run_program(PROGRAM, "inside")
    monkeypatch.setenv("VESTIGE_HOME", str(tmp_path / "another"))
    done = vestige("recover", str(home.root), "-o", str(tmp_path / "made"))

    assert done.exit_code == 0, done.output
    assert len(list((tmp_path / "made").iterdir())) == 1


def test_an_exported_bundle_is_not_made_twice(home: Home, run_program: RunProgram) -> None:
    """Killed after the export: the spool goes, and there is one bundle."""
    run_program(PROGRAM, "exported")
    vestige("recover")

    assert list(home.spool.iterdir()) == []
    assert not home.bundles.exists()
    assert len(list((home.root.parent / "out").iterdir())) == 1


def test_a_normal_end_leaves_nothing(home: Home, run_program: RunProgram) -> None:
    """The spool is removed when the process exits."""
    done = run_program(PROGRAM, "not at all")

    assert done.returncode == 0, done.stderr
    assert list(home.spool.iterdir()) == []


def test_an_exit_inside_the_capture_is_told_by_its_error(
    home: Home, run_program: RunProgram
) -> None:
    """It was left by an exception, and never finalized: the error is known, the snapshot is
    there.
    """
    run_program(PROGRAM, "exit")
    bundle = recovered(home)

    assert bundle.execution.outcome == "failure"
    assert (bundle.execution.error or {})["type"] == "SystemExit"
    assert [one.tags["tag"] for one in bundle.snapshots][-1] == "capture exit"


def test_a_living_capture_is_left_alone(home: Home) -> None:
    """By the lock: nobody recovers what is still being captured."""
    builder = DebugBundleBuilder(session=Session(), agent=AgentInfo("a", "b", "c"))
    with builder.capture():
        (spool,) = home.spool.iterdir()

        assert list(recover_spools(home.spool, home.bundles)) == []
        assert recover_spool(spool, home.bundles) is None
        assert "its process is still running" in vestige("recover", str(spool)).output
    assert len(list(builder.finalize().snapshots)) == 2


def test_one_capture_can_be_named_and_its_bundle_put_anywhere(
    home: Home, run_program: RunProgram, tmp_path: Path
) -> None:
    """`vestige store recover SPOOL -o DIR`."""
    run_program(PROGRAM, "inside")
    (spool,) = home.spool.iterdir()
    done = vestige("recover", str(spool), "-o", str(tmp_path / "there"))

    assert done.exit_code == 0
    assert [path.suffix for path in (tmp_path / "there").iterdir()] == [".wink"]


def test_other_commands_do_not_take_a_capture_in(home: Home, run_program: RunProgram) -> None:
    """Its journal is the capture: `vestige list --home SPOOL` says what to do instead."""
    run_program(PROGRAM, "inside")
    (spool,) = home.spool.iterdir()
    done = vestige("list", "--home", str(spool))

    assert done.exit_code == 3
    assert "vestige store recover" in done.output
    assert recovered(home).execution.outcome == "interrupted"


def test_a_bundle_that_was_made_is_told_of_though_its_spool_cannot_be_marked(
    home: Home, run_program: RunProgram
) -> None:
    """As on a disk that the bundle filled: the others are recovered all the same."""
    run_program(PROGRAM, "inside")
    (first,) = home.spool.iterdir()
    (first / ".exported").mkdir()  # in the way of what says where the bundle is
    run_program(PROGRAM, "inside")
    done = vestige("recover")

    assert done.exit_code == 0, done.output
    assert len(list(home.bundles.iterdir())) == 2


def change_journal(spool: Path, before: bytes, after: bytes) -> None:
    (path,) = (path for path in (spool / "journal").iterdir() if not path.name.startswith("logs-"))
    text = path.read_bytes()
    assert before in text
    path.write_bytes(text.replace(before, after))


def test_a_spool_that_somebody_changed_takes_no_file_from_elsewhere(
    home: Home, run_program: RunProgram, tmp_path: Path
) -> None:
    """`vestige store recover DIR` gets a folder, which may be from anywhere."""
    run_program(PROGRAM, "inside")
    (spool,) = home.spool.iterdir()
    private = tmp_path / "private"
    private.write_text("A=1")
    (body,) = (path for path in (spool / "bodies").iterdir() if len(path.name) == 64)
    change_journal(spool, body.name.encode(), str(private).encode())
    bundle = recovered(home)

    assert bundle.list_files() == []
    assert len(list(bundle.snapshots)) == 6


def test_a_spool_that_somebody_changed_makes_no_bundle_elsewhere(
    home: Home, run_program: RunProgram
) -> None:
    """Its id is a name in the folder for bundles, or none."""
    run_program(PROGRAM, "inside")
    (spool,) = home.spool.iterdir()
    change_journal(spool, spool.name.encode(), b"../../elsewhere")
    done = vestige("recover")

    assert done.exit_code != 0
    assert "../../elsewhere" in done.output
    assert not list(home.root.parent.rglob("*.wink"))
    assert list(home.spool.iterdir()) == [spool]


def test_an_empty_spool_is_cleared_away(home: Home) -> None:
    """Killed before its first line: there is nothing to make a bundle of."""
    (home.spool / "x" / "journal").mkdir(parents=True)
    (home.spool / "x" / "capture").touch()
    (home.spool / ".y").mkdir()
    os.utime(home.spool / ".y", (0, 0))
    done = vestige("recover")

    assert done.exit_code == 0
    assert list(home.spool.iterdir()) == []
    assert not home.bundles.exists()
