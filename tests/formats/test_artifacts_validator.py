"""What the validator meets that no specification foresees: trees, archives, hostile and huge
things.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.artifact_bundle import DATA, BrokenBundle
from support.commands import vestige
from vestige.errors import UnreadableError
from vestige.formats import artifacts
from vestige.formats.artifacts import constants
from vestige.formats.artifacts.finding_report import Report
from vestige.formats.artifacts.json_files.json_schemas import bundle_schema
from vestige.formats.artifacts.json_files.schema_check import find_faults
from vestige.formats.artifacts.read import DirectoryTree, zip_prefixes
from vestige.formats.artifacts.validate import check_bundle
from vestige.formats.artifacts.validation_rules import PROFILES, Profile
from vestige.formats.protocol import ValidationResult
from vestige.limits import ARTIFACT_FINDINGS_MAX


def validate(*arguments: object) -> Result:
    return vestige("validate", *map(str, arguments))


def rules_of(result: Result) -> set[str]:
    report = json.loads(result.stdout)
    return {problem["rule"] for checked in report["checked"] for problem in checked["problems"]}


# --- what a path may be ---------------------------------------------------------------------------


def test_a_tree_is_validated_bundle_by_bundle() -> None:
    result = validate(DATA)

    assert result.exit_code == 0
    assert result.stdout.count(": valid by seed") == 5


def test_a_tree_with_a_suite_that_has_no_bundle_is_invalid(tmp_path: Path) -> None:
    shutil.copytree(DATA / "seed_pass", tmp_path / "good" / "20260210_170000")
    (tmp_path / "empty").mkdir()

    result = validate(tmp_path, "--format", "json")

    assert result.exit_code == 1
    assert rules_of(result) == {"suite-without-bundle"}


@pytest.mark.parametrize("data", [None, b"", b"{", b"\xff\xfe", b"null", b'{"schema": 1}'])
def test_a_directory_named_as_a_bundle_needs_a_bundle_json(
    data: bytes | None, tmp_path: Path
) -> None:
    """Missing, empty or malformed: invalid, with status 1, and no traceback."""
    bundle = tmp_path / "suite" / "20260210_170000"
    bundle.mkdir(parents=True)
    if data is not None:
        (bundle / "bundle.json").write_bytes(data)

    for path in (bundle, tmp_path / "suite", tmp_path):
        result = validate(path)

        assert result.exit_code == 1
        assert "bundle.json" in result.stdout


def test_what_is_not_there_has_status_2(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")

    for path in (tmp_path / "none", tmp_path, tmp_path / "notes.txt"):
        result = validate(path)

        assert result.exit_code == 2
        assert str(path) in result.stderr


def test_other_formats_are_validated_by_their_own_rules(tmp_path: Path) -> None:
    """One verb for all; a report that is not XML is invalid, and not a traceback."""
    good = DATA.parent / "suites" / "junit.xml"
    bad = tmp_path / "junit.xml"
    bad.write_bytes(b"<testsuites><testsuite>")
    shutil.copy(good.parent / "shot.txt", tmp_path)

    assert validate(good).exit_code == 0
    assert validate(bad).exit_code == 1


def test_debug_bundles_and_agentdbg_runs_are_validated_side_by_side(tmp_path: Path) -> None:
    """Each by its own rules, all in one call; damage is reported, the others stay valid."""
    wink, run = tmp_path / "x.wink", tmp_path / "runs"
    for name, target in (("wink", wink), ("agentdbg", run)):
        command = ["export", str(DATA / "seed_failures"), "--format", name, "-o", str(target)]
        assert vestige(*command).exit_code == 0
    both = validate(wink, run)
    wink.write_bytes(wink.read_bytes()[:-100])
    damaged = validate(wink, run, "--format", "json")

    assert both.exit_code == 0, both.output
    assert "valid" in both.output and "wink" in both.output and "agentdbg" in both.output
    assert damaged.exit_code == 1
    assert [each["valid"] for each in json.loads(damaged.stdout)["checked"]] == [False, True]


def test_an_unsafe_path_is_reported_with_its_reason(tmp_path: Path) -> None:
    bundle = BrokenBundle(tmp_path)
    bundle.entry("summary.json", path="summary.json/")

    [problem] = [each for each in bundle.problems() if each.rule == "path-unsafe"]

    assert problem.message == '"summary.json/" names a directory.'


# --- archives -------------------------------------------------------------------------------------


def _zip(target: Path, source: Path, prefix: str = "") -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for place in sorted(source.rglob("*")):
            if place.is_file():
                archive.write(place, prefix + place.relative_to(source).as_posix())
    return target


@pytest.mark.parametrize("prefix", ["", "demo/20260210_170000/"])
def test_an_archive_is_validated_without_unpacking_it(prefix: str, tmp_path: Path) -> None:
    archive = _zip(tmp_path / "b.zip", DATA / "dual_failures", prefix)

    for profile in ("seed", "latest", "strict"):
        assert validate(archive, "--profile", profile).exit_code == 0
    assert [place.name for place in tmp_path.iterdir()] == ["b.zip"]


def test_names_that_lead_out_of_an_archive_are_findings(tmp_path: Path) -> None:
    archive = _zip(tmp_path / "b.zip", DATA / "seed_pass")
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr("../evil.txt", "x")
        opened.writestr("/abs.txt", "x")
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        opened.writestr(link, "/etc/passwd")

    result = validate(archive, "--format", "json")

    assert result.exit_code == 1
    assert rules_of(result) == {"zip-name", "symlink-escapes"}
    assert not (tmp_path.parent / "evil.txt").exists()


def test_a_name_that_is_in_an_archive_twice_is_a_finding(tmp_path: Path) -> None:
    archive = _zip(tmp_path / "b.zip", DATA / "seed_pass")
    with zipfile.ZipFile(archive, "a") as opened, pytest.warns(UserWarning):
        opened.writestr("repro.txt", "another")

    assert "zip-name" in rules_of(validate(archive, "--format", "json"))


def test_a_damaged_archive_is_a_finding(tmp_path: Path) -> None:
    content = _zip(tmp_path / "b.zip", DATA / "seed_pass").read_bytes()
    middle = bytearray(content)
    middle[60:200] = b"\0" * 140
    for name, data in {
        "torn.zip": content[:500],
        "no.zip": b"no archive",
        "hurt.zip": bytes(middle),
    }.items():
        (tmp_path / name).write_bytes(data)

        result = validate(tmp_path / name, "--format", "json")

        assert result.exit_code == 1, name
        assert rules_of(result) & {"zip-damaged", "bytes-differ", "json-invalid"}, name


def test_an_archive_that_unfolds_to_too_much_is_not_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bound on what is read, whatever its header says."""
    monkeypatch.setattr("vestige.formats.artifacts.read.ARTIFACT_ZIP_BYTES_MAX", 5_000_000)
    archive = _zip(tmp_path / "b.zip", DATA / "seed_pass")
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("bomb.bin", b"\0" * 50_000_000)

    assert "zip-damaged" in rules_of(validate(archive, "--format", "json"))


