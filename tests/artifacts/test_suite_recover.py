"""Recover: what a killed suite left in its folder, at whatever step it died."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.pytest_suites import assert_valid, read_events, read_json, vestige
from vestige import transfer
from vestige.artifacts import SuiteRecorder, SuiteWriter, recover
from vestige.artifacts.recover_suite import find_unfinished


def _left_behind(folder: Path) -> SuiteRecorder:
    """A suite that is not finished, and whose process is as good as dead."""
    suite = SuiteRecorder(folder, "shop", seed=3)
    with suite.case("pays") as case:
        case.passed()
    case = suite.case("waits")
    case.write("state.txt", "half")
    return suite


@pytest.mark.slow
def test_the_case_that_was_running_is_unknown_and_the_rest_is_kept(tmp_path: Path) -> None:
    """Counters, seed, environment, attachments: as if the suite had ended there."""
    suite = _left_behind(tmp_path)
    suite.close()
    found = recover(tmp_path)

    assert [(item.folder, item.running) for item in found] == [(suite.path, ["waits"])]
    assert_valid(suite.path)
    cases = read_json(suite.path / "manifest.json")["cases"]
    assert [(case["name"], case["status"]) for case in cases] == [
        ("pays", "pass"),
        ("waits", "unknown"),
    ]
    assert read_json(suite.path / "repro.json")["seed"] == 3
    assert "vestige" in read_json(suite.path / "repro.json")
    transcript = (suite.path / "transcript/summary.txt").read_text()
    assert "the suite was killed while waits was running" in transcript
    assert "PATH=" in (suite.path / "diagnostics/env_redacted.txt").read_text()
    with transfer.open_path(suite.path) as debugger:
        assert debugger.show().run.info.outcome == "interrupted"
        assert "waits (1 of 2) did not finish" in str(debugger.check())


def test_a_torn_line_and_half_files_do_no_harm(tmp_path: Path) -> None:
    """A death in the middle of a write, of a copy, of writing bundle.json."""
    suite = _left_behind(tmp_path)
    suite.close()
    with open(suite.path / "trace/events.jsonl", "ab") as trace:
        trace.write(b'{"schema_version":1,"suite":"sh')
    (suite.path / "trace/events.jsonl.part").write_bytes(b"{")
    (suite.path / "bundle.json.part").write_bytes(b"{")
    (suite.path / "cases").mkdir(exist_ok=True)
    (suite.path / "cases/answer.json").write_bytes(b'{"half":')
    (suite.path / "cases/answer.json.part").write_bytes(b"{")
    recover(suite.path)

    assert_valid(suite.path)
    assert (suite.path / "cases/answer.json.txt").read_bytes() == b'{"half":'
    assert not (suite.path / "bundle.json.part").exists()


@pytest.mark.parametrize("left", [(), ("trace",), ("trace", "meta.json"), ("meta.json",)])
def test_a_death_before_the_first_event_leaves_a_valid_bundle_too(
    tmp_path: Path, left: tuple[str, ...]
) -> None:
    """The folder's names say what the files do not."""
    suite = _left_behind(tmp_path)
    suite.close()
    for path in suite.path.iterdir():
        if path.name not in left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (suite.path / "trace").mkdir(exist_ok=True)
    (suite.path / "trace/events.jsonl").unlink(missing_ok=True)
    found = recover(tmp_path)

    assert [item.running for item in found] == [[]]
    assert_valid(suite.path)
    assert read_json(suite.path / "bundle.json")["suite"] == "shop"


def test_workers_are_taken_in_once_in_the_order_of_time(tmp_path: Path) -> None:
    """A death after the traces became one must not double a case."""
    suite = SuiteRecorder(tmp_path, "shop")
    workers = [SuiteWriter.worker(suite.path, "shop", suite.timestamp, f"gw{n}") for n in (0, 1)]
    for number in range(4):
        with workers[number % 2].case(f"case {number}") as case:
            case.passed()
    for worker in workers:
        worker.close()
    worker_trace = (suite.path / "trace/worker-gw0.jsonl").read_bytes()
    suite.finish()
    (suite.path / "trace/worker-gw0.jsonl").write_bytes(worker_trace)
    (suite.path / "bundle.json").unlink()
    recover(tmp_path)
    events = read_events(suite.path)

    assert_valid(suite.path)
    starts = [event["case"] for event in events if event["kind"] == "case_start"]
    assert starts == ["case 0", "case 1", "case 2", "case 3"]
    assert [event["counters"]["total"] for event in events if event["kind"] == "case_end"] == [
        1,
        2,
        3,
        4,
    ]


def test_only_folders_that_are_named_after_a_time_are_found_in_a_tree(tmp_path: Path) -> None:
    """A bundle elsewhere is finished only if it is named, not because it is near."""
    suite = _left_behind(tmp_path / "art")
    suite.close()
    folder = tmp_path / "art/shop/evidence-of-a-bug"
    shutil.copytree(suite.path, folder)

    assert list(find_unfinished(tmp_path / "art")) == [suite.path]
    assert list(find_unfinished(folder)) == [folder]
    assert list(find_unfinished(tmp_path.parent)) == []


def test_a_bundle_of_another_writer_keeps_its_command(tmp_path: Path) -> None:
    """It is not ours to say how that suite is started."""
    suite = _left_behind(tmp_path)
    suite.close()
    (suite.path / "repro.json").write_text('{"command": "make e2e SUITE=shop"}')
    recover(tmp_path)

    assert_valid(suite.path)
    assert (suite.path / "repro.txt").read_text() == "make e2e SUITE=shop\n"


@pytest.mark.slow
def test_recover_says_what_it_did(tmp_path: Path) -> None:
    """One line a bundle; nothing to do is fine; a folder that holds nothing is not."""
    suite = _left_behind(tmp_path / "art")
    suite.close()
    done = vestige(tmp_path, "recover", "art")
    again = vestige(tmp_path, "recover", "art")
    (tmp_path / "empty").mkdir()
    nothing = vestige(tmp_path, "recover", "empty")

    assert (done.returncode, done.stdout) == (
        0,
        f"{Path('art/shop') / suite.timestamp}: finalized ('waits' was running)\n",
    )
    assert (again.returncode, again.stdout) == (0, "art: nothing to recover.\n")
    assert nothing.returncode == 3


def test_evidence_that_becomes_text_takes_no_other_files_place(tmp_path: Path) -> None:
    """What the suite wrote by itself was torn; a text of the name that it would get is there
    already.
    """
    suite = SuiteRecorder(tmp_path, "shop")
    (suite.path / "answer.json").write_text('{"torn": ')
    (suite.path / "answer.json.txt").write_text("another")
    suite.close()

    recover(tmp_path)

    answers = {path.name: path.read_text() for path in suite.path.glob("answer*")}
    assert answers == {"answer.json.txt": "another", "answer.json-2.txt": '{"torn": '}
