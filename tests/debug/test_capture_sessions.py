"""Session, dispatcher and filesystems: usable without any capture."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from vestige.debug import (
    DirectoryFilesystem,
    Dispatcher,
    MemoryFilesystem,
    PromptRendered,
    Session,
    ToolInvoked,
)
from vestige.errors import UsageError


@dataclass(frozen=True)
class Plan:
    steps: tuple[str, ...] = ()
    seen: datetime | None = None


@dataclass(frozen=True)
class AddStep:
    name: str


def add_step(plans: tuple[Plan, ...], event: AddStep) -> tuple[Plan, ...]:
    return (Plan((*plans[-1].steps, event.name)) if plans else Plan((event.name,)),)


def test_a_snapshot_has_the_shape_that_readers_expect() -> None:
    """Version, times, ids, tags, policies, and slices of items with their types."""
    session = Session(tags={"suite": "nightly"})
    session[Plan].seed(Plan(("search",), datetime(2026, 1, 2, tzinfo=UTC)))
    found = json.loads(session.snapshot(tag="now").to_json())

    assert found["version"] == "1"
    assert found["tags"] == {
        "suite": "nightly",
        "session_id": str(session.session_id),
        "tag": "now",
    }
    assert found["slices"] == [
        {
            "slice_type": f"{__name__}:Plan",
            "item_type": f"{__name__}:Plan",
            "items": [{"steps": ["search"], "seen": "2026-01-02T00:00:00+00:00"}],
        }
    ]
    assert found["policies"][f"{__name__}:Plan"] == "state"
    assert datetime.fromisoformat(found["created_at"]).tzinfo is not None
    assert (found["parent_id"], found["children_ids"]) == (None, [])


def test_reducers_make_the_state_and_a_rollback_keeps_the_log() -> None:
    """State goes back to the snapshot; what happened stays."""
    session = Session()
    session.register(AddStep, Plan, add_step)
    session.dispatch(AddStep("one"))
    before = session.snapshot()
    session.dispatch(AddStep("two"))
    session.dispatch(ToolInvoked(name="search", session_id=session.session_id))

    assert session[Plan].latest() == Plan(("one", "two"))
    session.restore(before)
    assert session[Plan].latest() == Plan(("one",))
    assert [tool.name for tool in session[ToolInvoked]] == ["search"]


def test_log_slices_are_only_in_a_snapshot_of_all() -> None:
    """`include_all` adds what happened to what is."""
    session = Session()
    session.dispatch(ToolInvoked(name="search"))

    assert session.snapshot().slices == {}
    assert list(session.snapshot(include_all=True).slices) == [ToolInvoked]


def test_parents_and_children_know_each_other_and_events_find_their_session() -> None:
    """On a shared dispatcher, an event belongs to the session whose id it carries."""
    parent = Session()
    child = Session(parent=parent, dispatcher=parent.dispatcher)
    parent.dispatcher.dispatch(ToolInvoked(name="a", session_id=child.session_id))
    parent.dispatcher.dispatch(ToolInvoked(name="b", session_id=uuid4()))

    assert parent.children == (child,)
    assert child.snapshot().parent_id == parent.session_id
    assert [tool.name for tool in child[ToolInvoked]] == ["a"]
    assert len(parent[ToolInvoked]) == 0
    assert isinstance(Session().session_id, UUID)


def test_a_failing_handler_breaks_nobody() -> None:
    """Others are called, the dispatcher returns, and the result names the failure."""
    dispatcher = Dispatcher()
    heard: list[str] = []

    def fail(event: ToolInvoked) -> None:
        raise ValueError("no")

    class Special(ToolInvoked):
        pass

    dispatcher.subscribe(ToolInvoked, fail)
    dispatcher.subscribe(ToolInvoked, lambda event: heard.append(event.name))
    result = dispatcher.dispatch(ToolInvoked(name="search"))
    dispatcher.dispatch(Special(name="not by exact class"))

    assert heard == ["search"]
    assert (result.ok, result.handled_count, len(result.errors)) == (False, 2, 1)
    assert dispatcher.unsubscribe(ToolInvoked, fail)
    assert not dispatcher.unsubscribe(ToolInvoked, fail)
    assert dispatcher.dispatch(PromptRendered()).ok


def test_wrong_arguments_are_said_at_once() -> None:
    """A naive time, an unknown policy."""
    with pytest.raises(UsageError, match="time zone"):
        Session(created_at=datetime(2026, 1, 1))
    with pytest.raises(UsageError, match="expected state, log"):
        Session().register(AddStep, Plan, add_step, policy="both")  # type: ignore[arg-type]


@pytest.fixture(params=["memory", "directory"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryFilesystem | DirectoryFilesystem:
    (tmp_path / "root").mkdir()
    return (
        MemoryFilesystem() if request.param == "memory" else DirectoryFilesystem(tmp_path / "root")
    )


def test_both_filesystems_do_the_same(fs: MemoryFilesystem | DirectoryFilesystem) -> None:
    """Write, list, stat, read, delete; names with backslashes and colons are names."""
    fs.write_bytes("a/b/.env", b"\xff\x00")
    fs.write("a\\b:c", "x")
    entries = {entry.path: (entry.is_file, entry.is_directory) for entry in fs.list()}

    assert entries == {"a": (False, True), "a\\b:c": (True, False)}
    assert [entry.path for entry in fs.list("a/b")] == ["a/b/.env"]
    assert fs.stat("a/b/.env").size_bytes == 2
    assert fs.read_bytes("./a//b/.env") == b"\xff\x00"
    with fs.open_read("a\\b:c") as file:
        assert file.read() == b"x"
    fs.delete("a/b/.env")
    assert not fs.exists("a/b/.env")
    with pytest.raises(FileNotFoundError):
        fs.read_bytes("a/b/.env")


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "\0"])
def test_nothing_leads_out(fs: MemoryFilesystem | DirectoryFilesystem, path: str) -> None:
    """`..`, absolute paths and NUL are refused, for reading and for writing."""
    with pytest.raises(PermissionError):
        fs.read_bytes(path)
    with pytest.raises(PermissionError):
        fs.write_bytes(path, b"")


def test_a_symlink_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    """Neither listed as a file nor followed, to a file or to a folder."""
    (tmp_path / "secret").write_text("s")
    root = tmp_path / "root"
    root.mkdir()
    os.symlink(tmp_path / "secret", root / "link")
    os.symlink(tmp_path, root / "folder")
    fs = DirectoryFilesystem(root)

    assert all(not (entry.is_file or entry.is_directory) for entry in fs.list())
    for path in ("link", "folder/secret"):
        with pytest.raises(PermissionError):
            fs.read_bytes(path)
    with pytest.raises(PermissionError):
        fs.write_bytes("folder/new", b"")
