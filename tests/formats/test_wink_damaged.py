"""A damaged bundle: everything that is intact is read, and what is not is a finding."""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.commands import vestige
from support.wink_samples import make_bundle, members_of, seed_members, write_zip
from vestige.debug import BundleCorruptedError, DebugBundle
from vestige.formats.wink import validate_run
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import import_path

Members = dict[str, bytes]

ENV = "files/workspace/.env"
LOGS, SNAPSHOTS = "logs.jsonl", "snapshots.jsonl"


def drop_a_file(members: Members) -> None:
    del members[ENV]


def change_a_file(members: Members) -> None:
    members[ENV] = b"A=2\n"


def damage_a_log_line(members: Members) -> None:
    members[LOGS] = members[LOGS].replace(b'"timestamp":', b'"timestamp";', 1)


def damage_a_snapshot(members: Members) -> None:
    first, rest = members[SNAPSHOTS].split(b"\n", 1)
    members[SNAPSHOTS] = first[:-9] + b"\n" + rest


def add_a_readme(members: Members) -> None:
    members["README.txt"] = b"sent by mail"
    members["__MACOSX/._manifest.json"] = b"\0\1"


def plant_a_file(members: Members) -> None:
    members["files/planted"] = b"x"


def change_the_listing(members: Members) -> None:
    members["files.sha256"] = members["files.sha256"].replace(b"  files/", b" files/", 1)


def misstate_a_size(members: Members) -> None:
    manifest = json.loads(members["manifest.json"])
    manifest["components"]["logs"]["size_bytes"] += 7
    members["manifest.json"] = json.dumps(manifest).encode()


def use_a_number_as_tag(members: Members) -> None:
    manifest = json.loads(members["manifest.json"])
    manifest["tags"] = {"n": 5}
    members["manifest.json"] = json.dumps(manifest).encode()


def use_a_text_as_error(members: Members) -> None:
    manifest = json.loads(members["manifest.json"])
    manifest["execution"] |= {"outcome": "failure", "error": "it broke"}
    members["manifest.json"] = json.dumps(manifest).encode()


def use_a_number_as_version(members: Members) -> None:
    manifest = json.loads(members["manifest.json"])
    manifest["version"] = 1
    members["manifest.json"] = json.dumps(manifest).encode()


DAMAGES: list[tuple[Callable[[Members], None], set[str]]] = [
    (drop_a_file, {"file-count", "file-missing"}),
    (change_a_file, {"file-damaged"}),
    (damage_a_log_line, {"hash-mismatch", "log-malformed"}),
    (damage_a_snapshot, {"hash-mismatch", "size-mismatch", "snapshot-invalid"}),
    (add_a_readme, {"member-unlisted"}),
    (plant_a_file, {"file-count", "file-unlisted"}),
    (change_the_listing, {"hash-mismatch", "listing-malformed", "file-unlisted"}),
    (misstate_a_size, {"size-mismatch"}),
    (use_a_number_as_tag, {"manifest-value"}),
    (use_a_text_as_error, {"manifest-value"}),
    (use_a_number_as_version, {"manifest-value"}),
]
NAMES = [damage.__name__ for damage, _ in DAMAGES]


def damaged(tmp_path: Path, damage: Callable[[Members], None]) -> Path:
    members = members_of(make_bundle().export(tmp_path / "whole.wink"))
    damage(members)
    return write_zip(tmp_path / "x.wink", members)


def read_all(bundle: DebugBundle) -> tuple[int, int, dict[str, bytes]]:
    """Snapshots that are valid, log entries, and the files that can be read."""
    files: dict[str, bytes] = {}
    for path in bundle.list_files():
        try:
            files[path] = bundle.read_file(path)
        except BundleCorruptedError:
            continue
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logs = len(list(bundle.logs))
    return sum(one.valid for one in bundle.snapshots), logs, files


