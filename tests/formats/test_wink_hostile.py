"""A bundle that anybody may have made: each trick is refused by one clear line."""

from __future__ import annotations

import json
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.wink_samples import make_bundle, members_of, seed_members, write_zip
from vestige import limits
from vestige.debug import (
    BundleComponentMissingError,
    BundleCorruptedError,
    BundleVersionError,
    DebugBundle,
    DebugBundleError,
)
from vestige.errors import UnreadableError, VestigeError
from vestige.formats import zip_index_limits
from vestige.formats.wink import read, validate_run
from vestige.formats.wink.archive import open_archive, zip_members

Spoil = Callable[[dict[str, bytes]], None]


def refused(path: Path, error: type[DebugBundleError] = BundleCorruptedError) -> str:
    """The one line that says why."""
    with pytest.raises(error) as caught:
        DebugBundle.load(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ") and "\n" not in text
    assert caught.value.exit_code == 3
    assert validate_run(path), "what cannot be loaded is a problem"
    return text


def with_name(name: str, **attributes: Any) -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for known, data in seed_members().items():
                archive.writestr(known, data)
            info = zipfile.ZipInfo("files/x")
            info.filename = name
            for key, value in attributes.items():
                setattr(info, key, value)
            archive.writestr(info, b"planted")
        return path

    return write


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("files/../../x", "leads out of the bundle"),
        ("/etc/passwd", "is absolute"),
        ("C:/x", "has a drive"),
        ("files/a\\..\\b", "backslash"),
        ("files//x", "plain path"),
        ("files/./x", "plain path"),
        ("files/a\x07b", "control character"),
        ("files/" + "x" * 2000, "longer than"),
    ],
)
def test_names_that_mean_another_place_are_refused(tmp_path: Path, name: str, why: str) -> None:
    assert why in refused(with_name(name)(tmp_path / "x.wink"))


def test_a_name_with_a_nul_is_refused(tmp_path: Path) -> None:
    """The library cuts the name there: what is stored is not what is seen."""
    path = with_name("files/x_y")(tmp_path / "x.wink")
    path.write_bytes(path.read_bytes().replace(b"files/x_y", b"files/x\0y"))

    assert "control character" in refused(path)


def test_a_name_that_the_library_reads_from_elsewhere_is_refused(tmp_path: Path) -> None:
    """Newer ones take it from an extra field, and leave the plain one as it was."""
    path = write_zip(tmp_path / "x.wink", seed_members())
    info = zipfile.ZipInfo("files/x")
    info.filename = "files/../../x"

    with pytest.raises(BundleCorruptedError, match="leads out"):
        open_archive.check_members(path, [info])


def test_a_name_in_a_manifest_cannot_command_the_terminal(tmp_path: Path) -> None:
    evil = "x\x1b[2J\nvestige: all is well"
    members = seed_members()
    manifest = json.loads(members["manifest.json"])
    manifest["components"][evil] = {"path": evil}
    missing = members | {"manifest.json": json.dumps(manifest).encode()}
    (problem,) = read.ZipContent(write_zip(tmp_path / "y.wink", missing)).problems
    manifest["components"]["logs"]["path"] = evil
    members |= {"manifest.json": json.dumps(manifest).encode()}
    message = refused(write_zip(tmp_path / "x.wink", members), BundleComponentMissingError)

    for text in (message, str(problem)):
        assert "\\x1b[2J\\n" in text
        assert "\x1b" not in text and "\n" not in text


