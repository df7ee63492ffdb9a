"""Reading bundles as runs: what becomes of each part, and what is passed over with a warning."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from support.commands import vestige, vestige_json
from support.wink_samples import (
    BUNDLE,
    DATA,
    SESSION,
    make_bundle,
    members_of,
    seed_members,
    write_zip,
)
from vestige.debug import BundleCorruptedError, BundleVersionError, BundleWarning, DebugBundle
from vestige.errors import DebugBundleError, UnreadableError
from vestige.formats import NAMES, get_format
from vestige.formats.wink import find_runs, is_readable, read_run, validate_run
from vestige.formats.wink.detect import find_latest
from vestige.formats.wink.jsonl_entries import parse_snapshot
from vestige.formats.wink.manifest import nesting
from vestige.formats.wink.read import ZipContent
from vestige.record.types import SpanClose
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import import_path
from vestige.transfer.open_any_path import open_path


def test_wink_is_a_format_with_all_its_names() -> None:
    assert "wink" in NAMES
    module = get_format("wink")
    assert all(
        callable(getattr(module, name))
        for name in ("is_readable", "find_runs", "read_run", "write_run", "validate_run")
    )


def test_a_bundle_becomes_a_run_with_its_parts(tmp_path: Path) -> None:
    """The run is the agent's; states, lines and files stand in it, in the order of their times."""
    path = make_bundle().export(tmp_path / "x.wink")
    with open_path(path) as debugger:
        (info,) = debugger.store.list_runs(_any())
        run = debugger.store.load_run(info.id)
        bodies = {
            span.id: debugger.store.read_body(span.output.id)
            for span in run.spans
            if span.output and span.output.id
        }
    root = run.spans[0]

    assert (info.name, info.outcome, info.id) == ("code-reviewer", "ok", str(BUNDLE))
    assert info.conversation_id == str(SESSION)
    assert info.duration_ns == 10**9
    assert root.attributes["agent.model"] == "model-1"
    assert root.attributes["tag.repository"] == "acme/webapp"
    states = [span for span in run.spans if span.type == "snapshot"]
    assert [span.attributes["index"] for span in states] == list(range(8))
    lines = (DATA / "snapshots_timeline.jsonl").read_bytes().splitlines()
    assert [bodies[span.id] for span in states] == lines
    files = {
        span.attributes["path"]: bodies.get(span.id, b"")
        for span in run.spans
        if span.type == "file"
    }
    assert files["artifacts/blob.bin"] == bytes(range(256))
    assert files["workspace/.env"] == b"A=1\n"
    assert len(run.logs) == 82
    assert run.logs[0].component == "weakincentives.resources.context"
    assert run.logs[0].attributes["protocol"] == "Filesystem"


@pytest.mark.parametrize("keep", [0, 500, 10**6])
def test_what_is_kept_from_verifying_reads_the_same_and_only_once(
    tmp_path: Path, keep: int
) -> None:
    """A small bundle is unpacked once; what does not fit is read again, and never held for good."""
    path = make_bundle().export(tmp_path / "x.wink")
    plain, content = ZipContent(path), ZipContent(path)
    content.verify(keep)

    for _ in range(2):
        assert list(content.snapshots()) == list(plain.snapshots())
        assert list(content.logs()) == list(plain.logs())
    assert content._cached_parts.keys().isdisjoint({"snapshots.jsonl", "logs.jsonl"})


def _any() -> Any:
    from vestige.store.protocol import RunFilter

    return RunFilter()


@pytest.mark.parametrize("value", [str(BUNDLE), str(SESSION), "acme/webapp"])
def test_a_bundle_is_found_by_its_ids_and_tags(tmp_path: Path, value: str) -> None:
    path = make_bundle().export(tmp_path / "x.wink")
    with open_path(path) as debugger:
        assert debugger.resolve(value, "run").run.id == str(BUNDLE)


def test_a_killed_run_is_shown_as_interrupted(tmp_path: Path) -> None:
    """On disk it is a failure with that error type: the seed has no word for it."""
    from vestige.debug import ExecutionInfo

    made = make_bundle()
    execution = ExecutionInfo(made.execution.started_at, made.execution.ended_at, "interrupted")
    path = make_bundle(execution=execution).export(tmp_path / "x.wink")
    manifest = json.loads(members_of(path)["manifest.json"])
    with open_path(path) as debugger:
        (info,) = debugger.store.list_runs(_any())

    assert manifest["execution"]["outcome"] == "failure"
    assert manifest["execution"]["error"]["type"] == "Interrupted"
    assert info.outcome == "interrupted"
    assert DebugBundle.load(path).execution.outcome == "interrupted"


