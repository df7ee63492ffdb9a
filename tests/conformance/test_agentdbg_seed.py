"""Seed 001, clause by clause: the AgentDbg v0.1 trace format as the face writes it live."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from support.run_directories import RunDir, only_rundir, read_rundirs, strict_json
from vestige.agentdbg import record_llm_call, record_state, record_tool_call, trace, traced_run

UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
ENVELOPE = [
    "spec_version",
    "event_id",
    "run_id",
    "parent_id",
    "event_type",
    "ts",
    "duration_ms",
    "name",
    "payload",
    "meta",
]


@pytest.fixture
def run(data_dir: Path) -> RunDir:
    """One run with an event of every type, ended by an exception."""
    with pytest.raises(ValueError, match="bad thing"), traced_run("all of it"):
        record_llm_call(
            "gpt-4",
            [{"role": "user", "content": "hi"}],
            {"text": "hello"},
            {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
            {"tag": "x"},
            "openai",
            0.5,
            "stop",
        )
        record_llm_call("gpt-4", status="error", error=TimeoutError("slow"))
        for _ in range(3):
            record_tool_call("search", {"q": 1}, ["page"])
        record_tool_call("read", "page", error={"error_type": "Refused", "message": "no"})
        record_state({"step": 1}, diff={"step": [0, 1]})
        record_state("done")
        raise ValueError("bad thing")
    return only_rundir(data_dir)


# --- overview -------------------------------------------------------------------------------------


def test_one_directory_per_run(run: RunDir, data_dir: Path) -> None:
    """Per run: One directory `runs/<run_id>/` containing events.jsonl and run.json."""
    assert run.path == data_dir / "runs" / run.run["run_id"]
    assert {path.name for path in run.path.iterdir()} == {"events.jsonl", "run.json"}


def test_one_json_object_per_line(run: RunDir) -> None:
    """events.jsonl - append-only; one JSON object per line (one event per line)."""
    text = (run.path / "events.jsonl").read_bytes()

    assert text.endswith(b"\n")
    assert all(isinstance(strict_json(line.decode()), dict) for line in text.splitlines())


def test_events_are_appended_never_rewritten(data_dir: Path) -> None:
    """events.jsonl - append-only."""
    with traced_run("append"):
        record_state(1)
        (path,) = (data_dir / "runs").glob("*/events.jsonl")
        before, inode = path.read_bytes(), path.stat().st_ino
        record_state(2)

    assert path.read_bytes().startswith(before) and path.stat().st_ino == inode


def test_events_are_in_write_order(run: RunDir) -> None:
    """Ordering: Events in events.jsonl are in write order; when timestamps tie, this order is
    authoritative."""
    assert run.types == [
        "RUN_START",
        "LLM_CALL",
        "LLM_CALL",
        "TOOL_CALL",
        "TOOL_CALL",
        "TOOL_CALL",
        "LOOP_WARNING",
        "TOOL_CALL",
        "STATE_UPDATE",
        "STATE_UPDATE",
        "ERROR",
        "RUN_END",
    ]
    assert [event["ts"] for event in run.events] == sorted(event["ts"] for event in run.events)


def test_events_are_flushed_after_every_write(data_dir: Path) -> None:
    """Flushing: Events are flushed after every write so that crashes do not lose the last event.
    (A process that is killed: tests/agentdbg/test_agentdbg_endings.py.)"""
    seen = []
    with traced_run("flush"):
        (path,) = (data_dir / "runs").glob("*/events.jsonl")
        for number in range(3):
            record_state(number)
            seen.append(len(path.read_bytes().splitlines()))

    assert seen == [2, 3, 4]


def test_all_payloads_and_meta_pass_redaction_and_truncation(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All payloads (and meta) written to disk pass through redaction and truncation before being
    written. This includes ERROR payloads and RUN_START.argv (option values matching redact keys
    are redacted)."""
    secret = "correct-horse-battery"
    monkeypatch.setenv("AGENTDBG_MAX_FIELD_BYTES", "300")
    monkeypatch.setattr(sys, "argv", ["a.py", "--password", secret, "x" * 900])
    with pytest.raises(ValueError, match="password"), traced_run("all pass"):
        record_state({"password": secret, "long": "y" * 900}, {"token": secret, "m": "z" * 900})
        raise ValueError(f"password={secret} " + "w" * 900)

    run = only_rundir(data_dir)
    text = (run.path / "events.jsonl").read_text()
    start, state, error = run.events[:3]
    assert secret not in text
    assert start["payload"]["argv"][2] == "__REDACTED__"
    for cut in (
        start["payload"]["argv"][3],
        state["payload"]["state"]["long"],
        state["meta"]["m"],
        error["payload"]["message"],
    ):
        assert cut.endswith("__TRUNCATED__") and len(cut) <= 300
    assert state["meta"]["token"] == state["payload"]["state"]["password"] == "__REDACTED__"


