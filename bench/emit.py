"""The cost of one tool-call span: opened and closed, 5 attributes, 300 B in, 1 KB out.

Contenders take turns, a fresh process each, several rounds; a figure is the lowest of the
rounds' medians: on a shared machine some rounds are twice as slow as others.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench import place
from bench.contenders import CONTENDERS
from bench.figures import Figure, Goal, at_most_floor, less_than_peer

ROUNDS = 7
AGENTDBG = "agentdbg==0.3.0"

Times = dict[str, float]
"""Contender -> µs."""


def measure() -> list[Figure]:
    p50, cpu = take_turns()
    floor = p50.get("floor")

    def own(name: str, contender: str, goal: Goal | None) -> Figure:
        return Figure(name, "µs", p50.get(contender), floor, goal=goal)

    def beside(peer: str, contender: str, goal: Goal | None = None, mine: str = "ours") -> Figure:
        what = {"ours": "span, redacted and ambient", "ours-bare": "span, bare"}[mine]
        measured = "" if contender in p50 else " (not measured)"
        name = f"{what}, beside {peer}{measured}"
        return Figure(name, "µs", p50.get(mine), floor, p50.get(contender), goal)

    return [
        own("span, bare", "ours-bare", at_most_floor(1.5)),
        own("span, redacted and ambient, hyperscan", "ours", at_most_floor(2)),
        own("span, redacted and ambient, in a new home", "ours-new-home", at_most_floor(2.2)),
        own("span, redacted and ambient, ahocorasick", "ours-ahocorasick", at_most_floor(2.8)),
        own("span, redacted and ambient, standard library", "ours-re", None),
        Figure("span, disabled", "µs", p50.get("disabled"), goal=Goal("below", 1)),
        # OpenTelemetry redacts nothing, so the bare span is like for like; the other is what users
        # get.
        beside("OpenTelemetry, batch to file", "otel-batch", less_than_peer(4), "ours-bare"),
        beside("OpenTelemetry, batch to file", "otel-batch", less_than_peer(4)),
        beside("OpenTelemetry, simple to file", "otel-simple"),
        beside("logging, two JSON lines", "logging"),
        beside("structlog + orjson, two lines", "structlog"),
        beside("AgentDbg (fsync per event)", "agentdbg"),
        Figure(
            "CPU of a span, background threads included, beside OpenTelemetry batch",
            "µs",
            cpu.get("ours"),
            cpu.get("floor"),
            cpu.get("otel-batch"),
        ),
    ]


def take_turns() -> tuple[Times, Times]:
    """p50 and CPU of each contender; one that cannot run here is left out."""
    pythons = dict.fromkeys(CONTENDERS, sys.executable)
    pythons["agentdbg"] = agentdbg_python() or ""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for _ in range(ROUNDS):
        for name, python in pythons.items():
            if python:
                with place.folder() as folder:
                    done = place.run(["-m", "bench.contenders", name, str(folder), "time"], python)
                if done.returncode:
                    print(f"{name}: not measured: {done.stderr.strip().splitlines()[-1:]}")
                    pythons[name] = ""
                else:
                    found[name].append(json.loads(done.stdout))
    return _lowest(found, "p50_us"), _lowest(found, "cpu_us")


def _lowest(found: dict[str, list[dict[str, float]]], key: str) -> Times:
    return {name: min(one[key] for one in rounds) for name, rounds in found.items() if rounds}


def agentdbg_python() -> str | None:
    """AgentDbg pins old versions of what others need: it gets an environment of its own."""
    home = place.ROOT / ".venv-agentdbg"
    python = home / "bin" / "python"
    if not _imports_agentdbg(python):
        make = [sys.executable, "-m", "venv", "--clear", str(home)]
        install = [str(python), "-m", "pip", "install", "--quiet", AGENTDBG]
        try:
            for command in (make, install):
                subprocess.run(command, check=True, capture_output=True, timeout=180)
        except (OSError, subprocess.SubprocessError):
            return None
    return str(python)


def _imports_agentdbg(python: Path) -> bool:
    return python.exists() and place.run(["-c", "import agentdbg"], str(python)).returncode == 0