def test_a_file_that_lost_its_beginning_says_so(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.wink", seed_members())
    path.write_bytes(path.read_bytes()[-100:])

    assert "does not fit into it" in refused(path)


def test_a_symlink_is_refused(tmp_path: Path) -> None:
    assert "link" in refused(
        with_name("files/x2", external_attr=0o120777 << 16)(tmp_path / "x.wink")
    )


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.wink"
    with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        for known, data in seed_members().items():
            archive.writestr(known, data)
        archive.writestr("logs.jsonl", b"other")

    assert "twice" in refused(path)


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.wink", seed_members())
    raw = bytearray(path.read_bytes())
    at = raw.index(b"PK\x01\x02")
    raw[at + 8] |= 1
    path.write_bytes(raw)

    assert "encrypted" in refused(path)


def test_another_packing_than_deflate_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.wink"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        for known, data in seed_members().items():
            archive.writestr(known, data)

    assert "method 12" in refused(path)


def test_a_file_that_was_cut_off_is_refused_at_every_length(tmp_path: Path) -> None:
    content = make_bundle().export(tmp_path / "whole.wink").read_bytes()
    path = tmp_path / "x.wink"

    for length in range(0, len(content), 97):
        path.write_bytes(content[:length])
        with pytest.raises(BundleCorruptedError):
            DebugBundle.load(path)


@pytest.mark.slow
def test_no_changed_byte_makes_anything_but_our_errors(tmp_path: Path) -> None:
    """A flip anywhere is refused, a finding, or harmless; never a traceback of the library."""
    content = make_bundle().export(tmp_path / "whole.wink").read_bytes()
    path = tmp_path / "x.wink"
    outcomes = set()
    for at in range(0, len(content), 41):
        spoilt = bytearray(content)
        spoilt[at] ^= 0x55
        path.write_bytes(spoilt)
        try:
            bundle = DebugBundle.load(path)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                list(bundle.snapshots), list(bundle.logs)
            outcomes.add("damaged" if bundle.problems else "read")
        except VestigeError:
            outcomes.add("refused")

    assert outcomes >= {"refused", "damaged"}


# --- bombs ---------------------------------------------------------------------------------------


def test_members_that_overlap_are_refused(tmp_path: Path) -> None:
    """Many directory entries for one packed stretch: the cheapest bomb there is."""
    path = tmp_path / "x.wink"
    path.write_bytes(_overlapping(b"0" * 100_000, 50))

    assert "overlap" in refused(path)


def _overlapping(data: bytes, count: int) -> bytes:
    packed = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = packed.compress(data) + packed.flush()
    crc = zlib.crc32(data)
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 8, 0, 33, crc, len(body), len(data), 1, 0)
    raw = local + b"a" + body
    entries = b"".join(
        struct.pack(
            "<4s4B4H3L5H2L",
            b"PK\1\2",
            20,
            3,
            20,
            0,
            0,
            8,
            0,
            33,
            crc,
            len(body),
            len(data),
            len(name),
            0,
            0,
            0,
            0,
            0,
            0,
        )
        + name
        for name in (f"files/{n}".encode() for n in range(count))
    )
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(entries), len(raw), 0)
    return raw + entries + end


def test_a_size_that_the_packed_bytes_cannot_hold_is_refused(tmp_path: Path) -> None:
    """A declared size is checked before a byte is unpacked."""
    path = write_zip(tmp_path / "x.wink", seed_members())
    raw = bytearray(path.read_bytes())
    at = raw.index(b"PK\x01\x02")
    raw[at + 24 : at + 28] = (900_000_000).to_bytes(4, "little")
    path.write_bytes(raw)

    assert "cannot hold" in refused(path)


def test_a_bundle_too_large_to_unpack_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_zip(tmp_path / "x.wink", {**seed_members(), "files/y": b"0" * 2_000_000})
    monkeypatch.setattr(open_archive, "BUNDLE_TOTAL_MAX", 1_000_000)

    assert "unpacked" in refused(path)


def test_a_high_ratio_is_refused_where_it_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_zip(tmp_path / "x.wink", {**seed_members(), "files/y": b"0" * 2_000_000})
    monkeypatch.setattr(open_archive, "BUNDLE_RATIO_FREE", 1_000_000)

    assert "bomb" in refused(path)


def test_a_directory_of_too_many_members_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {**seed_members(), **{f"files/{n}": b"" for n in range(50)}}
    path = write_zip(tmp_path / "x.wink", members)
    monkeypatch.setattr(zip_index_limits, "BUNDLE_MEMBERS_MAX", 20)

    assert "54 members" in refused(path)


def test_a_listing_of_more_files_than_a_bundle_has_is_read_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = members_of(make_bundle().export(tmp_path / "x.wink"))
    manifest = json.loads(members["manifest.json"])
    members["files.sha256"] += b"".join(b"%064x  files/%d\n" % (1, n) for n in range(50))
    manifest["components"]["files"]["sha256"] = None
    members["manifest.json"] = json.dumps(manifest).encode()
    path = write_zip(tmp_path / "y.wink", members)
    monkeypatch.setattr(read, "BUNDLE_MEMBERS_MAX", 20)

    assert "listing-too-long" in [problem.rule for problem in validate_run(path)]