# --- the envelope ---------------------------------------------------------------------------------


def test_every_event_has_the_required_fields_and_no_other(run: RunDir) -> None:
    """Every event is a single JSON object with these required top-level fields."""
    assert all(list(event) == ENVELOPE for event in run.events)


def test_the_version_is_0_1(run: RunDir) -> None:
    """spec_version: Schema version, e.g. "0.1"."""
    assert {event["spec_version"] for event in run.events} == {"0.1"} == {run.run["spec_version"]}


def test_ids_are_uuid4_and_unique(run: RunDir) -> None:
    """IDs: run_id and event_id MUST be UUIDv4 strings (canonical form with hyphens); event_id
    unique per event."""
    ids = [event["event_id"] for event in run.events]

    assert all(UUID4.fullmatch(each) for each in (*ids, run.run["run_id"]))
    assert len(set(ids)) == len(ids)
    assert {event["run_id"] for event in run.events} == {run.run["run_id"]}


def test_a_parent_is_an_event_of_the_run_or_null(run: RunDir) -> None:
    """parent_id: UUIDv4 of parent event, or null."""
    ids = {event["event_id"] for event in run.events}

    assert run.events[0]["parent_id"] is None
    assert {event["parent_id"] for event in run.events[1:]} <= ids


def test_times_are_utc_with_milliseconds_and_z(run: RunDir) -> None:
    """Timestamps: ts MUST be UTC ISO8601 with millisecond precision and trailing Z."""
    times = [event["ts"] for event in run.events]
    times += [run.run["started_at"], run.run["ended_at"], run.run["last_event_ts"]]

    assert all(TIME.fullmatch(each) for each in times)


def test_durations_are_whole_milliseconds_or_null(run: RunDir) -> None:
    """duration_ms: Duration in milliseconds if applicable."""
    durations = [event["duration_ms"] for event in run.events]

    assert durations[:-1] == [None] * (len(durations) - 1)
    assert type(durations[-1]) is int


def test_names_are_labels(run: RunDir) -> None:
    """name: Label (e.g. tool name, model name, run name)."""
    assert [event["name"] for event in run.events] == [
        "all of it",
        "gpt-4",
        "gpt-4",
        "search",
        "search",
        "search",
        "TOOL_CALL:search",
        "read",
        "state",
        "state",
        "ValueError",
        "run_end",
    ]


def test_meta_has_what_the_user_gave(run: RunDir) -> None:
    """meta: Freeform metadata (tags, user-defined)."""
    assert run.events[1]["meta"]["tag"] == "x"


# --- payloads -------------------------------------------------------------------------------------


def test_run_start(run: RunDir) -> None:
    """RUN_START: run_name, python_version, platform, cwd, argv."""
    assert run.events[0]["payload"] == {
        "run_name": "all of it",
        "python_version": ".".join(map(str, sys.version_info[:3])),
        "platform": sys.platform,
        "cwd": os.getcwd(),
        "argv": sys.argv,
    }


