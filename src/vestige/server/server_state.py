"""State shared by the handlers of one server: home, keys, reader threads, metrics.

    server = Server(home)
    with server.open_debugger(principal) as debugger: ...   # in a reader thread
    response = await server.in_thread(work, principal)      # in a handler: never blocks the loop

Reads run in a few threads, each with one cached read-only connection per tenant. More threads
would not be faster (the interpreter runs one at a time) and would cost memory. Reads wait while
all threads are busy, and beyond a limit they are refused. Keys take turns
(server/fair_reader_threads.py), and a read whose client has disconnected is cancelled.

Elsewhere: authentication in server/auth.py; journal ingest in server/collector_child.py.
"""

from __future__ import annotations

import asyncio
import os
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
from vestige.server.fair_reader_threads import BusyError, KeyBusyError, Readers
from vestige.server.findings_writer import FindingsWriter
from vestige.server.metrics import Metrics
from vestige.server.open_browser import LaunchCodes
from vestige.settings import find_store
from vestige.store.cancellation import on_cancel
from vestige.store.open import open_store, read_change_marker

T = TypeVar("T")

LOCAL = Principal("local", None, frozenset(SCOPES))
"""The user who started the server and has its token, and who can read the home anyway."""

LOCAL_EXPORTER = Principal("otlp", None, frozenset({"runs:write"}))
"""An OpenTelemetry exporter on this machine, which has the home's OTLP key."""


@dataclass(frozen=True, slots=True)
class Client:
    """The client whose request the current task handles."""

    key: str
    disconnected: Callable[[], Awaitable[None]]
    """Returns when the client has disconnected."""


client: ContextVar[Client | None] = ContextVar("vestige_http_client", default=None)
"""Set for each request by GuardedRoute (server/auth.py)."""


class Server:
    """The state of one server. `token` is the one in the printed URL; None: keys only."""

    def __init__(
        self,
        home: Home,
        *,
        token: str | None = None,
        cookie_s: int | None = None,
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
        self.cookie_s = cookie_s
        """Lifetime of the cookie in seconds. None: until the browser is closed."""
        self.otlp_key: str | None = None
        """The key of exporters on this machine (server/otlp_ports.py). None: none is accepted."""
        self.launches = LaunchCodes()
        """Codes that `vestige ui` passes to the browser that it starts, instead of the token."""
        self.hosts = hosts
        """Host names that are served. None: any, where no cookie could be misused."""
        self.demo_workflows = demo_workflows
        """True if conformance suites may start runs (server/openwop/demo_workflows.py)."""
        self.body_s = body_s
        """Seconds for a request's body to arrive."""
        self.port = 0
        """Port number, known once the server listens."""
        self.connections: Collection[object] = ()
        """Open connections. Requests are refused while there are more than `connections_max`."""
        self.connections_max = HTTP_CONNECTIONS_MAX
        self.metrics = Metrics()
        self.log = log or (lambda line: None)
        self.stop: Callable[[], None] = lambda: None
        """Stops the server as SIGTERM does. Thread-safe."""
        self.stopping = asyncio.Event()
        """Set when the server shuts down: streams then end."""
        self._findings_writer = FindingsWriter(home)
        self._readers = Readers(threads)
        self._close_callbacks: list[Callable[[], None]] = []
        self._thread_state = threading.local()

    # --- threads ----------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Number of reads that have not started."""
        return self._readers.waiting

    async def in_thread(self, work: Callable[..., T], *arguments: object, heavy: bool = False) -> T:
        """Run the work in a reader thread, when it is the turn of the client's key.

        `heavy`: the work executes a user-supplied query or search. Raises BusyError or
        KeyBusyError if too many reads are waiting. Raises ClientDisconnect if the work was
        cancelled because the client has disconnected.
        """
        current = client.get()
        key = "" if current is None else current.key
        job = self._readers.submit(key, partial(work, *arguments), heavy=heavy)
        future = asyncio.wrap_future(job.future)
        disconnect = None if current is None else asyncio.ensure_future(current.disconnected())
        try:
            if disconnect is not None:
                await asyncio.wait({future, disconnect}, return_when=asyncio.FIRST_COMPLETED)
                if not future.done():
                    disconnect.result()  # raises if the rest of the request was refused
                    raise ClientDisconnect
            result: T = await future
            return result
        finally:
            if disconnect is not None:
                disconnect.cancel()
            if not future.done():
                job.cancel()
                future.add_done_callback(_ignore_result)

    def on_close(self, close: Callable[[], None]) -> None:
        """Register a callback that releases a route module's resources at shutdown."""
        self._close_callbacks.append(close)

    def close(self) -> None:
        """Release threads and connections. Call it once all requests are answered."""
        self._readers.close()
        for close in self._close_callbacks:
            close()
        self._findings_writer.close()

    # --- reading ----------------------------------------------------------------------------

    @contextmanager
    def open_debugger(self, principal: Principal) -> Iterator[Debugger]:
        """Yield the calling thread's debugger over the runs that this principal may see."""
        debugger = self._debugger(principal.tenant)
        try:
            with on_cancel(debugger.store.interrupt):
                yield debugger
        except StoreError:
            self._close_debugger(principal.tenant)  # the store may have been replaced
            raise

    def state(self) -> bytes:
        """Return a marker that changes with the store and config.toml. Never blocks."""
        try:  # responses contain costs, and config.toml contains prices
            config_state = b" %d" % os.stat(self.home.config).st_mtime_ns
        except OSError:
            config_state = b""
        return read_change_marker(find_store(self.home)) + config_state

    def _debugger(self, tenant: str | None) -> Debugger:
        debuggers: dict[str | None, Debugger] | None
        debuggers = getattr(self._thread_state, "debuggers", None)
        if debuggers is None:
            debuggers = self._thread_state.debuggers = {}
        found = debuggers.get(tenant)
        if found is not None:
            if found.store.is_current():
                return found
            self._close_debugger(tenant)
        while len(debuggers) >= TENANTS_OPEN_MAX:
            self._close_debugger(next(iter(debuggers)))
        debugger = debuggers[tenant] = self._make_debugger(tenant)
        return debugger

    def _close_debugger(self, tenant: str | None) -> None:
        found = getattr(self._thread_state, "debuggers", {}).pop(tenant, None)
        if found is not None:
            found.store.close()

    def _make_debugger(self, tenant: str | None) -> Debugger:
        from vestige.collector.health import examine

        store = open_store(find_store(self.home), readonly=True, tenant=tenant, root=self.home.root)
        store_findings = self._findings_writer.store_later
        return Debugger(store, keep=store_findings, health=lambda: examine(self.home, store), at="")


def _ignore_result(future: asyncio.Future[object]) -> None:
    """Retrieve the exception of a cancelled read, so that asyncio does not report it."""
    if not future.cancelled():
        future.exception()


__all__ = ["LOCAL", "BusyError", "Client", "KeyBusyError", "Server", "client"]
