"""Journal -> SQLite: how fast, how much CPU, how much memory.

The floor reads the same files in the same batches: decode the lines, put opening and
close together, insert into one bare table with one index, a transaction for each batch.
No identities, no rollups, no numbering; bodies go in as they are.

    python -m bench.ingest ours HOME         # one pass; prints {"wall_s": ..., "cpu_s": ...}
    python -m bench.ingest floor HOME
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from bench import place
from bench.figures import Figure, Goal, less_than_peer

SPANS = 100_000
SPANS_WITH_BODIES = 20_000
SPANS_OF_A_RUN = 100
ROUNDS = 3
PHOENIX_CPU_S = 3.95
"""CPU seconds of Phoenix for 1,000 spans: quoted from the design's figures, not measured here."""


def measure() -> list[Figure]:
    with place.folder() as folder:
        plain, full = folder / "plain", folder / "bodies"
        fill(plain, SPANS, bodies=False)
        fill(full, SPANS_WITH_BODIES, bodies=True)
        ours, floor = take_turns(plain, folder, SPANS)
        ours_full, floor_full = take_turns(full, folder, SPANS_WITH_BODIES)
        peak_mb = max(collector_peak_mb(plain, folder), collector_peak_mb(full, folder))
    return [
        Figure("taking in, no bodies", "spans/s", ours[0], floor[0], goal=Goal("at least", 80_000)),
        Figure("taking in, 300 B + 1 KB unique bodies", "spans/s", ours_full[0], floor_full[0]),
        Figure("CPU for 1,000 spans, no bodies", "s", ours[1], floor[1]),
        Figure(
            "CPU for 1,000 spans with bodies, beside Phoenix (quoted)",
            "s",
            ours_full[1],
            floor_full[1],
            PHOENIX_CPU_S,
            less_than_peer(50),
        ),
        Figure("collector's peak memory", "MB", peak_mb or None, goal=Goal("below", 150)),
    ]


def fill(home: Path, spans: int, bodies: bool) -> None:
    """A journal as a program leaves it, with runs of a hundred spans."""
    import vestige

    with vestige.Recorder(home, redact=False, crash_hooks=False) as recorder:
        texts = _texts(spans) if bodies else [(None, None)] * spans
        for number, (request, result) in enumerate(texts):
            if number % SPANS_OF_A_RUN == 0:
                run = recorder.run("bench")
            attributes = {"tool_call_id": f"call_{number}", "attempt": 1, "cached": False}
            run.child("search", "tool", attributes, request).end(body=result)
            if (number + 1) % SPANS_OF_A_RUN == 0:
                run.end()


def _texts(count: int) -> list[tuple[str, str]]:
    """Inputs of 300 B and outputs of 1 KB, no two the same, that compress like prose."""
    from bench.storage import Prose

    prose = Prose(seed=11)
    text = prose.text(400_000)
    places = [prose.random.randrange(len(text) - 1000) for _ in range(count)]
    return [
        (
            json.dumps({"n": number, "query": text[at : at + 280]})[:300],
            json.dumps({"n": number, "found": text[at : at + 980]})[:1000],
        )
        for number, at in enumerate(places)
    ]


Rates = tuple[float, float]
"""Spans in a second, CPU seconds for 1,000."""


def take_turns(home: Path, folder: Path, spans: int) -> tuple[Rates, Rates]:
    """Ours and the floor, in turns, on copies of the same journals."""
    found: dict[str, list[dict[str, float]]] = {"ours": [], "floor": []}
    for _ in range(ROUNDS):
        for who, rounds in found.items():
            copy = shutil.copytree(home, folder / "copy")
            rounds.append(json.loads(place.output(["-m", "bench.ingest", who, str(copy)])))
            shutil.rmtree(copy)
    ours, floor = (
        (
            spans / min(one["wall_s"] for one in rounds),
            min(one["cpu_s"] for one in rounds) * 1000 / spans,
        )
        for rounds in found.values()
    )
    return ours, floor


def collector_peak_mb(home: Path, folder: Path) -> float:
    """Return the peak memory of a collector that ingests it all; 0 if it cannot be measured."""
    copy = shutil.copytree(home, folder / "copy")
    command = [sys.executable, "-m", "vestige", "collect", "--once"]
    env = place.environment() | {"VESTIGE_HOME": str(copy)}
    if subprocess.run([*command, "--help"], env=env, capture_output=True, check=False).returncode:
        command = [sys.executable, "-m", "bench.ingest", "ours", str(copy)]
    peak_mb = 0.0
    with subprocess.Popen(command, env=env, cwd=place.ROOT, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            # The peak only grows, so the last look is the one that counts.
            peak_mb = place.memory_mb("VmHWM", process.pid) or peak_mb
            time.sleep(0.005)  # between two looks at another process's memory
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit status {process.returncode}")
    shutil.rmtree(copy)
    return peak_mb


# --- one pass, in a process of its own ------------------------------------------------------


def take_ours(home: Path) -> None:
    from vestige.collector.loop import hold
    from vestige.home import get_home

    with hold(get_home(home)) as collector:
        assert collector is not None
        collector.tick()


def take_floor(home: Path) -> None:
    from vestige.home import get_home
    from vestige.journal.reader import read_lines

    db = sqlite3.connect(home / "floor.db", isolation_level=None)
    db.executescript(_TABLE)
    for _, _, path in get_home(home).journal_files():
        offset = 0
        while True:
            data, after = read_lines(path, offset)
            if after == offset:
                break
            db.execute("BEGIN")
            db.executemany(f"INSERT INTO spans VALUES ({','.join('?' * 13)})", _merged(data))
            db.execute("COMMIT")
            offset = after


def _merged(data: bytes) -> list[tuple[object, ...]]:
    """Rows of spans that opened and closed in one batch, which is all but a few."""
    import msgspec

    from vestige.record.types import KnownRecord, SpanClose, SpanOpen

    encode = msgspec.json.Encoder().encode
    openings: dict[str, SpanOpen] = {}
    rows: list[tuple[object, ...]] = []
    for record in msgspec.json.Decoder(KnownRecord).decode_lines(data):
        if type(record) is SpanOpen:
            openings[record.span_id] = record
        elif type(record) is SpanClose and (opening := openings.pop(record.span_id, None)):
            rows.append(
                (
                    opening.run_id,
                    opening.span_id,
                    opening.parent_id,
                    opening.seq,
                    opening.time_ns,
                    opening.type,
                    opening.name,
                    opening.component,
                    record.status,
                    record.duration_ns,
                    encode(opening.attributes),
                    opening.body,
                    record.body,
                )
            )
    return rows


_TABLE = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE spans (run_id, span_id, parent_id, seq, time_ns, type, name, component, status,
  duration_ns, attributes, input, output);
CREATE INDEX spans_run ON spans(run_id);
"""


def main() -> None:
    who, home = sys.argv[1:]
    take = {"ours": take_ours, "floor": take_floor}[who]
    wall, cpu = time.perf_counter(), time.process_time()
    take(Path(home))
    print(json.dumps({"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}))


if __name__ == "__main__":
    main()
