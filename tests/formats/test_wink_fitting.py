"""What we write, our own reader takes: it refuses what looks like a bomb, however honest it was
meant.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from support.wink_samples import make_bundle
from vestige.debug import DebugBundle
from vestige.formats import zip_index_limits
from vestige.formats.wink.archive import open_archive, write_limits
from vestige.limits import BUNDLE_MANIFEST_MAX

STATE = (
    '{"version":"1","created_at":"2026-11-15T18:12:26+00:00","tags":{"session_id":"s"},"slices":[]}'
)


def test_more_files_than_a_reader_takes_are_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Better most of the files, and a word about the others, than a bundle that nobody opens."""
    monkeypatch.setattr(write_limits, "BUNDLE_MEMBERS_MAX", 100)
    monkeypatch.setattr(zip_index_limits, "BUNDLE_MEMBERS_MAX", 100)
    files = {f"workspace/{number:04}": b"%d" % number for number in range(200)}

    path = make_bundle(_files=files).export(tmp_path / "x.wink")
    loaded = DebugBundle.load(path)

    names = loaded.list_files()
    skipped = loaded.manifest.components["files"].skipped or []
    assert 60 < len(names) < 100
    assert sorted([*names, *(one.path for one in skipped)]) == sorted(files)
    assert loaded.manifest.components["files"].file_count == len(names)
    assert loaded.read_file("workspace/0007") == b"7"


def test_files_with_long_names_fit_into_the_zips_own_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_limits, "BUNDLE_DIRECTORY_MAX", 64_000)
    monkeypatch.setattr(zip_index_limits, "BUNDLE_DIRECTORY_MAX", 64_000)
    files = {f"workspace/{number:04}{'x' * 800}": b"" for number in range(200)}

    path = make_bundle(_files=files).export(tmp_path / "x.wink")

    assert 10 < len(DebugBundle.load(path).list_files()) < 200


def test_a_manifest_that_would_be_too_long_is_shortened_and_says_so(tmp_path: Path) -> None:
    """Of tags and of what files were called, each as much as fits."""
    tags = {"short": "1", "long": "x" * (BUNDLE_MANIFEST_MAX + 1)}
    files = {f"workspace/\\{number:05}": b"" for number in range(2_000)}

    path = make_bundle(tags=tags, _files=files).export(tmp_path / "x.wink")
    loaded = DebugBundle.load(path)

    renamed = loaded.manifest.components["files"].renamed or {}
    assert loaded.tags["short"] == "1"
    assert "characters]" in loaded.tags["long"]
    assert len(loaded.list_files()) == len(files)
    assert renamed["…"].endswith(" more")


@pytest.mark.slow
def test_states_that_hardly_change_are_not_taken_for_a_bomb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long run with a small state packs better than a bomb may: a part of it is stored as it
    is.
    """
    for module in (write_limits, open_archive):
        monkeypatch.setattr(module, "BUNDLE_RATIO_FREE", 1_000_000)
    states = [STATE] * 100_000
    files = {f"workspace/{number}": bytes(500_000) for number in range(8)}

    path = make_bundle(_snapshots=states, _files=files).export(tmp_path / "x.wink")
    loaded = DebugBundle.load(path)

    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    assert sum(1 for one in loaded.snapshots if one.raw == STATE) == len(states)
    assert loaded.read_file("workspace/3") == files["workspace/3"]
    assert path.stat().st_size < 1_000_000
