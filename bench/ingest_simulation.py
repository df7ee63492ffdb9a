"""A seeded simulation of ingest with segments, while agents' servers, the loader and stores fail.

    python -m bench.ingest_simulation --spans-per-day 1e9 --minutes 30 --seed 1

It answers two questions of docs/scaling.md: whether a record can be missing or stored twice, and
how late records are visible. Time goes in steps of one second. Agents keep records in journals
until they are acknowledged, servers write segments, one loader commits them in batches with the
limits of the real one, and the store knows records by writer and seq (SeqRanges, as it is in use).
Every process and store fails at random moments, also between a step and its acknowledgement.

`Faults` can switch a rule off, which shows that the simulation would see the loss.
"""

from __future__ import annotations

import argparse
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from vestige.fleet.segments.segment_loader import BATCH_RECORDS, BATCH_SEGMENTS
from vestige.limits import (
    PARCEL_RECORDS_MAX,
    SEGMENTS_WAITING_MAX,
    SHIP_PAUSE_MAX_S,
    SHIP_PAUSE_S,
)
from vestige.store.sqlite.ingest.seq_ranges import SeqRanges

BLOCK: Final = 100
"""Records that are counted as one, with one seq: it makes the simulation a hundred times faster."""
RECORDS_PER_SPAN: Final = 2
DAY_S: Final = 86_400


@dataclass(frozen=True)
class Fleet:
    """What is simulated. The rates of failure are for each process and second."""

    agents: int = 200
    servers: int = 4
    spans_per_s: float = 1e9 / DAY_S
    peak: float = 2.0
    """The rate of a minute in each ten, relative to the others."""
    load_records_per_s: float = 60_000.0
    """What the loader stores while it works."""
    server_fails: float = 1 / 600
    loader_fails: float = 1 / 600
    store_fails: float = 1 / 1800
    segments_fail: float = 1 / 1800
    restart_s: tuple[int, int] = (2, 30)
    waiting_max: int = SEGMENTS_WAITING_MAX


@dataclass(frozen=True)
class Faults:
    """Rules that are switched off, to see what they prevent."""

    acknowledge_early: bool = False
    """A server acknowledges before the segment is durable."""
    delete_early: bool = False
    """The loader deletes segments before their commit."""
    forget_seqs: bool = False
    """The store does not know which records it has."""


@dataclass
class Outcome:
    """What happened."""

    made: int = 0
    """Records that agents have written to their journals."""
    stored: int = 0
    """Rows in the store. Equal to `made` if no record is missing and none is there twice."""
    missing: int = 0
    twice: int = 0
    lost_after_acknowledgement: int = 0
    failures: int = 0
    sent_again: int = 0
    refused: int = 0
    lags_s: list[int] = field(default_factory=list)
    """Each second, the age of the oldest record that is not stored."""
    waiting_max: int = 0
    """The highest number of segments that waited."""
    drained_s: int = 0
    """Seconds from the last record until everything was stored."""

    def lag_s(self, share: float) -> int:
        return sorted(self.lags_s)[min(len(self.lags_s) - 1, int(share * len(self.lags_s)))]


Shipment = tuple[int, int, int]
"""An agent, and its first and last block."""


@dataclass
class _Process:
    """A process or store that fails and starts again."""

    fails: float
    down_until: int = 0

    def is_up(self, now: int) -> bool:
        return now >= self.down_until


@dataclass
class _Agent:
    made: int = 0
    acknowledged: int = 0
    sent: int = 0
    """The last block of any shipment, to count what is sent again."""
    next_try: float = 0.0
    pause_s: float = SHIP_PAUSE_S


