"""AgentDbg's runs, opened by us and by AgentDbg itself: a long one, and a thousand.

What its user waits for is its viewer: a server that starts, loads all events and sends them.
Ours is the first page of `vestige show RUN`, which needs no import. An import does far more than
its load (it indexes, masks secrets, keeps bodies once); the row is there because it is a
one-time wait all the same. Each is a process of its own, whole: interpreter, imports, work. They
take turns; the best of each counts.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from bench import place
from bench.emit import agentdbg_python
from bench.figures import Figure, less_than_peer

EVENTS = 100_000
RUNS = 1_000
ROUNDS = 2

_TEXT = "the quick brown agent plans a search and reads what the tool has found"
_WORDS = _TEXT.split()
_LAST_LINE = (
    "; import sys; sys.stdout.flush();"
    " print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
)
_OURS = "from vestige.cli.main import cli; cli({arguments!r}, standalone_mode=False)"
_LOAD = (
    "import os; from agentdbg import storage; from agentdbg.config import load_config;"
    " c = load_config(); storage.load_events(os.listdir(c.data_dir / 'runs')[0], c)"
)
_LIST = "from agentdbg.cli import app; app({arguments!r}, standalone_mode=False)"
_VIEW = "from agentdbg.cli import main; main()"

Measured = tuple[float, float]
"""Seconds, and MB at the peak."""


def measure() -> Sequence[Figure]:
    peer = agentdbg_python()
    with place.folder() as folder:
        long, many = folder / "long", folder / "many"
        run = write_run(long, 1, EVENTS)
        for number in range(RUNS):
            write_run(many, number, 12)
        show = _best(lambda: _vestige(["show", str(run)]))
        listed = _best(lambda: _vestige(["list", "--home", str(many), "--limit", str(RUNS)]))
        home = folder / "kept"
        _vestige(["import", str(many), "--home", str(home)])
        ours = _best(lambda: _vestige(["list", "--home", str(home), "--limit", str(RUNS)]))
        none = (None, None)
        view = _best(lambda: _viewer(peer, long, run.name)) if peer else none
        taken, load = _in_turns(
            lambda: _import(long, folder), (lambda: _child(_LOAD, long, peer)) if peer else None
        )
        lists = _LIST.format(arguments=["list", "--limit", str(RUNS)])
        theirs = _best(lambda: _child(lists, many, peer)) if peer else none
    return [
        Figure(
            f"first rows of {EVENTS:,} events, beside its viewer",
            "s",
            show[0],
            None,
            view[0],
            less_than_peer(10),
        ),
        Figure("peak memory of the same", "MB", show[1], None, view[1], less_than_peer(4)),
        Figure(
            f"importing {EVENTS:,} events, beside its load",
            "s",
            taken[0],
            None,
            load[0],
            less_than_peer(1),
        ),
        Figure(f"importing {EVENTS:,} events, beside its viewer", "s", taken[0], None, view[0]),
        Figure("peak memory of importing them, beside its load", "MB", taken[1], None, load[1]),
        Figure(f"listing {RUNS:,} run directories", "s", listed[0], None, theirs[0]),
        Figure(f"listing {RUNS:,} runs once imported", "s", ours[0], None, theirs[0]),
    ]


def _best(measured: Callable[[], Measured]) -> Measured:
    return _lowest([measured() for _ in range(ROUNDS)])


def _lowest(rounds: Sequence[Measured]) -> Measured:
    return min(seconds for seconds, _ in rounds), min(memory for _, memory in rounds)


def _in_turns(
    ours: Callable[[], Measured], theirs: Callable[[], Measured] | None
) -> tuple[Measured, Measured | tuple[None, None]]:
    """What is compared closely: the machine's slow moments meet both."""
    measured: list[list[Measured]] = [[], []]
    for _ in range(2 * ROUNDS):
        measured[0].append(ours())
        if theirs is not None:
            measured[1].append(theirs())
    lowest = [_lowest(rounds) for rounds in measured if rounds]
    return lowest[0], lowest[1] if theirs is not None else (None, None)


def _vestige(arguments: list[str]) -> Measured:
    return _child(_OURS.format(arguments=arguments), None, sys.executable)


def _import(data: Path, folder: Path) -> Measured:
    home = folder / f"home{time.monotonic_ns()}"
    return _vestige(["import", str(data), "--home", str(home)])