# --- resilience ----------------------------------------------------------------------------------


def test_malformed_log_entries_are_passed_over_with_a_warning(tmp_path: Path) -> None:
    good = '{"timestamp":"2024-01-15T10:30:00+00:00","message":"kept"}'
    bad = ["", "no json", "[1]", '{"a":1}', "\udcff\udcfe", "[" * 5000]
    path = make_bundle(_logs=[good, *bad, good]).export(tmp_path / "x.wink")
    bundle = DebugBundle.load(path)

    with pytest.warns(BundleWarning, match="malformed"):
        logs = list(bundle.logs)

    assert [log.message for log in logs] == ["kept", "kept"]
    with SqliteStore.open(tmp_path / "a.db") as store:
        (imported,) = import_path(store, path)
    rules = [problem.rule for problem in imported.problems]
    assert rules.count("log-malformed") == 5
    assert {problem.severity for problem in imported.problems} == {"warning"}


def test_invalid_snapshots_are_marked_and_kept(tmp_path: Path) -> None:
    lines = [
        '{"version":"1","created_at":"2024-01-15T10:30:00+00:00"}',
        "not json",
        '{"version":"9","created_at":"2024-01-15T10:30:00+00:00","slices":[]}',
        '{"version":"1"}',
        '{"version":"1","created_at":"2024-01-15T10:30:00+00:00","slices":[{"items":1},7]}',
        '{"version":"1","created_at":"2024-01-15T10:30:00+00:00","x":'
        + "[" * 500
        + "]" * 500
        + "}",
    ]
    path = make_bundle(_snapshots=lines).export(tmp_path / "x.wink")
    bundle = DebugBundle.load(path)
    found = list(bundle.snapshots)

    assert [each.valid for each in found] == [True, False, False, False, False, False]
    assert [each.raw for each in found] == lines
    assert "version is '9'" in found[2].errors[0]
    assert "nested deeper" in found[5].errors[0]
    with open_path(path) as debugger:
        answer = debugger.sql('SELECT "index", status FROM snapshots ORDER BY 1')
    assert [row[1] for row in answer.rows.rows] == ["ok"] + ["error"] * 5


def test_a_bundle_without_files_loads(tmp_path: Path) -> None:
    members = seed_members()
    del members["files/workspace/x"]
    path = write_zip(tmp_path / "x.wink", members)

    assert DebugBundle.load(path).list_files() == []
    assert [problem.rule for problem in validate_run(path)] == ["file-count"]


def test_the_bare_bundle_of_the_seed_loads(tmp_path: Path) -> None:
    """No hashes, no listing, no extra components; an unknown component is kept aside."""
    path = write_zip(tmp_path / "x.wink", seed_members())
    bundle = DebugBundle.load(path)

    assert (bundle.agent.adapter, bundle.execution.duration_seconds) == ("openai", 300.0)
    assert [log.context["k"] for log in bundle.logs] == [1]
    assert bundle.read_file("workspace/x") == b"abcd"
    assert validate_run(path) == []


def test_components_of_others_are_carried_along(tmp_path: Path) -> None:
    """A member that the manifest lists under an unknown name is not suspicious."""
    members = seed_members()
    manifest = json.loads(members["manifest.json"])
    manifest["components"]["metrics"] = {"path": "other/metrics.json"}
    members["manifest.json"] = json.dumps(manifest).encode()
    members["other/metrics.json"] = b"{}"
    path = write_zip(tmp_path / "x.wink", members)

    again = DebugBundle.load(path).export(tmp_path / "y.wink")

    assert members_of(again)["other/metrics.json"] == b"{}"


@pytest.mark.parametrize("path", ["snapshots.jsonl", "manifest.json", "files/workspace/x"])
def test_a_component_at_the_place_of_another_is_that_other(tmp_path: Path, path: str) -> None:
    """A manifest may name a member twice: it goes on being one member."""
    members = seed_members()
    manifest = json.loads(members["manifest.json"])
    manifest["components"] |= {"again": {"path": path}, "x": {"path": "x"}, "y": {"path": "x"}}
    members |= {"manifest.json": json.dumps(manifest).encode(), "x": b"1"}
    loaded = DebugBundle.load(write_zip(tmp_path / "a.wink", members))
    exported = DebugBundle.load(loaded.export(tmp_path / "b.wink"))

    assert set(exported.manifest.components) == {"snapshots", "logs", "files", "x"}
    assert exported.list_files() == loaded.list_files()


