"""Trajectories (ATIF): in as runs, out as trajectories that Harbor's schema accepts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vestige.formats import atif
from vestige.formats.atif.validate import find_violations
from vestige.query.evidence import Evidence, open_run
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer.export import export_run
from vestige.transfer.import_runs import find_format, import_path
from vestige.transfer.temp_store import TempStore, load_runs

DATA = Path(__file__).parent.parent / "data/atif"
SAMPLES = sorted(path.stem for path in DATA.glob("v1.*.json"))
VERDICTS: dict[str, Any] = json.loads((DATA / "verdicts.json").read_text())
SCHEMA: dict[str, Any] = json.loads((DATA / "schema.json").read_text())


def _open(temporary: TempStore) -> Evidence:
    (info,) = temporary.store.list_runs(RunFilter())
    return open_run(temporary.store, info.id)


def _read(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text())


@pytest.mark.parametrize("name", SAMPLES)
def test_every_version_is_recognized_valid_and_read(name: str) -> None:
    path = DATA / f"{name}.json"
    found = find_format(path)
    assert found is not None
    assert found[0] == "atif"
    assert atif.validate_run(path) == []
    temporary = load_runs(path)
    run = _open(temporary).run
    assert (run.info.name, run.info.outcome) == ("shop-agent", "ok")
    assert temporary.problems == []
    temporary.close()


@pytest.mark.parametrize("name", VERDICTS)
def test_our_verdict_is_that_of_harbor(name: str) -> None:
    case = VERDICTS[name]
    violations = list(find_violations(case["document"]))
    assert (violations == []) == case["valid"], violations


def test_steps_are_model_calls_and_tools_with_figures() -> None:
    temporary = load_runs(DATA / "v1.2-times.json")
    evidence = _open(temporary)
    run, first = evidence.run, evidence.model_calls[0]
    assert [(span.type, span.name, span.attributes.get("message_index")) for span in run.spans] == [
        ("run", "shop-agent", None),
        ("llm", "shop-agent", 2),
        ("tool", "find_order", 2),
        ("llm", "shop-agent", 3),
    ]
    facts = {
        key: first.attributes[key] for key in ("input_tokens", "cache_read_tokens", "cost_usd")
    }
    assert facts == {"input_tokens": 120, "cache_read_tokens": 100, "cost_usd": 0.0004}
    request, answer = evidence.request(first), evidence.response(first)
    assert request is not None
    assert answer is not None
    assert [message.role for message in request.messages] == ["system", "user"]
    assert [part.kind for part in answer.parts] == ["thinking", "text", "tool_call"]
    tool = evidence.of_type("tool")[0]
    assert (evidence.input(tool), evidence.output(tool)) == ('{"id":7}', "order 7: late")
    assert evidence.input(run.spans[0]) == "Why is order 7 late?"
    assert run.info.duration_ns == 3_000_000_000
    temporary.close()


def test_a_sub_agent_is_inside_the_tool_that_started_it() -> None:
    temporary = load_runs(DATA / "v1.7-sub-agent.json")
    run = _open(temporary).run
    by_type = {(span.type, span.name): span for span in run.spans}
    tool, agent = by_type["tool", "delegate"], by_type["agent", "carrier-helper"]
    assert agent.parent_id == tool.id
    assert by_type["llm", "carrier-helper"].parent_id == agent.id
    assert (run.info.input_tokens, run.info.output_tokens) == (40, 4)
    temporary.close()


def test_a_file_of_a_sub_agent_is_read_only_beside_the_trajectory(tmp_path: Path) -> None:
    document = _read("v1.7-sub-agent")
    (inner,) = document.pop("subagent_trajectories")
    (tmp_path / "outside.json").write_text(json.dumps(inner))
    folder = tmp_path / "agent"
    folder.mkdir()
    (folder / "helper.json").write_text(json.dumps(inner))
    reference = document["steps"][1]["observation"]["results"][0]["subagent_trajectory_ref"]
    for name, agents in (("helper.json", 1), ("../outside.json", 0), ("/etc/hostname", 0)):
        reference[0] = {"trajectory_path": name}
        (folder / "trajectory.json").write_text(json.dumps(document))
        temporary = load_runs(folder / "trajectory.json")
        assert len(_open(temporary).of_type("agent")) == agents, name
        temporary.close()
    reference[0] = {"trajectory_path": "helper.json"}
    (folder / "trajectory.json").write_text(json.dumps(document))
    assert [path.name for path in atif.find_runs(tmp_path / "agent")] == ["trajectory.json"]


def test_copied_steps_are_context_and_are_not_counted_again() -> None:
    temporary = load_runs(DATA / "v1.5-copied.json")
    evidence = _open(temporary)
    (call,) = evidence.model_calls
    request = evidence.request(call)
    assert request is not None
    assert [message.role for message in request.messages] == ["user", "assistant", "tool"]
    assert evidence.run.info.input_tokens == 0
    temporary.close()


def test_a_file_that_has_grown_adds_its_new_steps(tmp_path: Path) -> None:
    document = _read("v1.0")
    path = tmp_path / "trajectory.json"
    with SqliteStore.open(tmp_path / "store.db") as store:
        path.write_text(json.dumps(document | {"steps": document["steps"][:2]}))
        (first,) = import_path(store, path)
        path.write_text(json.dumps(document))
        (grown,) = import_path(store, path)
        (again,) = import_path(store, path)
        assert (grown.run_id, again.records) == (first.run_id, 0)
        run = store.load_run(first.run_id or "")
        assert [span.type for span in run.spans] == ["run", "llm", "tool", "llm"]


@pytest.mark.parametrize("name", SAMPLES)
def test_an_export_is_valid_and_reads_as_the_same_steps(name: str, tmp_path: Path) -> None:
    written = _export(DATA / f"{name}.json", tmp_path)
    jsonschema.validate(written, SCHEMA)
    assert list(find_violations(written)) == []
    original = _read(name)
    assert [_shape(step) for step in written["steps"]] == [
        _shape(step) for step in original["steps"]
    ]


def _export(path: Path, folder: Path) -> Any:
    temporary = load_runs(path)
    (info,) = temporary.store.list_runs(RunFilter())
    target = folder / "out.json"
    export_run(temporary.store, info.id, "atif", target)
    temporary.close()
    return json.loads(target.read_text())


def _shape(step: dict[str, Any]) -> tuple[Any, ...]:
    message = step["message"]
    if isinstance(message, list):
        message = message[0].get("text", "")
    results = step.get("observation", {}).get("results", [])
    # Copied context was counted where it was copied from.
    metrics = step.get("metrics", {}) if not step.get("is_copied_context") else {}
    return (
        step["source"],
        message.split("\n[")[0] if not message.startswith("[") else "",
        step.get("reasoning_content"),
        step.get("tool_calls"),
        [(result.get("source_call_id"), result.get("content")) for result in results],
        {key: metrics.get(key) for key in ("prompt_tokens", "completion_tokens", "cached_tokens")},
        step.get("is_copied_context"),
    )


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
LINE = TEXT.filter(str.strip)
NAMES = st.sampled_from(
    ["id", "at", "été"]
)  # a name such as `PIN` would be redacted with its value


@st.composite
def trajectories(draw: st.DrawFn) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"source": "user", "message": draw(LINE)}]
    for number in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            steps.append(
                {"source": draw(st.sampled_from(["user", "system"])), "message": draw(LINE)}
            )
        step: dict[str, Any] = {"source": "agent", "message": draw(TEXT)}
        calls = [
            {
                "tool_call_id": f"call_{number}_{index}",
                "function_name": draw(st.sampled_from(["find", "order", "été"])),
                "arguments": draw(st.dictionaries(NAMES, st.integers(-5, 5) | TEXT, max_size=2)),
            }
            for index in range(draw(st.integers(0, 2)))
        ]
        if calls:
            step["tool_calls"] = calls
            step["observation"] = {
                "results": [
                    {"source_call_id": call["tool_call_id"], "content": draw(TEXT)}
                    for call in calls
                ]
            }
        if draw(st.booleans()):
            step["metrics"] = {"prompt_tokens": draw(st.integers(0, 9)), "completion_tokens": 3}
        steps.append(step)
    for number, step in enumerate(steps, 1):
        step["step_id"] = number
    return _read("v1.0") | {"steps": steps}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SqliteStore, Path]]:
    """A store and a folder that all examples share, because creating a store is slow."""
    folder = tmp_path_factory.mktemp("atif")
    with SqliteStore.open(folder / "store.db") as store:
        yield store, folder


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(trajectories())
def test_any_trajectory_survives_import_and_export(
    scratch: tuple[SqliteStore, Path], document: dict[str, Any]
) -> None:
    store, folder = scratch
    number = len(list(folder.iterdir()))
    path, target = folder / f"{number}.json", folder / f"{number}-out.json"
    path.write_text(json.dumps(document))
    (result,) = import_path(store, path)
    export_run(store, result.run_id or "", "atif", target)
    written = json.loads(target.read_text())
    assert [_shape(step) for step in written["steps"]] == [
        _shape(step) for step in document["steps"]
    ]


@pytest.mark.parametrize(
    "content",
    [
        b'{"schema_version": "ATIF-v1.4"',
        b'{"schema_version": "ATIF-v1.4", "steps": []}',
        b'{"schema_version": "ATIF-v1.4", "steps": 7, "agent": null}',
        b'{"schema_version": ["ATIF-v1.4"], "steps": [{}]}',
        b'{"steps": ' + b"[" * 100_000 + b', "x": "ATIF-v1.4"}',
        b'{"schema_version": "ATIF-v1.4", "steps": [' + b"1," * 17_000_000 + b"1]}",
        b'\xff\xfe{"schema_version": "ATIF-v1.4"}',
    ],
    ids=["torn", "empty", "types", "version", "deep", "many", "utf-16"],
)
def test_a_damaged_or_hostile_file_is_a_clear_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trajectory.json"
    path.write_bytes(content)
    with pytest.raises(Exception, match=r"trajectory\.json: .+") as caught:
        load_runs(path).close()
    assert getattr(caught.value, "exit_code", None) == 3


def test_wrong_types_lose_only_their_own_step(tmp_path: Path) -> None:
    document = _read("v1.0")
    odd = [7, {"source": "robot"}, {"source": "agent", "message": {"a": 1}, "tool_calls": "x"}]
    odd.append({"source": "agent", "message": "ok \ud800", "metrics": [], "observation": []})
    document["steps"] += odd
    path = tmp_path / "trajectory.json"
    path.write_text(json.dumps(document))
    temporary = load_runs(path)
    run = _open(temporary).run
    assert [span.type for span in run.spans] == ["run", "llm", "tool", "llm", "llm", "llm"]
    assert [problem.rule for problem in temporary.problems] == ["step-unreadable"]
    temporary.close()
