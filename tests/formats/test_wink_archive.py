"""Writing a bundle: the seed's layout, exact numbers, the same bytes, all or nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support.wink_samples import BUNDLE, make_bundle, members_of, sha256
from vestige.errors import DebugBundleError
from vestige.formats.wink.archive.member_names import find_fault, safe_path
from vestige.formats.wink.read import ZipContent
from vestige.formats.wink.write import target_path, write_bundle


def test_the_layout_is_the_seeds_and_the_manifest_is_last(tmp_path: Path) -> None:
    """snapshots, logs, files/..., the manifest after them; every member deflated."""
    path = make_bundle().export(tmp_path / "x.wink")

    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
    names = [info.filename for info in infos]

    assert names[:2] == ["snapshots.jsonl", "logs.jsonl"]
    assert names[-1] == "manifest.json"
    assert "files/workspace/.env" in names
    assert {info.compress_type for info in infos} == {zipfile.ZIP_DEFLATED}


def test_sizes_counts_and_hashes_in_the_manifest_are_exact(tmp_path: Path) -> None:
    members = members_of(make_bundle().export(tmp_path / "x.wink"))
    manifest = json.loads(members["manifest.json"])
    components = manifest["components"]

    assert list(manifest) == [
        "version",
        "bundle_id",
        "created_at",
        "session_id",
        "agent",
        "execution",
        "environment",
        "components",
        "tags",
    ]
    assert manifest["version"] == "1"
    assert manifest["execution"]["duration_seconds"] == 1.0
    for name, entries in (("snapshots", 8), ("logs", 82)):
        data = members[f"{name}.jsonl"]
        assert components[name] == {
            "path": f"{name}.jsonl",
            "entry_count": entries,
            "size_bytes": len(data),
            "sha256": sha256(data),
        }
    files = {name: data for name, data in members.items() if name.startswith("files/")}
    assert components["files"]["file_count"] == len(files) == 4
    assert components["files"]["total_size_bytes"] == sum(map(len, files.values()))
    assert components["files"]["sha256"] == sha256(members["files.sha256"])


def test_the_listing_is_one_that_sha256sum_can_check(tmp_path: Path) -> None:
    path = make_bundle().export(tmp_path / "x.wink")
    out = tmp_path / "out"
    with zipfile.ZipFile(path) as archive:
        archive.extractall(out)

    checked = subprocess.run(
        ["sha256sum", "-c", "files.sha256"], cwd=out, capture_output=True, text=True, check=False
    )

    assert checked.returncode == 0, checked.stdout


def test_the_same_bundle_gives_the_same_bytes(tmp_path: Path) -> None:
    """Exported twice, and exported again after it was loaded."""
    bundle = make_bundle()
    first = bundle.export(tmp_path / "a.wink").read_bytes()
    again = bundle.export(tmp_path / "b.wink").read_bytes()

    from vestige.debug import DebugBundle

    loaded = DebugBundle.load(tmp_path / "a.wink").export(tmp_path / "c.wink").read_bytes()

    assert first == again == loaded


def test_a_target_without_a_suffix_or_with_a_slash_is_a_folder(tmp_path: Path) -> None:
    assert target_path(f"{tmp_path}/new.d/", "b") == tmp_path / "new.d" / "b.wink"
    assert target_path(tmp_path / "new", "b") == tmp_path / "new" / "b.wink"
    assert target_path(tmp_path / "x.zip", "b") == tmp_path / "x.zip"
    assert (
        make_bundle().export(f"{tmp_path}/deep/er/") == tmp_path / "deep" / "er" / f"{BUNDLE}.wink"
    )


def test_an_id_that_is_no_file_name_needs_one(tmp_path: Path) -> None:
    with pytest.raises(DebugBundleError, match="Give a file name"):
        target_path(tmp_path, "../x")


class _Failing:
    """Content whose disk goes away in the middle."""

    manifest = make_bundle().manifest

    def snapshots(self):  # type: ignore[no-untyped-def]
        yield "{}"
        raise OSError(5, "Input/output error")

    logs = files = extras = snapshots


def test_a_failed_export_leaves_nothing_and_keeps_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "x.wink"
    target.write_bytes(b"before")

    with pytest.raises(OSError, match="Input/output"):
        write_bundle(_Failing(), target)

    assert [each.name for each in tmp_path.iterdir()] == ["x.wink"]
    assert target.read_bytes() == b"before"


@pytest.mark.slow
def test_a_kill_in_the_middle_never_leaves_half_a_bundle_under_the_name(tmp_path: Path) -> None:
    """The child says when it is in the middle of a member, and is killed there."""
    code = """
import sys
sys.path.insert(0, sys.argv[2])
from support.wink_samples import make_bundle
from vestige.formats.wink.write import write_bundle
class Slow:
    manifest = make_bundle().manifest
    def snapshots(self):
        while True:
            yield "{}" * 1000
            print("writing", flush=True)
    logs = files = extras = snapshots
write_bundle(Slow(), sys.argv[1])
"""
    target = tmp_path / "x.wink"
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(target), str(Path(__file__).parents[1])],
        stdout=subprocess.PIPE,
        env={**os.environ},
    )
    assert child.stdout is not None
    for _ in range(500):
        child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.stdout.close()
    child.wait()

    assert not target.exists()
    assert all(each.name.startswith(".x.wink.") for each in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("path", "stored"),
    [
        ("a/b.txt", "a/b.txt"),
        ("a\\b", "a%5Cb"),
        ("../up", "%2E%2E/up"),
        ("/etc/passwd", "%2F/etc/passwd"),
        ("C:/x", "C%3A/x"),
        ("nul\0byte", "nul%00byte"),
        ("a//b", "a/%2F/b"),
        ("ends/", "ends/%2F"),
        ("\ud800", "%ED%A0%80"),
        (".env", ".env"),
        ("naïve ✓.txt", "naïve ✓.txt"),
    ],
)
def test_a_name_that_is_not_safe_everywhere_becomes_one(path: str, stored: str) -> None:
    assert safe_path(path) == stored
    assert find_fault(stored) is None


def test_a_renamed_file_never_takes_another_ones_name(tmp_path: Path) -> None:
    """`a\\b` and `a%5Cb` are two files, and stay two; the manifest says what one was."""
    files = {"a\\b": b"1", "a%5Cb": b"2", "x" * 5000: b"3"}
    path = make_bundle(_files=files).export(tmp_path / "x.wink")
    content = ZipContent(path)
    stored = {file.path: file.open().read() for file in content.files()}
    component = content.manifest.component("files")
    assert component is not None and component.renamed is not None

    assert stored["a%5Cb"] == b"2"
    assert stored["a%5Cb~2"] == b"1"
    assert component.renamed["a%5Cb~2"] == "a\\b"
    assert sorted(stored.values()) == [b"1", b"2", b"3"]