# --- hostile and huge -----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_huge_file_is_hashed_and_not_parsed(tmp_path: Path) -> None:
    """A gigabyte that is not JSON takes a second, and little memory."""
    bundle = BrokenBundle(tmp_path, "seed_pass")
    with open(bundle.path("huge.json"), "wb") as file:
        file.truncate(64 * 2**20)
    with open(bundle.path("huge.jsonl"), "wb") as file:
        file.truncate(64 * 2**20)
    with open(bundle.path("meta.json"), "ab") as file:
        file.truncate(64 * 2**20)

    found = bundle.rules()

    assert found == {
        "json-invalid",
        "jsonl-invalid",
        "json-too-large",
        "file-unlisted",
        "bytes-differ",
        "sha256-differs",
    }


@pytest.mark.full  # writes 1 GB
def test_a_gigabyte_is_hashed_in_little_memory(tmp_path: Path) -> None:
    bundle = BrokenBundle(tmp_path, "seed_pass")
    with open(bundle.path("huge.json"), "wb") as file:
        file.truncate(2**30)
    program = (
        "import re, sys; from vestige.cli.main import cli\n"
        "try: cli(['validate', sys.argv[1]])\n"
        # Not ru_maxrss: a child begins with what its parent had when it forked.
        "finally: print(int(re.search(r'VmHWM:\\s+(\\d+)', "
        "open('/proc/self/status').read())[1]) // 1024)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, str(bundle.root)],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 1
    assert "file-unlisted" in done.stdout
    assert int(done.stdout.split()[-1]) < 200


def test_a_warning_alone_makes_no_bundle_invalid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without room for a temporary file, the report states that the file was not parsed."""
    bundle = BrokenBundle(tmp_path, "seed_pass")
    bundle.write("large.json", b'["' + b"x" * (17 * 2**20) + b'"]')
    bundle.write("blank.json", b" " * (17 * 2**20))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))

    result = validate(bundle.root)

    assert result.exit_code == 0
    assert "warning" in result.stdout


@pytest.mark.full  # writes 100,000 files
def test_a_hundred_thousand_files_are_walked(tmp_path: Path) -> None:
    bundle = BrokenBundle(tmp_path, "seed_pass")
    for folder in range(100):
        bundle.path(f"many/{folder}").mkdir(parents=True)
        for number in range(1000):
            os.mknod(bundle.path(f"many/{folder}/{number}"))

    problems = bundle.problems()

    assert {problem.rule for problem in problems} == {"file-unlisted"}
    assert len(problems) == 100_000


def test_symlinks_are_never_followed_in_circles(tmp_path: Path) -> None:
    bundle = BrokenBundle(tmp_path, "seed_pass")
    bundle.path("round").symlink_to(".")
    bundle.path("trace/up").symlink_to("..")

    assert bundle.rules() <= {"symlink-escapes"}
    assert "symlink" in bundle.rules("strict")


def test_a_required_file_may_not_be_a_symlink_out_of_the_bundle(tmp_path: Path) -> None:
    """Nor may bundle.json itself."""
    bundle = BrokenBundle(tmp_path, "seed_pass")
    outside = tmp_path / "outside.json"
    shutil.move(bundle.path("meta.json"), outside)
    bundle.path("meta.json").symlink_to(outside)

    assert bundle.rules() == {"symlink-escapes"}

    shutil.move(bundle.path("bundle.json"), tmp_path / "b.json")
    bundle.path("bundle.json").symlink_to(tmp_path / "b.json")

    assert "file-special" in bundle.rules()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_a_finding(tmp_path: Path) -> None:
    bundle = BrokenBundle(tmp_path, "seed_pass")
    bundle.path("repro.txt").chmod(0)

    assert bundle.rules() == {"file-unreadable"}


def test_a_file_that_vanishes_while_it_is_read_is_a_finding(tmp_path: Path) -> None:
    """Whatever the disk does, there is a line about it, and the rest is looked at."""
    bundle = BrokenBundle(tmp_path, "seed_pass")

    class Vanishing(DirectoryTree):
        def items(self) -> Any:
            for item in super().items():
                if item.path == "repro.txt":
                    os.unlink(self.root / item.path)
                yield item

    assert {p.rule for p in check_bundle(Vanishing(bundle.root))[1]} == {"file-unreadable"}


def test_odd_names_are_told_on_one_line(tmp_path: Path) -> None:
    """Escapes, newlines and bytes that are no UTF-8: nothing that a terminal would obey."""
    bundle = BrokenBundle(tmp_path, "seed_pass")
    for name in (b"\x1b[31mred", b"two\nlines", b"\xff\xfe", b"::error::x", b"a\\b"):
        Path(bundle.root, os.fsdecode(name)).touch()

    for how in ("text", "json", "github"):
        result = validate(bundle.root, "--format", how)

        assert result.exit_code == 1
        assert "\x1b" not in result.stdout
    assert len(validate(bundle.root).stdout.splitlines()) == 6


def test_too_many_findings_of_one_kind_are_counted(tmp_path: Path) -> None:
    bundle = BrokenBundle(tmp_path, "seed_pass")
    bundle.lines(lambda events: events.extend([{**events[0], "suite": "x"}] * 500))

    problems = bundle.problems()

    assert len(problems) == 101
    assert "400 more findings of suite-differs" in problems[-1].message


def test_a_bound_on_files_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vestige.formats.artifacts.read.ARTIFACT_FILES_MAX", 5)
    bundle = BrokenBundle(tmp_path, "seed_pass")

    assert "too-many" in bundle.rules()


# --- how it is reported ---------------------------------------------------------------------------


def test_github_annotations_are_escaped(tmp_path: Path) -> None:
    """A name cannot end a command, nor begin one."""
    bundle = BrokenBundle(tmp_path, "seed_pass")
    bundle.path("a,b:c%d.json").write_text("{")
    bundle.lines(lambda events: events[1].update(schema_version=3))

    lines = validate(bundle.root, "--format", "github").stdout.splitlines()

    (invalid,) = [line for line in lines if "title=json-invalid" in line]
    assert "a%2Cb%3Ac%25d.json,title=json-invalid,line=1::" in invalid
    assert any("line=2::line 2 /schema_version" in line for line in lines)
    assert all(line.startswith(("::error ", "vestige bundle validate: ")) for line in lines)


def test_the_step_summary_names_the_failing_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where GitHub gives a file for it."""
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))

    validate(DATA / "dual_failures", "--format", "github")

    text = summary.read_text()
    assert "| case\\_bad | fail | mismatch |" in text
    assert "of 3 cases failed" in text and "1 assertions passed, 1 failed, 1 skipped." in text


