"""Ingest: journal lines from other machines, acknowledged when they are durable.

    POST /api/v1/ingest        NDJSON; Content-Encoding: zstd, gzip or none
    200 {"records": 812, "new": 812, "malformed": 0}

The key gives the tenant, never the record. Sending again what was sent changes nothing. What a
client must know of the lines stands in fleet/shipment.py; `vestige ship` is one.

This process only reads the bytes and hands them over: the rest is done beside it (collector/
intake.py), so readers do not wait for writers. What it holds meanwhile is bounded, for all and for
each key; who comes beyond that is told when to come again.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from vestige._runtime import clock
from vestige.fleet.api_keys import Principal
from vestige.fleet.compression import ENCODINGS
from vestige.fleet.server.ingest_process import Intake, Reply
from vestige.fleet.server.receive import JOURNAL
from vestige.limits import (
    INGEST_BURST,
    INGEST_KEY_REQUESTS_MAX,
    INGEST_KEY_WAITING_MAX,
    INGEST_REQUESTS_S,
    INGEST_WAITING_MAX,
    PARCEL_PACKED_MAX,
)
from vestige.record.tenant import DEFAULT_TENANT
from vestige.server.auth import GuardedRoute, principal
from vestige.server.responses import NO_STORE, ApiError, encode
from vestige.server.routes import otlp
from vestige.server.routes.openapi import error
from vestige.server.server_state import Server

PATH = "/api/v1/ingest"
_KEYS_REMEMBERED = 10_000


def routes(server: Server) -> list[BaseRoute]:
    desk = IngestQueue(server, Intake(server.home))
    server.on_close(desk.close)
    return [
        GuardedRoute(
            PATH,
            desk.take,
            scope="runs:write",
            methods=("POST",),
            body_max=PARCEL_PACKED_MAX,
            operation=OPERATION,
        ),
        *otlp.doors(desk.hand_in),
    ]


class IngestQueue:
    """Where parcels are handed in."""

    def __init__(self, server: Server, intake: Intake) -> None:
        self._server = server
        self._intake = intake
        self._rates = Rates(INGEST_REQUESTS_S, INGEST_BURST)
        self._held_bytes = 0
        self._held_of: Counter[str] = Counter()
        """By key, in bytes."""
        self._requests_of: Counter[str] = Counter()
        """By key: those that are not answered yet."""

    async def take(self, request: Request) -> Response:
        return _answer(await self.hand_in(request))

    async def hand_in(self, request: Request, kind: str = JOURNAL) -> Reply:
        """What became of a request's body: journal lines, or spans (fleet/server/otlp_ingest.py)."""
        who = principal(request)
        wait_s = self._rates.wait_s(who.key_id)
        if wait_s:
            raise _later(429, "rate_limited", "Too many requests with this key.", wait_s)
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ENCODINGS:
            raise ApiError(
                415,
                "unsupported_encoding",
                f"Content-Encoding: expected {', '.join(ENCODINGS)}.",
                headers={"accept-encoding": ", ".join(ENCODINGS)},
            )
        if self._requests_of[who.key_id] >= INGEST_KEY_REQUESTS_MAX:
            raise _later(429, "rate_limited", "Too many requests of this key wait.", 1)
        self._requests_of[who.key_id] += 1
        try:
            return await self._hand_over(request, who, encoding, kind)
        finally:
            self._requests_of[who.key_id] -= 1
            self._requests_of += Counter()  # without those that have none

    async def _hand_over(self, request: Request, who: Principal, encoding: str, kind: str) -> Reply:
        packed = await self._read(request, who.key_id)
        try:
            waiting = self._intake.submit(packed, encoding, who.tenant or DEFAULT_TENANT, kind)
            # Shielded: who hangs up does not take back what was handed over.
            reply = await asyncio.shield(asyncio.wrap_future(waiting))
        except OSError as error:
            raise _later(503, "unavailable", f"Nobody can write ({error.strerror}).", 1) from None
        finally:
            self._release(who.key_id, len(packed))
        self._count(reply, len(packed))
        refuse(reply)
        return reply

    def _release(self, key: str, size_bytes: int) -> None:
        self._held_bytes -= size_bytes
        self._held_of[key] -= size_bytes
        if not self._held_of[key]:
            del self._held_of[key]

    async def _read(self, request: Request, key: str) -> bytes:
        """The whole body; its bytes count as held until the caller has done with them."""
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > PARCEL_PACKED_MAX:
            raise _too_large()
        chunks: list[bytes] = []
        held = 0
        stream = request.stream()
        try:
            while True:
                try:
                    chunk = await anext(stream)
                except StopAsyncIteration:
                    return b"".join(chunks)
                held += len(chunk)
                self._held_bytes += len(chunk)
                self._held_of[key] += len(chunk)
                if held > PARCEL_PACKED_MAX:
                    raise _too_large()
                if self._held_bytes > INGEST_WAITING_MAX:
                    raise _later(429, "rate_limited", "The server has its hands full.", 1)
                if self._held_of[key] > INGEST_KEY_WAITING_MAX:
                    raise _later(429, "rate_limited", "Too much of this key waits.", 1)
                chunks.append(chunk)
        except BaseException as problem:
            self._release(key, held)
            if isinstance(problem, ClientDisconnect):
                raise ApiError(400, "disconnected", "The body did not arrive.") from None
            raise

    def _count(self, reply: Reply, size_bytes: int) -> None:
        count = self._server.metrics.count
        count("vestige_ingest_requests_total", outcome=reply.problem or "taken")
        count("vestige_ingest_bytes_total", size_bytes)
        count("vestige_ingest_records_total", reply.new, outcome="new")
        count("vestige_ingest_records_total", reply.records - reply.new, outcome="known")
        count("vestige_ingest_records_total", reply.malformed, outcome="malformed")

    def close(self) -> None:
        self._intake.close()


