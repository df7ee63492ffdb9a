"""What the live sink wrote is what an export of the same run writes, and Vestige opens either."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

import vestige
from support.commands import vestige as vestige_command
from support.commands import vestige_json
from support.programs import load
from support.run_directories import RunDir, only_rundir, read_rundirs
from vestige.agentdbg import record_llm_call, record_state, record_tool_call, traced_run
from vestige.formats import agentdbg
from vestige.home import Home
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import export_run, import_path


def busy_run() -> None:
    with pytest.raises(ValueError, match="bad"), traced_run("busy"):
        record_llm_call(
            "m", [{"role": "user"}], "{odd", {"prompt_tokens": 1, "cached": 2}, {"a": 1}
        )
        record_tool_call("t", 5, {"password": "correct-horse-battery"})
        with vestige.current_span().span("outer", type="tool", body={"q": 1}) as outer:
            record_state(diff={"x": float("nan")})
            outer.log.error("lost", error=KeyError("k"))
        for _ in range(3):
            record_tool_call("again", {"q": 1}, "x" * 30_000)
        record_tool_call("u", error="refused")
        raise ValueError("bad")


@pytest.mark.slow
def test_live_and_export_give_the_same_events(data_dir: Path, home: Home, tmp_path: Path) -> None:
    """Ids, order, payloads and all: a second export keeps the ids of events.

    But a store keeps of a call's end how long it took, not when the clock said it was: what it took
    to write that it began is missing in between."""
    busy_run()
    live = only_rundir(data_dir)
    load(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        export_run(store, live.run["run_id"], "agentdbg", tmp_path / "exported" / "runs")

    exported = only_rundir(tmp_path / "exported")
    ended = [
        (one.pop("ts"), other.pop("ts"))
        for one, other in zip(exported.events, live.events, strict=True)
    ]
    ended += [(exported.run.pop(key), live.run.pop(key)) for key in ("ended_at", "last_event_ts")]
    assert all(one <= other for one, other in ended)
    assert exported.events == live.events
    assert exported.run == live.run


def test_vestige_opens_a_live_directory_by_its_path(data_dir: Path) -> None:
    busy_run()
    live: RunDir = only_rundir(data_dir)

    with vestige.open(live.path) as debugger:
        shown = str(debugger.show())

    assert "busy" in shown and "again" in shown


@pytest.mark.parametrize(
    "body", ["[1e999]", '{"n": -1E400}', f"[{'1' * 5000}]", " [1] ", "[1e308]"]
)
def test_any_body_leaves_a_run_that_our_own_reader_takes_whole(data_dir: Path, body: str) -> None:
    """JSON with a number that no reader can hold is kept as the text that it is."""
    with traced_run("numbers"):
        vestige.current_span().span("t", type="tool", body=body).end(body=body)
    live = only_rundir(data_dir)
    payload = live.of("TOOL_CALL")[0]["payload"]

    assert not list(agentdbg.validate_run(live.path))
    assert payload["args"] == payload["result"]
    assert isinstance(payload["args"], str) is (body not in (" [1] ", "[1e308]"))


def test_runs_one_after_another_do_not_mix(data_dir: Path) -> None:
    for number in range(5):
        with traced_run(f"run {number}"):
            record_state(number)

    assert [run.of("STATE_UPDATE")[0]["payload"]["state"] for run in read_rundirs(data_dir)] == [
        0,
        1,
        2,
        3,
        4,
    ]


def test_a_call_seen_on_the_wire_is_an_event_of_the_run(data_dir: Path) -> None:
    """Nobody called record_llm_call: the HTTP exchange itself is the LLM_CALL, with usage and
    duration.
    """
    provider = HTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{provider.server_port}/v1/chat/completions"
    request = {"model": "m-1", "messages": [{"role": "user", "content": "Hi"}]}
    try:
        with vestige.capture_http(), traced_run("wired"):
            httpx.post(url, json=request)
    finally:
        provider.shutdown()
        provider.server_close()

    live = only_rundir(data_dir)
    (event,) = live.of("LLM_CALL")
    assert event["parent_id"] == live.events[0]["event_id"]
    assert event["duration_ms"] is not None
    assert event["payload"]["prompt"] == request
    assert event["payload"]["usage"] == {
        "prompt_tokens": 9,
        "completion_tokens": 1,
        "total_tokens": 10,
    }
    assert live.run["counts"]["llm_calls"] == 1


class Provider(BaseHTTPRequestHandler):
    ANSWER = b"""{"model": "m-1", "choices": [{"index": 0, "finish_reason": "stop",
     "message": {"role": "assistant", "content": "Hello"}}],
     "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}}"""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.ANSWER)))
        self.end_headers()
        self.wfile.write(self.ANSWER)

    def log_message(self, *_: object) -> None:
        """Quiet."""


