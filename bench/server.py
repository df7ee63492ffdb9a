"""The server: taking in from other machines, many readers meanwhile, a bundle cut to its cap.

    python -m bench.server send PORT KEY SECONDS   # sends at full rate; prints what was
    acknowledged

"Full rate" is several senders, each with its next parcel ready when the last is acknowledged.
"""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from bench import ingest, place, readers
from bench.figures import Figure, Goal

SPANS = 100_000
ROUNDS = 3
STORE_SPANS = 1_000_000
READERS = 200
SENDERS = 4
SECONDS = 60
EVENTS = 100_000
EVENT_BYTES = 4_000


def measure() -> list[Figure]:
    return [*ingest_rate(), *load(), *truncation()]


# --- a server -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Served:
    port: int
    key: str
    pid: int


@contextmanager
def serving(home: Path, key_name: str = "bench") -> Iterator[Served]:
    """`vestige server start` of a home, in a process of its own, and a new key to it."""
    from vestige.fleet.api_keys import SCOPES, Keys
    from vestige.home import get_home

    get_home(home).make()
    key = Keys(get_home(home)).add(key_name, SCOPES).key
    command = [sys.executable, "-m", "vestige", "serve", "--port", "0", "--no-log"]
    with subprocess.Popen(
        [*command, "--home", str(home)], env=place.environment(), stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        url = process.stderr.readline().decode().split()[4]
        try:
            yield Served(int(url.rstrip("/").rpartition(":")[2]), key, process.pid)
        finally:
            process.terminate()
            process.communicate()


# --- ingest ---------------------------------------------------------------------------------------


def ingest_rate() -> list[Figure]:
    """The same journals, taken in by the local collector and sent to a server, in turns."""
    local, sent = [], []
    with place.folder() as folder:
        home = folder / "home"
        ingest.fill(home, SPANS, bodies=False)
        for _ in range(ROUNDS):
            copy = shutil.copytree(home, folder / "copy")
            took = json.loads(place.output(["-m", "bench.ingest", "ours", str(copy)]))
            local.append(SPANS / took["wall_s"])
            shutil.rmtree(copy)
            sent.append(SPANS / _ship(home, folder))
    share = 100 * max(sent) / max(local)
    return [
        Figure("ingest over HTTP, beside the local collector", "spans/s", max(sent), max(local)),
        Figure("the same, share of the local collector", "%", share, goal=Goal("at least", 50)),
    ]


def _ship(home: Path, folder: Path) -> float:
    """Seconds until all of it is acknowledged."""
    from vestige.fleet.client.ship import hold_ship
    from vestige.fleet.client.ship_client import ShipClient
    from vestige.fleet.compression import pack
    from vestige.home import get_home

    copy = shutil.copytree(home, folder / "copy")
    with serving(folder / "server") as server:
        link = ShipClient(f"http://127.0.0.1:{server.port}", server.key)
        assert link.send(pack(b"\n")).status == 200  # all that starts with the first has started
        begun = time.monotonic()
        with hold_ship(get_home(copy), link, lambda text: None) as ship:
            assert ship is not None
            ship.run(lambda seconds: True, once=True)
        took_s = time.monotonic() - begun
    shutil.rmtree(copy)
    shutil.rmtree(folder / "server")
    return took_s


# --- readers while ingest runs --------------------------------------------------------------------


def load() -> list[Figure]:
    with place.folder() as folder:
        fill_store(folder)
        runs = STORE_SPANS // ingest.SPANS_OF_A_RUN
        paths = ["/api/v1/list?limit=20", "/api/v1/span?id=r{0}.s50", "/api/v1/show?id=r{0}"]
        targets = [path.format(2 + 997 * n % (runs - 2)) for n in range(100) for path in paths]
        before = count_spans(folder)
        with serving(folder) as server:
            readers.read(server.port, server.key, targets, READERS, 2)  # warm
            sender = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "bench.server",
                    "send",
                    str(server.port),
                    server.key,
                    str(SECONDS),
                ],
                env=place.environment(),
                cwd=place.ROOT,
                stdout=subprocess.PIPE,
            )
            seen = readers.read(server.port, server.key, targets, READERS, SECONDS)
            out, _ = sender.communicate()
        sent = json.loads(out)
        lost = before + sent["spans"] - count_spans(folder)
    what = f"{READERS} readers of {STORE_SPANS:,} spans while ingest runs"
    kinds = ", ".join(f"{count} {kind}" for kind, count in seen.errors.items())
    errors = f"errors ({kinds})" if kinds else "errors"
    return [
        Figure(f"{what}: {errors}", "of them", sum(seen.errors.values()), goal=Goal("at most", 0)),
        Figure(f"{what}: records lost", "of them", lost, goal=Goal("at most", 0)),
        Figure(f"{what}: answers", "a second", seen.per_s),
        Figure(f"{what}: p50", "ms", seen.p50_ms),
        Figure(f"{what}: p99", "ms", seen.p99_ms),
        Figure(f"{what}: taken in meanwhile", "spans/s", sent["spans"] / sent["wall_s"]),
    ]


def fill_store(home: Path) -> None:
    ingest.fill(home, STORE_SPANS, bodies=False)
    ingest.take_ours(home)


def count_spans(home: Path) -> int:
    """What the server sent to its store, once nobody writes to it any more."""
    import sqlite3

    with sqlite3.connect(f"file:{home / 'store.db'}?mode=ro", uri=True) as db:
        found: int = db.execute("SELECT count(*) FROM spans WHERE type = 'tool'").fetchone()[0]
    return found


