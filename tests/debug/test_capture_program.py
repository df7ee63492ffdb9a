"""What a capture does to the program around it: nothing, whatever the program does."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.programs import RunProgram
from vestige.debug import (
    AgentInfo,
    DebugBundle,
    DebugBundleBuilder,
    MemoryFilesystem,
    Session,
)
from vestige.debug.recover import recover_spools
from vestige.home import Home

BEGIN = """
import logging, os, signal, sys, tempfile, threading
from pathlib import Path
from vestige.debug import *

session = Session()
builder = DebugBundleBuilder(session=session, agent=AgentInfo("a", "b", "c"))
"""

CHILD_FAILS = """
try:
    with builder.capture():
        child = os.fork()
        if child == 0:
            raise ValueError("in the child alone")
        os.waitpid(child, 0)
        logging.getLogger("app").info("the parent goes on")
        os.kill(os.getpid(), signal.SIGKILL)
except ValueError:
    builder.finalize().export("child.wink")
    os._exit(0)
"""


def test_how_a_forked_child_ends_is_not_how_the_capture_ended(
    home: Home, run_program: RunProgram
) -> None:
    """The child's bundle is its own affair: when the parent is killed, its capture is recovered."""
    done = run_program(BEGIN + CHILD_FAILS)
    (made,) = recover_spools(home.spool, home.bundles)

    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (made.outcome, made.problem) == ("interrupted", None)
    assert made.bundle is not None
    bundle = DebugBundle.load(made.bundle)
    assert [entry.message for entry in bundle.logs] == ["the parent goes on"]
    assert (bundle.execution.error or {})["type"] == "Interrupted"


CHILD_LIVES_ON = """
begin, go_on = os.pipe(), os.pipe()
with builder.capture():
    child = os.fork()
    if child == 0:
        log = logging.getLogger("child")
        log.info("in time")
        os.write(begin[1], b"x")
        os.read(go_on[0], 1)
        recorder = builder._begun()._recorder
        for journal in (recorder._lane, recorder._writer.journal):
            journal.check()  # as once a second
        log.info("late")
        os._exit(0)
    os.read(begin[0], 1)
bundle = builder.finalize()
bundle.export("out.wink")
bundle.content.close()
os.write(go_on[1], b"x")
os.waitpid(child, 0)
"""


def test_a_forked_child_that_lives_on_does_not_bring_a_removed_spool_back(
    home: Home, run_program: RunProgram
) -> None:
    """The folder would have no owner: nobody would recover or remove it."""
    done = run_program(BEGIN + CHILD_LIVES_ON)

    assert (done.returncode, done.stderr) == (0, "")
    bundle = DebugBundle.load(home.root.parent / "out.wink")
    assert [entry.message for entry in bundle.logs] == ["in time"]
    assert list(home.spool.iterdir()) == []


CLOSES_ALL = """
with builder.capture():
    os.closerange(3, 64)
    files = [open(f"own-{number}", "w") for number in range(8)]
bundle = builder.finalize()
bundle.export("out.wink")
bundle.content.close()
for file in files:
    file.write("still mine")
    file.close()
"""


def test_a_file_that_got_the_number_of_the_spools_lock_is_not_closed(
    home: Home, run_program: RunProgram
) -> None:
    """A daemon closes all that it sees, and opens files of its own."""
    done = run_program(BEGIN + CLOSES_ALL)

    assert (done.returncode, done.stderr) == (0, "")


NOWHERE = """
tempfile.tempdir = sys.argv[1]
with builder.capture():
    logging.getLogger("app").info("unheard")
bundle = builder.finalize()
print(bundle.execution.outcome, bundle.manifest.components["logs"].lost_records)
"""


