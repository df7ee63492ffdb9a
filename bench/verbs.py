"""What a debugging agent waits for: every verb on a large store, and on one large run.

python -m bench.verbs HOME RUN     # asks every verb in a process of its own; prints JSON

The store holds a million spans in a thousand runs; the large run has 20,000 spans with bodies. A
verb's time is from a ready process to its text: what opening the store, looking up and rendering
cost.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench import place
from bench.figures import Figure, Goal, at_most_floor

RUNS = 1_000
SPANS_A_RUN = 1_000
LARGE_SPANS = 20_000
ASKED_MS = {
    "list": 300,
    "show": 300,
    "check": 300,
    "diff": 300,
    "grep": 300,
    "grep, everywhere": 300,
}
CHECK_LARGE_MS = 2_000
ROUNDS = 3
T0 = 1_790_000_000_000_000_000


def measure() -> list[Figure]:
    with place.folder() as folder:
        small, large = fill(folder)
        figures = measure_verbs(folder, small, "1 M spans", ASKED_MS)
        figures += measure_verbs(folder, large, "a run of 20,000", {"check": CHECK_LARGE_MS})
    return [*figures, starting()]


# --- the store ------------------------------------------------------------------------------------


def fill(folder: Path) -> tuple[str, str]:
    """A store of a million spans; the ids of one of its runs, and of the large one."""
    from vestige.home import get_home
    from vestige.store.sqlite.sqlite_store import SqliteStore

    home = get_home(folder)
    home.make()
    chance = random.Random(7)
    with SqliteStore.open(home.store) as store:
        for number in range(RUNS):
            store.append(run_records(number, SPANS_A_RUN, chance, bodies=False))
        store.append(run_records(RUNS, LARGE_SPANS, chance, bodies=True))
    return run_id(RUNS // 2), run_id(RUNS)


def run_id(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


def run_records(number: int, spans: int, chance: random.Random, bodies: bool) -> Iterator[Any]:
    """One run, as its journal would have it: turns with a model call and a few tools."""
    from vestige.record.types import SpanClose, SpanOpen

    writer, run = f"{number:016x}", run_id(number)
    now, seq = T0 + number * 10**12, 0
    root = f"{number:08x}{0:08x}"

    def opened(span: str, kind: str, name: str, parent: str | None, **more: Any) -> SpanOpen:
        nonlocal now, seq
        now, seq = now + 10**6, seq + 1
        return SpanOpen(1, writer, seq, now, run, span, "agent", kind, name, parent, **more)

    def closed(span: str, status: str = "ok", **more: Any) -> SpanClose:
        nonlocal now, seq
        now, seq = now + 10**6, seq + 1
        return SpanClose(1, writer, seq, now, run, span, status, 10**6, **more)

    yield opened(root, "run", f"agent {number % 7}", None)
    for place_in_run in range(1, spans):
        span = f"{number:08x}{place_in_run:08x}"
        if place_in_run % 10 == 1:
            attributes = {"model": "gpt-4o-mini", "input_tokens": 900, "output_tokens": 40}
            text = json.dumps(
                {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": span}]}
            )
            yield opened(span, "llm", "chat", root, body=text if bodies else None)
            yield closed(span, attributes=attributes)
        else:
            tool = chance.choice(("search", "fetch", "read_file", "write_file"))
            arguments = {
                "tool_call_id": f"call_{number}_{place_in_run}",
                "q": f"topic {chance.random():.6f}",
            }
            body = json.dumps(arguments) if bodies else None
            yield opened(span, "tool", tool, root, attributes=arguments, body=body)
            failed = chance.random() < 0.01
            result = "a result of some words " * 20 + span if bodies else None
            yield closed(span, "error" if failed else "ok", body=result)
    yield closed(root)


def request(span: str) -> str:
    """About nine kilobytes of history, as an agent's turns have it."""
    messages = [{"role": "user", "content": f"question {number} " * 40} for number in range(12)]
    return json.dumps(
        {"model": "gpt-4o-mini", "messages": [*messages, {"role": "user", "content": span}]}
    )


# --- the questions --------------------------------------------------------------------------------


def measure_verbs(folder: Path, run: str, where: str, goals: dict[str, int]) -> list[Figure]:
    rounds = []
    for _ in range(ROUNDS):
        done = place.run(["-m", "bench.verbs", str(folder), run])
        rounds.append(json.loads(done.stdout))
    figures = []
    for verb in rounds[0]["ms"]:
        goal = Goal("below", goals[verb]) if verb in goals else None
        ours = median(each["ms"][verb] for each in rounds)
        figures.append(Figure(f"{verb}, {where}", "ms", ours, goal=goal))
    peak = max(each["peak_mb"] for each in rounds)
    return [*figures, Figure(f"peak memory of all verbs, {where}", "MB", peak)]


def ask(folder: str, run: str) -> dict[str, Any]:
    """Every verb once, each on a fresh debugger, so that none warms another's cache."""
    import resource

    import vestige

    with vestige.open(folder) as debugger:
        loaded = debugger.store.load_run(run)
        span = loaded.spans[len(loaded.spans) // 2].short_id
        other = debugger.list(limit=5).runs[-1].short_id
    questions = {
        "list": lambda d: d.list(),
        "list, filtered": lambda d: d.list("is:failed tool:search cost>0.1"),
        "check": lambda d: d.check(run),
        "overview": lambda d: d.overview(run),
        "show": lambda d: d.show(run),
        "transcript": lambda d: d.transcript(run),
        "outline": lambda d: d.outline(run),
        "span": lambda d: d.span(span),
        "why": lambda d: d.why(span),
        "diff": lambda d: d.diff(run, other),
        "grep": lambda d: d.grep("topic 0.123", run),
        "grep, everywhere": lambda d: d.grep("topic 0.123456"),
        "stats": lambda d: d.stats(by="name"),
        "trends": lambda d: d.trends(since="3d"),
        "compare": lambda d: d.compare([run], [other]),
        "doctor": lambda d: d.doctor(),
        "schema": lambda d: d.schema(),
        "sql": lambda d: d.sql(
            f"select count(*) from spans where run = {loaded.info.short_id[1:]}"
        ),
    }
    if any(each.input for each in loaded.spans):
        questions["body"] = lambda d: d.body(span)
    ms = {}
    forget_findings(Path(folder))
    for verb, question in questions.items():
        begun = time.perf_counter()
        with vestige.open(folder) as debugger:
            question(debugger).text()
        ms[verb] = (time.perf_counter() - begun) * 1000
    return {"ms": ms, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def forget_findings(folder: Path) -> None:
    """What checks found is stored: forget it, so that `check` has to look."""
    import sqlite3

    from vestige.home import get_home

    with sqlite3.connect(get_home(folder).store) as connection:
        connection.execute("DELETE FROM findings")


def starting() -> Figure:
    """`vestige --help`; the floor is Python that imports click."""
    ours, floor = [], []
    for _ in range(9):
        for command, found in (
            (["-m", "vestige", "--help"], ours),
            (["-c", "import click"], floor),
        ):
            begun = time.perf_counter()
            place.run(command)
            found.append((time.perf_counter() - begun) * 1000)
    return Figure("vestige --help", "ms", median(ours), median(floor), goal=at_most_floor(3))


if __name__ == "__main__":
    print(json.dumps(ask(sys.argv[1], sys.argv[2])))
