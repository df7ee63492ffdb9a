"""/api/v1/live: what is recorded, as it comes, by server-sent events.

    event: span | log | run      a span that began or ended, a line, a run that changed
    event: ready                 the first one: from here on nothing is missed
    event: reset                 the place to resume from is gone: load anew

Each event's id is a place in the store (store/sqlite/read/change_feed.py). A client that comes back with it
(`Last-Event-ID`, or `after`) gets everything since, some of it perhaps twice; also from another
server of the same home, or after a restart. Nothing waits in memory for a client: each reads on
in the store when it has taken what it was sent, so a slow one holds up nobody.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
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
from vestige.query.views.show import run_data
from vestige.record.redaction.output_redaction import redact_values
from vestige.server.auth import GuardedRoute, identify, principal
from vestige.server.responses import ApiError, encode
from vestige.server.server_state import BusyError, KeyBusyError, Server
from vestige.store.sqlite.read.change_feed import Changes, Cursor, LogChange, SpanChange

PATH = "/api/v1/live"
_TYPE = "text/event-stream"
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


def routes(server: Server) -> list[BaseRoute]:
    clients: Counter[str] = Counter()

    async def live(request: Request) -> Response:
        who = principal(request)
        given = _arguments(request)
        if request.method == "HEAD":  # a stream of nothing would hold up what comes after it
            return Response(media_type=_TYPE, headers=_HEADERS)
        if clients.total() >= LIVE_CLIENTS_MAX or clients[who.key_id] >= LIVE_KEY_CLIENTS_MAX:
            raise ApiError(
                429,
                "rate_limited",
                "Too many live streams are open. Close one, or come later.",
                {"retryAfter": 10},
                {"retry-after": "10"},
            )
        clients[who.key_id] += 1
        try:
            stream = await server.in_thread(_begin, server, who, *given)
        except BaseException:
            clients[who.key_id] -= 1
            raise
        return _Stream(_events(server, request, stream), lambda: _leave(clients, who))

    return [GuardedRoute(PATH, live, scope="runs:read", operation=_OPERATION)]


def _leave(clients: Counter[str], who: Principal) -> None:
    clients[who.key_id] -= 1


def _arguments(request: Request) -> tuple[Cursor | None, str | None]:
    unknown = request.query_params.keys() - {"run", "after"}
    if unknown:
        raise UsageError("live: takes run and after (there is an argument that it does not know).")
    text = request.headers.get("last-event-id") or request.query_params.get("after")
    try:
        after = None if not text else Cursor.parse(text)
    except ValueError as error:
        raise UsageError(f"live: Last-Event-ID or after does not fit ({error}).") from None
    return after, request.query_params.get("run") or None


@dataclass(frozen=True, slots=True)
class _Place:
    """Whose stream, of which run, and how far it is."""

    who: Principal
    run_id: str | None
    cursor: Cursor


def _begin(server: Server, who: Principal, after: Cursor | None, run: str | None) -> _Place:
    with server.asking(who) as debugger:
        run_id = None if run is None else resolve(debugger.store, run, "run").run.id
        return _Place(who, run_id, after or server.store(who).cursor())


def _read(server: Server, place: _Place) -> Changes:
    with server.asking(place.who):
        return server.store(place.who).changes(place.cursor, place.run_id, LIVE_BATCH)


async def _events(server: Server, request: Request, place: _Place) -> AsyncIterator[bytes]:
    yield _event("ready", {"cursor": str(place.cursor)}, place.cursor)
    seen = b""
    alive_at = known_at = clock.monotonic()
    while not server.stopping.is_set():
        if clock.monotonic() - known_at >= LIVE_HEARTBEAT_S:  # also where there is no silence
            if identify(server, request.scope) is None:
                return  # the key was revoked, or has expired
            known_at = clock.monotonic()
        state = server.state()
        if state != seen:
            changes = await _try_read(server, place)
            if changes is not None:
                text = b"".join(_render(changes, place.cursor))
                place = replace(place, cursor=changes.cursor)
                seen = b"" if changes.more else state
                if text:
                    yield text
                    alive_at = clock.monotonic()
                if changes.more:
                    continue
        if clock.monotonic() - alive_at >= LIVE_HEARTBEAT_S:
            # No data: nothing is dispatched, but the place is remembered.
            yield f": \nid: {place.cursor}\n\n".encode()
            alive_at = clock.monotonic()
        await _pause(server)


async def _try_read(server: Server, place: _Place) -> Changes | None:
    """None: not now; the store is busy, or being replaced."""
    try:
        return await server.in_thread(_read, server, place)
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
        yield _event("reset", {"cursor": str(changes.cursor)}, changes.cursor)
        return
    # First, and with the place before them all: whoever is cut off in what follows gets the
    # rest of it, and its runs again.
    for run in changes.runs:
        yield _event("run", run_data(run), before)
    for span in changes.spans:
        yield _event("span", _span(span), span.cursor)
    for log in changes.logs:
        yield _event("log", _log(log), log.cursor)


def _event(name: str, data: dict[str, Any], cursor: Cursor) -> bytes:
    # JSON on one line: no text of a trace can begin an event of its own.
    told = encode(redact_values(data))
    return b"event: %s\nid: %s\ndata: %s\n\n" % (name.encode(), str(cursor).encode(), told)


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
    """Lets a client go that takes nothing, and always says when it is over."""

    def __init__(self, events: AsyncIterator[bytes], over: Any) -> None:
        super().__init__(events, media_type=_TYPE, headers=_HEADERS)
        self._over = over

    async def stream_response(self, send: Send) -> None:
        async def within(message: Any) -> None:
            await asyncio.wait_for(send(message), LIVE_SEND_S)

        await super().stream_response(within)

    async def __call__(self, *arguments: Any) -> None:
        try:
            await super().__call__(*arguments)
        except TimeoutError:
            pass  # it can resume where it was
        finally:
            self._over()


_OPERATION: dict[str, Any] = {
    "summary": "What is recorded, as it comes (server-sent events), resumable.",
    "parameters": [
        {
            "name": "run", "in": "query", "schema": {"type": "string"},
            "description": "Only this run: r7, the start of its id, or anything that leads to one.",
        },
        {
            "name": "after", "in": "query", "schema": {"type": "string"},
            "description": "Go on here: an event's id. The header Last-Event-ID comes first.",
        },
    ],
    "responses": {
        "200": {
            "description": "Events ready, span, log, run, reset; each id is a place to resume from.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    },
}  # fmt: skip