def test_where_nothing_can_be_written_the_program_runs_and_the_loss_is_told(
    home: Home, run_program: RunProgram, tmp_path: Path
) -> None:
    """Neither in the home nor in the temporary folder."""
    home.root.parent.mkdir(parents=True, exist_ok=True)
    home.root.write_text("a file where the home should be")
    done = run_program(BEGIN + NOWHERE, str(home.root / "temporary"))

    assert (done.returncode, done.stdout) == (0, "success 1\n"), done.stderr
    assert "cannot write" in done.stderr


INTERRUPTED_SNAPSHOT = """
import faulthandler
faulthandler.dump_traceback_later(20, exit=True)

class KillingSession(Session):
    at = 0

    @property
    def session_id(self):
        # Asked for in the middle of writing, too: there the signal comes.
        KillingSession.at += 1
        if KillingSession.at == int(sys.argv[1]):
            signal.raise_signal(signal.SIGUSR1)
        return self._id

    @session_id.setter
    def session_id(self, value):
        self._id = value

session = KillingSession()
builder = DebugBundleBuilder(session=session, agent=AgentInfo("a", "b", "c"))
signal.signal(signal.SIGUSR1, lambda *_: builder.add_snapshot())
with builder.capture():
    for number in range(6):
        session[str].append(f"item {number}")
        session[int].append(number)
        builder.add_snapshot()
builder.finalize().export("out.wink")
"""


def test_a_signals_handler_may_take_a_snapshot_while_one_is_written(
    home: Home, run_program: RunProgram
) -> None:
    """It waits for nobody, and neither of the two gets into the other's way."""
    for at in (10, 11):
        done = run_program(BEGIN + INTERRUPTED_SNAPSHOT, str(at))
        bundle = DebugBundle.load(home.root.parent / "out.wink")
        states = [[len(one.items) for one in state.slices] for state in bundle.snapshots]

        assert done.returncode == 0, done.stderr
        assert states == sorted(states)
        assert len(states) == 6 + 2 + 1
        assert all(len(set(lengths)) <= 1 for lengths in states), states


class Handlers:
    """A dispatcher of a user."""

    def __init__(self) -> None:
        self.handlers: list[Any] = []

    def subscribe(self, kind: type, handler: Any) -> None:
        self.handlers.append(handler)

    def unsubscribe(self, kind: type, handler: Any) -> None: ...


class Strange:
    """A session and a filesystem of a user, of which nearly everything fails."""

    session_id = "one"
    fails = False

    def __init__(self) -> None:
        self.dispatcher = Handlers()

    @property
    def children(self) -> list[Any]:
        if self.fails:
            raise LookupError("no children today")
        return []

    def snapshot(self) -> Any:
        raise LookupError("no state today")

    def list(self, path: str = ".") -> Sequence[str]:
        return ["names alone"]


class PromptRendered:
    session_id = "one"


def test_a_session_or_filesystem_that_fails_does_not_fail_the_program(home: Home) -> None:
    """Not in a handler of an event, where a dispatcher might hand it on; nor when files are
    added.
    """
    strange = Strange()
    builder = DebugBundleBuilder(session=strange, agent=AgentInfo("a", "b", "c"))
    with builder.capture():
        builder.add_filesystem(strange)
        strange.fails = True
        for handler in strange.dispatcher.handlers:
            handler(PromptRendered())
    bundle = builder.finalize()

    assert strange.dispatcher.handlers
    assert bundle.execution.outcome == "success"
    assert [one.path for one in bundle.manifest.components["files"].skipped or ()] == [
        "workspace/."
    ]


def test_what_is_excluded_is_excluded_whatever_is_in_its_name(home: Home) -> None:
    """Also a line break."""
    builder = DebugBundleBuilder(session=Session(), agent=AgentInfo("a", "b", "c"))
    with builder.capture():
        files = MemoryFilesystem({"private/a\nb": b"1", "private/c": b"2", "d": b"3"})
        builder.add_filesystem(files, exclude_patterns=["private/**"])

    assert builder.finalize().list_files() == ["workspace/d"]