def test_json_has_all_there_is_to_know(tmp_path: Path) -> None:
    bundle = BrokenBundle(tmp_path, "seed_pass")
    bundle.edit("repro.json", lambda repro: repro.pop("seed"))

    report = json.loads(validate(bundle.root, "--format", "json").stdout)

    assert report["valid"] is False
    assert report["checked"][0]["problems"] == [
        {
            "file": str(bundle.path("repro.json")),
            "place": "",
            "rule": "key-missing",
            "message": "the key 'seed' is missing.",
            "hint": "Write the bundle again; do not edit its files.",
            "severity": "error",
        }
    ]


# --- never a traceback ----------------------------------------------------------------------------

_FILES = ["bundle.json", *constants.PART_OF, "requests/stream.jsonl", "steps/step_001.json"]
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["path", "files", "schema", "counts", "suite", "x"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


@pytest.mark.slow
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_bytes_make_a_traceback(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Bytes of a file replaced, cut, or swapped for another file's: findings, or none."""
    bundle = BrokenBundle(tmp_path_factory.mktemp("fuzz"), "dual_failures")
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from([name for name in _FILES if bundle.path(name).exists()]))
        was = bytearray(bundle.path(name).read_bytes())
        seed = random.Random(data.draw(st.integers(0, 2**32)))
        match data.draw(st.sampled_from(["bytes", "cut", "flip", "value"])):
            case "bytes":
                was = bytearray(data.draw(st.binary(max_size=200)))
            case "cut":
                was = was[: seed.randrange(len(was) + 1)]
            case "flip" if was:
                for _ in range(5):
                    was[seed.randrange(len(was))] = seed.randrange(256)
            case _:
                was = bytearray(json.dumps(data.draw(_values)).encode())
        bundle.path(name).write_bytes(bytes(was))

    for profile in ("seed", "latest", "strict"):
        bundle.problems(profile)
    try:
        for _ in artifacts.read_run(bundle.root).records:
            pass
    except UnreadableError as error:
        assert "trace" in str(error)
    shutil.rmtree(bundle.root)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(value=_values)
def test_no_value_is_beyond_the_shapes(value: Any) -> None:
    for fault in find_faults(
        {"schema": value, "files": value, "artifacts": value}, bundle_schema()
    ):
        assert fault.message.endswith(".")


@pytest.mark.parametrize("name", ["bundle.json", "trace/events.jsonl"])
@pytest.mark.parametrize("profile", PROFILES)
def test_a_key_that_no_schema_has_is_utf_8_too(tmp_path: Path, name: str, profile: Profile) -> None:
    """A quick decoder passes over what it does not know, and so over bytes that are no text."""
    bundle = BrokenBundle(tmp_path)
    data = bundle.path(name).read_bytes().replace(b'"suite"', b'"more": "\xff", "suite"', 1)
    bundle.path(name).write_bytes(data)
    if name != "bundle.json":
        bundle.list(name)

    rules = bundle.rules(profile)

    assert "json-utf8" in rules


def test_counters_that_are_a_lone_surrogate_are_a_finding(tmp_path: Path) -> None:
    bundle = BrokenBundle(tmp_path)
    bundle.lines(lambda events: events[1].update(counters="\ud800"))

    for profile in PROFILES:
        assert "type-wrong" in bundle.rules(profile)
    assert list(artifacts.read_run(bundle.root).records)


def test_any_number_of_warnings_makes_no_bundle_invalid() -> None:
    """The line that counts the omitted warnings is a warning like them."""
    report = Report("bundle", "seed")
    for number in range(ARTIFACT_FINDINGS_MAX + 2):
        report.add("json-unchecked", "big.jsonl", "a line is too long.", f"line {number}")

    problems = report.problems()

    assert "2 more" in problems[-1].message
    assert ValidationResult("bundle", 1, problems).valid


def test_an_archive_is_looked_through_once_for_all_its_bundles(tmp_path: Path) -> None:
    """Each has what is below it; a bundle inside of a bundle is files of the outer one."""
    names = [
        "a/bundle.json",
        "a/x",
        "a/inner/bundle.json",
        "ab/bundle.json",
        "c/d/bundle.json",
        "c/y",
    ]
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        for name in names:
            archive.writestr(name, "{}")

        found = zip_prefixes(archive)

    assert {prefix: [info.filename for info in files] for prefix, files in found.items()} == {
        "a/": names[:3],
        "ab/": [names[3]],
        "c/d/": [names[4]],
    }
