"""Every rule of the AgentDbg v0.1 format is checked; our schemas judge as the published ones do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from support.agentdbg_runs import RUN, call, make_run
from vestige.formats import agentdbg

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "agentdbg"
PUBLISHED, OURS = DATA / "schemas", ROOT / "schemas" / "agentdbg"


def rules(run: Path) -> list[str]:
    return sorted({problem.rule for problem in agentdbg.validate_run(run)})


def edit_event(run: Path, number: int, change: Callable[[dict[str, Any]], object]) -> None:
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().split("\n") if line]
    change(lines[number])
    (run / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def edit_run(run: Path, **more: Any) -> None:
    metadata = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(metadata | more))


def test_a_valid_run_has_no_problems(tmp_path: Path) -> None:
    assert agentdbg.validate_run(make_run(tmp_path, events=[call()])) == []


TOOL = 1
EVENT_FAULTS: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "no event_id": ("field-missing", lambda e: e.pop("event_id")),
    "event_id is not a UUIDv4": ("type", lambda e: e.update(event_id=RUN.replace("-4", "-1"))),
    "event_id in upper case": ("type", lambda e: e.update(event_id=e["event_id"].upper() + "A")),
    "another run's event": ("run-id-differs", lambda e: e.update(run_id=RUN.replace("1", "2"))),
    "parent is not an id": ("type", lambda e: e.update(parent_id=7)),
    "parent is not there": (
        "parent-missing",
        lambda e: e.update(parent_id="99999999-9999-4999-8999-999999999999"),
    ),
    "a type that v0.1 has not": ("event-type-unknown", lambda e: e.update(event_type="THOUGHT")),
    "ts without milliseconds": ("type", lambda e: e.update(ts="2026-03-01T00:00:01Z")),
    "ts with an offset": ("type", lambda e: e.update(ts="2026-03-01T00:00:01.000+01:00")),
    "ts is not a time": ("type", lambda e: e.update(ts="2026-13-01T00:00:01.000Z")),
    "duration is not an integer": ("type", lambda e: e.update(duration_ms=1.5)),
    "duration is a boolean": ("type", lambda e: e.update(duration_ms=True)),
    "name is null": ("type", lambda e: e.update(name=None)),
    "payload is an array": ("type", lambda e: e.update(payload=[])),
    "meta is null": ("type", lambda e: e.update(meta=None)),
    "spec_version of another": ("type", lambda e: e.update(spec_version="0.2")),
    "a field too many": ("field-unknown", lambda e: e.update(extra=1)),
    "no tool_name": ("payload-missing", lambda e: e["payload"].pop("tool_name")),
    "status of its own": ("payload-type", lambda e: e["payload"].update(status="fine")),
    "failed without an error": ("error-missing", lambda e: e["payload"].update(status="error")),
    "error without a type": (
        "payload-type",
        lambda e: e["payload"].update(status="error", error={"message": "m"}),
    ),
}


@pytest.mark.parametrize("fault", EVENT_FAULTS)
def test_each_rule_about_an_event_is_checked(tmp_path: Path, fault: str) -> None:
    """One fault, one rule, at its place."""
    rule, change = EVENT_FAULTS[fault]
    run = make_run(tmp_path, events=[call()])
    edit_event(run, TOOL, change)

    (problem,) = [one for one in agentdbg.validate_run(run) if one.rule != "counts-differ"]

    assert problem.rule == rule
    assert (problem.file, problem.place.split()[:2]) == ("events.jsonl", ["line", "2"])


RUN_FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "status": ("type", {"status": "done"}),
    "started_at": ("type", {"started_at": "yesterday"}),
    "ends before it starts": ("lifecycle", {"ended_at": "2026-02-01T00:00:00.000Z"}),
    "finished, no end": ("lifecycle", {"ended_at": None}),
    "finished, no last event": ("lifecycle", {"last_event_ts": None}),
    "negative duration": ("type", {"duration_ms": -1}),
    "another name": ("run-id-differs", {"run_id": RUN.replace("1", "2")}),
    "counts": (
        "counts-differ",
        {"counts": dict.fromkeys(("llm_calls", "tool_calls", "errors", "loop_warnings"), 5)},
    ),
    "a count too few": ("type", {"counts": {"llm_calls": 0, "tool_calls": 1, "errors": 0}}),
    "a field too many": ("field-unknown", {"pid": 7}),
    "status differs from RUN_END": ("status-differs", {"status": "error"}),
}


@pytest.mark.parametrize("fault", RUN_FAULTS)
def test_each_rule_about_the_run_file_is_checked(tmp_path: Path, fault: str) -> None:
    rule, more = RUN_FAULTS[fault]
    run = make_run(tmp_path, events=[call()])
    edit_run(run, **more)

    assert rules(run) == [rule]


def test_rules_about_all_events_together(tmp_path: Path) -> None:
    """One start, first; one end, last; ids and loop patterns once."""
    same = call()
    loop = {"pattern": "a", "repetitions": 3, "window_size": 3, "evidence_event_ids": []}
    warn = [call("LOOP_WARNING", payload=loop) for _ in range(2)]
    run = make_run(tmp_path, events=[same, same, *warn])
    edit_run(run, counts={"llm_calls": 0, "tool_calls": 2, "errors": 0, "loop_warnings": 2})
    with open(run / "events.jsonl", "a") as file:
        file.write(json.dumps(call("RUN_START", payload={})) + "\n" + "{torn")

    assert {"event-id-duplicate", "loop-duplicate", "run-start", "run-end", "line-torn"} <= set(
        rules(run)
    )


def test_a_run_that_is_running_but_over_is_told_with_what_helps(tmp_path: Path) -> None:
    run = make_run(tmp_path, events=[call()], status="running")

    (problem,) = agentdbg.validate_run(run)

    assert problem.rule == "lifecycle" and "vestige store recover" in problem.hint


def test_a_folder_is_checked_run_by_run() -> None:
    """The real package's own faults: usage redacted, secrets in argv, NaN, a torn line."""
    problems = agentdbg.validate_run(DATA)

    assert {"secret-in-clear", "payload-type", "json", "line-torn"} == {p.rule for p in problems}
    assert all("/" in problem.file for problem in problems)


