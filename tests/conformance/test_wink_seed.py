"""The specification of debug bundles, clause by clause: its own code, run against ours.

Every Python block of its usage sections is executed unchanged, with only the imports changed.
The names that a block takes for granted (`session`, `adapter`, `prompt`, ...) are small real
objects.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from vestige import debug
from vestige.debug import (
    AgentInfo,
    DebugBundle,
    DebugBundleBuilder,
    LogRotationConfig,
    MemoryFilesystem,
    PromptExecuted,
    PromptRendered,
    Session,
    ToolInvoked,
)
from vestige.home import Home

USAGE = Path(__file__).parent.parent / "data" / "wink_usage" / "usage_patterns.md"
BLOCKS = {
    title.strip(): code
    for title, code in re.findall(
        r"^### (.+?)\n.*?```python\n(.*?)```", USAGE.read_text(encoding="utf-8"), re.S | re.M
    )
}
IMPORTS = {
    "from weakincentives.debug import": "from vestige.debug import",
    "from weakincentives.contrib.tools import VirtualFilesystem": (
        "from vestige.debug import MemoryFilesystem as VirtualFilesystem"
    ),
    "from weakincentives.adapters.claude_agent_sdk import ClaudeAgentSDKAdapter\n": "",
}
LOG = logging.getLogger("seed.adapter")


class DeadlineExceededError(Exception):
    pass


class Prompt:
    """Something with a context of resources, as the blocks use it."""

    @property
    @contextmanager
    def resources(self) -> Iterator[None]:
        yield


class Adapter:
    """Evaluates a prompt: renders, calls two tools, answers; or raises what it was given."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def evaluate(self, prompt: Prompt, *, session: Session) -> str:
        metadata = {"session_id": session.session_id, "prompt_name": "review"}
        LOG.debug("evaluating", extra={"event": "evaluate.entry"})
        session.dispatcher.dispatch(PromptRendered(rendered_prompt="Review this.", **metadata))
        for name in ("read", "grep"):
            session.dispatcher.dispatch(ToolInvoked(name=name, result="ok", **metadata))
        if self.error is not None:
            raise self.error
        session.dispatcher.dispatch(PromptExecuted(result="done", **metadata))
        return "done"


def run_block(title: str, **more: Any) -> dict[str, Any]:
    """Execute a block of the specification; the names that it left behind."""
    code = BLOCKS[title]
    for theirs, ours in IMPORTS.items():
        code = code.replace(theirs, ours)
    session = Session()
    names: dict[str, Any] = {
        "session": session,
        "dispatcher": session.dispatcher,
        "adapter": Adapter(),
        "prompt": Prompt(),
        "agent_info": AgentInfo(name="code-reviewer", adapter="fake", model="m-1"),
        "DebugBundleBuilder": DebugBundleBuilder,
        "LogRotationConfig": LogRotationConfig,
        "DeadlineExceededError": DeadlineExceededError,
        "ToolInvoked": ToolInvoked,
        "collect_all_logs": debug.collect_all_logs,
        "dump_session": debug.dump_session,
        "archive_filesystem": debug.archive_filesystem,
        **more,
    }
    exec(compile(code, f"<{title}>", "exec"), names)  # noqa: S102  # the specification's own code
    return names


@pytest.fixture(autouse=True)
def _place(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def the_bundle(folder: str = "debug") -> DebugBundle:
    (path,) = Path(folder).glob("*.wink")
    return DebugBundle.load(path)


def reasons(bundle: DebugBundle) -> list[str]:
    return [snapshot.tags["tag"] for snapshot in bundle.snapshots]


def test_basic_capture() -> None:
    """Creates ./debug/<bundle_id>.wink, with a snapshot at each of the five points."""
    names = run_block("Basic Capture")
    bundle = the_bundle()

    assert Path(f"debug/{names['bundle'].bundle_id}.wink").is_file()
    assert dict(bundle.tags) == {"pr_number": "123", "repository": "acme/webapp"}
    assert bundle.agent.model == "claude-sonnet-4-20250514"
    assert reasons(bundle) == [
        "capture entry",
        "PromptRendered",
        "ToolInvoked",
        "ToolInvoked",
        "PromptExecuted",
        "capture exit",
    ]


def test_capture_with_filesystem() -> None:
    """`add_filesystem` inside the block; the files are under workspace/."""
    names = run_block("Capture with Filesystem")

    assert names["bundle"].execution.outcome == "success"
    assert names["bundle"].list_files() == []


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "success"),
        (DeadlineExceededError("too late"), "timeout"),
        (ValueError("bad"), "failure"),
    ],
)
def test_capture_with_error_handling(error: Exception | None, outcome: str) -> None:
    """Whatever the block raises, the bundle is exported and says how it went."""
    run_block("Capture with Error Handling", adapter=Adapter(error))
    bundle = the_bundle()

    assert bundle.execution.outcome == outcome
    assert reasons(bundle)[-1] == "capture exit"
    if error is not None:
        assert bundle.execution.error is not None
        assert bundle.execution.error["type"] == type(error).__name__
        assert bundle.execution.error["message"] == str(error)
        assert "Traceback" in str(bundle.execution.error["traceback"])