def _child(code: str, data: Path | None, python: str) -> Measured:
    """A program to its end; its last line is its own peak in kB."""
    env = _environment(data)
    begun = time.perf_counter()
    done = subprocess.run(
        [python, "-W", "ignore", "-c", code + _LAST_LINE],
        env=env,
        cwd=place.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - begun
    return seconds, int(done.stdout.split()[-1]) * 1024 / 1e6


def _environment(data: Path | None) -> dict[str, str]:
    env = place.environment()
    if data is not None:
        del env["PYTHONPATH"]  # its own environment has all that it needs
        env["AGENTDBG_DATA_DIR"] = str(data)
    return env


def _viewer(python: str, data: Path, run_id: str) -> Measured:
    """From the command to the last byte of what its page draws."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-W", "ignore", "-c", _VIEW, "view", "--no-browser", "--port", str(port)]
    begun = time.perf_counter()
    server = subprocess.Popen(
        command, env=_environment(data), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        address = f"http://127.0.0.1:{port}/api/runs/{run_id}/events"
        while server.poll() is None:
            with suppress(OSError):
                json.loads(urllib.request.urlopen(address, timeout=300).read())
                break
            time.sleep(0.01)  # its server says nothing when it is ready
        seconds = time.perf_counter() - begun
        return seconds, place.memory_mb("VmHWM", server.pid) or 0.0
    finally:
        server.terminate()
        server.wait()


# --- runs as AgentDbg writes them ----------------------------------------------------------------


def write_run(data: Path, number: int, events: int) -> Path:
    """A run of calls, by turns of a model and of a tool, about 700 bytes each."""
    run_id = f"{number:08x}-0000-4000-8000-000000000000"
    run = data / "runs" / run_id
    run.mkdir(parents=True)
    lines = []
    for place_in_run in range(events):
        kind, name, payload = _event(place_in_run, events)
        lines.append(
            json.dumps(
                {
                    "spec_version": "0.1",
                    "event_id": f"{number:08x}-0000-4000-8000-{place_in_run:012x}",
                    "run_id": run_id,
                    "parent_id": None,
                    "event_type": kind,
                    "ts": _time(place_in_run),
                    "duration_ms": None,
                    "name": name,
                    "payload": payload,
                    "meta": {},
                }
            )
        )
    (run / "events.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    calls = {"llm_calls": (events - 1) // 2, "tool_calls": events // 2 - 1, "errors": 0}
    (run / "run.json").write_text(
        json.dumps(
            {
                "spec_version": "0.1",
                "run_id": run_id,
                "run_name": f"bench {number}",
                "started_at": _time(0),
                "ended_at": _time(events),
                "duration_ms": events,
                "status": "ok",
                "counts": {**calls, "loop_warnings": 0},
                "last_event_ts": _time(events),
            }
        ),
        encoding="utf-8",
    )
    return run


def _event(at: int, events: int) -> tuple[str, str, dict[str, object]]:
    if at == 0:
        about = {"python_version": "3.11.7", "platform": "linux", "cwd": "/", "argv": ["agent.py"]}
        return "RUN_START", "bench", {"run_name": "bench", **about}
    if at == events - 1:
        return "RUN_END", "run_end", {"status": "ok", "summary": {"duration_ms": events}}
    done = {"status": "ok", "error": None}
    if at % 2:
        usage = {"prompt_tokens": 50, "completion_tokens": 20, "total_tokens": 70}
        prompt = [{"role": "user", "content": _text(at, 40)}]
        call = {"model": "gpt-4o", "prompt": prompt, "response": _text(at + 7, 30), "usage": usage}
        more = {"provider": "openai", "temperature": 0.0, "stop_reason": "stop"}
        return "LLM_CALL", "gpt-4o", {**call, **more, **done}
    result = {"hits": [_text(at + 3, 20)]}
    return (
        "TOOL_CALL",
        "search",
        {"tool_name": "search", "args": {"n": at}, "result": result, **done},
    )


def _text(seed: int, words: int) -> str:
    chosen = (_WORDS[(seed * 7 + at * at + seed // 13) % len(_WORDS)] for at in range(words))
    return f"{seed} " + " ".join(chosen)


def _time(ms: int) -> str:
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    return f"2026-03-01T00:{minutes:02}:{seconds:02}.{ms:03}Z"
