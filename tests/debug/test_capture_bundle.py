"""The builder: snapshots at the right moments, files as they are, and how it ended."""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import re
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

import vestige
from support import commands
from support.programs import RunProgram
from vestige.debug import (
    AgentInfo,
    DebugBundle,
    DebugBundleBuilder,
    DirectoryFilesystem,
    Dispatcher,
    MemoryFilesystem,
    PromptExecuted,
    Session,
    ToolInvoked,
)
from vestige.debug.spool import Spool
from vestige.errors import DebugBundleError, UsageError
from vestige.home import Home
from vestige.record.redaction.masking import mask
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import export_run, import_path, open_path

AGENT = AgentInfo("reviewer", "openai", "gpt-4o")
SECRET = "sk-ant-REDACTED"


@pytest.fixture(autouse=True)
def _place(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of their own for the spools, and a folder for what they export."""
    monkeypatch.chdir(tmp_path)


def builder(session: Any = None, **more: Any) -> DebugBundleBuilder:
    return DebugBundleBuilder(session=session or Session(), agent=AGENT, **more)


@dataclass(frozen=True)
class Note:
    text: str
    value: float = 0.0


def states(bundle: DebugBundle) -> list[list[Any]]:
    return [
        [item["text"] for one in snapshot.slices for item in one.items]
        for snapshot in bundle.snapshots
    ]


def test_snapshots_are_written_out_in_full_though_kept_as_differences() -> None:
    """Appended, changed in the middle, cleared, grown again: each comes back as it was."""
    session = Session()
    made = builder(session)
    expected: list[list[str]] = [[]]
    with made.capture():
        for texts in (["a"], ["a", "b"], ["x", "b"], ["x", "c", "b"], [], ["b", "b"], ["a", "b"]):
            session[Note].seed(*(Note(text) for text in texts))
            made.add_snapshot()
            expected.append(texts)
    bundle = made.finalize()

    assert states(bundle) == [*expected, expected[-1]]
    assert all(snapshot.valid for snapshot in bundle.snapshots)


def test_the_growing_bundle_can_be_looked_at() -> None:
    """`capture()` gives the bundle in progress."""
    made = builder()
    with made.capture() as bundle:
        made.add_snapshot()
        found = len(list(bundle.snapshots))

    assert found == 2
    assert bundle.execution.outcome == "in_progress"


def test_only_events_of_the_session_are_snapshot_points() -> None:
    """A dispatcher is shared; children count as the session, an event without an id too."""
    dispatcher = Dispatcher()
    session = Session(dispatcher=dispatcher)
    child = Session(parent=session, dispatcher=dispatcher)
    made = builder(session)
    with made.capture():
        for whose in (session.session_id, uuid4(), child.session_id, None):
            dispatcher.dispatch(ToolInvoked(name="t", session_id=whose))
    dispatcher.dispatch(PromptExecuted(session_id=session.session_id))
    bundle = made.finalize()
    order = [(snapshot.tags["tag"], snapshot.session_id) for snapshot in bundle.snapshots]

    assert [reason for reason, _ in order].count("ToolInvoked") == 3 * 2
    assert [whose for _, whose in order] == [str(session.session_id), str(child.session_id)] * 5


class Sized:
    """A session of another library, as small as the shape allows."""

    def __init__(self, json_text: str | Exception) -> None:
        self.session_id = uuid4()
        self._text = json_text

    def snapshot(self) -> Any:
        def to_json() -> str:
            if isinstance(self._text, Exception):
                raise self._text
            return self._text

        return SimpleNamespace(to_json=to_json, slices={Note: (Note("kept"),)})


def test_a_snapshot_that_cannot_write_itself_is_marked_and_the_rest_is_kept() -> None:
    """`to_json` raised after `snapshot` succeeded: what its slices held is shown all the same."""
    session = Sized(ValueError("cannot serialize"))
    made = builder(session)
    with made.capture():
        session._text = '{"version":"1","created_at":"2026-01-01T00:00:00+00:00","slices":[]}'
        made.add_snapshot()
        session._text = "not json"
    valid, invalid, broken = made.finalize().snapshots  # by their times

    assert invalid.errors == ("ValueError: cannot serialize",)
    assert invalid.slices[0].items[0]["text"] == "kept"
    assert valid.valid
    assert not broken.valid
    assert broken.slices[0].items == ("not json",)


def test_nan_and_pretty_printed_json_of_another_library_are_taken() -> None:
    """The standard library writes NaN, and some indent: a line of the bundle is JSON and one
    line.
    """
    session = Sized(
        json.dumps(
            {
                "version": "1",
                "created_at": "2026-01-01T00:00:00+00:00",
                "slices": [
                    {"slice_type": "a:B", "item_type": "a:B", "items": [{"v": float("nan")}]}
                ],
                "unknown": {"kept": True},
            },
            indent=2,
        )
    )
    made = builder(session)
    with made.capture():
        pass
    first, _ = made.finalize().snapshots

    assert first.valid
    assert first.slices[0].items == ({"v": "NaN"},)
    assert json.loads(first.raw)["unknown"] == {"kept": True}


@pytest.mark.slow
def test_files_keep_their_names_and_bytes() -> None:
    """`.env` stays `.env`; binary, empty and large files come back byte for byte."""
    files = {
        ".env": b"A=1\n",
        "deep/er/.gitignore": b"*\n",
        "empty": b"",
        "pic.png": bytes(range(256)),
        "large": random.Random(7).randbytes(1 << 20) * 3,
        "naïve ☃.txt": "ü".encode(),
    }
    made = builder()
    made.add_filesystem(MemoryFilesystem(files))
    made.add_artifact("report.md", b"# done")
    bundle = made.finalize()
    loaded = DebugBundle.load(bundle.export("out/"))

    assert {path: loaded.read_file(f"workspace/{path}") for path in files} == files
    assert loaded.read_file("artifacts/report.md") == b"# done"


def test_a_file_captured_again_is_as_it_was_last() -> None:
    """The later capture of a path takes the place of the earlier one."""
    made = builder()
    fs = MemoryFilesystem({"a": b"1"})
    made.add_filesystem(fs)
    fs.write_bytes("a", b"2")
    made.add_filesystem(fs)
    made.add_filesystem(fs, prefix="inputs")
    bundle = made.finalize()

    assert bundle.list_files() == ["inputs/a", "workspace/a"]
    assert bundle.read_file("workspace/a") == b"2"


def test_secrets_in_files_and_state_are_masked_and_the_manifest_says_where(home: Home) -> None:
    """Nothing in clear reaches the spool or the bundle, also registered values."""
    session = Session(tags={"token": SECRET})
    session[Note].seed(Note(SECRET), Note("registered: zebra-zebra-42"))
    made = builder(session, tags={"password": "correct-horse-battery"})
    recorder = vestige.Recorder()
    with made.capture():
        recorder.secret("zebra-zebra-42")
        made.add_snapshot()
        made.add_filesystem(MemoryFilesystem({".env": f"KEY={SECRET}\n", "ok.txt": "fine"}))
    recorder.close()
    spool = b"".join(path.read_bytes() for path in home.spool.rglob("*") if path.is_file())
    bundle = DebugBundle.load(made.finalize().export("out/"))
    component = bundle.manifest.component("files")
    shown = (
        bundle.read_file("workspace/.env") + "".join(one.raw for one in bundle.snapshots).encode()
    )

    assert component is not None
    assert component.redacted == ["workspace/.env"]
    for secret in (SECRET, "correct-horse-battery"):
        assert secret.encode() not in spool + shown
    assert shown.count(b"zebra-zebra-42") == 1  # before anybody said that it is one
    assert bundle.read_file("workspace/ok.txt") == b"fine"


def test_unreadable_files_are_named_and_the_others_kept(tmp_path: Path) -> None:
    """A link out of the root, a file that cannot be opened: a line in the manifest each."""
    root = tmp_path / "work"
    root.mkdir()
    (root / "ok").write_text("1")
    os.symlink("/etc/passwd", root / "link")

    class Failing(DirectoryFilesystem):
        def open_read(self, path: str) -> Any:
            if path == "bad":
                raise OSError("disk says no")
            return super().open_read(path)

    (root / "bad").write_text("2")
    made = builder()
    made.add_filesystem(Failing(root))
    bundle = made.finalize()
    component = bundle.manifest.component("files")

    assert bundle.list_files() == ["workspace/ok"]
    assert component is not None
    assert {one.path: one.reason for one in component.skipped or ()} == {
        "workspace/bad": "unreadable: disk says no",
        "workspace/link": "unreadable: neither a file nor a directory",
    }


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError("x"), "failure"),
        (TimeoutError("x"), "timeout"),
        (KeyboardInterrupt(), "cancelled"),
    ],
)
def test_an_exception_decides_the_outcome_unless_told(error: BaseException, outcome: str) -> None:
    """A failed run has its final snapshot, its files and logs, and the error with its traceback."""
    made = builder()
    with pytest.raises(type(error)), made.capture():
        made.add_artifact("partial.txt", b"some")
        raise error
    bundle = made.finalize()

    assert bundle.execution.outcome == outcome
    assert bundle.execution.error is not None
    assert bundle.execution.error["type"] == type(error).__name__
    assert "test_capture_bundle.py" in str(bundle.execution.error["traceback"])
    assert [snapshot.tags["tag"] for snapshot in bundle.snapshots][-1] == "capture exit"
    assert bundle.list_files() == ["artifacts/partial.txt"]


def test_a_told_outcome_wins_and_a_wrong_one_is_refused() -> None:
    """`success` said aloud is success; `interrupted` is a failure of that type on disk."""
    made = builder()
    with pytest.raises(ValueError), made.capture():
        raise ValueError("handled elsewhere")
    with pytest.raises(UsageError, match="expected success, failure, timeout, cancelled"):
        made.finalize(outcome="great")
    bundle = made.finalize(outcome="".join(["suc", "cess"]))
    other = builder().finalize(outcome="interrupted", error={"why": object})

    assert (bundle.execution.outcome, bundle.execution.error) == ("success", None)
    assert bundle is made.finalize(outcome="failure")
    assert other.execution.outcome == "interrupted"
    assert other.manifest.execution.outcome == "failure"
    with pytest.raises(DebugBundleError, match="finalized"):
        made.add_snapshot()


@pytest.mark.slow
def test_the_same_bundle_exports_to_the_same_bytes_and_the_spool_goes_afterwards(
    home: Home,
) -> None:
    """Readable and exportable while it is referenced; then nothing is left behind."""
    session = Session()
    made = builder(session)
    with made.capture():
        session[Note].append(Note("a"))
        made.add_artifact("x", b"1")
    bundle = made.finalize()
    first, second = bundle.export("one/"), bundle.export("two.wink")

    assert first.read_bytes() == second.read_bytes()
    assert [path.name for path in home.spool.iterdir()] == [str(bundle.bundle_id)]
    assert states(bundle)[-1] == ["a"]
    del made, bundle
    gc.collect()
    assert list(home.spool.iterdir()) == []


def test_a_session_that_misbehaves_does_not_break_the_program() -> None:
    """Whatever its code raises, the block runs and the bundle is made."""

    class Odd:
        session_id = "not a uuid"
        children = property(lambda self: 1 / 0)
        dispatcher = SimpleNamespace(subscribe=None)

        def snapshot(self, **_: Any) -> Any:
            raise RuntimeError("no")

    made = builder(Odd())
    ran = False
    with made.capture():
        ran = True
    bundle = made.finalize()

    assert ran
    assert bundle.execution.outcome == "success"
    assert bundle.manifest.session_id == "not a uuid"


def test_a_capture_does_not_show_in_the_programs_environment(home: Home) -> None:
    """A child process finds its parent in the program's own recorder, not in the spool."""
    recorder = vestige.Recorder()
    with recorder.run("own"):
        parent = os.environ["VESTIGE_PARENT"]
        with builder().capture():
            inside = os.environ["VESTIGE_PARENT"]

    assert inside == parent
    recorder.close()


def test_disabled_recording_does_not_disable_what_code_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """VESTIGE_DISABLED turns off what runs by itself; a builder was called."""
    monkeypatch.setenv("VESTIGE_DISABLED", "1")
    monkeypatch.setenv("VESTIGE_LEVEL", "error")
    made = builder()
    with made.capture():
        pass

    assert len(list(made.finalize().snapshots)) == 2


def test_a_forked_child_leaves_the_capture_alone() -> None:
    """The parent's spool, snapshots and outcome stay the parent's."""
    session = Session()
    made = builder(session)
    with made.capture():
        child = os.fork()
        if child == 0:
            logging.getLogger("app").info("from the child")
            session[Note].append(Note("child"))
            made.add_snapshot()
            made._begun().spool.close()
            os._exit(0)
        os.waitpid(child, 0)
    bundle = made.finalize()

    assert states(bundle) == [[], []]
    assert [entry.message for entry in bundle.logs] == ["from the child"]


def test_a_run_of_a_recorder_travels_in_the_bundle(home: Home, tmp_path: Path) -> None:
    """Given a recorder, a run is opened for the capture; its spans and bodies come back by
    import.
    """
    recorder = vestige.Recorder()
    made = builder(recorder=recorder)
    with made.capture():
        span = recorder.logger("agent").span("search", type="tool", body="the question")
        span.end(body="the answer " * 500)
    path = made.finalize().export(tmp_path / "out.wink")
    recorder.close()
    with open_path(path) as debugger:
        runs = [debugger.store.load_run(run.id) for run in debugger.store.list_runs(RunFilter())]
        (found,) = [span for run in runs for span in run.spans if span.name == "search"]
        assert found.output is not None
        assert found.output.id is not None
        answer = debugger.store.read_body(found.output.id)

    assert DebugBundle.load(path).manifest.component("records") is not None
    assert answer == b"the answer " * 500


@pytest.mark.slow
def test_a_secret_that_the_run_beside_a_capture_holds_in_clear_is_not_in_the_bundle(
    home: Home, tmp_path: Path
) -> None:
    """The run was recorded before a rule for it existed, or before the value was registered."""
    shaped = "gh" + "p_" + "Zk3Jq8Lm2Np5Rt7Vx9Bc1Df4Gh6Jk8Lm0Qw1"
    registered = "plum-orchard-at-dawn"
    recorder = vestige.Recorder(redact=False)
    made = builder(recorder=recorder)
    with made.capture():
        span = recorder.logger("agent").span(f"use {shaped}", type="tool", body=f"{registered}!")
        span.end(body=f"the answer {shaped} " * 500)
    vestige.Recorder(tmp_path / "other").secret(registered)
    path = made.finalize().export(tmp_path / "out.wink")
    recorder.close()
    with zipfile.ZipFile(path) as bundle:
        content = b"".join(bundle.read(name) for name in bundle.namelist())
    with open_path(path) as debugger:
        runs = [debugger.store.load_run(run.id) for run in debugger.store.list_runs(RunFilter())]
        (found,) = [span for run in runs for span in run.spans if span.type == "tool"]
        assert found.input is not None
        assert found.input.id is not None
        question = debugger.store.read_body(found.input.id)

    assert shaped[6:-6].encode() not in content
    assert registered.encode() not in content
    assert question == f"{mask(registered)}!".encode()


def test_a_bundle_comes_back_where_its_run_was_recorded(home: Home, tmp_path: Path) -> None:
    """That run stays as it is; the state, the log and the files are a run beside it, and once."""
    session = Session()
    recorder = vestige.Recorder()
    made = builder(session, recorder=recorder)
    with made.capture():
        logging.getLogger("app").debug("working")
        made.add_artifact("a.txt", b"text")
    path = made.finalize().export(tmp_path / "x.wink")
    recorder.close()
    with open_path(home) as debugger:
        before = {run.id for run in debugger.store.list_runs(RunFilter())}
    with SqliteStore.open(home.store) as store:
        first, again = [*import_path(store, path), *import_path(store, path)]
        back = export_run(store, str(first.run_id), "wink", tmp_path / "y.wink")
    one, two = DebugBundle.load(path), DebugBundle.load(back)

    assert first.run_id not in before
    assert (first.known, again.known, again.records) == (False, True, 0)
    assert (two.bundle_id, two.session_id) == (one.bundle_id, one.session_id)
    assert [each.raw for each in two.snapshots] == [each.raw for each in one.snapshots]
    assert list(two.logs) == list(one.logs)
    assert two.read_file("artifacts/a.txt") == b"text"


@pytest.mark.slow
def test_a_spool_folder_of_ones_own(tmp_path: Path) -> None:
    """`spool=` says where; without any place that can be written, the temporary folder."""
    made = builder(spool=tmp_path / "mine")
    with made.capture():
        pass
    assert len(list((tmp_path / "mine").iterdir())) == 1

    (tmp_path / "file").write_text("")
    other = builder(spool=tmp_path / "file" / "in the way")
    with other.capture():
        pass
    bundle = other.finalize()

    assert bundle.execution.outcome == "success"
    bundle.export(tmp_path / "x.wink")
    spool: Spool = bundle.content.spool  # type: ignore[attr-defined]
    spool.close()
    assert not spool.home.root.exists()


FULL_DISK = """
import resource
from dataclasses import dataclass
from vestige.debug import *

@dataclass(frozen=True)
class Note:
    text: str

session = Session()
builder = DebugBundleBuilder(session=session, agent=AgentInfo("a", "b", "c"))
with builder.capture():
    session[Note].append(Note("before"))
    builder.add_snapshot()
    size = builder._begun().spool.home.journal_files()[0][2].stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
    session[Note].append(Note("while the disk is full"))
    builder.add_snapshot()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    session[Note].append(Note("after"))
bundle = builder.finalize()
for snapshot in bundle.snapshots:
    print(snapshot.valid, [item["text"] for one in snapshot.slices for item in one.items])
bundle.export("full.wink")
"""


def test_what_a_full_disk_swallowed_is_not_referred_to_but_told(run_program: RunProgram) -> None:
    """The snapshot of that moment is lost; the next one is whole again. The manifest counts it."""
    done = run_program(FULL_DISK)

    assert done.stdout.splitlines() == [
        "True []",
        "True ['before']",
        "True ['before', 'while the disk is full', 'after']",
    ], done.stderr
    output = commands.vestige("debug", "full.wink").output
    assert re.search(r"! \d+ state or file records? could not be written", output), output


def test_times_are_those_of_the_execution() -> None:
    """From the first to the last moment of `capture`, not of `finalize`."""
    made = builder()
    with made.capture():
        time.sleep(0.02)  # a duration to be measured
    time.sleep(0.02)
    execution = made.finalize().execution

    assert execution.duration_seconds is not None
    assert execution.duration_seconds >= 0.02
    assert execution.ended_at is not None
