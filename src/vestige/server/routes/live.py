"""/api/v1/live: new spans, log records and run changes as server-sent events.

    event: span | log | run      a span that started or ended, a log record, a changed run
    event: ready                 the first event: nothing after it is missed
    event: reset                 the cursor to resume from no longer exists: reload

Each event's id is a cursor into the store (store/interface/changes.py). A client that
reconnects with it (`Last-Event-ID`, or `after`) gets everything since, possibly with repeats. This
also works after a restart, and with another server of the same home. Events are not buffered: the
next ones are read from the store when the client has received the last ones, so a slow client
does not affect the others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute
from starlette.types import Send

from vestige._runtime import clock
from vestige.errors import StoreError, UsageError
from vestige.fleet.api_keys import Principal
from vestige.limits import (
    LIVE_BATCH,
    LIVE_CLIENTS_MAX,
    LIVE_HEARTBEAT_S,
    LIVE_KEY_CLIENTS_MAX,
    LIVE_MESSAGE_MAX,
    LIVE_SEND_S,
    TICK_S,
)
from vestige.query import formatting
from vestige.query.ids.resolve import resolve
from vestige.query.run_as_data import run_data
from vestige.record.redaction.output_redaction import redact_values
from vestige.server.auth import GuardedRoute, identify, principal
from vestige.server.responses import ApiError, encode
from vestige.server.server_state import BusyError, KeyBusyError, Server
from vestige.store.protocol import Changes, Cursor, LogChange, SpanChange

PATH = "/api/v1/live"
_TYPE = "text/event-stream"
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


def routes(server: Server) -> list[BaseRoute]:
    clients: Counter[str] = Counter()

    async def live(request: Request) -> Response:
        caller = principal(request)
        after, run = _parse_arguments(request)
        if request.method == "HEAD":  # an endless empty stream would block the connection
            return Response(media_type=_TYPE, headers=_HEADERS)
        if clients.total() >= LIVE_CLIENTS_MAX or clients[caller.key_id] >= LIVE_KEY_CLIENTS_MAX:
            raise ApiError(
                429,
                "rate_limited",
                "Too many live streams are open. Close one, or try again later.",
                {"retryAfter": 10},
                {"retry-after": "10"},
            )
        clients[caller.key_id] += 1
        try:
            position = await server.in_thread(_open_stream, server, caller, after, run)
        except BaseException:
            clients[caller.key_id] -= 1
            raise
        return _Stream(_iter_events(server, request, position), lambda: _leave(clients, caller))

    return [GuardedRoute(PATH, live, scope="runs:read", operation=_OPERATION)]


def _leave(clients: Counter[str], caller: Principal) -> None:
    clients[caller.key_id] -= 1


def _parse_arguments(request: Request) -> tuple[Cursor | None, str | None]:
    if request.query_params.keys() - {"run", "after"}:
        raise UsageError("live: unknown argument (expected run and after).")
    after = request.headers.get("last-event-id") or request.query_params.get("after")
    return after or None, request.query_params.get("run") or None


@dataclass(frozen=True, slots=True)
class _StreamPosition:
    """The principal and run of a stream, and its current cursor."""

    principal: Principal
    run_id: str | None
    cursor: Cursor


def _open_stream(
    server: Server, caller: Principal, after: Cursor | None, run: str | None
) -> _StreamPosition:
    with server.open_debugger(caller) as debugger:
        store = debugger.store
        if after is not None and not store.is_cursor(after):
            raise UsageError(
                "live: Last-Event-ID or after is invalid"
                " (expected a cursor such as 120-14-33, which is the id of an event)."
            )
        run_id = None if run is None else resolve(store, run, "run").run.id
        return _StreamPosition(caller, run_id, after or store.cursor())


def _read(server: Server, position: _StreamPosition) -> Changes:
    with server.open_debugger(position.principal) as debugger:
        return debugger.store.changes(position.cursor, position.run_id, LIVE_BATCH)


async def _iter_events(
    server: Server, request: Request, position: _StreamPosition
) -> AsyncIterator[bytes]:
    yield _event("ready", {"cursor": position.cursor}, position.cursor)
    seen = b""
    sent_at = authenticated_at = clock.monotonic()
    while not server.stopping.is_set():
        if clock.monotonic() - authenticated_at >= LIVE_HEARTBEAT_S:  # also while events are sent
            if identify(server, request.scope) is None:
                return  # the key was revoked, or has expired
            authenticated_at = clock.monotonic()
        state = server.state()
        if state != seen:
            changes = await _try_read(server, position)
            if changes is not None:
                text = b"".join(_render(changes, position.cursor))
                position = replace(position, cursor=changes.cursor)
                seen = b"" if changes.more else state
                if text:
                    yield text
                    sent_at = clock.monotonic()
                if changes.more:
                    continue
        if clock.monotonic() - sent_at >= LIVE_HEARTBEAT_S:
            # Without data no event is dispatched, but the browser stores the id.
            yield f": \nid: {position.cursor}\n\n".encode()
            sent_at = clock.monotonic()
        await _pause(server)


async def _try_read(server: Server, position: _StreamPosition) -> Changes | None:
    """Read the changes. None: the store is busy or being replaced."""
    try:
        return await server.in_thread(_read, server, position)
    except (BusyError, KeyBusyError, StoreError):
        return None


async def _pause(server: Server) -> None:
    try:
        await asyncio.wait_for(server.stopping.wait(), TICK_S)
    except TimeoutError:
        pass


# --- events -------------------------------------------------------------------------------------


def _render(changes: Changes, before: Cursor) -> Iterator[bytes]:
    if changes.lost:
        yield _event("reset", {"cursor": changes.cursor}, changes.cursor)
        return
    # Runs come first, with the previous cursor: a client that disconnects during the following
    # events gets the rest of them, and the runs again.
    for run in changes.runs:
        yield _event("run", run_data(run), before)
    for span in changes.spans:
        yield _event("span", _span(span), span.cursor)
    for log in changes.logs:
        yield _event("log", _log(log), log.cursor)


def _event(name: str, data: dict[str, Any], cursor: Cursor) -> bytes:
    # JSON is on one line, so no recorded text can start another event.
    text = encode(redact_values(data))
    return b"event: %s\nid: %s\ndata: %s\n\n" % (name.encode(), cursor.encode(), text)


def _span(span: SpanChange) -> dict[str, Any]:
    return {
        "id": span.span_id,
        "short_id": f"r{span.run}.s{span.number}",
        "run_id": span.run_id,
        "parent_id": span.parent_id,
        "type": span.type,
        "name": span.name,
        "component": span.component,
        "status": span.status or "open",
        "started_at": formatting.timestamp(span.started_ns),
        "duration_ms": None if span.duration_ns is None else round(span.duration_ns / 1e6, 3),
    }


def _log(log: LogChange) -> dict[str, Any]:
    return {
        "run_id": log.run_id,
        "run": f"r{log.run}",
        "span_id": log.span_id,
        "time": formatting.timestamp(log.time_ns),
        "level": log.level,
        "component": log.component,
        "message": log.message[:LIVE_MESSAGE_MAX],
        "cut": len(log.message) > LIVE_MESSAGE_MAX,
    }


class _Stream(StreamingResponse):
    """A response that ends when the client stops reading, and then calls `on_end`."""

    def __init__(self, events: AsyncIterator[bytes], on_end: Callable[[], None]) -> None:
        super().__init__(events, media_type=_TYPE, headers=_HEADERS)
        self._on_end = on_end

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Any) -> None:
            await asyncio.wait_for(send(message), LIVE_SEND_S)

        await super().stream_response(send_in_time)

    async def __call__(self, *arguments: Any) -> None:
        try:
            await super().__call__(*arguments)
        except TimeoutError:
            pass  # the client can resume from its last event
        finally:
            self._on_end()


_OPERATION: dict[str, Any] = {
    "summary": "New spans, log records and runs as resumable server-sent events.",
    "parameters": [
        {
            "name": "run", "in": "query", "schema": {"type": "string"},
            "description": "Only this run: r7, a prefix of its id, or an id in it.",
        },
        {
            "name": "after", "in": "query", "schema": {"type": "string"},
            "description": "Resume after this event id. The header Last-Event-ID takes precedence.",
        },
    ],
    "responses": {
        "200": {
            "description": "Events ready, span, log, run, reset. Each id is a cursor.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    },
}  # fmt: skip
