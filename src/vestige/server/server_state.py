"""What the handlers of one server share: the home, its keys, threads that read, and numbers.

    server = Server(home)
    with server.asking(principal) as debugger: ...      # in a thread of the server's
    answer = await server.in_thread(work, principal)    # from a handler: never blocks the loop

A question is answered in one of a few threads, each with a read-only connection per tenant
that it keeps. More threads would not be quicker (the interpreter runs one at a time) and would
cost memory; who comes when all are busy waits, and beyond a bound is told to come again.

Elsewhere: who may ask in server/auth.py; journals are taken in by server/collector_process.py.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from vestige._runtime import clock
from vestige.errors import StoreError
from vestige.fleet.api_keys import SCOPES, Keys, Principal
from vestige.home import Home
from vestige.limits import (
    HTTP_BODY_S,
    HTTP_CONNECTIONS_MAX,
    HTTP_THREADS,
    HTTP_WAITING_MAX,
    TENANTS_OPEN_MAX,
)
from vestige.query.debugger import Debugger
from vestige.server.findings_writer import FindingsWriter
from vestige.server.metrics import Metrics
from vestige.store.sqlite import schema
from vestige.store.sqlite.change_detector import read_change_marker
from vestige.store.sqlite.sqlite_store import SqliteStore

T = TypeVar("T")

LOCAL = Principal("local", None, frozenset(SCOPES))
"""Who started the server, and has its token: may read the home anyway."""


class Busy(Exception):  # noqa: N818  # a state, told as 503
    """More questions wait than will be answered soon."""


class Server:
    """One home, served. `token`: what the printed URL carries; None: keys only."""

    def __init__(
        self,
        home: Home,
        *,
        token: str | None = None,
        hosts: frozenset[str] | None = None,
        clock: clock.Clock = clock.SYSTEM,
        log: Callable[[dict[str, object]], None] | None = None,
        threads: int = HTTP_THREADS,
        body_s: float = HTTP_BODY_S,
        demo_workflows: bool = False,
    ) -> None:
        self.home = home
        self.keys = Keys(home)
        self.clock = clock
        self.token = token
        self.hosts = hosts
        """Names by which we are asked for (Host); None: any, where no cookie could be misused."""
        self.demo_workflows = demo_workflows
        """Whether conformance suites may start runs (server/openwop/demo_workflows.py)."""
        self.body_s = body_s
        """For a request's body to arrive."""
        self.port = 0
        """Where it listens: known once it does."""
        self.connections: Collection[object] = ()
        """Those that are open; more than `connections_max` are told to come again."""
        self.connections_max = HTTP_CONNECTIONS_MAX
        self.metrics = Metrics()
        self.log = log or (lambda line: None)
        self.stop: Callable[[], None] = lambda: None
        """Asks the server to end, as SIGTERM does; any thread may."""
        self.stopping = asyncio.Event()
        """Set when the server is to end: streams end themselves."""
        self._keeper = FindingsWriter(home)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="vestige-http")
        self._closing: list[Callable[[], None]] = []
        self.waiting = 0
        """Questions asked and not yet answered."""
        self._waiting_max = threads + HTTP_WAITING_MAX
        self._open = threading.local()

    # --- threads ----------------------------------------------------------------------------

    async def in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        """Do it in a thread of ours. `Busy` when too many wait already."""
        if self.waiting >= self._waiting_max:
            raise Busy
        self.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        finally:
            self.waiting -= 1

    def on_close(self, close: Callable[[], None]) -> None:
        """To be called when the server ends: a route module that holds something lets it go."""
        self._closing.append(close)

    def close(self) -> None:
        """Let go of threads and connections, once nobody is answered any more."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for close in self._closing:
            close()
        self._keeper.close()

    # --- questions --------------------------------------------------------------------------

    @contextmanager
    def asking(self, principal: Principal) -> Iterator[Debugger]:
        """The verbs, over what this principal may see. For one thread; others have their own."""
        debugger = self._debugger(principal.tenant)
        try:
            yield debugger
        except sqlite3.Error as error:
            self._forget(principal.tenant)  # a store that was replaced is opened anew
            raise StoreError(f"{self.home.store}: cannot be read ({error}).") from error

    def store(self, principal: Principal) -> SqliteStore:
        """The same without verbs, for what reads rows; in a thread of ours."""
        store = self._debugger(principal.tenant).store
        assert isinstance(store, SqliteStore)
        return store

    def state(self) -> bytes:
        """What changes whenever the store does. Never waits: the event loop may ask."""
        return read_change_marker(self.home.store) + self._prices_state()

    def _prices_state(self) -> bytes:
        """Answers have costs, and config.toml prices."""
        try:
            return b" %d" % os.stat(self.home.config).st_mtime_ns
        except OSError:
            return b""

    def _debugger(self, tenant: str | None) -> Debugger:
        opened: dict[str | None, Debugger] | None
        opened = getattr(self._open, "opened", None)
        if opened is None:
            opened = self._open.opened = {}
        found = opened.get(tenant)
        if found is not None:
            if _is_current(found):
                return found
            self._forget(tenant)
        while len(opened) >= TENANTS_OPEN_MAX:
            self._forget(next(iter(opened)))
        debugger = opened[tenant] = self._open_debugger(tenant)
        return debugger

    def _forget(self, tenant: str | None) -> None:
        found = getattr(self._open, "opened", {}).pop(tenant, None)
        if found is not None:
            found.store.close()

    def _open_debugger(self, tenant: str | None) -> Debugger:
        from vestige.collector.health import examine

        store = SqliteStore.open(self.home.store, readonly=True, tenant=tenant)

        return Debugger(
            store, keep=self._keeper.keep, health=lambda: examine(self.home, store), at=""
        )


def _is_current(debugger: Debugger) -> bool:
    """Its store is still the one in the home, and was not migrated by a newer version meanwhile."""
    store = debugger.store
    assert isinstance(store, SqliteStore)
    if store.frozen:
        return False  # there may be room again, and somebody who writes
    try:
        return store.is_in_place() and schema.version(store._connection) == schema.VERSION
    except sqlite3.Error:
        return False
