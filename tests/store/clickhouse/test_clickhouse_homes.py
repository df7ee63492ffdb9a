"""Several data directories whose journals are collected into one store."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.clickhouse import ClickHouseServer
from support.stored_runs import make_run
from vestige.collector.loop import catch_up, hold
from vestige.fleet.segments.segment_format import encode_segment, make_delivery
from vestige.fleet.segments.segment_loader import SegmentLoader
from vestige.fleet.segments.segment_storage import DirectoryStorage, make_key
from vestige.fleet.shipment import Shipment
from vestige.home import Home
from vestige.recorder import Recorder
from vestige.store.clickhouse.client import Client, Rows
from vestige.store.open import open_store

pytestmark = pytest.mark.full


def tick(home: Home) -> None:
    with hold(home) as collector:
        assert collector is not None
        collector.tick()


@pytest.fixture
def address(clickhouse_server: ClickHouseServer, monkeypatch: pytest.MonkeyPatch) -> str:
    made = clickhouse_server.make_store()
    monkeypatch.setenv("VESTIGE_STORE", made)
    return made


def test_a_collector_leaves_the_processes_of_other_homes_alone(
    address: str, home: Home, tmp_path: Path
) -> None:
    recorder = Recorder(home, last_words=False)
    run = recorder.run("agent")
    tick(home)
    with open_store(address, readonly=True) as store:
        positions = store.positions()

    tick(Home(tmp_path / "other"))

    with open_store(address, readonly=True) as store:
        assert len(positions) == 1 and store.positions() == positions
        assert store.load_run(run.run_id).info.outcome == "running"
    with open_store(address, home_id="of a third home") as store:
        silent = store.find_silent_remote_writers(before_ns=2**62)
        assert silent == {writer for writer, _ in positions}

    run.end()
    recorder.close()
    tick(home)
    with open_store(address, readonly=True) as store:
        assert store.load_run(run.run_id).info.outcome == "ok"
        assert store.positions() == {}


def test_a_command_without_journals_leaves_the_upkeep_to_the_servers(
    address: str, home: Home, tmp_path: Path
) -> None:
    home.make()

    assert catch_up(home) is None

    assert not home.lock.exists()


def test_a_loader_stores_many_shipments_with_the_queries_of_one(
    address: str, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = DirectoryStorage(tmp_path / "segments")
    queries: list[str] = []
    query = Client.query

    def count_query(client: Client, sql: str, *args: object, **options: object) -> Rows:
        queries.append(sql)
        return query(client, sql, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Client, "query", count_query)
    counts = []
    for numbers in (range(1), range(1, 2), range(2, 22)):  # the first one reads versions, too
        for number in numbers:
            delivery = make_delivery(Shipment(make_run(number)), "default")
            storage.put(make_key(f"{number:016x}", 1), encode_segment([delivery]))
        queries.clear()
        loader = SegmentLoader(home, storage)
        assert loader.load_batch().new == 7 * len(numbers)
        loader.close()
        counts.append(len(queries))

    assert counts[2] < counts[1] + 5  # the version of the store is read every few seconds