def test_a_component_at_the_place_of_a_missing_one_cannot_be_exported(tmp_path: Path) -> None:
    """The seed's places are for the seed's parts: one line says so."""
    members = seed_members()
    manifest = json.loads(members["manifest.json"])
    manifest["components"] |= {"x": {"path": "files.sha256"}}
    members |= {"manifest.json": json.dumps(manifest).encode(), "files.sha256": b"1"}
    loaded = DebugBundle.load(write_zip(tmp_path / "a.wink", members))

    with pytest.raises(DebugBundleError, match=r"^'files.sha256' is the place of another"):
        loaded.export(tmp_path / "b.wink")


def test_records_that_are_not_of_the_run_are_passed_over(tmp_path: Path) -> None:
    """A bundle cannot speak for another run, nor bring records that nobody knows."""
    root = (
        '{"kind":"span-open","v":1,"writer":"a","seq":1,"time_ns":5,"run_id":"r-1",'
        '"span_id":"s1","component":"c","type":"run","name":"n"}'
    )
    other = root.replace("r-1", "r-2")
    unknown = '{"kind":"dream","v":1,"writer":"a","seq":2,"run_id":"r-1"}'
    lost = (
        '{"kind":"span-close","v":1,"writer":"a","seq":3,"time_ns":9,"run_id":"r-1",'
        '"span_id":"s1","status":"ok","duration_ns":4,'
        '"body_info":{"spilled_bytes":9,"sha256":"00"}}'
    )
    records = "\n".join([root, other, "no record", unknown, lost, ""]).encode()
    members = seed_members()
    manifest = json.loads(members["manifest.json"])
    manifest["components"]["records"] = {"path": "vestige/records.ndjson"}
    members["manifest.json"] = json.dumps(manifest).encode()
    members["vestige/records.ndjson"] = records
    path = write_zip(tmp_path / "x.wink", members)
    source = read_run(path)
    taken = list(source.records)

    assert source.run_id == "r-1"
    assert {record.run_id for record in taken} == {"r-1"}
    assert taken[0].writer == source.writer
    assert [problem.rule for problem in source.problems] == [
        "record-unreadable",
        "record-not-of-the-run",
        "body-missing",
    ]


def test_a_body_that_is_not_what_its_hash_says_is_left_out_and_reported(tmp_path: Path) -> None:
    root = (
        '{"kind":"span-open","v":1,"writer":"a","seq":1,"time_ns":5,"run_id":"r-1",'
        '"span_id":"s1","component":"c","type":"run","name":"n",'
        '"body_info":{"spilled_bytes":3,"sha256":"%s"}}'
    )
    members = seed_members()
    manifest = json.loads(members["manifest.json"])
    for name, member in (
        ("records", "records.ndjson"),
        ("bodies", "bodies.ndjson"),
        ("pieces", "pieces"),
    ):
        manifest["components"][name] = {"path": f"vestige/{member}"}
    members["manifest.json"] = json.dumps(manifest).encode()
    members["vestige/records.ndjson"] = (root % ("0" * 64)).encode() + b"\n"
    members["vestige/bodies.ndjson"] = (
        b'{"sha256":"' + b"0" * 64 + b'","size_bytes":3,"ranges":[[0,3]]}\n'
    )
    members["vestige/pieces"] = b"abc"
    path = write_zip(tmp_path / "x.wink", members)

    source = read_run(path)
    root = next(record for record in source.records if getattr(record, "type", "") == "run")

    assert root.body is None  # type: ignore[union-attr]
    assert "body-damaged" in [problem.rule for problem in validate_run(path)]


# --- other shapes --------------------------------------------------------------------------------


def test_the_later_real_format_is_read() -> None:
    bundle = DebugBundle.load(DATA / "later.zip")

    assert bundle.agent.name == "fixtures:review"
    assert bundle.agent.adapter == "scripted"
    assert bundle.execution.outcome == "failure"
    assert bundle.execution.error is not None
    assert bundle.execution.error["message"] == "it failed"
    assert [len(each.slices[0].items) for each in bundle.snapshots] == [1, 2]
    assert [(log.level, log.event) for log in bundle.logs] == [
        ("WARNING", ""),
        ("ERROR", "app.failed"),
    ]
    assert json.loads(bundle.read_file("artifacts/request/input.json")) == {"q": "why"}


