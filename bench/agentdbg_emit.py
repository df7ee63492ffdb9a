"""The cost of one AgentDbg event: `vestige.agentdbg` beside agentdbg 0.3.0, with one import
changed.

Ours is written to the run directory and to the journal; neither waits for the disk, and nothing
is lost when the process is killed. AgentDbg calls fsync for each event; a second row takes that
call away from it. Each contender in a fresh process of its own environment, taking turns; a
figure is the lowest of the rounds' medians.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from bench import place
from bench.figures import Figure, Goal, less_than_peer

ROUNDS = 5
CALLS = 2_000
SECONDS_MAX = 0.6
WARM_UP = 200

EVENTS = {"tool": "record_tool_call", "llm": "record_llm_call", "state": "record_state"}
OURS, SHIPPED, STUBBED = "vestige.agentdbg", "agentdbg", "agentdbg without fsync"


def measure() -> list[Figure]:
    from bench.emit import agentdbg_python

    theirs = agentdbg_python()
    pythons = {OURS: sys.executable, **({SHIPPED: theirs, STUBBED: theirs} if theirs else {})}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in pythons}
    for _ in range(ROUNDS):
        for name, python in pythons.items():
            with place.folder() as folder:
                output = place.output(["-m", "bench.agentdbg_emit", name, str(folder)], python)
            found[name].append(json.loads(output))

    def lowest(name: str, event: str) -> float | None:
        return min((one[event] for one in found.get(name, [])), default=None)

    def row(event: str, peer: str, output: str, goal: Goal) -> Figure:
        what = f"{EVENTS[event]}, beside agentdbg 0.3.0 {output}"
        return Figure(what, "µs", lowest(OURS, event), peer=lowest(peer, event), goal=goal)

    return [
        row(event, peer, output, less_than_peer(times))
        for peer, output, times in (
            (SHIPPED, "as shipped", 20),
            (STUBBED, "with its fsync taken away", 4),
        )
        for event in EVENTS
    ]


# --- in a process of its own ----------------------------------------------------------------------


def calls(api: Any) -> dict[str, Callable[[int], None]]:
    """One event each. Numbered: the same call again and again would wake the loop detection."""
    usage = {"prompt_tokens": 512, "completion_tokens": 64, "total_tokens": 576}
    messages = [
        {"role": "system", "content": "You answer questions about refunds. " * 5},
        {"role": "user", "content": "May I return the blue one after the first week?"},
    ]

    def tool(number: int) -> None:
        api.record_tool_call(
            f"search {number}", {"query": "refund policy", "limit": 5}, {"pages": ["one", "two"]}
        )

    def llm(number: int) -> None:
        api.record_llm_call(
            f"model {number}", messages, "Yes, within thirty days.", usage, provider="openai"
        )

    def state(number: int) -> None:
        api.record_state({"step": number, "plan": ["look it up", "answer"], "done": False})

    return {"tool": tool, "llm": llm, "state": state}


def child(name: str, folder: str) -> None:
    warnings.simplefilter("ignore")
    os.environ["AGENTDBG_DATA_DIR"] = f"{folder}/data"
    os.environ["VESTIGE_HOME"] = f"{folder}/home"
    if name == STUBBED:
        os.fsync = lambda fd: None
    api = importlib.import_module(name.partition(" ")[0])
    with api.traced_run("bench"):
        print(json.dumps({event: _median(call) for event, call in calls(api).items()}))


def _median(call: Callable[[int], None]) -> float:
    clock = time.perf_counter_ns
    times: list[int] = []
    for number in range(WARM_UP):
        call(number)
    deadline = clock() + int(SECONDS_MAX * 1e9)
    for number in range(CALLS):
        begun = clock()
        call(number)
        ended = clock()
        times.append(ended - begun)
        if ended > deadline:
            break
    return statistics.median(times) / 1000


if __name__ == "__main__":
    child(*sys.argv[1:])
