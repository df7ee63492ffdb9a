"""Bundles as runs: cases are `test` spans, files `file` spans, a killed suite interrupted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from support.artifact_bundle import DATA, BrokenBundle
from support.commands import vestige
from vestige.formats.artifacts.file_structs import Git
from vestige.formats.artifacts.read import DirectoryTree
from vestige.formats.artifacts.validate import check_bundle
from vestige.formats.artifacts.write import SuiteFacts, TraceFile, finish_bundle
from vestige.home import Home
from vestige.record.run import Run
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import import_path, is_source


def imported(path: Path, home: Home) -> Run:
    home.make()
    with SqliteStore.open(home.store) as store:
        (one,) = import_path(store, path)
        assert one.run_id is not None and one.problems == []
        return store.load_run(one.run_id)


def test_a_suite_is_a_run_and_a_case_a_test_span(home: Home) -> None:
    run = imported(DATA / "dual_failures", home)

    tests = {
        span.name: (span.status, span.attributes["outcome"])
        for span in run.spans
        if span.type == "test"
    }
    assert tests == {
        "case_ok": ("ok", "pass"),
        "case_bad": ("error", "fail"),
        "case_skipped": ("ok", "skip"),
    }
    assert (run.info.name, run.info.outcome) == ("demo_failures", "error")
    bad = next(span for span in run.spans if span.name == "case_bad")
    assert bad.attributes["error.message"] == "mismatch"
    assert bad.attributes["failed"] == 1


def test_cases_of_the_seed_era_end_where_the_next_begins(home: Home) -> None:
    run = imported(DATA / "seed_failures", home)

    tests = {span.name: span.attributes["outcome"] for span in run.spans if span.type == "test"}
    assert tests == {"case_ok": "pass", "case_bad": "fail", "case_skipped": "skip"}


def test_files_stand_under_their_case_with_their_bytes(home: Home) -> None:
    """By the manifest, by the writer's notes, or by the folder; with hash and size."""
    home.make()
    with SqliteStore.open(home.store) as store:
        (one,) = import_path(store, DATA / "dual_failures")
        run = store.load_run(str(one.run_id))
        spans = {span.id: span for span in run.spans}
        files = {span.name: span for span in run.spans if span.type == "file"}
        failure = files["failures/fail_1.json"]

        assert spans[str(failure.parent_id)].name == "case_bad"
        assert spans[str(files["case_bad/response.json"].parent_id)].name == "case_bad"
        assert spans[str(files["repro.txt"].parent_id)].type == "run"
        data = (DATA / "dual_failures/failures/fail_1.json").read_bytes()
        assert failure.attributes["size_bytes"] == len(data)
        assert failure.input is not None and failure.input.id is not None
        assert store.read_body(failure.input.id) == data


def test_a_failed_case_is_easy_to_find() -> None:
    result = vestige("show", DATA / "dual_failures", "--errors")

    assert result.exit_code == 0
    assert "test case_bad" in result.stdout
    assert "case_ok" not in result.stdout


def test_reading_twice_changes_nothing(home: Home) -> None:
    first = imported(DATA / "seed_logs_screens", home)
    again = imported(DATA / "seed_logs_screens", home)

    assert first == again


def test_a_killed_suite_is_interrupted_with_the_case_that_ran(tmp_path: Path, home: Home) -> None:
    """No bundle.json, a torn last line: the flushed case_start says what was running."""
    bundle = BrokenBundle(tmp_path, "dual_failures")
    for name in ("bundle.json", "meta.json", "summary.json"):
        bundle.path(name).unlink()
    trace = bundle.path("trace/events.jsonl")
    lines = trace.read_bytes().splitlines(keepends=True)
    trace.write_bytes(b"".join(lines[:5]) + lines[5][:40])
    home.make()
    with SqliteStore.open(home.store) as store:
        (one,) = import_path(store, bundle.root)
        run = store.load_run(str(one.run_id))

    assert run.info.outcome == "interrupted"
    statuses = {span.name: span.status for span in run.spans if span.type == "test"}
    assert statuses == {"case_ok": "ok", "case_bad": "interrupted"}
    assert [problem.rule for problem in one.problems] == ["trace-line"]