@pytest.mark.parametrize(
    ("name", "data", "error"),
    [
        ("debug_bundle/manifest.json", b"{", BundleCorruptedError),
        ("debug_bundle/manifest.json", b'{"format_version":"2.0.0"}', BundleVersionError),
    ],
)
def test_the_later_format_needs_a_manifest_that_can_be_read(
    tmp_path: Path, name: str, data: bytes, error: type[Exception]
) -> None:
    members = {**members_of(DATA / "later.zip"), name: data}
    path = write_zip(tmp_path / "x.zip", members)

    with pytest.raises(error):
        DebugBundle.load(path)


@pytest.mark.parametrize(
    ("name", "data", "rule"),
    [
        ("debug_bundle/planted", b"x", "member-unlisted"),
        ("elsewhere", b"x", "member-unlisted"),
        ("debug_bundle/config.json", b"{}", "file-damaged"),
    ],
)
def test_what_the_later_format_says_of_its_files_is_compared(
    tmp_path: Path, name: str, data: bytes, rule: str
) -> None:
    members = {**members_of(DATA / "later.zip"), name: data}
    bundle = DebugBundle.load(write_zip(tmp_path / "x.zip", members))

    assert [problem.rule for problem in bundle.problems] == [rule]
    assert [log.message for log in bundle.logs] == ["first line", "it failed"]


def test_the_later_format_is_read_through_though_it_has_no_checksums(tmp_path: Path) -> None:
    members = members_of(DATA / "later.zip")
    manifest = json.loads(members["debug_bundle/manifest.json"])
    manifest["files"] = [name.removeprefix("debug_bundle/") for name in members]
    del manifest["integrity"]
    members["debug_bundle/manifest.json"] = json.dumps(manifest).encode()
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    content = path.read_bytes()
    assert validate_run(path) == []
    path.write_bytes(content.replace(b"app.failed", b"app.fooled", 1))

    assert [problem.rule for problem in validate_run(path)] == ["file-damaged", "member-damaged"]


def test_what_cannot_be_read_is_told_with_its_path_once(tmp_path: Path) -> None:
    path = tmp_path / "x.wink"
    path.write_bytes(b"junk")
    with SqliteStore.open(tmp_path / "a.db") as store:
        (imported,) = import_path(store, path)
    with pytest.raises(UnreadableError) as caught:
        open_path(path)

    for message in (str(imported.problems[0]), str(caught.value)):
        assert message.startswith(f"{path}: not a zip") and message.count(str(path)) == 1


def test_a_bare_file_of_snapshots_is_read() -> None:
    bundle = DebugBundle.load(DATA / "snapshots_timeline.jsonl")

    assert bundle.session_id == SESSION
    assert len(list(bundle.snapshots)) == 8
    assert bundle.execution.started_at.isoformat() == "2026-11-15T18:12:26.080769+00:00"
    assert bundle.execution.outcome == "unknown", "nothing in it says how the run ended"
    root, *others = list(read_run(DATA / "snapshots_timeline.jsonl").records)
    (end,) = (
        record
        for record in others
        if isinstance(record, SpanClose) and record.span_id == root.span_id  # type: ignore[union-attr]
    )
    assert end.attributes["run.outcome"] == "unknown"


def test_a_file_of_snapshots_that_grew_adds_only_what_is_new(tmp_path: Path) -> None:
    lines = (DATA / "snapshots_timeline.jsonl").read_text().splitlines(keepends=True)
    path = tmp_path / "s.jsonl"
    path.write_text("".join(lines[:3]))
    with SqliteStore.open(tmp_path / "a.db") as store:
        (first,) = import_path(store, path)
        path.write_text("".join(lines))
        (second,) = import_path(store, path)
        run = store.load_run(second.run_id or "")

    assert first.run_id == second.run_id
    assert (first.records, second.records) == (11, 18)
    assert run.info.ended_ns == max(span.started_ns for span in run.spans), "the later end counts"
    assert [span.attributes["index"] for span in run.spans if span.type == "snapshot"] == list(
        range(8)
    )


def test_a_snapshot_that_is_still_being_written_waits_for_the_next_import(tmp_path: Path) -> None:
    """Half of it would take the place of the whole one; a last line without an end may be whole."""
    lines = (DATA / "snapshots_timeline.jsonl").read_text().splitlines(keepends=True)
    path = tmp_path / "s.jsonl"
    path.write_text("".join(lines[:2]) + lines[2][:300])
    with SqliteStore.open(tmp_path / "a.db") as store:
        (first,) = import_path(store, path)
        path.write_text("".join(lines).rstrip("\n"))
        (second,) = import_path(store, path)
        spans = store.load_run(second.run_id or "").spans
        states = [span for span in spans if span.type == "snapshot"]
        bodies = [store.read_body(span.output.id) for span in states if span.output]  # type: ignore[arg-type]

    assert [problem.place for problem in first.problems] == ["line 3"]
    assert (first.records, second.records, second.problems) == (7, 22, [])
    assert [span.status for span in states] == ["ok"] * 8
    assert [body.decode() for body in bodies] == [line.rstrip("\n") for line in lines]


