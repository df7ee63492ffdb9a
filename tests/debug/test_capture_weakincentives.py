"""The builder with the real `weakincentives`: its session, dispatcher and filesystem, unchanged."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from support.weakincentives_env import ROOT, find_python
from vestige.debug import DebugBundle

PROGRAM = """
import json, logging, sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from weakincentives.debug.bundle import BundleConfig
from weakincentives.debug import BundleWriter
from weakincentives.filesystem import HostFilesystem
from weakincentives.runtime.events import (
    InProcessDispatcher, PromptExecuted, PromptRendered, ToolInvoked,
)
from weakincentives.runtime.logging import get_logger
from weakincentives.runtime.session import Session
from weakincentives.runtime.session.snapshots import SnapshotPayload

from vestige.debug import AgentInfo, DebugBundleBuilder


@dataclass(slots=True, frozen=True)
class Plan:
    steps: tuple[str, ...] = ()


@dataclass(slots=True, frozen=True)
class Bad:
    value: object = None


now = datetime.now(UTC)
dispatcher = InProcessDispatcher()
session = Session(dispatcher=dispatcher)
child = Session(dispatcher=dispatcher, parent=session)
stranger = Session(dispatcher=dispatcher)
session[Plan].seed((Plan(("look",)),))
log = get_logger("agent")

root = Path("work")
root.mkdir()
(root / ".env").write_text("KEY=sk-ant-REDACTED")
(root / "pic.bin").write_bytes(bytes(range(256)))
fs = HostFilesystem(_root=str(root))


def tool(whose):
    dispatcher.dispatch(ToolInvoked(
        prompt_name="p", adapter="a", name="search", params={"q": 1}, result={"found": 3},
        session_id=whose.session_id, created_at=now,
    ))


builder = DebugBundleBuilder(session=session, agent=AgentInfo("wi", "a", "m"))
with builder.capture():
    dispatcher.dispatch(PromptRendered(
        prompt_ns="n", prompt_key="k", prompt_name="p", adapter="a", session_id=session.session_id,
        render_inputs=(), rendered_prompt="Do it.", created_at=now,
    ))
    log.debug("thinking", event="think", context={"depth": 2, "odd": {"a": [1]}})
    for whose in (session, child, stranger):
        tool(whose)
    session[Plan].seed((Plan(("look", "answer")),))
    dispatcher.dispatch(PromptExecuted(
        prompt_name="p", adapter="a", result="done", session_id=session.session_id, created_at=now,
    ))
    builder.add_filesystem(fs)
bundle = builder.finalize()
bundle.export("ours.wink")
read = [SnapshotPayload.from_json(one.raw) for one in bundle.snapshots]

# A snapshot that succeeds, and then cannot write itself: what the library itself gives up on.
class Unwritable:
    def __init__(self, inner):
        self._inner = inner
    def __getattr__(self, name):
        return getattr(self._inner, name)
    def snapshot(self, **given):
        taken = self._inner.snapshot(**given)
        object.__setattr__(taken, "slices", {Plan: (Plan(("one",)), Bad())})
        return taken

other = DebugBundleBuilder(session=Unwritable(session), agent=AgentInfo("wi", "a", "m"))
with other.capture():
    pass
invalid = list(other.finalize().snapshots)

with BundleWriter("theirs", config=BundleConfig(target=Path("theirs"))) as writer:
    writer.write_session_before(session)
    with writer.capture_logs():
        log.info("theirs", event="x")
    writer.write_session_after(session)
    writer.write_filesystem(fs)

print(json.dumps({
    "read": len(read),
    "slices": sorted({one.slice_type.rpartition(":")[2] for snap in read for one in snap.slices}),
    "errors": [list(one.errors) for one in invalid],
    "kept": [len(one.slices[0].items) for one in invalid if one.slices],
    "theirs": [str(path) for path in Path("theirs").rglob("*.zip")],
}))
"""


@pytest.mark.full  # installs weakincentives
def test_its_session_dispatcher_and_filesystem_drive_our_builder(tmp_path: Path) -> None:
    """Event slices are in, events of other sessions are out, children come after their parents,
    its own reader takes our snapshots, `.env` stays `.env`, and its own bundles load in ours."""
    python = find_python()
    if python is None:
        pytest.skip("weakincentives needs Python 3.12 or later, and there is none here")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [python, str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "VESTIGE_HOME": str(tmp_path / "home")},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    bundle = DebugBundle.load(tmp_path / "ours.wink")
    tags = [one.tags["tag"] for one in bundle.snapshots]
    (thought,) = [entry for entry in bundle.logs if entry.event == "think"]

    assert (
        tags[::2]
        == tags[1::2]
        == [
            "capture entry",
            "PromptRendered",
            "ToolInvoked",
            "ToolInvoked",
            "PromptExecuted",
            "capture exit",
        ]
    )
    assert found["read"] == 12
    assert {"Plan", "ToolInvoked", "PromptRendered", "PromptExecuted"} <= set(found["slices"])
    assert dict(thought.context) == {"depth": 2, "odd": {"a": [1]}}
    assert bundle.list_files() == ["workspace/.env", "workspace/pic.bin"]
    assert bundle.read_file("workspace/pic.bin") == bytes(range(256))
    assert b"aaaa" not in bundle.read_file("workspace/.env")
    assert bundle.environment["weakincentives_version"] == "0.27.0"
    assert [bool(errors) for errors in found["errors"]] == [True, False, True, False]
    assert found["kept"][0] == 2
    assert [DebugBundle.load(path).session_id for path in map(tmp_path.joinpath, found["theirs"])]
