"""The AgentDbg v0.1 trace format, clause by clause, on runs that Vestige exported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.recorder import Recorder
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import export_run

UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
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


class Exported:
    """One run, as it is on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run: dict[str, Any] = json.loads((path / "run.json").read_text(encoding="utf-8"))
        text = (path / "events.jsonl").read_text(encoding="utf-8")
        self.lines = text.split("\n")[:-1]
        self.events: list[dict[str, Any]] = [
            json.loads(line, parse_constant=_no) for line in self.lines
        ]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event_type"] == kind]


def _no(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@pytest.fixture
def exported(home: Home, tmp_path: Path) -> Exported:
    """A run with every event type, a secret, a long text, and an exception at its end."""
    recorder = Recorder(home)
    run = recorder.run("demo run")
    try:
        with run:
            with run.span(
                "gpt-4o", "llm", {"model": "gpt-4o", "provider": "openai"}, body="hi"
            ) as llm:
                llm.end(attributes={"input_tokens": 3, "output_tokens": 2}, body='{"a":NaN}')
            with run.span(
                "search", "tool", body={"q": 1, "api_key": "sk-verysecretvalue-123456"}
            ) as tool:
                tool.end(TimeoutError("slow"))
            with run.span("long", "tool", body="Bearer sk-verysecretvalue-123456 " + "x" * 30_000):
                pass
            with run.span("memory", "state", body={"k": 1}):
                pass
            loop = {"loop.pattern": "a", "loop.repetitions": 3, "loop.window_size": 6}
            run.log.warn("loop", **loop, **{"loop.evidence": json.dumps([llm.id])})
            raise ValueError("exploded")
    except ValueError:
        pass
    recorder.close()
    catch_up(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        return Exported(export_run(store, run.run_id, "agentdbg", tmp_path / "runs"))


def test_one_directory_per_run(exported: Exported) -> None:
    """ "Per run: One directory `runs/<run_id>/` containing events.jsonl [and] run.json"."""
    assert exported.path.name == exported.run["run_id"]
    assert exported.path.parent.name == "runs"


def test_one_json_object_per_line(exported: Exported) -> None:
    """ "events.jsonl - append-only; one JSON object per line (one event per line)"."""
    assert all(isinstance(event, dict) for event in exported.events)
    assert (exported.path / "events.jsonl").read_bytes().endswith(b"}\n")


def test_events_are_in_write_order(exported: Exported) -> None:
    """ "Events in events.jsonl are in write order;
    when timestamps tie, this order is authoritative"."""
    kinds = [event["event_type"] for event in exported.events]
    assert kinds == [
        "RUN_START",
        "LLM_CALL",
        "TOOL_CALL",
        "TOOL_CALL",
        "STATE_UPDATE",
        "LOOP_WARNING",
        "ERROR",
        "RUN_END",
    ]
    assert sorted(event["ts"] for event in exported.events) == [e["ts"] for e in exported.events]


def test_payloads_are_redacted_and_then_truncated(exported: Exported) -> None:
    """ "All payloads (and meta) written to disk pass through redaction and truncation"."""
    text = "\n".join(exported.lines)
    search, long = exported.of("TOOL_CALL")
    assert "verysecretvalue" not in text
    assert search["payload"]["args"] == {"q": 1, "api_key": "__REDACTED__"}
    assert "__REDACTED__" in long["payload"]["args"][:60]
    assert long["payload"]["args"].endswith("__TRUNCATED__")
    assert len(long["payload"]["args"].encode()) <= 20_000


def test_the_envelope_has_its_ten_fields_and_no_other(exported: Exported) -> None:
    """ "Every event is a single JSON object with these required top-level fields"."""
    for event in exported.events:
        assert list(event) == ENVELOPE
        assert event["spec_version"] == "0.1" and event["run_id"] == exported.run["run_id"]
        assert isinstance(event["name"], str)
        assert isinstance(event["payload"], dict) and isinstance(event["meta"], dict)
        assert event["duration_ms"] is None or type(event["duration_ms"]) is int


def test_timestamps(exported: Exported) -> None:
    """ "`ts` MUST be UTC ISO8601 with millisecond precision and trailing `Z`"."""
    assert all(TIMESTAMP.fullmatch(event["ts"]) for event in exported.events)


def test_ids(exported: Exported) -> None:
    """ "`run_id` and `event_id` MUST be UUIDv4 strings (canonical form with hyphens)"."""
    ids = [event["event_id"] for event in exported.events]
    assert all(map(UUID4.fullmatch, [*ids, exported.run["run_id"]]))
    assert len(set(ids)) == len(ids)
    assert {event["parent_id"] for event in exported.events} <= {None, *ids}


def test_run_start(exported: Exported) -> None:
    """RUN_START: run_name, python_version, platform, cwd, argv."""
    payload = exported.events[0]["payload"]
    assert payload["run_name"] == "demo run"
    assert re.match(r"3\.\d+\.", payload["python_version"])
    assert payload["platform"] in ("linux", "darwin", "win32")
    assert payload["cwd"] and all(isinstance(word, str) for word in payload["argv"])


def test_run_end(exported: Exported) -> None:
    """RUN_END: status, and a summary of llm_calls, tool_calls, errors, duration_ms."""
    payload = exported.events[-1]["payload"]
    assert payload["status"] == "error"
    summary = payload["summary"]
    assert (summary["llm_calls"], summary["tool_calls"], summary["errors"]) == (1, 2, 1)
    assert summary["duration_ms"] == exported.run["duration_ms"]


def test_llm_call(exported: Exported) -> None:
    """LLM_CALL: model, prompt, response, usage, provider, temperature, stop_reason, status,
    error.
    """
    (event,) = exported.of("LLM_CALL")
    assert event["payload"] == {
        "model": "gpt-4o",
        "prompt": "hi",
        "response": '{"a":NaN}',
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        "provider": "openai",
        "temperature": None,
        "stop_reason": None,
        "status": "ok",
        "error": None,
    }


def test_tool_call(exported: Exported) -> None:
    """ "When `status` is "error", `error` is an object with
    error_type, message, [details, stack]"."""
    payload = exported.of("TOOL_CALL")[0]["payload"]
    assert (payload["tool_name"], payload["result"], payload["status"]) == ("search", None, "error")
    assert payload["error"]["error_type"] == "TimeoutError"
    assert payload["error"]["message"] == "slow" and "Traceback" not in payload["error"]["message"]


def test_state_update(exported: Exported) -> None:
    """STATE_UPDATE: state, and a diff if it was computed."""
    (event,) = exported.of("STATE_UPDATE")
    assert event["payload"] == {"state": {"k": 1}, "diff": None}


def test_error(exported: Exported) -> None:
    """ "Use error_type (not `type`) for the exception class name"."""
    (event,) = exported.of("ERROR")
    payload = event["payload"]
    assert (payload["error_type"], payload["message"]) == ("ValueError", "exploded")
    assert "Traceback" in payload["stack"] and "type" not in payload


def test_loop_warning(exported: Exported) -> None:
    """LOOP_WARNING: pattern, repetitions, window_size, evidence_event_ids."""
    (event,) = exported.of("LOOP_WARNING")
    evidence = [exported.of("LLM_CALL")[0]["event_id"]]
    assert event["payload"] == {
        "pattern": "a",
        "repetitions": 3,
        "window_size": 6,
        "evidence_event_ids": evidence,
    }


def test_run_json(exported: Exported) -> None:
    """ "On run end: status, ended_at, duration_ms, final counts, and last_event_ts"."""
    run = exported.run
    assert list(run) == [
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
    assert (run["spec_version"], run["run_name"], run["status"]) == ("0.1", "demo run", "error")
    assert run["counts"] == {"llm_calls": 1, "tool_calls": 2, "errors": 1, "loop_warnings": 1}
    assert run["last_event_ts"] == exported.events[-1]["ts"]
    for key in ("started_at", "ended_at", "last_event_ts"):
        assert TIMESTAMP.fullmatch(run[key])


def test_a_run_that_is_running(home: Home, tmp_path: Path) -> None:
    """ "On run start: status "running", ended_at null, duration_ms null"."""
    recorder = Recorder(home)
    run = recorder.run("open")
    catch_up(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        exported = Exported(export_run(store, run.run_id, "agentdbg", tmp_path / "runs")).run
    recorder.close()

    assert (exported["status"], exported["ended_at"], exported["duration_ms"]) == (
        "running",
        None,
        None,
    )
    assert exported["last_event_ts"] is None and set(exported["counts"].values()) == {0}
