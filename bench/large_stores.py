"""Both engines of a store at millions of spans: the cost of each million, and of every question.

    make bench-large                                                         # all of the below
    python -m bench.large_stores FOLDER --engine sqlite --spans 1000000      # adds a million
    python -m bench.large_stores FOLDER --engine clickhouse --questions
    python -m bench.large_stores FOLDER --table

Each call adds to the store in FOLDER, so that a large store is made in slices. Results are lines of
FOLDER/results.jsonl. Times are CPU seconds where other programs share the machine: of this process
(the writer or the command), and of the engine. Bodies are 1 kB of real text: pieces of the Python
sources that are installed, in random order, each with a number, so that no two are equal.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import psutil  # noqa: E402
from click.testing import CliRunner  # noqa: E402

from support.clickhouse import ClickHouseServer  # noqa: E402
from vestige.home import Home  # noqa: E402
from vestige.record.types import AnyRecord, SpanClose, SpanOpen  # noqa: E402
from vestige.store.open import open_store  # noqa: E402

SPANS_PER_RUN = 20
RUNS_PER_BATCH = 1_250
"""25,000 spans, which are the 50,000 records of one transaction of the loader."""
RUNS_PER_RESULT = 50_000
TEXT_BYTES_MAX = 64_000_000
RUNS_PER_DAY = 50_000
QUESTION_S = 8.0
"""The time for which one question is repeated, at least three times."""
REPEATS_MAX = 50
NOW_NS = time.time_ns() // 10**9 * 10**9

QUESTIONS: dict[str, tuple[str, ...]] = {
    "list": ("list",),
    "list --failed": ("list", "--failed"),
    "list --json": ("list", "--json"),
    "list, by duration": ("list", "--sort", "duration"),
    "show": ("show", "{run}"),
    "transcript": ("transcript", "{run}"),
    "outline": ("outline", "{run}"),
    "span": ("span", "{run}.s5"),
    "body": ("body", "{run}.s5"),
    "why": ("why", "{run}"),
    "check": ("check", "{run}"),
    "diff": ("diff", "{run}", "{other}"),
    "grep in a run": ("grep", "return", "{run}"),
    "grep everywhere": ("grep", "conversation share one path"),
    "grep, frequent": ("grep", "import"),
    "stats": ("stats",),
    "stats --by tool": ("stats", "--by", "tool"),
    "stats --by day": ("stats", "--by", "day"),
    "trends": ("stats", "--trends"),
    "groups": ("groups",),
    "sql": ("sql", "SELECT type, count(*) AS n FROM spans GROUP BY type"),
    "doctor": ("doctor",),
}


def read_texts() -> list[str]:
    """Return real text, in pieces of about 1 kB and in random order."""
    texts, size = [], 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="ignore")
        texts.append(text)
        size += len(text)
        if size > TEXT_BYTES_MAX:
            break
    text = "".join(texts)
    pieces = [text[at : at + 1_000] for at in range(0, len(text), 1_000)]
    random.Random(29).shuffle(pieces)
    return pieces


def make_run(run: int, texts: list[str]) -> Iterator[AnyRecord]:
    """Yield the records of a run: a model call and a tool call in turns, each with a body."""
    chance = random.Random(run)
    writer, run_id = f"{run // 100:016x}", make_run_id(run)
    seq = run % 100 * SPANS_PER_RUN * 2
    started = NOW_NS - 30 * 86_400 * 10**9 + run * 86_400 * 10**9 // RUNS_PER_DAY
    ids = [f"{chance.getrandbits(64):016x}" for _ in range(SPANS_PER_RUN)]
    for at, span_id in enumerate(ids):
        kind = "run" if not at else "llm" if at % 2 else "tool"
        name = "agent" if not at else "chat" if at % 2 else f"tool {at}"
        body = f"{run}.{at} {texts[chance.randrange(len(texts))]}" if at else None
        parent = ids[0] if at else None
        seq += 1
        yield SpanOpen(
            1,
            writer,
            seq,
            started + at * 10**6,
            run_id,
            span_id,
            "agent",
            kind,
            name,
            parent,
            body=body,
        )
    for at in reversed(range(SPANS_PER_RUN)):
        seq += 1
        usage = {"model": "m-1", "input_tokens": 120 + at, "output_tokens": 30} if at % 2 else {}
        status = "error" if run % 50 == 7 and not at else "ok"
        duration = chance.randrange(10**6, 10**9)
        yield SpanClose(1, writer, seq, started + 10**9, run_id, ids[at], status, duration, usage)


def make_run_id(run: int) -> str:
    return f"3d1957bd-0000-4000-8000-{run:012x}"


class Engine:
    """A store in a folder: its location, and the process of its engine."""

    def __init__(self, name: str, folder: Path) -> None:
        self.home = Home(folder / "home")
        self.home.make()
        self.server: ClickHouseServer | None = None
        self.process: psutil.Process | None = None
        self.location: str | Path = self.home.store
        if name == "clickhouse":
            self.server = ClickHouseServer(folder / "clickhouse")
            self.process = psutil.Process(self.server.pid)
            self.location = self.server.make_store()
            os.environ["VESTIGE_STORE"] = self.location

    def cpu_s(self) -> float:
        return sum(self.process.cpu_times()[:2]) if self.process is not None else 0.0

    def close(self) -> None:
        if self.server is not None:
            self.server.kill()


def ingest(engine: Engine, spans: int, deadline_s: float) -> Iterator[dict[str, Any]]:
    """Add runs until there are `spans` more, or the time is over. Yield results of each million.

    The engine runs on between two millions: a merge that ends with it would have to start again.
    """
    texts = read_texts()
    until = time.monotonic() + deadline_s
    with open_store(engine.location) as store:
        run = store.sizes().runs
        last = run + spans // SPANS_PER_RUN
        while run < last and time.monotonic() < until:
            first, end = run, min(run + RUNS_PER_RESULT, last)
            cpu, engine_cpu, began = _cpu_s(), engine.cpu_s(), time.monotonic()
            while run < end and time.monotonic() < until:
                batch: list[AnyRecord] = []
                for number in range(run, min(run + RUNS_PER_BATCH, end)):
                    batch += make_run(number, texts)
                store.append(batch)
                run = min(run + RUNS_PER_BATCH, end)
            sizes = store.sizes()
            yield {
                "spans": sizes.spans,
                "added": (run - first) * SPANS_PER_RUN,
                "wall_s": time.monotonic() - began,
                "writer_cpu_s": _cpu_s() - cpu,
                "engine_cpu_s": engine.cpu_s() - engine_cpu,
                "bytes_per_span": sizes.file_bytes / sizes.spans,
            }


def ask_all(engine: Engine) -> Iterator[dict[str, Any]]:
    """Yield the times of each command, in this process, which has imported everything."""
    from vestige.cli.main import cli

    with open_store(engine.location, readonly=True) as store:
        sizes = store.sizes()
    values = {"run": f"r{sizes.runs // 2}", "other": f"r{sizes.runs // 2 + 1}"}
    for name, words in QUESTIONS.items():
        arguments = [word.format(**values) for word in words] + ["--home", str(engine.home.root)]
        times, cpus, codes = [], [], set()
        until = time.monotonic() + QUESTION_S
        while len(times) < 4 or (time.monotonic() < until and len(times) <= REPEATS_MAX):
            began, cpu = time.perf_counter(), _cpu_s() + engine.cpu_s()
            result = CliRunner().invoke(cli, arguments)
            times.append((time.perf_counter() - began) * 1e3)
            cpus.append((_cpu_s() + engine.cpu_s() - cpu) * 1e3)
            codes.add(result.exit_code)
        del times[0], cpus[0]  # imports
        p99 = quantiles(times, n=100)[98] if len(times) >= 20 else max(times)
        yield {
            "spans": sizes.spans,
            "question": name,
            "times": len(times),
            "p50_ms": median(times),
            "p99_ms": p99,
            "cpu_ms": median(cpus),
            "exits": sorted(codes),
        }


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def read_results(folder: Path) -> list[dict[str, Any]]:
    path = folder / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def render(results: list[dict[str, Any]]) -> str:
    """Return tables: the slices of ingest, and the questions at each size."""
    lines = [
        "| engine | spans | s per M | writer CPU s | engine CPU s | bytes per span |",
        "|---|---|---|---|---|---|",
    ]
    for row in results:
        if "added" in row:
            per = [row[key] / row["added"] * 1e6 for key in ("wall_s", "writer_cpu_s")]
            per.append(row["engine_cpu_s"] / row["added"] * 1e6)
            cells = " | ".join(f"{each:,.0f}" for each in (*per, row["bytes_per_span"]))
            lines.append(f"| {row['engine']} | {row['spans']:,} | {cells} |")
    answers = [row for row in results if "question" in row]
    heads = list(dict.fromkeys((row["engine"], row["spans"]) for row in answers))
    lines += ["", "| p50 / p99 ms (CPU ms) | " + " | ".join(f"{e} {n:,}" for e, n in heads) + " |"]
    lines.append("|---|" + "---|" * len(heads))
    for name in QUESTIONS:
        found = {
            (row["engine"], row["spans"]): (
                f"{row['p50_ms']:,.0f} / {row['p99_ms']:,.0f} ({row['cpu_ms']:,.0f})"
            )
            for row in answers
            if row["question"] == name
        }
        lines.append(f"| {name} | " + " | ".join(found.get(head, "") for head in heads) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--engine", choices=("sqlite", "clickhouse"), default="sqlite")
    parser.add_argument("--spans", type=int, default=0, help="add this many spans")
    parser.add_argument("--seconds", type=float, default=480, help="stop adding after this time")
    parser.add_argument("--questions", action="store_true", help="time every command")
    parser.add_argument("--table", action="store_true", help="print all results")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.spans or options.questions:
        engine = Engine(options.engine, options.folder)
        try:
            with (options.folder / "results.jsonl").open("a") as file:
                for step in (
                    ingest(engine, options.spans, options.seconds) if options.spans else (),
                    ask_all(engine) if options.questions else (),
                ):
                    for row in step:
                        line = json.dumps({"engine": options.engine, **row})
                        print(line, flush=True)
                        print(line, file=file, flush=True)
        finally:
            engine.close()
    if options.table:
        print(render(read_results(options.folder)))


if __name__ == "__main__":
    main()
