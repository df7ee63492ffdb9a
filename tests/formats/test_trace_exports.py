"""Exports of Phoenix, MLflow, Langfuse and Patronus: the same run, whichever tool stored it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vestige.errors import UnreadableError
from vestige.formats.otlp.exports import to_otlp
from vestige.query.evidence import Evidence, open_run
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer.import_runs import find_format, import_path
from vestige.transfer.temp_store import TempStore, load_runs

DATA = Path(__file__).parent.parent / "data/traces"
FILES = sorted(path.name for path in DATA.iterdir() if path.suffix in (".json", ".jsonl"))


def _open(temporary: TempStore) -> Evidence:
    (info,) = temporary.store.list_runs(RunFilter())
    return open_run(temporary.store, info.id)


def _check(path: Path) -> None:
    found = find_format(path)
    assert found is not None
    assert found[0] == "otlp"
    temporary = load_runs(path)
    evidence = _open(temporary)
    run = evidence.run
    assert temporary.problems == []
    assert (run.info.input_tokens, run.info.output_tokens) == (120, 18)
    good, failed = evidence.of_type("tool")
    assert json.loads(evidence.input(good) or "") == {"id": 7}
    assert evidence.output(good) == "order 7: late"
    assert (good.status, failed.status) == ("ok", "error")
    assert "no such order" in str(failed.attributes["error.message"])
    (call,) = evidence.model_calls
    assert call.attributes["model"] == "gpt-4o-mini"
    request, response = evidence.request(call), evidence.response(call)
    assert request is not None
    assert response is not None
    assert [(each.role, each.text) for each in request.messages] == [("user", "Where is order 7?")]
    assert response.text == "It is late."
    assert "Where is order 7?" in (evidence.input(run.spans[0]) or "")
    temporary.close()


@pytest.mark.parametrize("name", FILES)
def test_one_run_is_the_same_from_every_tool(name: str) -> None:
    _check(DATA / name)


def test_costs_scores_and_sessions_are_read() -> None:
    temporary = load_runs(DATA / "langfuse-trace.json")
    evidence = _open(temporary)
    root, (call,) = evidence.run.spans[0], evidence.model_calls
    assert root.name == "shop"
    assert (root.attributes["score.helpful"], evidence.run.info.conversation_id) == (1, "session-7")
    assert (call.attributes["cost_usd"], call.attributes["cache_read_tokens"]) == (0.00003, 100)
    temporary.close()
    temporary = load_runs(DATA / "mlflow.json")
    (call,) = _open(temporary).model_calls
    assert call.attributes["cost_usd"] == pytest.approx(0.0000288)
    temporary.close()


def test_nested_spans_keep_durations_and_log_records() -> None:
    temporary = load_runs(DATA / "patronus.json")
    run = _open(temporary).run
    assert run.info.duration_ns == 62_500_000_000
    assert [log.message for log in run.logs] == ["shop"]
    temporary.close()


def test_several_traces_of_one_file_are_several_runs(tmp_path: Path) -> None:
    first = json.loads((DATA / "mlflow.json").read_text())
    text = json.dumps(first)
    spans = first["data"]["spans"]
    second = text.replace(spans[0]["trace_id"], "AAAAAAAAAAAAAAAAAAAAAQ==")
    path = tmp_path / "traces.jsonl"
    path.write_text(f"{text}\n{second}\n")
    with SqliteStore.open(tmp_path / "store.db") as store:
        results = list(import_path(store, path))
        again = list(import_path(store, path))
    assert len({result.run_id for result in results}) == 2
    assert sum(result.records for result in again) == 0


def test_the_shape_of_mlflow_2_is_read(tmp_path: Path) -> None:
    span = {
        "name": "shop",
        "context": {
            "span_id": "0x00f067aa0ba902b7",
            "trace_id": "0x4bf92f3577b34da6a3ce929d0e0e4736",
        },
        "parent_id": None,
        "start_time": 1_794_987_677_353_852_783,
        "end_time": 1_794_987_677_540_318_231,
        "status_code": "OK",
        "attributes": {"mlflow.spanType": '"AGENT"', "mlflow.spanInputs": '{"q": 1}'},
        "events": [],
    }
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"info": {"request_id": "x"}, "data": {"spans": [span]}}))
    temporary = load_runs(path)
    run = _open(temporary).run
    assert (run.info.name, run.info.duration_ns) == ("shop", 186_465_448)
    temporary.close()


@pytest.mark.parametrize(
    "document",
    [
        {"spans": [{"child_spans": [{"child_spans": 7}, 3], "span_id": 7}]},
        {"info": 7, "data": {"spans": [{"attributes": 7, "events": 7, "status": []}]}},
        {"context.span_id": None, "start_time": -1, "span_kind": 7},
        {"observations": [{"parentObservationId": 7, "startTime": {}, "id": []}], "trace": 1},
        [{"parent_observation_id": None, "start_time": "x", "id": 1, "usage_details": "[1]"}],
    ],
)
def test_values_of_wrong_types_are_an_error_and_not_a_crash(document: Any, tmp_path: Path) -> None:
    to_otlp(document)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UnreadableError) as caught:
        load_runs(path).close()
    assert caught.value.exit_code == 3


def test_deeply_nested_spans_and_values_are_bounded(tmp_path: Path) -> None:
    document = json.loads((DATA / "patronus.json").read_text())
    (span,) = document["spans"]
    value: Any = "end"
    for _ in range(200):
        value = [value]
    span["span_attributes"]["deep"] = value
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    temporary = load_runs(path)
    assert len(_open(temporary).run.spans) == 4
    temporary.close()


@pytest.mark.full
@pytest.mark.parametrize(
    ("package", "script", "names"),
    [
        ("mlflow", "make_mlflow.py", ["mlflow.json"]),
        ("arize-phoenix", "make_phoenix.py", ["phoenix-client.jsonl", "phoenix-frame.jsonl"]),
    ],
)
def test_the_newest_release_exports_what_is_read(
    package: str, script: str, names: list[str], tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env/bin/python"
    subprocess.run([python, "-m", "pip", "install", "-q", package], check=True)
    subprocess.run([python, DATA / script, tmp_path], check=True, cwd=tmp_path)
    for name in names:
        _check(tmp_path / name)
