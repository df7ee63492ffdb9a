"""DebugBundle as the seed gives it to programmers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from support.wink_samples import make_bundle  # shared with the format's tests
from vestige.debug import (
    AgentInfo,
    BundleComponentMissingError,
    BundleCorruptedError,
    BundleVersionError,
    DebugBundle,
    DebugBundleError,
    ExecutionInfo,
    WinkError,
)
from vestige.errors import VestigeError


def test_the_fields_and_defaults_are_the_seeds() -> None:
    execution = ExecutionInfo(started_at=datetime(2024, 1, 1, tzinfo=UTC))
    bundle = DebugBundle(
        session_id=UUID(int=1),
        agent=AgentInfo(name="reviewer", adapter="openai", model="gpt-4o"),
        execution=execution,
    )

    assert execution.duration_seconds is None
    assert (execution.outcome, execution.error) == ("in_progress", None)
    assert bundle.agent.version is None
    assert dict(bundle.tags) == {}
    assert isinstance(bundle.bundle_id, UUID) and bundle.bundle_id.version == 4
    assert list(bundle.snapshots) == list(bundle.logs) == bundle.list_files() == []


def test_the_errors_are_a_tree_of_the_seeds_names() -> None:
    for error in (BundleCorruptedError, BundleVersionError, BundleComponentMissingError):
        assert issubclass(error, DebugBundleError)
    assert issubclass(DebugBundleError, WinkError) and issubclass(DebugBundleError, RuntimeError)
    assert issubclass(WinkError, VestigeError)
    assert DebugBundleError.exit_code == 3


def test_the_seeds_loop_over_a_loaded_bundle(tmp_path: Path) -> None:
    """ "Loading and Inspecting Bundles", as it is written there."""
    path = make_bundle().export(tmp_path / "abc123.wink")
    messages: list[str] = []
    print = messages.append  # noqa: A001  # the seed's own lines follow

    bundle = DebugBundle.load(str(path))
    print(f"Session: {bundle.session_id}")
    print(f"Duration: {bundle.execution.duration_seconds}s")
    print(f"Outcome: {bundle.execution.outcome}")
    for snapshot in bundle.snapshots:
        print(f"Snapshot at {snapshot.created_at}: {len(snapshot.slices)} slices")
    for log in bundle.logs:
        if log.level == "ERROR":
            print(f"[{log.timestamp}] {log.event}: {log.message}")
    for path_ in bundle.list_files():
        print(f"File: {path_}")
        if path_.endswith(".py"):
            content = bundle.read_file(path_)
            print(content.decode("utf-8")[:200])

    assert "Session: 6ddf26c6-cf46-4238-8d3c-fb33866f7355" in messages
    assert "Duration: 1.0s" in messages
    assert "Snapshot at 2026-11-15T18:12:26.172354+00:00: 9 slices" in messages
    assert any(each.endswith("an exception record") for each in messages)
    assert "print(1)\n" in messages


def test_a_file_that_is_not_there_is_a_file_not_found_error(tmp_path: Path) -> None:
    bundle = DebugBundle.load(make_bundle().export(tmp_path / "x.wink"))

    with pytest.raises(FileNotFoundError, match=r"nothing\.txt"):
        bundle.read_file("nothing.txt")
    with pytest.raises(FileNotFoundError):
        bundle.read_file("../x.wink")


def test_a_file_is_read_by_the_name_that_it_had(tmp_path: Path) -> None:
    bundle = DebugBundle.load(make_bundle(_files={"a\\b": b"1"}).export(tmp_path / "x.wink"))

    assert bundle.list_files() == ["a%5Cb"]
    assert bundle.read_file("a\\b") == bundle.read_file("a%5Cb") == b"1"


def test_the_classes_are_plain_dataclasses_as_in_the_seed(tmp_path: Path) -> None:
    path = make_bundle().export(tmp_path / "x.wink")
    bundle, again = DebugBundle.load(path), DebugBundle.load(path)

    assert bundle == again and bundle.agent == AgentInfo(
        "code-reviewer", "scripted", "model-1", "1.0.0"
    )
    assert [one.name for one in fields(DebugBundle)][:5] == [
        "session_id",
        "agent",
        "execution",
        "tags",
        "bundle_id",
    ]
    assert not hasattr(bundle, "__dict__") and not hasattr(bundle.agent, "__dict__")
    bundle.agent.name = "renamed"
    bundle.execution.outcome = "failure"
    assert bundle != again
    assert replace(again, tags={"a": "b"}).tags == {"a": "b"}


def test_a_field_that_was_set_is_what_export_writes(tmp_path: Path) -> None:
    archive = make_bundle().export(tmp_path / "x.wink")
    bundle = DebugBundle.load(archive)
    bundle.tags = {"reviewed": "yes"}
    bundle.agent.name = "renamed"

    loaded = DebugBundle.load(bundle.export(tmp_path / "y.wink"))

    assert (loaded.tags, loaded.agent.name) == ({"reviewed": "yes"}, "renamed")
    assert (loaded.session_id, loaded.execution) == (bundle.session_id, bundle.execution)
    assert len(list(loaded.logs)) == 82
    assert (
        DebugBundle.load(archive).export(tmp_path / "z.wink").read_bytes() == archive.read_bytes()
    )


def test_a_snapshot_does_not_change(tmp_path: Path) -> None:
    bundle = DebugBundle.load(make_bundle().export(tmp_path / "x.wink"))

    with pytest.raises(TypeError):
        next(bundle.snapshots).tags["a"] = "b"  # type: ignore[index]


def test_a_path_that_is_missing_is_both_our_error_and_the_usual_one(tmp_path: Path) -> None:
    for name in ("absent.wink", "absent.jsonl"):
        with pytest.raises(FileNotFoundError, match="no such file"):
            DebugBundle.load(tmp_path / name)
        with pytest.raises(DebugBundleError, match="no such file"):
            DebugBundle.load(tmp_path / name)


def test_a_folder_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DebugBundleError, match=r"a folder.*vestige bundle show"):
        DebugBundle.load(f"{tmp_path}/")


def test_what_replaces_the_file_is_another_bundle(tmp_path: Path) -> None:
    """A loaded bundle stays what it was, whatever is renamed over its file."""
    bundle = DebugBundle.load(make_bundle().export(tmp_path / "x.wink"))
    make_bundle(_logs=[]).export(tmp_path / "x.wink")

    assert len(list(bundle.logs)) == 82


def test_threads_share_a_bundle(tmp_path: Path) -> None:
    files = {f"f{n}": bytes([n]) * 50_000 for n in range(20)}
    bundle = DebugBundle.load(make_bundle(_files=files).export(tmp_path / "x.wink"))

    def look(n: int) -> bool:
        complete = len(list(bundle.logs)) == 82 and len(list(bundle.snapshots)) == 8
        return complete and bundle.read_file(f"f{n % 20}") == files[f"f{n % 20}"]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(look, range(80)))


def test_a_session_id_that_is_no_uuid_has_one_that_derives_from_it(tmp_path: Path) -> None:
    from support.wink_samples import seed_members, write_zip

    path = write_zip(tmp_path / "x.wink", seed_members(session_id="session-7"))

    first, again = DebugBundle.load(path), DebugBundle.load(path)

    assert first.session_id == again.session_id
    assert first.manifest.session_id == "session-7"


def test_a_bundle_needs_its_parts() -> None:
    with pytest.raises(TypeError, match="'agent' and 'execution'"):
        DebugBundle(UUID(int=1))  # type: ignore[call-arg]
