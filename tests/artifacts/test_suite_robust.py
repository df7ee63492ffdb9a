"""What a bundle must not change: outcomes of tests, commands that are run, counts of shards."""

from __future__ import annotations

import codecs
import os
import shutil
from pathlib import Path

from support.pytest_suites import make_project, only_bundle, read_json, run_pytest, vestige
from vestige.formats import junit
from vestige.formats.artifacts.merge import merge_bundles
from vestige.record.types import SpanOpen

ATTACHING = """
def test_missing(vestige_attach, tmp_path):
    vestige_attach(tmp_path / "nothing.txt")

def test_folder(vestige_attach, tmp_path):
    vestige_attach(tmp_path)
"""
FAILING = "def test_it():\n    assert 0\n"


def test_attaching_what_is_not_there_fails_no_test(tmp_path: Path) -> None:
    project = make_project(tmp_path / "shop", ATTACHING, ini="filterwarnings = error")
    done = run_pytest(project, "--vestige-bundle=out")
    assert done.returncode == 0, done.stdout
    bundle = only_bundle(project / "out")
    messages = [path.read_text() for path in bundle.rglob("attachment-missing*.txt")]
    assert len(messages) == 2 and all("no such file to attach" in text for text in messages)


def test_a_command_that_was_changed_is_not_run(tmp_path: Path) -> None:
    project = make_project(tmp_path / "shop", FAILING)
    run_pytest(project, "--vestige-bundle=out")
    bundle = only_bundle(project / "out")
    repro = bundle / "repro.json"
    marker = tmp_path / "ran"
    repro.write_text(repro.read_text().replace("pytest", f"pytest; touch {marker};", 1))
    refused = vestige(project, "repro", str(bundle))
    assert refused.returncode == 2
    assert "was changed after the bundle was written" in refused.stderr
    assert not marker.exists()
    printed = vestige(project, "repro", "--print", str(bundle))
    assert printed.returncode == 0 and "was changed" in printed.stderr


def test_a_folder_that_changes_the_root_of_pytest_is_reported(tmp_path: Path) -> None:
    """pytest reads the value of `--vestige-bundle DIR` as a path to test before plugins load."""
    project = make_project(tmp_path / "shop", "def test_it():\n    pass\n")
    outside = tmp_path / "outside"
    outside.mkdir()

    separate = run_pytest(project, "--vestige-bundle", str(outside))
    joined = run_pytest(project, f"--vestige-bundle={outside}")

    assert "Write --vestige-bundle=DIR" in separate.stdout
    assert "Write --vestige-bundle=DIR" not in joined.stdout
    assert f"rootdir: {project}" in joined.stdout


def test_a_shard_that_is_given_twice_counts_once(tmp_path: Path) -> None:
    project = make_project(tmp_path / "shop", FAILING)
    run_pytest(project, "--vestige-bundle=out")
    bundle = only_bundle(project / "out")
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    merged = merge_bundles([bundle, copy, bundle], tmp_path / "merged")
    assert read_json(merged / "bundle.json")["counts"]["total"] == 1
    assert read_json(merged / "bundle.json")["counts"]["fail"] == 1


def test_a_summary_for_github_is_headed_by_the_suite(tmp_path: Path) -> None:
    project = make_project(tmp_path / "shop", FAILING)
    run_pytest(project, "--vestige-bundle=out", "--vestige-suite=checkout")
    summary = tmp_path / "summary.md"
    bundle = only_bundle(project / "out")
    vestige(
        project,
        "validate",
        str(bundle),
        "--format",
        "github",
        env={"GITHUB_STEP_SUMMARY": str(summary)},
    )
    assert summary.read_text().startswith("### `checkout`: valid")


def test_a_bundle_outside_the_project_that_moves_pytests_root_is_told(tmp_path: Path) -> None:
    project = make_project(tmp_path / "shop", "def test_it(): pass\n")
    (project / "pytest.ini").unlink(missing_ok=True)
    outside = tmp_path / "bundles"
    outside.mkdir()
    moved = run_pytest(project, "--vestige-bundle", str(outside))
    assert "Write --vestige-bundle=DIR" in moved.stdout
    plain = run_pytest(project, f"--vestige-bundle={outside}")
    assert "Write --vestige-bundle=DIR" not in plain.stdout


REPORT = '<testsuite name="s" tests="1"><testcase name="a" time="1"/></testsuite>'


def test_a_report_without_a_time_is_as_old_as_its_file(tmp_path: Path) -> None:
    path = tmp_path / "TEST-s.xml"
    path.write_text(REPORT)
    os.utime(path, ns=(10**18, 10**18))
    first = next(iter(junit.read_run(path).records))
    assert isinstance(first, SpanOpen)
    assert first.time_ns == 10**18


def test_a_report_in_utf_16_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    text = '<?xml version="1.0" encoding="UTF-16"?>' + REPORT
    for bom, encoding in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        path.write_bytes(bom + text.encode(encoding))
        assert junit.is_readable(path)
        assert len(list(junit.read_run(path).records)) == 4