def test_a_suite_that_was_killed_and_then_finished_has_its_true_end(
    tmp_path: Path, home: Home
) -> None:
    """The interruption is recorded by another writer, so that what came later still counts."""
    bundle = BrokenBundle(tmp_path, "dual_failures")
    trace = bundle.path("trace/events.jsonl")
    content = trace.read_bytes()
    trace.write_bytes(b"".join(content.splitlines(keepends=True)[:9]))
    assert imported(bundle.root, home).info.outcome == "interrupted"
    trace.write_bytes(content)

    run = imported(bundle.root, home)

    assert run.info.outcome == "error"
    statuses = {span.name: span.status for span in run.spans if span.type == "test"}
    assert statuses == {"case_ok": "ok", "case_bad": "error", "case_skipped": "ok"}
    with SqliteStore.open(home.store) as store:
        assert len(store.list_runs(RunFilter())) == 1


def test_cases_may_run_side_by_side(tmp_path: Path, home: Home) -> None:
    """A trace with `tool` ends its cases itself, so a start of another ends nothing."""
    bundle = BrokenBundle(tmp_path, "seed_pass")
    trace = bundle.path("trace/events.jsonl")
    events = [json.loads(line) for line in trace.read_bytes().splitlines()]
    events[0]["tool"] = "vestige"
    del events[-1]
    trace.write_text("".join(json.dumps(event) + "\n" for event in events))

    run = imported(bundle.root, home)

    assert {span.name: span.status for span in run.spans if span.type == "test"} == {
        "case_one": "interrupted",
        "case_two": "interrupted",
    }


def test_a_tree_and_an_archive_are_sources(tmp_path: Path, home: Home) -> None:
    archive = shutil.make_archive(str(tmp_path / "bundle"), "zip", DATA / "dual_pass")

    assert is_source(str(DATA)) and is_source(archive)
    assert imported(Path(archive), home) == imported(DATA / "dual_pass", home)
    # The suite of the two lines above is one of the five.
    found = vestige("import", DATA, "--home", home.root).stdout
    assert found.startswith("Imported 4 runs") and "(1 already present)" in found


def test_a_bundle_without_a_trace_is_one_line(tmp_path: Path) -> None:
    bundle = BrokenBundle(tmp_path, "seed_pass")
    bundle.path("trace/events.jsonl").unlink()

    result = vestige("show", bundle.root)

    assert result.exit_code == 3
    assert "no trace in it" in result.stderr


# --- out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dual_failures", "seed_logs_screens", "seed_pass"])
def test_an_imported_suite_exports_to_a_bundle_that_every_era_accepts(
    name: str, tmp_path: Path
) -> None:
    target = tmp_path / "out"

    result = vestige("export", DATA / name, "--format", "artifacts", "-o", target)

    assert result.exit_code == 0, result.output
    for profile in ("seed", "latest", "strict"):
        validation = vestige("validate", target, "--profile", profile)
        assert validation.exit_code == 0, validation.output
    bundle = json.loads((target / "bundle.json").read_bytes())
    assert bundle["counts"] == json.loads((DATA / name / "bundle.json").read_bytes())["counts"]
    again = vestige("show", target, "--json")
    assert again.exit_code == 0


def test_a_run_without_tests_is_no_suite(home: Home, tmp_path: Path) -> None:
    import vestige as api

    with api.Recorder(home.root) as recorder, recorder.run("agent") as run:
        run.span("search", type="tool").end()

    result = vestige(
        "export", run.run_id, "--format", "artifacts", "-o", tmp_path / "x", "--home", home.root
    )

    assert result.exit_code == 2
    assert "no spans of type `test`" in result.stderr
    assert not (tmp_path / "x").exists()