class Simulation:
    """One run of a fleet."""

    def __init__(self, fleet: Fleet, seed: int, faults: Faults | None = None) -> None:
        self._fleet = fleet
        self._faults = faults or Faults()
        self._chance = random.Random(seed)
        self._agents = [_Agent() for _ in range(fleet.agents)]
        self._servers = [_Process(fleet.server_fails) for _ in range(fleet.servers)]
        self._loader = _Process(fleet.loader_fails)
        self._store = _Process(fleet.store_fails)
        self._storage = _Process(fleet.segments_fail)
        self._segments: deque[list[Shipment]] = deque()
        self._seen = [SeqRanges() for _ in range(fleet.agents)]
        self._made_at: list[list[int]] = [[] for _ in range(fleet.agents)]
        self._budget = 0.0
        """Records that the loader may still store in this second."""
        self._failing = True
        self.outcome = Outcome()

    def run(self, seconds: int, drain_s: int = 3_600) -> Outcome:
        """Let agents record for some seconds, then wait until everything is stored."""
        self._failing = True
        for now in range(seconds):
            self._step(now, recording=True)
        self._failing = False  # otherwise the wait has no bound
        now = seconds
        while now < seconds + drain_s and not self._is_drained():
            self._step(now, recording=False)
            now += 1
        outcome = self.outcome
        outcome.drained_s = now - seconds
        outcome.made = sum(agent.made for agent in self._agents) * BLOCK
        for agent, seen in zip(self._agents, self._seen, strict=True):
            stored = sum(number in seen for number in range(1, agent.made + 1))
            acknowledged = sum(number in seen for number in range(1, agent.acknowledged + 1))
            outcome.missing += (agent.made - stored) * BLOCK
            outcome.lost_after_acknowledgement += (agent.acknowledged - acknowledged) * BLOCK
        outcome.twice = outcome.stored - (outcome.made - outcome.missing)
        return outcome

    def _is_drained(self) -> bool:
        return not self._segments and all(a.acknowledged == a.made for a in self._agents)

    def _step(self, now: int, recording: bool) -> None:
        self._fail(now)
        for number, agent in enumerate(self._agents):
            if recording:
                self._record(number, agent, now)
            if agent.acknowledged < agent.made and now >= agent.next_try:
                self._send(number, agent, now)
        self.outcome.waiting_max = max(self.outcome.waiting_max, len(self._segments))
        self._load(now)
        self._measure(now)

    def _fail(self, now: int) -> None:
        for process in (*self._servers, self._loader, self._store, self._storage):
            if self._happens(process.fails) and process.is_up(now):
                self._stop(process, now)

    def _happens(self, probability: float) -> bool:
        return self._failing and self._chance.random() < probability

    def _stop(self, process: _Process, now: int) -> None:
        process.down_until = now + self._chance.randint(*self._fleet.restart_s)
        self.outcome.failures += 1

    def _record(self, number: int, agent: _Agent, now: int) -> None:
        fleet = self._fleet
        factor = fleet.peak if now // 60 % 10 == 5 else 1.0
        expected = fleet.spans_per_s * RECORDS_PER_SPAN * factor / fleet.agents / BLOCK
        made = int(expected + self._chance.random())
        agent.made += made
        self._made_at[number] += [now] * made

    def _send(self, number: int, agent: _Agent, now: int) -> None:
        """Send the oldest records that are not acknowledged, as `vestige server ship` does."""
        first = agent.acknowledged + 1
        last = min(agent.made, agent.acknowledged + PARCEL_RECORDS_MAX // BLOCK)
        self.outcome.sent_again += max(0, min(agent.sent, last) - first + 1) * BLOCK
        agent.sent = max(agent.sent, last)
        if self._accept(self._chance.choice(self._servers), (number, first, last), now):
            agent.acknowledged = last
            agent.pause_s = SHIP_PAUSE_S
        else:
            agent.next_try = now + agent.pause_s * (0.5 + self._chance.random())
            agent.pause_s = min(SHIP_PAUSE_MAX_S, agent.pause_s * 2)

    def _accept(self, server: _Process, shipment: Shipment, now: int) -> bool:
        """Return whether the agent receives an acknowledgement."""
        if not server.is_up(now):
            return False
        if len(self._segments) >= self._fleet.waiting_max:
            self.outcome.refused += 1
            return False
        if self._happens(server.fails / 20):  # before the segment is durable
            self._stop(server, now)
            return self._faults.acknowledge_early
        if not self._storage.is_up(now):
            return self._faults.acknowledge_early
        self._segments.append([shipment])
        if self._happens(server.fails / 20):  # the segment is durable, and the agent does not know
            self._stop(server, now)
            return False
        return True

    def _load(self, now: int) -> None:
        """Commit batches of segments, as SegmentLoader.load_batch does."""
        rate = self._fleet.load_records_per_s
        self._budget = min(self._budget + rate, 2 * rate)
        while self._segments and self._budget > 0:
            if not (
                self._loader.is_up(now) and self._store.is_up(now) and self._storage.is_up(now)
            ):
                return
            batch, records = 0, 0
            for segment in self._segments:
                if batch >= BATCH_SEGMENTS or records >= BATCH_RECORDS:
                    break
                batch += 1
                records += sum((last - first + 1) * BLOCK for _, first, last in segment)
            self._budget -= records
            segments = [self._segments[at] for at in range(batch)]
            if self._faults.delete_early:
                self._delete(batch)
            if self._happens(self._loader.fails / 5):  # before the commit: nothing is visible
                self._stop(self._loader, now)
                return
            for shipment in (shipment for segment in segments for shipment in segment):
                self._commit(shipment)
            if self._happens(self._loader.fails / 5):  # after the commit, before the deletion
                self._stop(self._loader, now)
                return
            if not self._faults.delete_early:
                self._delete(batch)

    def _delete(self, batch: int) -> None:
        for _ in range(batch):
            self._segments.popleft()

    def _commit(self, shipment: Shipment) -> None:
        number, first, last = shipment
        seen = self._seen[number]
        for block in range(first, last + 1):
            if seen.add(block) or self._faults.forget_seqs:
                self.outcome.stored += BLOCK

    def _measure(self, now: int) -> None:
        oldest = now
        for made_at, seen in zip(self._made_at, self._seen, strict=True):
            # Blocks are stored in their order, so the first one that is missing is the oldest.
            stored = seen.last - seen.missing
            if stored < len(made_at):
                oldest = min(oldest, made_at[stored])
        self.outcome.lags_s.append(now - oldest)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--spans-per-day", type=float, default=1e9)
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--load-records-per-s", type=float, default=60_000.0)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    fleet = Fleet(
        servers=options.servers,
        spans_per_s=options.spans_per_day / DAY_S,
        load_records_per_s=options.load_records_per_s,
    )
    found = Simulation(fleet, options.seed).run(options.minutes * 60)
    print(f"records made     {found.made:,}")
    print(f"missing, twice   {found.missing}, {found.twice}")
    print(f"failures         {found.failures}, {found.sent_again:,} records sent again")
    print(f"lag p50/p99/max  {found.lag_s(0.5)} / {found.lag_s(0.99)} / {max(found.lags_s)} s")
    print(f"segments waiting {found.waiting_max} at most, {found.refused} shipments refused")
    print(f"drained after    {found.drained_s} s")


if __name__ == "__main__":
    main()