def test_a_directory_too_long_to_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_zip(tmp_path / "x.wink", {**seed_members(), "files/" + "x" * 900: b""})
    monkeypatch.setattr(zip_index_limits, "BUNDLE_DIRECTORY_MAX", 500)

    assert "directory" in refused(path)


# --- manifests -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"\xff\xfe",
        b"{}",
        b"NaN",
        b"[" * 100_000,
        b'{"version":"1"}',
        b'{"version":"1","x":' + b"[" * 100_000,
    ],
)
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, raw: bytes) -> None:
    refused(write_zip(tmp_path / "x.wink", {**seed_members(), "manifest.json": raw}))


@pytest.mark.parametrize(
    "change",
    [
        {"bundle_id": 7},
        {"bundle_id": ""},
        {"created_at": "yesterday"},
        {"agent": "me"},
        {"agent": {}},
        {"execution": {"started_at": "never"}},
        {"tags": []},
        {"components": {"snapshots": {"path": 1}, "logs": {"path": "logs.jsonl"}}},
        {
            "components": {
                "snapshots": {"path": "snapshots.jsonl", "size_bytes": -1},
                "logs": {"path": "l"},
            }
        },
    ],
)
def test_a_manifest_with_a_wrong_value_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    refused(write_zip(tmp_path / "x.wink", seed_members(**change)))


@pytest.mark.parametrize("version", ["2", "0", 2, 2.0, True, ["1"], "1.0"])
def test_a_version_that_is_not_known_is_refused(tmp_path: Path, version: object) -> None:
    text = refused(
        write_zip(tmp_path / "x.wink", seed_members(version=version)), BundleVersionError
    )

    assert "Upgrade vestige" in text


def test_a_manifest_that_is_too_long_is_refused(tmp_path: Path) -> None:
    raw = json.dumps({"version": "1", "x": "0" * (limits.BUNDLE_MANIFEST_MAX + 1)}).encode()

    assert "manifest.json has" in refused(
        write_zip(tmp_path / "x.wink", {**seed_members(), "manifest.json": raw})
    )


@pytest.mark.parametrize("name", ["manifest.json", "snapshots.jsonl", "logs.jsonl"])
def test_a_component_that_is_needed_and_missing_has_its_own_error(
    tmp_path: Path, name: str
) -> None:
    members = seed_members()
    del members[name]

    refused(write_zip(tmp_path / "x.wink", members), BundleComponentMissingError)


def test_a_component_that_the_manifest_does_not_list_is_missing(tmp_path: Path) -> None:
    components = {"snapshots": {"path": "snapshots.jsonl"}}

    refused(
        write_zip(tmp_path / "x.wink", seed_members(components=components)),
        BundleComponentMissingError,
    )


@pytest.mark.parametrize("raw", [b"", b"no zip at all", b"PK\x03\x04" + b"\0" * 100, b"PK\x05\x06"])
def test_what_is_no_zip_is_refused(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "x.wink"
    path.write_bytes(raw)

    assert "zip" in refused(path)


def test_a_folder_and_nothing_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(VestigeError, match="no such file"):
        DebugBundle.load(tmp_path / "x.wink")
    (tmp_path / "y.wink").mkdir()
    with pytest.raises(UnreadableError, match="a folder"):
        DebugBundle.load(tmp_path / "y.wink")


def test_a_line_too_long_to_hold_is_passed_over_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded by one entry, however long a line is; what follows it is read."""
    long = json.dumps({"timestamp": "2024-01-15T10:30:00+00:00", "message": "x" * 700_000})
    short = json.dumps({"timestamp": "2024-01-15T10:30:01+00:00", "message": "after"})
    path = make_bundle(_logs=[short, long, short]).export(tmp_path / "x.wink")
    monkeypatch.setattr(zip_members, "BUNDLE_ENTRY_MAX", 500_000)
    content = read.ZipContent(path)

    lines = list(content.logs())

    assert lines == [short, short]
    assert [problem.rule for problem in content.problems] == ["entry-too-long", "entry-count"]