def _answer(reply: Reply) -> Response:
    body = encode({"records": reply.records, "new": reply.new, "malformed": reply.malformed})
    headers = {"content-type": "application/json", "cache-control": NO_STORE}
    return Response(body, headers=headers)


def refuse(reply: Reply) -> None:
    """Raise what is to be answered, unless it was kept."""
    match reply.problem:
        case None:
            return
        case "foreign":
            runs = [] if reply.run_id is None else [reply.run_id]
            raise ApiError(409, "foreign_run", reply.message, {"runs": runs})
        case "too_large":
            raise ApiError(413, "too_large", reply.message)
        case "unreadable":
            raise ApiError(400, "validation_error", reply.message)
        case _:
            raise _later(503, "unavailable", reply.message, 1)


def _too_large() -> ApiError:
    text = f"More than {PARCEL_PACKED_MAX} bytes in one request. Send fewer lines at once."
    # Closed: the rest of it is not worth reading.
    return ApiError(413, "too_large", text, headers={"connection": "close"})


def _later(status: int, error: str, message: str, after_s: float) -> ApiError:
    seconds = max(1, round(after_s + 0.5))
    return ApiError(
        status,
        error,
        f"{message} Come again in {seconds} s.",
        {"retryAfter": seconds},
        {"retry-after": str(seconds)},
    )


class Rates:
    """How many requests each key may still make: so many at once, and then so many in a second."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left: dict[str, tuple[float, float]] = {}
        """By key: what is left, and when that was."""

    def wait_s(self, key: str) -> float:
        """0: go on, and this one is counted. Else how long to wait."""
        now = clock.monotonic()
        left, at = self._left.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_s)
        if len(self._left) >= _KEYS_REMEMBERED:
            del self._left[next(iter(self._left))]  # who was here longest ago has all back
        self._left[key] = (left - 1 if left >= 1 else left, now)
        return 0.0 if left >= 1 else (1 - left) / self._per_s


OPERATION = {
    "summary": "Take in journal lines from another machine",
    "description": "Answered when they are durable. Sending again what was sent changes nothing.",
    "requestBody": {
        "required": True,
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    },
    "responses": {
        "200": {
            "description": "They are kept.",
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["records", "new", "malformed"],
                        "properties": {
                            "records": {"type": "integer", "minimum": 0},
                            "new": {"type": "integer", "minimum": 0},
                            "malformed": {"type": "integer", "minimum": 0},
                        },
                    }
                }
            },
        },
        "409": error("A record is for another tenant's run: nothing was taken (`details.runs`)."),
        "415": error("A Content-Encoding that is not known."),
    },
}
