"""Logs of Inspect: each sample and epoch is a run with its scores."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from vestige.errors import UnreadableError
from vestige.formats import inspect_logs, zip_index_limits
from vestige.formats.inspect_logs import detect
from vestige.query.evidence import Evidence, open_run
from vestige.query.trajectory import build_trajectory
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer.import_runs import find_format, import_path
from vestige.transfer.temp_store import TempStore, load_runs

DATA = Path(__file__).parent.parent / "data/inspect"
EVAL, JSON = DATA / "orders.eval", DATA / "delegating.json"


def _runs(temporary: TempStore) -> dict[str, Evidence]:
    store = temporary.store
    return {info.name: open_run(store, info.id) for info in store.list_runs(RunFilter())}


@pytest.mark.parametrize("path", [EVAL, JSON, DATA])
def test_logs_and_folders_of_logs_are_recognized(path: Path) -> None:
    found = find_format(path)
    assert found is not None
    assert found[0] == "inspect_logs"
    assert inspect_logs.validate_run(path) == []


def test_each_sample_and_epoch_is_a_run_with_its_score() -> None:
    _check_orders(EVAL)


def _check_orders(path: Path) -> None:
    temporary = load_runs(path)
    runs = _runs(temporary)
    assert sorted(runs) == [
        "orders seven",
        "orders seven (epoch 2)",
        "orders thirteen",
        "orders thirteen (epoch 2)",
    ]
    run = runs["orders seven"].run
    root = run.spans[0]
    assert (run.info.input_tokens, run.info.output_tokens) == (310, 30)
    assert root.attributes["score.includes"] == "C"
    assert root.attributes["metadata.shop"] == "socks"
    assert [span.type for span in run.spans] == ["run", "llm", "tool", "llm"]
    assert runs["orders seven"].input(root) == "Where is order 7?"
    (note,) = temporary.store.notes(run.info.id)
    assert (note.author, note.text.split("\n")[0]) == ("inspect", "score includes: C")
    failed = runs["orders thirteen"]
    (tool,) = failed.of_type("tool")
    assert (tool.name, tool.status) == ("find_order", "error")
    assert tool.attributes["error.message"] == "no such order"
    assert failed.input(tool) == '{"id":13}'
    calls = failed.model_calls
    assert [call.attributes.get("cache_read_tokens") for call in calls] == [60, None]
    temporary.close()


def test_a_message_is_input_of_the_call_that_first_sends_it() -> None:
    temporary = load_runs(EVAL)
    evidence = _runs(temporary)["orders seven"]
    requests = [evidence.request(call) for call in evidence.model_calls]
    roles = [[message.role for message in request.messages] for request in requests if request]
    assert roles == [["system", "user"], ["tool"]]
    temporary.close()


def test_an_agent_that_is_a_tool_nests_under_its_call() -> None:
    _check_delegating(JSON)


def _check_delegating(path: Path) -> None:
    temporary = load_runs(path)
    (evidence,) = _runs(temporary).values()
    spans = {span.name: span for span in evidence.run.spans if span.type in ("agent", "tool")}
    names = {span.id: span.name for span in evidence.run.spans}
    assert names[spans["find_order"].parent_id or ""] == "helper"
    trajectory = build_trajectory(evidence)
    assert [(step.depth, step.agent) for step in trajectory.steps] == [
        (0, "boss"),
        (1, "helper"),
        (1, "helper"),
        (0, "boss"),
    ]
    assert trajectory.title == "Where is order 8?"
    temporary.close()


def test_importing_a_log_again_adds_nothing(tmp_path: Path) -> None:
    with SqliteStore.open(tmp_path / "store.db") as store:
        first = list(import_path(store, EVAL))
        again = list(import_path(store, EVAL))
    assert [result.run_id for result in again] == [result.run_id for result in first]
    assert sum(result.records for result in again) == 0


def test_attachments_and_failed_samples_are_read(tmp_path: Path) -> None:
    log = json.loads(JSON.read_text())
    (sample,) = log["samples"]
    sample["input"] = "attachment://abc"
    sample["attachments"] = {"abc": "A long task."}
    sample["error"] = {"message": "the sandbox died", "traceback": "Traceback ..."}
    path = tmp_path / "log.json"
    path.write_text(json.dumps(log))
    temporary = load_runs(path)
    (evidence,) = _runs(temporary).values()
    root = evidence.run.spans[0]
    assert evidence.input(root) == "A long task."
    assert (root.status, root.attributes["error.message"]) == ("error", "the sandbox died")
    temporary.close()


def test_a_log_without_events_has_its_messages(tmp_path: Path) -> None:
    log = json.loads(JSON.read_text())
    (sample,) = log["samples"]
    del sample["events"]
    path = tmp_path / "log.json"
    path.write_text(json.dumps(log))
    temporary = load_runs(path)
    (evidence,) = _runs(temporary).values()
    assert [span.type for span in evidence.run.spans[:3]] == ["run", "llm", "tool"]
    assert evidence.of_type("tool")[0].name == "helper"
    temporary.close()


def _zip(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def test_a_log_that_was_not_finished_has_the_samples_that_were(tmp_path: Path) -> None:
    (sample,) = json.loads(JSON.read_text())["samples"]
    start = json.dumps({"eval": {"task": "unfinished", "eval_id": "e"}}).encode()
    members = {"_journal/start.json": start, "samples/a_epoch_1.json": json.dumps(sample).encode()}
    temporary = load_runs(_zip(tmp_path / "x.eval", members))
    assert list(_runs(temporary)) == ["unfinished delegated"]
    temporary.close()


@pytest.mark.parametrize(
    "kind", ["torn", "not a zip", "empty", "no json", "bomb", "many", "deep", "types"]
)
def test_a_damaged_or_hostile_log_is_a_clear_error(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect, "FOREIGN_FILE_MAX", 1024 * 1024)
    monkeypatch.setattr(zip_index_limits, "BUNDLE_MEMBERS_MAX", 1_000)
    path = tmp_path / "x.eval"
    match kind:
        case "torn":
            path.write_bytes(EVAL.read_bytes()[:5000])
        case "not a zip":
            path.write_bytes(b"PK\x03\x04 and nothing else")
        case "empty":
            _zip(path, {"header.json": b"{}"})
        case "no json":
            _zip(path, {"samples/a.json": b"\x00\xff\xfe"})
        case "bomb":
            _zip(path, {"samples/a.json": b"[" + b" " * (3 * 1024 * 1024) + b"]"})
        case "many":
            _zip(path, {f"samples/{number}": b"" for number in range(1_001)}, zipfile.ZIP_STORED)
        case "deep":
            _zip(path, {"samples/a.json": b'{"a":' * 100_000})
        case _:
            path.write_bytes(b"PK\x03\x04")
    with pytest.raises(UnreadableError, match=r"x\.eval") as caught:
        load_runs(path).close()
    assert caught.value.exit_code == 3


def test_values_of_wrong_types_do_not_stop_the_rest(tmp_path: Path) -> None:
    log: dict[str, Any] = json.loads(JSON.read_text())
    (sample,) = log["samples"]
    odd: list[Any] = [7, {"event": "model"}, {"event": "tool", "events": 7, "arguments": [1]}]
    odd += [{"event": "span_begin", "id": 7}, {"event": "model", "input_refs": [[9, 1], "x"]}]
    odd += [{"event": "something_new", "data": {}}, {"event": "span_end"}]
    sample["events"] = odd + sample["events"]
    sample["scores"], sample["metadata"] = {"a": 7, "b": {"value": {"x": 1}}}, [1]
    path = tmp_path / "log.json"
    path.write_text(json.dumps(log))
    temporary = load_runs(path)
    (evidence,) = _runs(temporary).values()
    assert evidence.run.spans[0].attributes["score.b"] == '{"x":1}'
    assert len(evidence.of_type("agent")) == 2
    temporary.close()


@pytest.mark.full
def test_the_newest_inspect_makes_logs_that_are_read_alike(tmp_path: Path) -> None:
    folder = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    subprocess.run([python, "-m", "pip", "install", "-q", "inspect_ai"], check=True)
    subprocess.run([python, DATA / "make.py", tmp_path], check=True, cwd=tmp_path)
    _check_orders(tmp_path / "orders.eval")
    _check_delegating(tmp_path / "delegating.json")


def test_the_directory_of_an_archive_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading it again for each sample took minutes for a log of many samples."""
    path = tmp_path / "many.eval"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(300):
            archive.writestr(f"samples/{number}_epoch_1.json", json.dumps({"id": number}))
    opened = []

    class Archive(detect.zipfile.ZipFile):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            opened.append(arguments)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(detect.zipfile, "ZipFile", Archive)

    log = detect.open_log(path)

    assert [log.sample(number)["id"] for number in range(1, 301)] == list(range(300))
    assert len(opened) == 1