def test_a_file_without_snapshots_says_so(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text('{"a":1}\n')

    with pytest.raises(BundleCorruptedError, match="no snapshot in it"):
        DebugBundle.load(path)


def test_a_folder_may_hold_any_number_of_bundles(tmp_path: Path) -> None:
    """How far a folder is looked through to tell what it is does not bound what is found in it."""
    for number in range(2_100):
        (tmp_path / f"{number}.wink").touch()
        os.utime(tmp_path / f"{number}.wink", ns=(number, number))

    assert [path.stem for path in find_runs(tmp_path)] == [str(number) for number in range(2_100)]
    assert find_latest(tmp_path) == tmp_path / "2099.wink"


def test_paths_are_told_apart(tmp_path: Path) -> None:
    """A log is not a file of snapshots, and not every zip is a bundle."""
    bundle = make_bundle().export(tmp_path / "b" / "x.wink")
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("manifest.json", "{}")
    (tmp_path / "empty").mkdir()

    assert is_readable(bundle) and is_readable(bundle.parent)
    assert is_readable(DATA / "snapshots.jsonl") and is_readable(DATA / "later.zip")
    assert not is_readable(DATA / "logs.jsonl")
    assert not is_readable(other)
    assert not is_readable(tmp_path / "empty") and not is_readable(tmp_path / "nothing")
    assert list(find_runs(bundle.parent)) == [bundle]


def test_a_bundle_that_is_right_has_no_problems(tmp_path: Path) -> None:
    assert validate_run(make_bundle().export(tmp_path / "x.wink")) == []
    assert validate_run(DATA / "later.zip") == []


def test_check_names_each_entry_that_is_wrong(tmp_path: Path) -> None:
    path = make_bundle(_snapshots=["{}"], _logs=["x", '{"timestamp":"t","message":"m"}']).export(
        tmp_path / "x.wink"
    )

    assert [(problem.rule, problem.place) for problem in validate_run(path)] == [
        ("snapshot-invalid", "line 1"),
        ("snapshot-invalid", "line 1"),
        ("log-malformed", "line 1"),
        ("log-time", "line 2"),
    ]


@pytest.mark.parametrize(
    ("raw", "deep"),
    [
        (b'{"a":' * 300 + b"1" + b"}" * 300, True),
        (b"[" * 300, True),
        (b'{"a":"' + b"[" * 300 + b'"}', False),
        (b"[" + b"[]," * 300 + b"1]", False),
        (b'["\\"' + b"[" * 300 + b'"]', False),
    ],
)
def test_depth_is_counted_outside_of_strings(raw: bytes, deep: bool) -> None:
    assert (nesting(raw, 200) > 200) == deep


def test_a_slice_is_found_by_its_short_name() -> None:
    line = (DATA / "snapshots_timeline.jsonl").read_text().splitlines()[-1]
    snapshot = parse_snapshot(line)

    found = snapshot.find_slice("ToolInvoked")

    assert found is not None and len(found.items) == 4
    assert snapshot.find_slice("Nothing") is None


def test_snapshots_without_a_manifest_are_neither_running_nor_failed_nor_successful(
    tmp_path: Path,
) -> None:
    path = str(DATA / "snapshots_timeline.jsonl")
    home = str(tmp_path / "home")

    (first, *_) = vestige("overview", path).stdout.splitlines()
    vestige("import", path, "--home", home)
    (listed,) = vestige_json("list", "--home", home)["runs"]
    failed = vestige_json("list", "is:failed", "--home", home)["runs"]
    stats = vestige_json("stats", "--by", "day", "--home", home)

    assert ": unknown after" in first
    assert listed["outcome"] == "unknown"
    assert not failed
    assert all(row["errors"] == 0 for row in stats["rows"])


def test_the_manifest_of_a_bundle_is_not_its_task(tmp_path: Path) -> None:
    path = make_bundle().export(tmp_path / "x.wink")

    assert "bundle_id" not in vestige("transcript", str(path)).stdout
    assert vestige_json("overview", str(path))["task"].endswith("Review this project. Timeline.")
