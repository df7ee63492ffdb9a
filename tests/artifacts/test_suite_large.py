"""A suite of many passing tests: its bundle stays small, and still names every test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.pytest_suites import problems, read_events, read_json
from vestige.artifacts import SuiteRecorder
from vestige.artifacts.recover_suite import recover
from vestige.formats.artifacts.merge import merge_bundles
from vestige.formats.artifacts.validation_rules import PROFILES
from vestige.formats.artifacts.write import read_cases
from vestige.home import Home
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import import_path

pytestmark = pytest.mark.slow

PASSED = 6_000
BYTES_PER_CASE = 500
"""60,000 passing tests make a bundle of at most 30 MB."""


def name_of(number: int) -> str:
    return f"tests/unit/test_versions.py::TestComparison::test_orders_versions[case-{number}]"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with SuiteRecorder(tmp_path_factory.mktemp("art"), "packaging") as suite:
        with suite.case("test_first") as case:
            case.failed("too slow")
        for number in range(PASSED):
            with suite.case(name_of(number)) as case:
                case.passed()
        with suite.case("tests/unit/test_files.py::test_writes") as case:
            case.passed("it is written")
            case.write("report.txt", "content")
    return suite.path


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
def test_thousands_of_passing_tests_take_500_bytes_each(bundle: Path) -> None:
    assert size_of(bundle) < PASSED * BYTES_PER_CASE


def test_a_large_bundle_is_valid_by_every_profile(bundle: Path) -> None:
    found = {profile: problems(bundle, profile) for profile in PROFILES}

    assert not any(found.values()), found


def test_a_large_bundle_names_every_case_in_its_trace(bundle: Path) -> None:
    cases, counts = read_cases(bundle)

    assert [case.name for case in cases[1:-1]] == [name_of(number) for number in range(PASSED)]
    assert {case.outcome for case in cases[1:]} == {"pass"}
    assert (counts.total, counts.passed, counts.fail) == (PASSED + 2, PASSED + 1, 1)


def test_cases_with_something_to_show_keep_their_events_and_their_entries(bundle: Path) -> None:
    shown = [event["kind"] for event in read_events(bundle) if event["case"] == "test_first"]
    listed = {case["name"]: case for case in read_json(bundle / "manifest.json")["cases"]}

    assert shown == ["case_start", "assert_fail", "case_end"]
    assert list(listed) == [
        "test_first",
        f"tests/unit/test_versions.py: {PASSED} passed",
        "tests/unit/test_files.py::test_writes",
    ]
    assert listed["tests/unit/test_files.py::test_writes"]["artifacts"]
    assert listed[f"tests/unit/test_versions.py: {PASSED} passed"]["assertion_count"] == PASSED


@pytest.mark.slow
def test_a_large_bundle_is_imported_with_every_test(bundle: Path, home: Home) -> None:
    home.make()
    with SqliteStore.open(home.store) as store:
        (one,) = import_path(store, bundle)
        assert one.run_id is not None
        run = store.load_run(one.run_id)

    tests = [span for span in run.spans if span.type == "test"]
    assert len(tests) == PASSED + 2
    assert all(span.duration_ns is not None and span.duration_ns >= 0 for span in tests)
    assert [span.attributes["passed"] for span in tests[1:-1]] == [1] * PASSED


def test_a_large_suite_that_died_while_it_was_finished_is_recovered(
    bundle: Path, tmp_path: Path
) -> None:
    """Its trace is folded already, and has no bundle.json yet."""
    folder = tmp_path / "packaging" / bundle.name
    shutil.copytree(bundle, folder)
    (folder / "bundle.json").unlink()

    recover(folder)

    assert problems(folder, "latest") == []
    assert (
        read_json(folder / "bundle.json")["counts"] == read_json(bundle / "bundle.json")["counts"]
    )
    assert size_of(folder) < PASSED * BYTES_PER_CASE


def test_large_bundles_merge_into_one(bundle: Path, tmp_path: Path) -> None:
    with SuiteRecorder(tmp_path / "art", "packaging") as suite, suite.case("test_more") as case:
        case.passed()

    merged = merge_bundles([bundle, suite.path], tmp_path / "merged")

    assert problems(merged, "latest") == []
    assert read_json(merged / "bundle.json")["counts"]["total"] == PASSED + 3
    assert size_of(merged) < PASSED * BYTES_PER_CASE
