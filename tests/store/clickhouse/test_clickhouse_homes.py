"""Several data directories whose journals are collected into one store."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.clickhouse import ClickHouseServer
from vestige.collector.loop import catch_up, hold
from vestige.home import Home
from vestige.recorder import Recorder
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
    recorder = Recorder(home=home.root)
    run = recorder.run("agent")
    recorder.flush()
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