def test_the_name_of_a_run(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """run_name is set from: AGENTDBG_RUN_NAME (env), explicit @trace("...") / @trace(name="...") or
    traced_run(name="..."), or default `path:function - YYYY-MM-DD HH:MM`."""

    @trace
    def unnamed() -> None: ...

    @trace("by position")
    def first() -> None: ...

    @trace(name="by keyword")
    def second() -> None: ...

    for each in (unnamed, first, second):
        each()
    with traced_run(name="block"):
        pass
    monkeypatch.setenv("AGENTDBG_RUN_NAME", "z of the environment")
    first()

    default, *others = [run.run["run_name"] for run in read_rundirs(data_dir)]
    assert re.fullmatch(r".*test_agentdbg_seed\.py:unnamed - \d{4}-\d\d-\d\d \d\d:\d\d", default)
    assert others == ["block", "by keyword", "by position", "z of the environment"]


def test_run_end(run: RunDir) -> None:
    """RUN_END: status ok | error; summary: llm_calls, tool_calls, errors, duration_ms."""
    payload = run.events[-1]["payload"]

    assert payload["status"] == "error"
    assert payload["summary"] == {
        "llm_calls": 2,
        "tool_calls": 4,
        "errors": 1,
        "duration_ms": run.run["duration_ms"],
    }


def test_llm_call(run: RunDir) -> None:
    """LLM_CALL: model, prompt, response, usage, provider, temperature, stop_reason, status,
    error.
    """
    assert run.events[1]["payload"] == {
        "model": "gpt-4",
        "prompt": [{"role": "user", "content": "hi"}],
        "response": {"text": "hello"},
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
        "provider": "openai",
        "temperature": 0.5,
        "stop_reason": "stop",
        "status": "ok",
        "error": None,
    }


def test_usage_may_be_unknown(data_dir: Path) -> None:
    """usage fields may be null if unknown."""
    with traced_run("usage"):
        record_llm_call("m", usage={"prompt_tokens": 5})

    assert only_rundir(data_dir).events[1]["payload"]["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": None,
        "total_tokens": None,
    }


def test_a_failed_llm_call(run: RunDir) -> None:
    """When status is "error", error is an object with error_type, message, optional details,
    optional stack."""
    payload = run.events[2]["payload"]

    assert payload["status"] == "error"
    assert (payload["error"]["error_type"], payload["error"]["message"]) == ("TimeoutError", "slow")
    assert set(payload["error"]) <= {"error_type", "message", "details", "stack"}


def test_tool_call(run: RunDir) -> None:
    """TOOL_CALL: tool_name, args, result, status, error."""
    assert run.events[3]["payload"] == {
        "tool_name": "search",
        "args": {"q": 1},
        "result": ["page"],
        "status": "ok",
        "error": None,
    }


def test_a_failed_tool_call(run: RunDir) -> None:
    """When status is "error", error is an object with error_type, message, ... (same shape as
    ERROR event payload)."""
    payload = run.events[7]["payload"]

    assert (payload["args"], payload["status"]) == ("page", "error")
    assert payload["error"]["error_type"] == "Refused"
    assert set(payload["error"]) == set(run.of("ERROR")[0]["payload"])


def test_state_update(run: RunDir) -> None:
    """STATE_UPDATE: state, diff; diff is optional; may be omitted if not computed."""
    assert [event["payload"] for event in run.of("STATE_UPDATE")] == [
        {"state": {"step": 1}, "diff": {"step": [0, 1]}},
        {"state": "done", "diff": None},
    ]


def test_error(run: RunDir) -> None:
    """ERROR: error_type (not type) for the exception class name, message, stack."""
    payload = run.of("ERROR")[0]["payload"]

    assert (payload["error_type"], payload["message"]) == ("ValueError", "bad thing")
    assert payload["stack"].startswith("Traceback") and "type" not in payload


def test_loop_warning(run: RunDir) -> None:
    """LOOP_WARNING: pattern, repetitions, window_size, evidence_event_ids."""
    assert run.of("LOOP_WARNING")[0]["payload"] == {
        "pattern": "TOOL_CALL:search",
        "repetitions": 3,
        "window_size": 3,
        "evidence_event_ids": [event["event_id"] for event in run.events[3:6]],
    }


def test_a_pattern_is_warned_of_once(data_dir: Path) -> None:
    """Emitted at most once per run per distinct pattern (deduplicated)."""
    with traced_run("patterns"):
        for name in ("a", "b", "a"):
            for _ in range(5):
                record_tool_call(name)

    patterns = [event["payload"]["pattern"] for event in only_rundir(data_dir).of("LOOP_WARNING")]
    assert patterns == ["TOOL_CALL:a", "TOOL_CALL:b"]


# --- run.json -------------------------------------------------------------------------------------


def test_run_json_has_the_required_fields(run: RunDir) -> None:
    """Required fields: spec_version, run_id, run_name, started_at, ended_at, duration_ms, status,
    counts, last_event_ts."""
    assert list(run.run) == [
        "spec_version",
        "run_id",
        "run_name",
        "started_at",
        "ended_at",
        "duration_ms",
        "status",
        "counts",
        "last_event_ts",
    ]


def test_run_json_at_the_start(data_dir: Path) -> None:
    """On run start: run.json is written with status: "running", ended_at: null, duration_ms: null
    (or 0), and zero counts."""
    with traced_run("begun"):
        (path,) = (data_dir / "runs").glob("*/run.json")
        begun = json.loads(path.read_text())

    assert (begun["status"], begun["ended_at"], begun["duration_ms"]) == ("running", None, None)
    assert begun["last_event_ts"] is None
    assert set(begun["counts"].values()) == {0}
    assert begun["run_name"] == "begun" and TIME.fullmatch(begun["started_at"])


def test_run_json_at_the_end(run: RunDir) -> None:
    """On run end: run.json is updated with status: "ok" or "error", ended_at, duration_ms, final
    counts, and last_event_ts."""
    assert run.run["status"] == "error"
    assert run.run["counts"] == {
        "llm_calls": 2,
        "tool_calls": 4,
        "errors": 1,
        "loop_warnings": 1,
    }
    assert run.run["last_event_ts"] == run.events[-1]["ts"]
    assert type(run.run["duration_ms"]) is int and run.run["ended_at"] >= run.run["started_at"]


def test_the_published_schemas_hold(run: RunDir) -> None:
    """JSON schemas in the repo root schemas/ folder are best-effort for tooling.
    (`only_rundir` holds every run and event to them; here that it does.)"""
    assert run.events and run.run
