"""Compare the engines of a store: cost per million spans, and the times of questions.

    python -m bench.store_engines --spans 100000

Prints a table for docs/scaling.md. CPU seconds are those of the client and of the engine. The
ClickHouse engine is chdb behind HTTP, as in the tests, in a process of its own.
"""

from __future__ import annotations

import argparse
import re
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import psutil  # noqa: E402

from support.clickhouse import ClickHouseServer  # noqa: E402
from vestige.record.types import AnyRecord, SpanClose, SpanOpen  # noqa: E402
from vestige.store.open import open_store  # noqa: E402
from vestige.store.protocol import RunFilter, SearchQuery, Store  # noqa: E402

SPANS_PER_RUN = 20
RUNS_PER_BATCH = 500
T0 = 1_763_229_905_000_000_000


def read_texts() -> list[str]:
    """Return real text, in pieces of about 1 kB: the sources and pages of this project."""
    files = sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")])
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    return [text[at : at + 1_000] for at in range(0, len(text), 1_000)]


def iter_batches(spans: int) -> Iterator[list[AnyRecord]]:
    """Yield the records of runs, a batch at a time. Each body has a number, so none is equal."""
    texts = read_texts()
    for first in range(0, spans // SPANS_PER_RUN, RUNS_PER_BATCH):
        batch: list[AnyRecord] = []
        for run in range(first, min(first + RUNS_PER_BATCH, spans // SPANS_PER_RUN)):
            batch += make_run(run, texts)
        yield batch


def make_run(run: int, texts: list[str]) -> Iterator[AnyRecord]:
    writer, run_id = f"{run // 100:016x}", f"3d1957bd-0000-4000-8000-{run:012x}"
    seq = run % 100 * SPANS_PER_RUN * 2
    started = T0 + run * 10**9
    root = f"{run:08x}{0:08x}"
    for at in range(SPANS_PER_RUN):
        span_id, parent = f"{run:08x}{at:08x}", root if at else None
        kind = "run" if not at else "llm" if at % 2 else "tool"
        name = "agent" if not at else "chat" if at % 2 else f"tool {at}"
        body = f"{run}.{at} {texts[(run * 7 + at * 31) % len(texts)]}" if at else None
        seq += 1
        yield SpanOpen(
            1, writer, seq, started + at, run_id, span_id, "agent", kind, name, parent, body=body
        )
    for at in reversed(range(SPANS_PER_RUN)):
        seq += 1
        usage = {"model": "m-1", "input_tokens": 120 + at, "output_tokens": 30} if at % 2 else {}
        status = "error" if run % 50 == 7 and not at else "ok"
        yield SpanClose(
            1, writer, seq, started + 10**6 * at, run_id, f"{run:08x}{at:08x}", status, 10**6, usage
        )


def measure(name: str, location: Any, spans: int, server: psutil.Process | None) -> dict[str, Any]:
    """Ingest, then ask the questions of a list, a run, sums and text search."""
    before, engine_before = _cpu(), _cpu_of(server)
    began = time.perf_counter()
    first = 0.0
    with open_store(location) as store:
        for number, batch in enumerate(iter_batches(spans)):
            store.append(batch)
            if number == 0:
                first = time.perf_counter() - began
        wall = time.perf_counter() - began
        millions = spans / 1e6
        found = {
            "engine": name,
            "spans": spans,
            "wall_s_per_million": wall / millions,
            "client_cpu_s_per_million": (_cpu() - before) / millions,
            "engine_cpu_s_per_million": (_cpu_of(server) - engine_before) / millions,
            "first_batch_s": first,
            "bytes_per_span": store.sizes().file_bytes / spans,
        }
        for question, ask in QUESTIONS.items():
            times = []
            for _ in range(5):
                began = time.perf_counter()
                ask(store)
                times.append(time.perf_counter() - began)
            found[f"{question}_ms"] = sorted(times)[2] * 1e3
    return found


def _search(store: Store) -> object:
    text = "conversation share one path"
    query = SearchQuery(re.compile(text), (text,), False, None, ("bodies",))
    return store.search(query, None, 20)


QUESTIONS: dict[str, Callable[[Store], object]] = {
    "list": lambda store: store.list_runs(RunFilter(limit=50)),
    "failed": lambda store: store.list_runs(RunFilter(failed=True, limit=50)),
    "run": lambda store: store.load_run(f"3d1957bd-0000-4000-8000-{7:012x}"),
    "stats": lambda store: store.sum_rollups("name", None),
    "hours": lambda store: store.sum_hours(0),
    "text": _search,
}


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _cpu_of(process: psutil.Process | None) -> float:
    return sum(process.cpu_times()[:2]) if process is not None else 0.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("--engines", default="sqlite,clickhouse")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        if "sqlite" in options.engines:
            rows.append(measure("sqlite", Path(folder) / "store.db", options.spans, None))
        if "clickhouse" in options.engines:
            server = ClickHouseServer(Path(folder) / "clickhouse")
            try:
                process = psutil.Process(server.pid)
                rows.append(measure("clickhouse", server.make_store(), options.spans, process))
            finally:
                server.kill()
    names = [row["engine"] for row in rows]
    print(f"| {options.spans:,} spans | {' | '.join(names)} |")
    print(f"|---|{'---|' * len(rows)}")
    for key in rows[0]:
        if key not in ("engine", "spans"):
            print(f"| {key} | {' | '.join(f'{row[key]:,.1f}' for row in rows)} |")


if __name__ == "__main__":
    main()