def test_a_target_in_the_way_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "demo_pass" / "20260210_170000").mkdir(parents=True)
    (tmp_path / "demo_pass" / "20260210_170000" / "mine.txt").write_text("x")

    result = vestige("export", DATA / "seed_pass", "--format", "artifacts", "-o", tmp_path)

    assert result.exit_code == 2
    assert [place.name for place in (tmp_path / "demo_pass" / "20260210_170000").iterdir()] == [
        "mine.txt"
    ]


def test_any_text_makes_a_valid_bundle(tmp_path: Path) -> None:
    """ANSI escapes, newlines, NULs, lone surrogates: in names, messages, commands, variables."""
    odd = "\x1b[31mrød\n\0\udcff\u2028"
    trace = TraceFile(tmp_path, odd, "20260210_170000")
    for kind in ("suite_start", "case_start", "assert_fail", "case_end", "suite_end"):
        trace.write(kind, ts="2026-02-10T17:00:00Z", case=odd, message=odd)
    trace.close()
    facts = SuiteFacts(
        suite=odd,
        timestamp="20260210_170000",
        started_ns=0,
        ended_ns=1,
        generated_ns=1,
        command=odd,
        environment={odd: odd},
        replay_environment={"A": odd},
        fixture_ids=[odd],
        notes=[odd],
        git=Git(odd, odd, True),
        runner={odd: odd},
    )

    finish_bundle(tmp_path, facts)

    for profile in ("seed", "latest", "strict"):
        assert check_bundle(DirectoryTree(tmp_path), profile)[1] == []
    assert len((tmp_path / "transcript/summary.txt").read_text().splitlines()) == 9


def test_shards_merge_into_one_valid_bundle(tmp_path: Path) -> None:
    """Every case of every shard; a file that differs goes under its shard, with its case."""
    shard = BrokenBundle(tmp_path, "dual_failures")
    shard.write("case_bad/response.json", b'{"error":"other"}')

    target = tmp_path / "merged"
    result = vestige("artifacts", "merge", DATA / "seed_failures", shard.root, "-o", target)

    assert result.exit_code == 0, result.output
    for profile in ("seed", "latest", "strict"):
        assert vestige("validate", target, "--profile", profile).exit_code == 0
    assert json.loads((target / "bundle.json").read_bytes())["counts"] == {
        "total": 6,
        "pass": 2,
        "fail": 2,
        "skip": 2,
    }
    assert len(list(target.rglob("response.json"))) == 2


def test_merge_wants_valid_bundles_of_one_suite(tmp_path: Path) -> None:
    broken = BrokenBundle(tmp_path, "seed_pass")
    broken.path("repro.txt").write_text("changed")

    different = vestige(
        "artifacts", "merge", DATA / "seed_pass", DATA / "seed_failures", "-o", tmp_path / "c"
    )
    invalid = vestige("artifacts", "merge", DATA / "seed_pass", broken.root, "-o", tmp_path / "c")

    assert (different.exit_code, invalid.exit_code) == (2, 3)
    assert not (tmp_path / "c").exists()
    assert sorted(place.name for place in tmp_path.iterdir()) == ["seed_pass"]


def test_two_bundles_compare_case_by_case(tmp_path: Path) -> None:
    bundle = BrokenBundle(tmp_path, "dual_failures")
    trace = bundle.path("trace/events.jsonl")
    text = (
        trace.read_text()
        .replace("assert_fail", "assert_X")
        .replace("assert_pass", "assert_fail")
        .replace("assert_X", "assert_pass")
    )
    trace.write_text(text.replace('"elapsed_ms":0}\n', '"elapsed_ms":900}\n'))

    result = vestige("diff", DATA / "dual_failures", bundle.root)

    assert result.exit_code == 1
    newly = result.stdout.index("newly failing (1):")
    assert "case_ok" in result.stdout[newly:].splitlines()[1]
    assert "newly passing (1):" in result.stdout
    assert "slower (3):" in result.stdout
    answer = json.loads(vestige("diff", DATA / "dual_failures", bundle.root, "--json").stdout)
    assert [each["case"] for each in answer["tests"]["newly_passing"]] == ["case_bad"]