TEMPLATE_WRITER = "a" * 16
TEMPLATE_RUN = "bbbbbbbb"


def send(port: int, key: str, seconds: float) -> dict[str, float]:
    """Parcels of new runs and writers, each sender one after the other, for so long."""
    lines, spans = parcel_template()
    numbers = count(1)
    begun = time.monotonic()

    def one() -> int:
        return _send_for(begun + seconds, port, key, lines, numbers)

    with ThreadPoolExecutor(SENDERS) as senders:
        taken = [sender.result() for sender in [senders.submit(one) for _ in range(SENDERS)]]
    return {"spans": spans * sum(taken), "wall_s": time.monotonic() - begun}


def _send_for(end: float, port: int, key: str, lines: bytes, numbers: Iterator[int]) -> int:
    """How many parcels were acknowledged."""
    from vestige.fleet.client.ship_client import ShipClient
    from vestige.fleet.compression import pack

    link = ShipClient(f"http://127.0.0.1:{port}", key)
    taken = 0
    while time.monotonic() < end:
        number = next(numbers)
        data = lines.replace(TEMPLATE_WRITER.encode(), f"{number:016x}".encode())
        answer = link.send(pack(data.replace(TEMPLATE_RUN.encode(), f"{number:08x}".encode())))
        if answer.status == 429:
            time.sleep(answer.retry_after_s or 1)  # as the server asks
            continue
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} {answer.message}")
        taken += 1
    link.close()
    return taken


def parcel_template() -> tuple[bytes, int]:
    """Lines as a program leaves them, and how many spans of tools they hold."""
    from vestige.record.codec import render_line
    from vestige.record.types import SpanClose, SpanOpen

    lines: list[bytes] = []
    runs, of_a_run = 50, ingest.SPANS_OF_A_RUN
    seq = 0
    for number in range(runs):
        run_id = f"{TEMPLATE_RUN}-0000-4000-8000-{number:012x}"
        root = f"{number:016x}"
        for at in range(of_a_run + 1):
            kind, name = ("tool", "search") if at else ("run", "bench")
            span = f"{at:08x}{number:08x}" if at else root
            attributes = {"tool_call_id": f"call_{at}", "attempt": 1, "cached": False}
            time_ns = 1_700_000_000_000_000_000 + seq
            opening = SpanOpen(
                1,
                TEMPLATE_WRITER,
                seq + 1,
                time_ns,
                run_id,
                span,
                "bench",
                kind,
                name,
                root if at else None,
                None,
                attributes,
            )
            close = SpanClose(1, TEMPLATE_WRITER, seq + 2, time_ns, run_id, span, "ok", 5)
            lines += [render_line(opening), render_line(close)]
            seq += 2
    return b"".join(lines), runs * of_a_run


# --- truncation -----------------------------------------------------------------------------------


def truncation() -> list[Figure]:
    """A debug bundle of 100,000 events of 4 KB: one pass, cut to its cap. What is large in an event
    is a body of a call, or the text of a log line."""
    return [*_truncated("calls", EVENTS // 2), *_truncated("log lines", EVENTS)]


def _truncated(kind: str, count: int) -> list[Figure]:
    import vestige

    text = "event " * (EVENT_BYTES // 6)
    with place.folder() as folder:
        with vestige.Recorder(folder, redact=False, crash_hooks=False) as recorder:
            run = recorder.run("bench")
            for number in range(count):
                if kind == "calls":
                    run.child("search", "tool", None, f"{number} {text}").end(
                        body=f"{text} {number}"
                    )
                else:
                    run.log.info(f"{number:08d} {text}")
            run.end()
        ingest.take_ours(folder)
        bundles = [_bundle(folder, run.run_id, number) for number in range(ROUNDS)]
    took_s, beyond_mb = zip(*bundles, strict=True)
    what = f"debug bundle of {EVENTS:,} events of 4 KB, {kind}"
    peak_mb = None if None in beyond_mb else max(beyond_mb)
    return [
        Figure(f"{what}: lowest of {ROUNDS}", "s", min(took_s), goal=Goal("below", 2)),
        Figure(f"{what}: highest of {ROUNDS}", "s", max(took_s)),
        Figure(f"{what}: memory beyond the answer", "MB", peak_mb, goal=Goal("below", 200)),
    ]


def _bundle(home: Path, run_id: str, number: int) -> tuple[float, float | None]:
    """Seconds, and MB beyond the answer, of the first that a server is asked for."""
    with serving(home, f"bundle {number}") as server:
        _get(server, "/v1/runs")  # all that is imported by the first has been
        before_mb = place.memory_mb("VmRSS", server.pid) or 0.0
        begun = time.monotonic()
        answer = _get(server, f"/v1/runs/{run_id}/debug-bundle")
        took_s = time.monotonic() - begun
        peak_mb = place.memory_mb("VmHWM", server.pid)
    assert json.loads(answer)["truncated"] is True
    return took_s, peak_mb - before_mb - len(answer) / 1e6 if peak_mb else None


def _get(server: Served, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", path, headers={"Authorization": f"Bearer {server.key}"})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    if response.status != 200:
        raise RuntimeError(f"{path}: {response.status} {body[:200]!r}")
    return body


if __name__ == "__main__":
    print(json.dumps(send(int(sys.argv[2]), sys.argv[3], float(sys.argv[4]))))