@pytest.mark.parametrize(("damage", "rules"), DAMAGES, ids=NAMES)
def test_everything_else_loads_and_the_damage_is_a_finding(
    tmp_path: Path, damage: Callable[[Members], None], rules: set[str]
) -> None:
    path = damaged(tmp_path, damage)
    bundle = DebugBundle.load(path)

    snapshots, logs, files = read_all(bundle)

    assert snapshots == (7 if damage is damage_a_snapshot else 8)
    assert logs == (81 if damage is damage_a_log_line else 82)
    assert set(files) >= {"workspace/deep/er/still/x.py", "artifacts/blob.bin", "artifacts/empty"}
    assert files.get("workspace/.env", b"A=1\n") == b"A=1\n", "nothing damaged is handed out"
    assert {problem.rule for problem in bundle.problems} == rules
    assert {problem.rule for problem in validate_run(path)} == rules


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "rules"), DAMAGES, ids=NAMES)
def test_every_view_export_and_verb_works_on_the_intact_parts(
    tmp_path: Path, damage: Callable[[Members], None], rules: set[str]
) -> None:
    path = damaged(tmp_path, damage)

    for view in ("overview", "snapshots", "logs", "files", "metadata"):
        shown = vestige("debug", path, "--view", view)
        assert shown.exit_code == 0, shown.output
    overview = vestige("overview", path)
    assert overview.exit_code == 0, overview.output
    checked = vestige("check", path)
    assert checked.exit_code in (0, 1) and all(rule in checked.output for rule in rules)
    out, logs = tmp_path / "out", tmp_path / "logs.jsonl"
    exported = vestige("debug", path, "--export-logs", logs, "--export-files", out)
    assert exported.exit_code in (0, 1), exported.output
    assert len(logs.read_bytes().splitlines()) == 82
    assert (out / "artifacts/blob.bin").read_bytes() == bytes(range(256))
    assert (out / "workspace/.env").exists() == (damage not in (drop_a_file, change_a_file))


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "rules"), DAMAGES, ids=NAMES)
def test_a_damaged_bundle_is_imported_with_its_problems(
    tmp_path: Path, damage: Callable[[Members], None], rules: set[str]
) -> None:
    path = damaged(tmp_path, damage)
    with SqliteStore.open(tmp_path / "a.db") as store:
        (imported,) = import_path(store, path)
        assert imported.run_id is not None
        run = store.load_run(imported.run_id)

    types = [span.type for span in run.spans]
    assert types.count("snapshot") == 8
    assert len(run.logs) == 82
    assert rules <= {problem.rule for problem in imported.problems} | {"listing-malformed"}
    if damage is change_a_file:
        (span,) = (one for one in run.spans if one.attributes.get("path") == "workspace/.env")
        assert (span.status, span.attributes["error.type"]) == ("error", "DamagedFile")


def test_recover_writes_a_new_bundle_of_what_is_intact(tmp_path: Path) -> None:
    def damage(members: Members) -> None:
        change_a_file(members)
        damage_a_log_line(members)
        add_a_readme(members)

    path = damaged(tmp_path, damage)
    before = path.read_bytes()

    result = vestige("recover", path, "-o", tmp_path / "new")

    assert result.exit_code == 0, result.output
    made = tmp_path / "new" / "x-recovered.wink"
    assert str(made) in result.output and "workspace/.env" in result.output
    assert path.read_bytes() == before
    bundle = DebugBundle.load(made)
    assert read_all(bundle)[:2] == (8, 81)
    assert "workspace/.env" not in bundle.list_files()
    files = bundle.manifest.component("files")
    assert files is not None and files.skipped is not None
    assert [one.path for one in files.skipped] == ["workspace/.env"]
    assert "damaged" in files.skipped[0].reason
    # The line is as it was; sizes and hashes are right again.
    assert [problem.rule for problem in bundle.problems] == ["log-malformed"]
    again = vestige("recover", tmp_path / "whole.wink")
    assert (again.exit_code, "not damaged" in again.output) == (0, True)


def test_recover_also_takes_a_bundle_without_logs(tmp_path: Path) -> None:
    members = members_of(make_bundle().export(tmp_path / "whole.wink"))
    del members[LOGS]
    path = write_zip(tmp_path / "x.wink", members)

    result = vestige("recover", path, "-o", tmp_path)

    assert result.exit_code == 0, result.output
    assert read_all(DebugBundle.load(tmp_path / "x-recovered.wink"))[:2] == (8, 0)


