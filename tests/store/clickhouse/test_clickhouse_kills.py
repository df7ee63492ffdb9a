"""Kill servers, their ingest processes, the loader and the engine while records arrive.

Clients send the records of one run after the other, each until it is acknowledged, to each server
in turn. In the end, every acknowledged run is in the store, complete, and each record of it once.
"""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from support.clickhouse import ClickHouseServer
from support.ship_server import Serving
from support.stored_runs import make_run, run_id_of
from vestige.fleet.compression import pack
from vestige.fleet.segments.segment_storage import DirectoryStorage
from vestige.home import Home
from vestige.record.codec import render_line
from vestige.record.types import Unknown
from vestige.store.clickhouse.address import parse_address
from vestige.store.clickhouse.client import Client
from vestige.store.open import open_store

CASES = [
    pytest.param(100, 1, True, id="100 with segments"),
    pytest.param(100, 1, False, id="100 without segments"),
    pytest.param(20, 2, True, id="20 of two servers with segments"),
    pytest.param(20, 2, False, id="20 of two servers without segments"),
]


class Sender(threading.Thread):
    """Sends runs, each until it is acknowledged. A request that fails goes to the next server."""

    def __init__(self, servers: Sequence[Serving], runs: Iterator[int]) -> None:
        super().__init__(daemon=True)
        self._servers = itertools.cycle([(server, server.key()) for server in servers])
        self._runs = runs
        self.stopped = threading.Event()
        self.acknowledged: set[int] = set()
        self.last = 0
        """The run that was sent last, which may be stored without having been acknowledged."""

    def run(self) -> None:
        for number in self._runs:
            self.last = number
            # Recent, so that the retention of the servers' collectors leaves them.
            records = make_run(number, started_ns=time.time_ns())
            known = [record for record in records if not isinstance(record, Unknown)]
            data = pack(b"".join(map(render_line, known)))
            while not self._is_accepted(data):
                if self.stopped.is_set():
                    return
                time.sleep(0.05)
            self.acknowledged.add(number)
            if self.stopped.is_set():
                return

    def _is_accepted(self, data: bytes) -> bool:
        server, key = next(self._servers)
        try:
            reply = server.post(data, key)
        except OSError:
            return False
        assert reply.status in (200, 429, 503), reply
        return reply.status == 200


class Loader:
    """`vestige store load`, to be killed and started again."""

    def __init__(self, home: Home) -> None:
        self._command = [sys.executable, "-m", "vestige", "store", "load"]
        self._command += ["--home", str(home.root)]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def finish(self) -> None:
        """Load all that is left."""
        self.kill()
        subprocess.run([*self._command, "--once"], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.full
@pytest.mark.parametrize(("kills", "count", "segments"), CASES)
def test_kills_at_random_points_lose_nothing_and_store_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, count: int, segments: bool
) -> None:
    pytest.importorskip("chdb")
    rng = random.Random(29)
    engine = ClickHouseServer(tmp_path / "engine")
    address = engine.make_store()
    monkeypatch.setenv("VESTIGE_STORE", address)
    if segments:
        monkeypatch.setenv("VESTIGE_SEGMENTS", str(tmp_path / "segments"))
    servers = [Serving(tmp_path / f"server {number}") for number in range(count)]
    # Runs of different senders arrive at the same time.
    senders = [Sender(servers, itertools.count(number + 1, count)) for number in range(count)]
    for each in (*servers, *senders):
        each.start()

    def count_acknowledged() -> int:
        return sum(len(sender.acknowledged) for sender in senders)

    def restart_engine() -> None:
        engine.kill()
        engine.start()

    def restart_server() -> None:
        server = rng.choice(servers)
        server.kill()
        server.start()

    victims: list[Callable[[], None]] = [
        restart_engine,
        restart_server,
        lambda: kill_ingest_process(rng.choice(servers)),
    ]
    loader = Loader(servers[0].home) if segments else None
    if loader is not None:
        victims.append(lambda: (loader.kill(), loader.start())[0])
    try:
        for number in range(kills):
            before, until = count_acknowledged(), time.monotonic() + 60
            # So that each kill is between acknowledgements, not during the start of the others.
            while count_acknowledged() <= before and time.monotonic() < until:
                time.sleep(0.02)
            time.sleep(rng.random() * 0.4)
            victims[number % len(victims)]()
        for sender in senders:
            sender.stopped.set()
        for sender in senders:
            sender.join(120)
        if loader is not None:
            loader.finish()
            storage = DirectoryStorage(tmp_path / "segments")
            assert (storage.list_segments(), storage.count_rejected()) == ([], 0)
        check_store(address, senders)
    finally:
        for sender in senders:
            sender.stopped.set()
        if loader is not None:
            loader.kill()
        for server in servers:
            server.stop()
        engine.kill()
    assert count_acknowledged() >= kills // 2


def kill_ingest_process(server: Serving) -> None:
    assert server.process is not None
    for child in psutil.Process(server.process.pid).children():
        if "vestige.fleet.server.ingest_process" in child.cmdline():
            child.kill()


def check_store(address: str, senders: Sequence[Sender]) -> None:
    """Compare what was acknowledged with the store, by its own answers and by its rows."""
    with open_store(address, readonly=True) as store:
        runs = store.run_ids()
        expected = {run_id_of(number) for sender in senders for number in sender.acknowledged}
        assert sorted(expected - set(runs)) == []
        assert set(runs) - expected <= {run_id_of(sender.last) for sender in senders}
        assert len(runs) == len(set(runs))
        sizes = store.sizes()
        assert (sizes.spans, sizes.logs) == (3 * len(runs), len(runs))
        (total,) = store.sum_rollups("tool", None)
        assert total.count == len(runs)
        for run_id in runs[:: max(1, len(runs) // 20)]:
            run = store.load_run(run_id)
            assert (run.info.outcome, run.info.span_count, run.info.log_count) == ("ok", 3, 1)
            assert [span.status for span in run.spans] == ["ok"] * 3
            bodies = [store.read_body(span.input.id) for span in run.spans if span.input]
            assert bodies == [b'{"q": "where is order 7?"}', b'{"order": 7}'][: len(bodies)]
        short_ids = {store.find_runs(run_id)[0].short_id for run_id in runs[:20]}
        assert len(short_ids) == min(20, len(runs))
    client = Client.connect(parse_address(address))
    most = client.value(
        "SELECT max(n) FROM (SELECT count() AS n FROM system.parts WHERE active"
        " AND database = {database:String} GROUP BY table, partition_id)",
        database=client.address.database,
    )
    client.close()
    assert most < 1_000  # where ClickHouse begins to delay inserts
