"""Bundles that are merged, or go through a store: nothing is lost, doubled or changed on the
way.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from support.artifact_bundle import BrokenBundle
from support.commands import vestige
from vestige.artifacts import SuiteRecorder
from vestige.artifacts.replay_command import read_environment
from vestige.artifacts.suite_recorder import Case
from vestige.formats.artifacts import validate_run
from vestige.formats.artifacts.merge import merge_bundles
from vestige.home import Home
from vestige.recorder import Recorder
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import export_run, import_path


def make_shard(root: Path, content: str) -> Path:
    variables = {"PYTHONX": "it's 'so'", "PYTHONY": "a\r\x0c\u2028b", "HOME": "'~'"}
    with SuiteRecorder(root, "shop", environment=variables) as suite, suite.case("pays") as case:
        case.write("out.txt", content)
    return suite.path


def make_rerun(root: Path) -> Path:
    """One case, which passed when it was run once more."""
    with SuiteRecorder(root, "shop") as suite:
        case = suite.case("pays")
        case.failed("slow")
        case.end()
        case = Case(suite, "pays", b'"pays"', 2)
        case.passed()
        case.end()
    return suite.path


def counts_of(bundle: Path) -> dict[str, int]:
    counts: dict[str, int] = json.loads((bundle / "bundle.json").read_bytes())["counts"]
    return counts


def test_bundles_that_were_merged_can_be_merged(tmp_path: Path) -> None:
    """Each has files under `shard-2/` already; none takes the place of another."""
    shards = [make_shard(tmp_path / f"r{number}", f"content {number}") for number in range(4)]
    halves = [
        merge_bundles(shards[:2], tmp_path / "first"),
        merge_bundles(shards[2:], tmp_path / "second"),
    ]

    merged = merge_bundles(halves, tmp_path / "whole")

    contents = sorted(path.read_text() for path in merged.rglob("out.txt"))
    assert contents == ["content 0", "content 1", "content 2", "content 3"]
    assert validate_run(merged) == []


def test_the_command_of_a_merged_bundle_runs_what_failed_in_every_shard(tmp_path: Path) -> None:
    """Also after a shard that fails again, and it fails then."""
    shards = []
    for number, status in enumerate((3, 0)):
        bundle = BrokenBundle(tmp_path / str(number), "seed_pass")
        bundle.edit(
            "repro.json",
            lambda repro, status=status: repro.update(
                command=f"echo ran {status} && exit {status}"
            ),
        )
        shards.append(bundle.root)

    merged = merge_bundles(shards, tmp_path / "whole")

    command = (merged / "repro.txt").read_text()
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("ran 3\nran 0\n", 3)


def test_a_file_of_one_shard_may_be_a_folder_of_another(tmp_path: Path) -> None:
    """Both stay, in either order; also where a shard's own folder is the name of a file."""
    trees: list[dict[str, bytes]] = [
        {"out": b"1", "logs/a/b.txt": b"2", "shard-2": b"3", "manifest.json": b'{"mine": 4}'},
        {"out/x": b"5", "logs/a": b"6", "shard-2": b"7", "manifest.json": b'{"mine": 8}'},
    ]
    shards = []
    for number, files in enumerate(trees):
        bundle = BrokenBundle(tmp_path / str(number), "seed_pass")
        for name, data in files.items():
            bundle.write(name, data)
        shards.append(bundle.root)

    merged = merge_bundles(shards, tmp_path / "whole")

    contents = [path.read_bytes() for path in merged.rglob("*") if path.is_file()]
    assert all(data in contents for files in trees for data in files.values())
    assert validate_run(merged) == []


def test_variables_of_a_merged_bundle_are_those_of_the_suite(tmp_path: Path) -> None:
    shard = make_shard(tmp_path / "r", "x")

    merged = merge_bundles([shard], tmp_path / "merged")

    assert read_environment(merged) == {"PYTHONX": "it's 'so'", "PYTHONY": "a\r\x0c\u2028b"}
    variables = "diagnostics/env_redacted.txt"
    assert (merged / variables).read_text() == (shard / variables).read_text()


def test_a_case_that_was_run_again_is_one_case_wherever_it_goes(home: Home, tmp_path: Path) -> None:
    home.make()
    shard = make_rerun(tmp_path / "r")

    merged = merge_bundles([shard], tmp_path / "merged")
    exported = vestige("export", shard, "--format", "artifacts", "-o", tmp_path / "exported")

    assert exported.exit_code == 0, exported.output
    assert counts_of(shard) == counts_of(merged) == counts_of(tmp_path / "exported")
    assert counts_of(shard)["total"] == 1
    assert validate_run(tmp_path / "exported") == []


def test_files_of_any_run_make_a_valid_bundle(home: Home, tmp_path: Path) -> None:
    """Files that are not JSON are kept as text; a folder in the place of a file is left out."""
    files = {
        "a.json": "no json",
        "b.jsonl": "{}\nno json\n",
        "c.json": "{}",
        "d.json": "",
        "meta.json/x": "x",
        "diagnostics": "x",
    }
    recorder = Recorder(home=home.root)
    with recorder.run("shop", "c-1") as run:
        run.span("pays", type="test").end()
        for path, content in files.items():
            run.span(path, type="file", attributes={"path": path}, body=content).end()
    recorder.close()

    exported = vestige("export", "c-1", "--format", "artifacts", "-o", tmp_path / "exported")

    assert exported.exit_code == 0, exported.output
    assert validate_run(tmp_path / "exported") == []
    assert (tmp_path / "exported/a.json.txt").read_text() == "no json"
    assert (tmp_path / "exported/c.json").read_text() == "{}"


def test_an_attached_document_that_is_empty_makes_no_bundle_invalid(tmp_path: Path) -> None:
    with SuiteRecorder(tmp_path, "shop") as suite, suite.case("pays") as case:
        case.write("answer.json", "")

    assert validate_run(suite.path) == []


def test_what_a_bundle_says_of_its_suite_goes_through_a_store(home: Home, tmp_path: Path) -> None:
    """Variables, fixtures, the clock, and events that belong to no case."""
    bundle = BrokenBundle(tmp_path, "dual_failures")
    bundle.lines(lambda events: events.insert(1, {**events[0], "kind": "note", "message": "slow"}))
    bundle.lines(
        lambda events: events.insert(
            -1, {**events[-2], "kind": "log", "case": "", "message": "done"}
        )
    )
    home.make()
    with SqliteStore.open(home.store) as store:
        (imported,) = import_path(store, bundle.root)

        out = export_run(store, str(imported.run_id), "artifacts", tmp_path / "out")

    assert read_environment(out) == read_environment(bundle.root) != {}
    env = "diagnostics/env_redacted.txt"
    assert (out / env).read_bytes() == bundle.path(env).read_bytes()
    fixtures, repro = (
        json.loads((out / f"{name}.json").read_bytes()) for name in ("fixtures", "repro")
    )
    assert fixtures["fixture_ids"] == bundle.read("fixtures.json")["fixture_ids"] != []
    assert repro["clock_mode"] == "deterministic"
    trace = [json.loads(line) for line in (out / "trace/events.jsonl").read_bytes().splitlines()]
    messages = [(event["kind"], event["message"]) for event in trace]
    assert (
        messages.index(("note", "slow")) == 1
        and messages.index(("log", "done")) == len(messages) - 2
    )
    assert validate_run(out) == []