def test_periodic_snapshots_for_long_tasks() -> None:
    """A handler of the user's own takes more snapshots."""
    names = run_block("Periodic Snapshots for Long Tasks")

    assert reasons(names["bundle"]).count("manual") == 2


def test_loading_and_inspecting_bundles(capsys: pytest.CaptureFixture[str]) -> None:
    """Metadata, snapshots, logs and files, as the block prints them."""
    made = run_block("Basic Capture")["bundle"]
    made.export("debug/abc123.wink")
    builder = DebugBundleBuilder(session=Session(), agent=made.agent)
    with builder.capture():
        LOG.error("it broke", extra={"event": "broke"})
        builder.add_filesystem(MemoryFilesystem({"main.py": "print('hi')\n"}))
    builder.finalize().export("debug/abc123.wink")

    run_block("Loading and Inspecting Bundles")
    printed = capsys.readouterr().out

    assert "Outcome: success" in printed
    assert "broke: it broke" in printed
    assert "File: workspace/main.py\nprint('hi')" in printed


def test_log_rotation() -> None:
    """The block's arguments are taken."""
    names = run_block("Log Rotation")

    assert isinstance(names["builder"], DebugBundleBuilder)


def test_file_size_limits() -> None:
    """Files that are too large or excluded stay out, and the manifest names them."""
    files = {"a.py": b"1", "big.txt": b"x" * 1_000_001, "m.bin": b"2", "node_modules/a/b.js": b"3"}
    builder = DebugBundleBuilder(session=Session(), agent=AgentInfo("a", "b", "c"))
    run_block("File Size Limits", builder=builder, vfs=MemoryFilesystem(files))
    bundle = builder.finalize()
    component = bundle.manifest.component("files")

    assert bundle.list_files() == ["workspace/a.py"]
    assert component is not None
    assert {one.path: one.reason for one in component.skipped or ()} == {
        "workspace/big.txt": "larger than 1000000 bytes",
        "workspace/m.bin": "excluded",
        "workspace/node_modules/a/b.js": "excluded",
    }


def test_migration_path() -> None:
    """The three functions on their own, then the bundle that takes their place."""
    names = run_block("From Existing Debug Utilities", fs=MemoryFilesystem({".env": "A=1\n"}))
    folder = Path(names["debug_dir"])
    lines = [json.loads(line) for line in (folder / "prompt.log").read_text().splitlines()]
    (snapshot,) = (folder / f"{names['session'].session_id}.jsonl").read_text().splitlines()

    assert [line["event"] for line in lines] == ["evaluate.entry"]
    assert json.loads(snapshot)["version"] == "1"
    (made,) = folder.glob("*.zip")
    with zipfile.ZipFile(made) as archive:
        assert archive.read(".env") == b"A=1\n"
    assert the_bundle().list_files() == ["workspace/.env"]


def test_every_name_and_signature_of_the_specification_is_there() -> None:
    """The builder's methods and their parameters, by name and default."""
    finalize = inspect.signature(DebugBundleBuilder.finalize).parameters
    files = inspect.signature(DebugBundleBuilder.add_filesystem).parameters
    made = inspect.signature(DebugBundleBuilder.__init__).parameters

    assert finalize["outcome"].default == "success"
    assert finalize["error"].default is None
    assert files["prefix"].default == "workspace"
    assert {"session", "agent", "tags", "log_rotation"} <= set(made)
    assert all(hasattr(debug, name) for name in debug.__all__)
