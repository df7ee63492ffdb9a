"""What can be read after SIGKILL: of calls that returned, and of calls still under way.

paced   20 calls over a second      burst   10,000 calls      open   5 calls under way

Ours is read as a user would: the collector takes the journal in, the store is asked.
A file is read line by line. Of two log lines, the first counts as a call under way.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

from bench import place
from bench.contenders import NAME
from bench.figures import Figure, Goal

SCENES = {"paced": 20, "burst": 10_000, "open": 5}
PEERS = {
    "OpenTelemetry, batch to file": "otel-batch",
    "OpenTelemetry, simple to file": "otel-simple",
    "logging, two JSON lines": "logging",
}


def measure() -> list[Figure]:
    figures = []
    for scene, emitted in SCENES.items():
        ours = survivors("ours", scene)
        for peer, contender in PEERS.items():
            name = f"{scene}: of {emitted:,} calls, beside {peer}"
            goal = Goal("at least", emitted)
            left = survivors(contender, scene)
            figures.append(Figure(name, "readable", ours, emitted, left, goal))
    return figures


def survivors(contender: str, scene: str) -> int:
    """How many calls can be read after the scene."""
    count = READERS[contender]
    with place.folder() as folder:
        done = place.run(["-m", "bench.contenders", contender, str(folder), scene])
        if done.returncode != -signal.SIGKILL:
            raise RuntimeError(f"{contender}, {scene}: was to be killed, but:\n{done.stderr}")
        return count(folder, scene == "open")


def _count_ours(folder: Path, open: bool) -> int:
    from vestige.collector.loop import catch_up
    from vestige.home import get_home
    from vestige.store.protocol import RunFilter
    from vestige.store.sqlite.sqlite_store import SqliteStore

    home = get_home(folder)
    catch_up(home)
    expected = "interrupted" if open else "ok"
    with SqliteStore.open(home.store, readonly=True) as store:
        runs = [store.load_run(run.id) for run in store.list_runs(RunFilter(with_implicit=True))]
    spans = [span for run in runs for span in run.spans if span.name == NAME]
    return sum(span.status == expected for span in spans)


def _count_spans(folder: Path, open: bool) -> int:
    lines = _lines(folder / "otel.ndjson")
    return sum(line["name"] == NAME and (line["end_time"] is None) == open for line in lines)


def _count_lines(folder: Path, open: bool) -> int:
    expected = "start" if open else "end"
    return sum(line["message"] == expected for line in _lines(folder / "log.ndjson"))


READERS: dict[str, Callable[[Path, bool], int]] = {
    "ours": _count_ours,
    "otel-batch": _count_spans,
    "otel-simple": _count_spans,
    "logging": _count_lines,
}


def _lines(path: Path) -> list[dict[str, object]]:
    """The lines that parse: a torn one cannot be read."""
    found = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
