"""/api/v1/ingest: journal lines from other machines, acknowledged when they are durable.

    POST /api/v1/ingest        NDJSON; Content-Encoding: zstd, gzip or none
    200 {"records": 812, "new": 812, "malformed": 0}

The tenant is the key's, never the record's. Sending the same lines again changes nothing.

The server only reads the bytes and passes them to a child process (fleet/server/ingest_process.py),
so readers do not wait for writers. The bytes in memory are bounded, in total and per key. Further
requests are refused with a Retry-After.

Elsewhere: the format of the lines is in fleet/shipment.py; `vestige server ship` is a client.
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
    queue = IngestQueue(server, Intake(server.home))
    server.on_close(queue.close)
    return [
        GuardedRoute(
            PATH,
            queue.handle_ingest,
            scope="runs:write",
            methods=("POST",),
            body_max=PARCEL_PACKED_MAX,
            operation=OPERATION,
        ),
        *otlp.routes(queue.ingest),
    ]


class IngestQueue:
    """Passes request bodies to the ingest process, within limits for all and for each key."""

    def __init__(self, server: Server, intake: Intake) -> None:
        self._server = server
        self._intake = intake
        self._rates = Rates(INGEST_REQUESTS_S, INGEST_BURST)
        self._pending_bytes = 0
        self._pending_bytes_by_key: Counter[str] = Counter()
        self._pending_requests_by_key: Counter[str] = Counter()

    async def handle_ingest(self, request: Request) -> Response:
        reply = await self.ingest(request)
        body = encode({"records": reply.records, "new": reply.new, "malformed": reply.malformed})
        headers = {"content-type": "application/json", "cache-control": NO_STORE}
        return Response(body, headers=headers)

    async def ingest(self, request: Request, kind: str = JOURNAL) -> Reply:
        """Ingest the request's body: journal lines, or OTLP (fleet/server/otlp_ingest.py)."""
        caller = principal(request)
        wait_s = self._rates.wait_s(caller.key_id)
        if wait_s:
            raise _retry_later(429, "rate_limited", "Too many requests with this key.", wait_s)
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ENCODINGS:
            raise ApiError(
                415,
                "unsupported_encoding",
                f"Content-Encoding: expected {', '.join(ENCODINGS)}.",
                headers={"accept-encoding": ", ".join(ENCODINGS)},
            )
        if self._pending_requests_by_key[caller.key_id] >= INGEST_KEY_REQUESTS_MAX:
            raise _retry_later(429, "rate_limited", "Too many requests of this key are waiting.", 1)
        self._pending_requests_by_key[caller.key_id] += 1
        try:
            return await self._submit(request, caller, encoding, kind)
        finally:
            self._pending_requests_by_key[caller.key_id] -= 1
            self._pending_requests_by_key += Counter()  # removes keys that count zero

    async def _submit(self, request: Request, caller: Principal, encoding: str, kind: str) -> Reply:
        body = await self._read(request, caller.key_id)
        try:
            future = self._intake.submit(body, encoding, caller.tenant or DEFAULT_TENANT, kind)
            # Shielded: a client that disconnects does not cancel the submitted lines.
            reply = await asyncio.shield(asyncio.wrap_future(future))
        except OSError as error:
            message = f"The store is not writable ({error.strerror})."
            raise _retry_later(503, "unavailable", message, 1) from None
        finally:
            self._release(caller.key_id, len(body))
        self._count(reply, len(body))
        raise_for_problem(reply)
        return reply

    def _release(self, key: str, size_bytes: int) -> None:
        self._pending_bytes -= size_bytes
        self._pending_bytes_by_key[key] -= size_bytes
        if not self._pending_bytes_by_key[key]:
            del self._pending_bytes_by_key[key]

    async def _read(self, request: Request, key: str) -> bytes:
        """Read the body. Its bytes count as pending until the caller calls `_release`."""
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > PARCEL_PACKED_MAX:
            raise _too_large()
        chunks: list[bytes] = []
        size_bytes = 0
        stream = request.stream()
        try:
            while True:
                try:
                    chunk = await anext(stream)
                except StopAsyncIteration:
                    return b"".join(chunks)
                size_bytes += len(chunk)
                self._pending_bytes += len(chunk)
                self._pending_bytes_by_key[key] += len(chunk)
                if size_bytes > PARCEL_PACKED_MAX:
                    raise _too_large()
                if self._pending_bytes > INGEST_WAITING_MAX:
                    raise _retry_later(429, "rate_limited", "Too much data is waiting.", 1)
                if self._pending_bytes_by_key[key] > INGEST_KEY_WAITING_MAX:
                    message = "Too much data of this key is waiting."
                    raise _retry_later(429, "rate_limited", message, 1)
                chunks.append(chunk)
        except BaseException as error:
            self._release(key, size_bytes)
            if isinstance(error, ClientDisconnect):
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


def raise_for_problem(reply: Reply) -> None:
    """Raise the ApiError of a reply whose lines were not stored."""
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
            raise _retry_later(503, "unavailable", reply.message, 1)


def _too_large() -> ApiError:
    text = f"More than {PARCEL_PACKED_MAX} bytes in one request. Send fewer lines at once."
    # The connection is closed, so that the rest of the body need not be read.
    return ApiError(413, "too_large", text, headers={"connection": "close"})


def _retry_later(status: int, error: str, message: str, after_s: float) -> ApiError:
    seconds = max(1, round(after_s + 0.5))
    return ApiError(
        status,
        error,
        f"{message} Try again in {seconds} s.",
        {"retryAfter": seconds},
        {"retry-after": str(seconds)},
    )


class Rates:
    """Token buckets that limit the requests of each key: a burst, then a rate per second."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left: dict[str, tuple[float, float]] = {}
        """The remaining requests of each key, and the time of that count."""

    def wait_s(self, key: str) -> float:
        """Count a request and return 0, or return the seconds to wait."""
        now = clock.monotonic()
        left, at = self._left.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_s)
        if len(self._left) >= _KEYS_REMEMBERED:
            del self._left[next(iter(self._left))]  # the oldest key has most of its burst back
        self._left[key] = (left - 1 if left >= 1 else left, now)
        return 0.0 if left >= 1 else (1 - left) / self._per_s


OPERATION = {
    "summary": "Ingest journal lines from another machine",
    "description": "Responds when they are durable. Sending the same lines again changes nothing.",
    "requestBody": {
        "required": True,
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    },
    "responses": {
        "200": {
            "description": "The lines are stored.",
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
        "409": error("A record is for another tenant's run. Nothing is stored (`details.runs`)."),
        "415": error("Unknown Content-Encoding."),
    },
}