class OwnError(Exception):
    """An exception of a module: its name in the payload is shorter than in our records."""


@pytest.mark.parametrize(
    "error", [ValueError("x"), OwnError("x"), json.JSONDecodeError("m", "{", 0)]
)
def test_a_failed_run_that_is_imported_and_exported_has_one_error(
    data_dir: Path, tmp_path: Path, error: Exception
) -> None:
    with pytest.raises(type(error)), traced_run("o"):
        record_tool_call("t")
        raise error
    (made,) = (data_dir / "runs").iterdir()
    with SqliteStore.open(tmp_path / "elsewhere.db") as store:
        (imported,) = import_path(store, made)
        assert imported.run_id is not None
        again = export_run(store, imported.run_id, "agentdbg", tmp_path / "again")

    first, second = (
        [json.loads(line) for line in (folder / "events.jsonl").read_text().split("\n") if line]
        for folder in (made, again)
    )
    for one in (*first, *second):
        del one["meta"]  # says whose span it is: that of the imported run has its own
    assert first == second
    assert sum(one["event_type"] == "ERROR" for one in first) == 1
    files = [json.loads((folder / "run.json").read_text()) for folder in (made, again)]
    assert files[0] == files[1]


def test_a_count_that_is_a_float_is_a_whole_number(data_dir: Path) -> None:
    with traced_run("o"):
        record_llm_call(
            "m", usage={"prompt_tokens": 10.0, "completion_tokens": 5, "total_tokens": 15.0}
        )

    (call,) = (event for event in only_rundir(data_dir).events if event["event_type"] == "LLM_CALL")
    usage = call["payload"]["usage"]
    assert usage == {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    assert all(type(count) is int for count in usage.values())


@pytest.mark.parametrize("folder", ["/proc/nope", "/dev/null/x", "/dev/null", "a\0b"])
def test_a_data_directory_that_cannot_be_written_never_fails_the_program(
    tmp_path: Path, folder: str
) -> None:
    program = (
        "import os, sys\n"
        f"from vestige.agentdbg import settings\n"
        "import msgspec, vestige.agentdbg.tracing as t\n"
        "read = t.read_settings\n"
        f"t.read_settings = lambda: msgspec.structs.replace(read(), data_dir={folder!r})\n"
        "from vestige.agentdbg import record_tool_call, traced_run\n"
        "with traced_run('o'):\n"
        "    record_tool_call('t')\n"
        "print('went on')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "VESTIGE_HOME": str(tmp_path / "home")},
    )

    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr
    assert "cannot write" in done.stderr


def test_importing_a_run_that_this_home_recorded_adds_nothing(data_dir: Path, home: Home) -> None:
    """Also if no command has read the journals since."""
    with pytest.raises(KeyError), traced_run("o"):
        record_tool_call("t")
        raise KeyError("x")

    imported = vestige_command("import", str(data_dir), "--home", str(home.root))
    (run,) = vestige_json("list", "--home", str(home.root))["runs"]

    assert "(1 already present)" in imported.stdout
    assert (run["span_count"], run["error_count"]) == (2, 1)
