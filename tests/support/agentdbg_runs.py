"""AgentDbg run directories made for a test: valid, and ready to be broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vestige._runtime.clock import SYSTEM
from vestige.formats.agentdbg.file_structs import timestamp

RUN = "11111111-1111-4111-8111-111111111111"
_made = iter(range(1, 1_000_000))


def call(kind: str = "TOOL_CALL", **more: Any) -> dict[str, Any]:
    """An event as AgentDbg writes it."""
    return {
        "spec_version": "0.1",
        "event_id": f"00000000-0000-4000-8000-{next(_made):012d}",
        "run_id": RUN,
        "parent_id": None,
        "event_type": kind,
        "ts": "2026-03-01T00:00:01.000Z",
        "duration_ms": None,
        "name": "search",
        "payload": {
            "tool_name": "search",
            "args": {"q": 1},
            "result": None,
            "status": "ok",
            "error": None,
        },
        "meta": {},
        **more,
    }


def run_end() -> dict[str, Any]:
    summary = {"llm_calls": 0, "tool_calls": 1, "errors": 0, "duration_ms": 1000}
    return call("RUN_END", name="run_end", payload={"status": "ok", "summary": summary})


def make_run(
    folder: Path,
    events: list[dict[str, Any]] | None = None,
    *,
    status: str = "ok",
    end: bool = True,
    meta: dict[str, Any] | None = None,
    now: bool = False,
) -> Path:
    """A run directory. `now`: it began this second."""
    at = timestamp(SYSTEM.now_ns()) if now else "2026-03-01T00:00:00.000Z"
    payload = {
        "run_name": "demo",
        "python_version": "3.11.7",
        "platform": "linux",
        "cwd": "/",
        "argv": [],
    }
    lines = [call("RUN_START", name="demo", ts=at, payload=payload, meta=meta or {})]
    lines += events or []
    lines += [run_end()] if end else []
    run = folder / RUN
    run.mkdir(parents=True)
    (run / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = status != "running"
    counts = {
        "llm_calls": sum(line["event_type"] == "LLM_CALL" for line in lines),
        "tool_calls": sum(line["event_type"] == "TOOL_CALL" for line in lines),
        "errors": 0,
        "loop_warnings": 0,
    }
    (run / "run.json").write_text(
        json.dumps(
            {
                "spec_version": "0.1",
                "run_id": RUN,
                "run_name": "demo",
                "started_at": at,
                "ended_at": "2026-03-01T00:00:01.000Z" if done else None,
                "duration_ms": 1000 if done else None,
                "status": status,
                "counts": counts,
                "last_event_ts": "2026-03-01T00:00:01.000Z" if done else None,
            }
        )
    )
    return run
