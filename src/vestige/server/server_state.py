"""What the handlers of one server share: the home, its keys, threads that read, and numbers.

    server = Server(home)
    with server.asking(principal) as debugger: ...      # in a thread of the server's
    answer = await server.in_thread(work, principal)    # from a handler: never blocks the loop

A question is answered in one of a few threads, each with a read-only connection per tenant
that it keeps. More threads would not be quicker (the interpreter runs one at a time) and would
cost memory; who comes when all are busy waits, and beyond a bound is told to come again. Keys take
turns (server/reader_pool.py), and a question whose client has disconnected is cancelled.

Elsewhere: who may ask in server/auth.py; journals are taken in by server/collector_process.py.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from starlette.requests import ClientDisconnect

from vestige._runtime import clock
from vestige.errors import StoreError
from vestige.fleet.api_keys import SCOPES, Keys, Principal
from vestige.home import Home
from vestige.limits import (
    HTTP_BODY_S,
    HTTP_CONNECTIONS_MAX,
    HTTP_THREADS,
    TENANTS_OPEN_MAX,
)
from vestige.query.debugger import Debugger
from vestige.server.findings_writer import FindingsWriter
from vestige.server.launch_file import LaunchCodes
from vestige.server.metrics import Metrics
from vestige.server.reader_pool import BusyError, KeyBusyError, Readers
from vestige.store.cancellation import on_cancel
from vestige.store.sqlite import schema
from vestige.store.sqlite.change_detector import read_change_marker
from vestige.store.sqlite.sqlite_store import SqliteStore

T = TypeVar("T")

LOCAL = Principal("local", None, frozenset(SCOPES))
"""Who started the server, and has its token: may read the home anyway."""


@dataclass(frozen=True, slots=True)
class Client:
    """Whose request the current task answers."""

    key: str
    disconnected: Callable[[], Awaitable[None]]
    """Returns when the connection is gone."""


client: ContextVar[Client | None] = ContextVar("vestige_http_client", default=None)
"""Set by the guard for each request (server/auth.py)."""


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
        self.launches = LaunchCodes()
        """What `vestige ui` hands to the browser that it starts, instead of the token."""
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
        self._readers = Readers(threads)
        self._closing: list[Callable[[], None]] = []
        self._open = threading.local()

    # --- threads ----------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Questions asked that no thread answers yet."""
        return self._readers.waiting

    async def in_thread(self, work: Callable[..., T], *arguments: object, heavy: bool = False) -> T:
        """Do it in a thread of ours, in the turn of the client's key.

        BusyError, KeyBusyError: too many wait already. ClientDisconnect: it was cancelled,
        because the connection is gone. `heavy`: it executes a query or search of the user's.
        """
        of = client.get()
        key = "" if of is None else of.key
        job = self._readers.submit(key, partial(work, *arguments), heavy=heavy)
        answer = asyncio.wrap_future(job.future)
        gone = None if of is None else asyncio.ensure_future(of.disconnected())
        try:
            if gone is not None:
                await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not answer.done():
                    gone.result()  # raises what was wrong with the rest of the request
                    raise ClientDisconnect
            result: T = await answer
            return result
        finally:
            if gone is not None:
                gone.cancel()
            if not answer.done():
                job.cancel()
                answer.add_done_callback(_ignore_result)

    def on_close(self, close: Callable[[], None]) -> None:
        """To be called when the server ends: a route module that holds something lets it go."""
        self._closing.append(close)

    def close(self) -> None:
        """Let go of threads and connections, once nobody is answered any more."""
        self._readers.close()
        for close in self._closing:
            close()
        self._keeper.close()

    # --- questions --------------------------------------------------------------------------

    @contextmanager
    def asking(self, principal: Principal) -> Iterator[Debugger]:
        """The verbs, over what this principal may see. For one thread; others have their own."""
        debugger = self._debugger(principal.tenant)
        try:
            with on_cancel(_store_of(debugger).interrupt):
                yield debugger
        except sqlite3.Error as error:
            self._forget(principal.tenant)  # a store that was replaced is opened anew
            raise StoreError(f"{self.home.store}: cannot be read ({error}).") from error

    def store(self, principal: Principal) -> SqliteStore:
        """The same without verbs, for what reads rows; in a thread of ours."""
        return _store_of(self._debugger(principal.tenant))

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
    store = _store_of(debugger)
    if store.frozen:
        return False  # there may be room again, and somebody who writes
    try:
        return store.is_in_place() and schema.version(store._connection) == schema.VERSION
    except sqlite3.Error:
        return False


def _store_of(debugger: Debugger) -> SqliteStore:
    store = debugger.store
    assert isinstance(store, SqliteStore)
    return store


def _ignore_result(answer: asyncio.Future[object]) -> None:
    """Retrieve what a cancelled read ended with: asyncio reports exceptions that none retrieves."""
    if not answer.cancelled():
        answer.exception()


__all__ = ["LOCAL", "BusyError", "Client", "KeyBusyError", "Server", "client"]
