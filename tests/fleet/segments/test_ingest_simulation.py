"""The simulation of ingest: no record is missing or stored twice, and the lag has a bound."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

_PATH = Path(__file__).parents[3] / "bench" / "ingest_simulation.py"
_spec = importlib.util.spec_from_file_location("ingest_simulation", _PATH)
assert _spec is not None and _spec.loader is not None
simulation: Any = importlib.util.module_from_spec(_spec)
sys.modules["ingest_simulation"] = simulation
_spec.loader.exec_module(simulation)

FLEET = simulation.Fleet(
    agents=20,
    servers=3,
    spans_per_s=1_000.0,
    load_records_per_s=8_000.0,
    server_fails=1 / 120,
    loader_fails=1 / 120,
    store_fails=1 / 600,
    segments_fail=1 / 600,
)


@pytest.mark.parametrize("seed", range(8))
def test_no_record_is_missing_or_stored_twice_while_everything_fails(seed: int) -> None:
    found = simulation.Simulation(FLEET, seed).run(600)

    assert found.failures >= 10 and found.sent_again > 0
    assert found.made == found.stored > 1_000_000
    assert (found.missing, found.twice, found.lost_after_acknowledgement) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(8))
def test_the_lag_is_bounded_by_the_outages(seed: int) -> None:
    """One of four things is down for 30 s at most; the loader stores three times what arrives."""
    found = simulation.Simulation(FLEET, seed).run(1_800)

    assert found.lag_s(0.5) <= 10
    assert max(found.lags_s) <= 240
    assert found.drained_s <= 120


def test_the_same_seed_gives_the_same_run() -> None:
    runs = [simulation.Simulation(FLEET, 3).run(200) for _ in range(2)]

    assert runs[0] == runs[1] != simulation.Simulation(FLEET, 4).run(200)


@pytest.mark.parametrize(
    ("fault", "field"),
    [
        ("acknowledge_early", "lost_after_acknowledgement"),
        ("delete_early", "lost_after_acknowledgement"),
        ("forget_seqs", "twice"),
    ],
)
def test_a_rule_that_is_switched_off_is_noticed(fault: str, field: str) -> None:
    faults = simulation.Faults(**{fault: True})

    assert getattr(simulation.Simulation(FLEET, 1, faults).run(900), field) > 0


def test_servers_refuse_records_when_the_loader_cannot_keep_up() -> None:
    """The journals of the agents keep what is refused, and it is stored when there is room."""
    slow = replace(FLEET, load_records_per_s=1_200.0, waiting_max=50)
    found = simulation.Simulation(slow, 1).run(300)

    assert found.refused > 0 and found.waiting_max <= 50
    assert (found.missing, found.twice) == (0, 0)