# --- schemas --------------------------------------------------------------------------------------


def verdicts(kind: str, value: Any) -> tuple[bool, bool]:
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    found = [
        jsonschema.Draft202012Validator(
            json.loads((folder / f"{kind}.schema.json").read_text()), format_checker=checker
        ).is_valid(value)
        for folder in (PUBLISHED, OURS)
    ]
    return found[0], found[1]


def test_our_schemas_judge_the_real_files_as_the_published_ones_do() -> None:
    """Every run.json and every event that the real package wrote."""
    for run in sorted((DATA / "runs").iterdir()):
        assert verdicts("run", json.loads((run / "run.json").read_text())) == (True, True)
        for line in (run / "events.jsonl").read_text(encoding="utf-8").split("\n"):
            if line.endswith("}"):
                assert verdicts("event", json.loads(line)) == (True, True)


@pytest.mark.parametrize("fault", EVENT_FAULTS)
def test_our_event_schema_judges_faults_as_the_published_one_does(fault: str) -> None:
    event = call()
    EVENT_FAULTS[fault][1](event)

    published, ours = verdicts("event", event)

    assert ours == published


@pytest.mark.parametrize("fault", RUN_FAULTS)
def test_our_run_schema_judges_faults_as_the_published_one_does(fault: str, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    edit_run(run, **RUN_FAULTS[fault][1])

    published, ours = verdicts("run", json.loads((run / "run.json").read_text()))

    assert ours == published


@pytest.mark.parametrize("kind", ["event", "run"])
def test_our_schemas_require_and_allow_the_same_fields(kind: str, tmp_path: Path) -> None:
    """Each field left out, and each with a value of every type."""
    valid = call() if kind == "event" else json.loads((make_run(tmp_path) / "run.json").read_text())
    values = [None, True, 0, -1, 1.5, "x", RUN, "2026-03-01T00:00:01.000Z", "ok", "0.1", [], {}]
    for field in valid:
        without = {key: value for key, value in valid.items() if key != field}
        for value in [without, *({**valid, field: value} for value in values)]:
            published, ours = verdicts(kind, value)
            assert ours == published, (field, value)
