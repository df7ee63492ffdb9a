"""One key's reads do not make another key's wait, and end when their client is gone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from urllib.parse import quote

import psutil
import pytest

from support.http_server import Site, record_collected, served
from vestige.fleet.api_keys import Keys
from vestige.home import Home
from vestige.server.fair_reader_threads import BusyError, KeyBusyError, Readers
from vestige.store.cancellation import CancelledReadError, check_cancelled

SLOW_SQL = "SELECT instr(hex(zeroblob(8000000)), hex(zeroblob(4000000)) || '1')"
"""One call of a function, which takes longer than any query may."""
WAIT_S = 60.0


@contextmanager
def _pending_requests(site: Site, key: str, path: str, times: int) -> Iterator[list[socket.socket]]:
    """Requests that are sent and whose answers nobody reads."""
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n\r\n"
    opened = []
    try:
        for _ in range(times):
            opened.append(socket.create_connection(("127.0.0.1", site.port)))
            opened[-1].sendall(request.encode())
        yield opened
    finally:
        for each in opened:
            each.close()


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + WAIT_S
    while not condition():
        assert monotonic() < deadline, "it never became true"
        sleep(0.02)


def _children() -> list[psutil.Process]:
    found = psutil.Process().children()
    return [
        each
        for each in found
        if "vestige.store.sqlite.read.isolated_query" in " ".join(each.cmdline())
    ]


def test_one_tenants_queries_leave_threads_to_the_others(home: Home) -> None:
    record_collected(home)
    with served(home, token=False) as site:
        one = Keys(home).add("one", ["runs:read"], "one").key
        other = Keys(home).add("other", ["runs:read"], "other").key
        path = "/api/v1/sql?query=" + quote(SLOW_SQL)
        with _pending_requests(site, one, path, 40):
            _wait_for(lambda: site.server.waiting >= 30)
            reply = site.ask("/api/v1/list", key=other)
            assert reply.status == 200
            # It did not wait for them: nearly all still do.
            assert site.server.waiting >= 30


@pytest.mark.slow
def test_a_query_whose_client_is_gone_is_ended_with_its_process(home: Home) -> None:
    record_collected(home)
    with served(home, token=True) as site:
        path = "/api/v1/sql?query=" + quote(SLOW_SQL.replace("8000000", "8000001"))
        with _pending_requests(site, site.server.token or "", path, 8) as opened:
            _wait_for(lambda: len(_children()) == 2)  # the share of one key
            running = _children()
            for each in opened:
                each.close()
            gone, alive = psutil.wait_procs(running, timeout=WAIT_S)
            assert not alive
            assert {each.returncode for each in gone} <= {-9, None}  # killed, not timed out
        _wait_for(lambda: site.server.waiting == 0)
        assert site.ask("/api/v1/list").status == 200


def test_a_statement_whose_client_is_gone_is_interrupted(home: Home) -> None:
    """In the server's own process: a statement of many steps, bounded only by its deadline."""
    record_collected(home)
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT sum(x) FROM n"
    with served(home, token=True) as site:
        readers = site.server._readers
        with _pending_requests(
            site, site.server.token or "", "/api/v1/sql?query=" + quote(endless), 1
        ) as one:
            _wait_for(lambda: readers._running_heavy == 1)
            one[0].close()
            _wait_for(lambda: readers._running_heavy == 0)
        _wait_for(lambda: any(line.get("route") == "/api/v1/sql" for line in site.lines))
        line = next(line for line in site.lines if line.get("route") == "/api/v1/sql")
        assert line["status"] == 400
        ms = line["ms"]
        assert isinstance(ms, float)
        assert ms < 3_000  # the bound of a query that nothing interrupts


# --- the threads themselves -----------------------------------------------------------------------


@contextmanager
def _readers(threads: int = 4, **more: int) -> Iterator[tuple[Readers, threading.Event]]:
    readers, release = Readers(threads, **more), threading.Event()
    try:
        yield readers, release
    finally:
        release.set()
        readers.close()


def test_a_key_has_half_of_the_threads_and_keys_take_turns() -> None:
    order: list[str] = []
    with _readers(4) as (readers, release):
        blocked = [readers.submit("a", lambda: release.wait(WAIT_S)) for _ in range(3)]
        _wait_for(lambda: readers.waiting == 1)
        # Two threads are left, whatever the first key asks.
        assert readers.submit("b", lambda: "answered").future.result(WAIT_S) == "answered"
        gate = threading.Event()
        waiting = [readers.submit("c", lambda: gate.wait(WAIT_S)) for _ in range(2)]
        _wait_for(lambda: readers.waiting == 1)
        jobs = [readers.submit(key, lambda key=key: order.append(key)) for key in "dddeee"]
        gate.set()
        for job in (*waiting, *jobs):
            job.future.result(WAIT_S)
        assert not any(job.future.done() for job in blocked)
    assert sorted(order[:2]) == ["d", "e"]


def test_heavy_reads_leave_half_of_the_threads() -> None:
    with _readers(4) as (readers, release):
        for key in "abcd":
            readers.submit(key, lambda: release.wait(WAIT_S), heavy=True)
        _wait_for(lambda: readers.waiting == 2)
        assert readers.submit("e", lambda: 7).future.result(WAIT_S) == 7
        assert readers.submit("a", lambda: 8).future.result(WAIT_S) == 8


def test_a_budget_that_is_used_up_refuses_what_is_heavy_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("vestige._runtime.clock.monotonic", lambda: now[0])

    def spend() -> None:
        now[0] += 70

    with _readers(4) as (readers, _):
        readers.submit("a", spend, heavy=True).future.result(WAIT_S)
        _wait_for(lambda: readers._running_heavy == 0)
        with pytest.raises(KeyBusyError, match="budget") as refused:
            readers.submit("a", lambda: 1, heavy=True)
        assert refused.value.wait_s == pytest.approx(1 + 10 / 0.5)
        assert readers.submit("a", lambda: 1).future.result(WAIT_S) == 1
        assert readers.submit("b", lambda: 2, heavy=True).future.result(WAIT_S) == 2
        now[0] += 25
        assert readers.submit("a", lambda: 3, heavy=True).future.result(WAIT_S) == 3


def test_what_waits_is_bounded_for_each_key_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vestige.server.fair_reader_threads.HTTP_KEY_WAITING_MAX", 2)
    with _readers(2, waiting_max=3) as (readers, release):
        readers.submit("a", lambda: release.wait(WAIT_S))
        _wait_for(lambda: readers.waiting == 0)
        for _ in range(2):
            readers.submit("a", lambda: None)
        with pytest.raises(KeyBusyError):
            readers.submit("a", lambda: None)
        readers.submit("b", lambda: release.wait(WAIT_S))
        _wait_for(lambda: readers.waiting == 2)
        readers.submit("b", lambda: None)
        with pytest.raises(BusyError):
            readers.submit("c", lambda: None)


def test_a_cancelled_read_is_dropped_while_it_waits_and_stopped_while_it_runs() -> None:
    began = threading.Event()

    def loop() -> None:
        began.set()
        while True:
            check_cancelled()
            sleep(0.001)

    with _readers(2) as (readers, _):
        running, waiting = readers.submit("a", loop), readers.submit("a", loop)
        assert began.wait(WAIT_S)
        waiting.cancel()
        assert readers.waiting == 0
        running.cancel()
        for job in (running, waiting):
            with pytest.raises(CancelledReadError):
                job.future.result(WAIT_S)
        assert readers.submit("a", lambda: 5).future.result(WAIT_S) == 5