def test_a_loaded_bundle_is_exported_without_its_damaged_file(tmp_path: Path) -> None:
    path = damaged(tmp_path, change_a_file)

    bundle = DebugBundle.load(DebugBundle.load(path).export(tmp_path / "y.wink"))

    assert bundle.problems == []
    assert "workspace/.env" not in bundle.list_files()


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_a_flipped_byte_costs_the_lines_behind_it_and_no_more(
    tmp_path: Path, compression: int
) -> None:
    """The zip's own checksum fails, and the library hands out nothing: the lines before are
    read.
    """
    members = members_of(make_bundle().export(tmp_path / "whole.wink"))
    path = tmp_path / "x.wink"
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        info = archive.getinfo(LOGS)
    raw = bytearray(path.read_bytes())
    raw[info.header_offset + 30 + len(LOGS) + info.compress_size * 2 // 3] ^= 0x55
    path.write_bytes(raw)
    bundle = DebugBundle.load(path)

    snapshots, logs, files = read_all(bundle)

    assert (snapshots, len(files)) == (8, 4)
    assert 20 < logs < (82 if compression == zipfile.ZIP_DEFLATED else 83)
    (problem,) = (one for one in bundle.problems if one.rule == "member-damaged")
    assert "logs.jsonl" in problem.file and "bytes could be read" in problem.message


def test_a_large_bundle_is_judged_as_a_small_one(tmp_path: Path) -> None:
    """Above 16 MB too: it loads, the damaged file raises, and the rest is read."""
    large = bytes(range(256)) * 4096 * 17
    large_bundle = make_bundle(_files={"large.bin": large, "small.txt": b"a"})
    members = members_of(large_bundle.export(tmp_path / "whole.wink"))
    members["files/small.txt"] = b"b"
    with zipfile.ZipFile(tmp_path / "x.wink", "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    bundle = DebugBundle.load(tmp_path / "x.wink")

    with pytest.raises(BundleCorruptedError, match=r"small\.txt"):
        bundle.read_file("small.txt")
    assert bundle.read_file("large.bin") == large
    assert [problem.rule for problem in bundle.problems] == ["file-damaged"]


def test_a_manifest_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    path = damaged(tmp_path, lambda members: members.update({"manifest.json": b'{"version":'}))

    with pytest.raises(BundleCorruptedError, match=r"manifest\.json"):
        DebugBundle.load(path)


def test_values_that_were_converted_are_handed_out(tmp_path: Path) -> None:
    execution: dict[str, Any] = {
        "started_at": "2024-01-15T10:30:00+00:00",
        "outcome": "failure",
        "error": "it broke",
    }
    path = write_zip(
        tmp_path / "x.wink", seed_members(tags={"n": 5, "l": [1]}, execution=execution)
    )

    bundle = DebugBundle.load(path)

    assert bundle.tags == {"n": "5", "l": "[1]"}
    assert bundle.execution.error == {"message": "it broke"}


def test_damage_in_a_runs_own_records_leaves_the_rest_of_the_run(tmp_path: Path) -> None:
    """`vestige/records.ndjson` with one line changed: the other spans are read."""
    first = tmp_path / "a"
    with SqliteStore.open(tmp_path / "a.db") as store:
        (imported,) = import_path(store, make_bundle().export(first / "x.wink"))
        assert imported.run_id is not None
        from vestige.transfer import export_run

        exported = export_run(store, imported.run_id, "wink", tmp_path / "with.wink")
        spans = len(store.load_run(imported.run_id).spans)
    members = members_of(exported)
    lines = members["vestige/records.ndjson"].split(b"\n")
    lines[5] = lines[5][:-3]
    members["vestige/records.ndjson"] = b"\n".join(lines)
    path = write_zip(tmp_path / "y.wink", members)
    with SqliteStore.open(tmp_path / "b.db") as store:
        (imported,) = import_path(store, path)
        assert imported.run_id is not None
        found = len(store.load_run(imported.run_id).spans)

    assert spans - 1 <= found <= spans + 1
    rules = {problem.rule for problem in imported.problems}
    assert {"hash-mismatch", "record-unreadable"} <= rules


@pytest.mark.parametrize("share", [0.5, 0.8, 0.97])
def test_recover_writes_what_precedes_the_end_of_a_truncated_bundle(
    tmp_path: Path, share: float
) -> None:
    path = make_bundle().export(tmp_path / "x.wink")
    before = read_all(DebugBundle.load(path))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])

    shown = vestige("show", path)
    result = vestige("recover", path, "-o", tmp_path / "new")

    assert f"vestige store recover {path}" in shown.output
    assert result.exit_code == 0, result.output
    assert "cut off before its end" in result.output
    snapshots, logs, files = read_all(DebugBundle.load(tmp_path / "new" / "x-recovered.wink"))
    assert snapshots == before[0] or share < 0.8
    assert 0 < snapshots + logs <= before[0] + before[1]
    assert files.items() <= before[2].items()


def test_recover_refuses_what_never_was_a_bundle(tmp_path: Path) -> None:
    path = tmp_path / "x.wink"
    path.write_bytes(b"PK\x03\x04 and nothing more")

    result = vestige("recover", path, "-o", tmp_path / "new")

    assert result.exit_code == 3 and "cut off before its end" in result.output
    assert not (tmp_path / "new").exists()
