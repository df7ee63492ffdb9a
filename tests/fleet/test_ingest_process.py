"""The ingest process: senders do not wait for each other, and bombs leave nothing."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from vestige.errors import ParcelTooLargeError
from vestige.fleet.compression import pack
from vestige.fleet.server.fair_queue import FairQueue
from vestige.fleet.server.ingest_process import Intake
from vestige.fleet.server.receive import Delivery, open_delivery
from vestige.home import Home
from vestige.limits import MIB, OTLP_TRACES_MAX, PARCEL_RUNS_MAX
from vestige.record.redaction.redactor import Redactor
from vestige.store.sqlite.sqlite_store import SqliteStore

WAIT_S = 120.0
TRACES = "otlp-traces-json"


def _traces(count: int, first: int = 1) -> bytes:
    """A request of traces with one span each."""
    spans = [
        {
            "traceId": f"{number:032x}",
            "spanId": f"{number:016x}",
            "name": "step",
            "startTimeUnixNano": "1700000000000000000",
            "endTimeUnixNano": "1700000000500000000",
        }
        for number in range(first, first + count)
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


@contextmanager
def _intake(home: Home) -> Iterator[Intake]:
    intake = Intake(home)
    try:
        yield intake
    finally:
        intake.close()


def _memory_mb() -> float:
    found = psutil.Process(os.getpid()).children()
    own = [
        each for each in found if "vestige.fleet.server.ingest_process" in " ".join(each.cmdline())
    ]
    return sum(each.memory_info().rss for each in own) / 1e6


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_refused_bombs_free_their_memory(home: Home, encoding: str) -> None:
    zeros = bytes(128 * MIB)
    bomb = pack(zeros) if encoding == "zstd" else gzip.compress(zeros, 1)
    with _intake(home) as intake:
        # Much that is alive makes garbage collections rare.
        first = intake.submit(_traces(2_000), "identity", "default", TRACES).result(WAIT_S)
        assert first.problem is None
        before = _memory_mb()
        for _ in range(12):
            assert intake.submit(bomb, encoding, "default").result(WAIT_S).problem == "too_large"
        after = _memory_mb()

    assert after - before < 4 * 64, f"{before:.0f} MB, then {after:.0f} MB"


def test_a_refusal_holds_nothing_of_what_was_refused() -> None:
    bomb = gzip.compress(bytes(65 * MIB), 1)
    refused = open_delivery(Delivery(bomb, "gzip", "default"), Redactor())

    assert isinstance(refused, ParcelTooLargeError)
    assert (refused.__traceback__, refused.__context__, refused.__cause__) == (None, None, None)


@pytest.mark.slow
def test_a_span_is_kept_while_another_tenants_thousands_of_traces_are(home: Home) -> None:
    with _intake(home) as intake:
        large = [
            intake.submit(_traces(6_000, 10_000 * number), "identity", "one", TRACES)
            for number in (1, 2, 3)
        ]
        small = intake.submit(_traces(1), "identity", "two", TRACES)
        assert small.result(WAIT_S).new == 2  # its opening and its close
        waiting = sum(not each.done() for each in large)
        replies = [each.result(WAIT_S) for each in large]

    assert waiting >= 2
    assert [(reply.problem, reply.new) for reply in replies] == [(None, 12_000)] * 3
    with SqliteStore.open(home.store, readonly=True, tenant="one") as store:
        assert len(store.run_ids()) == 18_000


@pytest.mark.slow
def test_what_was_acknowledged_is_there_when_the_process_is_killed_amid_the_rest(
    home: Home,
) -> None:
    """A request that is stored in several transactions is acknowledged after the last one."""
    with _intake(home) as intake:
        large = intake.submit(_traces(6_000, 10_000), "identity", "one", TRACES)
        small = intake.submit(_traces(1), "identity", "two", TRACES)
        assert small.result(WAIT_S).problem is None
        assert intake._child is not None
        intake._child._process.kill()
        assert large.result(WAIT_S).problem == "busy"  # never said to be kept
        again = intake.submit(_traces(6_000, 10_000), "identity", "one", TRACES).result(WAIT_S)

    assert again.problem is None and again.records == 12_000
    with SqliteStore.open(home.store, readonly=True) as store:
        assert len(store.run_ids()) == 6_001


@pytest.mark.slow
def test_runs_of_one_request_are_bounded() -> None:
    redactor = Redactor()
    spans = open_delivery(
        Delivery(_traces(OTLP_TRACES_MAX + 1), "identity", "one", TRACES), redactor
    )
    assert f"more than {OTLP_TRACES_MAX} traces" in str(spans)
    line = {
        "v": 1,
        "kind": "log",
        "writer": "00000000000000aa",
        "time_ns": 1,
        "span_id": None,
        "level": "info",
        "component": "x",
        "message": "x",
        "attributes": {},
    }
    lines = (
        json.dumps({**line, "seq": number, "run_id": f"run{number}"}).encode() + b"\n"
        for number in range(1, PARCEL_RUNS_MAX + 2)
    )
    parcel = open_delivery(Delivery(b"".join(lines), "identity", "one"), redactor)
    assert f"more than {PARCEL_RUNS_MAX} runs or writers" in str(parcel)


@pytest.mark.slow
def test_a_run_with_the_id_of_another_owners_is_stored_among_many_of_its_own(home: Home) -> None:
    with _intake(home) as intake:
        assert intake.submit(_traces(1, 50), "identity", "one", TRACES).result(WAIT_S).new == 2
        reply = intake.submit(_traces(300), "identity", "two", TRACES).result(WAIT_S)

    assert (reply.problem, reply.new, reply.malformed) == (None, 600, 0)
    for tenant, runs in (("one", 1), ("two", 300)):
        with SqliteStore.open(home.store, readonly=True, tenant=tenant) as store:
            assert len(set(store.run_ids())) == runs


# --- turns ----------------------------------------------------------------------------------------


def test_owners_take_turns_and_have_a_bound() -> None:
    turns: FairQueue[str] = FairQueue(owner_max=2, total_max=3)
    for item in ("a1", "a2", "a3", "a4", "b1", "b2"):
        turns.put(item[0], item)
    assert [turns.get() for _ in range(3)] == ["a1", "b1", "a2"]
    taken: list[str | None] = []
    waiting = threading.Thread(target=lambda: taken.append(turns.get()))
    waiting.start()
    turns.finish("b")
    waiting.join(WAIT_S)
    assert taken == ["b2"]
    turns.finish("b")
    turns.finish("a")
    assert turns.get() == "a3"
    turns.close()
    turns.finish("a")
    assert (turns.get(), turns.get()) == ("a4", None)
