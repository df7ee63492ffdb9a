"""/healthz and /metrics: is the server there, can it read its store, and how is it doing.

/healthz is for whoever watches the process, and needs no key. /metrics needs one of the default
tenant, or the local token: its numbers are of the whole home, and other tenants are not to learn
how much their neighbours record or ask.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from vestige._runtime import clock, file_locks
from vestige.limits import METRICS_KEPT_S
from vestige.record.tenant import DEFAULT_TENANT
from vestige.server.auth import GuardedRoute, principal
from vestige.server.responses import NO_STORE, ApiError, encode
from vestige.server.server_state import LOCAL, Server

Gauges = dict[str, tuple[float, str]]


def routes(server: Server) -> list[BaseRoute]:
    kept: tuple[float, Gauges] | None = None

    async def healthz(request: Request) -> Response:
        await server.in_thread(_look, server)  # a store that cannot be read is a 503
        headers = {"content-type": "application/json", "cache-control": NO_STORE}
        return Response(encode({"status": "ok"}), headers=headers)

    async def metrics(request: Request) -> Response:
        nonlocal kept
        who = principal(request)
        if who.tenant not in (None, DEFAULT_TENANT):
            raise ApiError(
                403,
                "forbidden",
                f"{who.key_id}: these numbers are of all tenants: for keys of the"
                f" tenant {DEFAULT_TENANT} only.",
                {"tenant": DEFAULT_TENANT},
            )
        if kept is None or clock.monotonic() > kept[0]:
            gauges = await server.in_thread(_gauges, server)
            kept = clock.monotonic() + METRICS_KEPT_S, gauges
        text = server.metrics.render({**kept[1], **_quick(server)})
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(text, headers={"content-type": kind, "cache-control": NO_STORE})

    return [
        GuardedRoute("/healthz", healthz, public=True, operation=_HEALTHZ),
        GuardedRoute("/metrics", metrics, scope="runs:read", operation=_METRICS),
    ]


def _look(server: Server) -> None:
    with server.asking(LOCAL):
        server.store(LOCAL).has_run("")


def _quick(server: Server) -> Gauges:
    return {"vestige_http_waiting": (server.waiting, "Questions asked and not yet answered.")}


def _gauges(server: Server) -> Gauges:
    """What takes a look at the store and the journals."""
    with server.asking(LOCAL):
        store = server.store(LOCAL)
        sizes, positions = store.sizes(), store.positions()
    behind = files = 0
    for writer, generation, path in server.home.journal_files():
        try:
            size = path.stat().st_size
        except OSError:
            continue
        files += 1
        behind += max(0, size - positions.get((writer, generation), 0))
    return {
        "vestige_store_runs": (sizes["runs"], "Runs in the store."),
        "vestige_store_spans": (sizes["spans"], "Spans in the store."),
        "vestige_store_logs": (sizes["logs"], "Log lines in the store."),
        "vestige_store_bodies": (sizes["bodies"], "Bodies in the store."),
        "vestige_store_bytes": (sizes["file_bytes"], "Size of the store's file."),
        "vestige_store_body_bytes": (sizes["body_bytes"], "Of that, bodies."),
        "vestige_journal_files": (files, "Journals that are not wholly taken in."),
        "vestige_collector_lag_bytes": (behind, "Journal bytes that are not taken in yet."),
        "vestige_collector_running": (
            float(file_locks.is_held(server.home.lock)),
            "1: somebody takes journals in.",
        ),
    }


def _plain(kind: str, schema: dict[str, Any], meaning: str) -> dict[str, Any]:
    return {"200": {"description": meaning, "content": {kind: {"schema": schema}}}}


_HEALTHZ: dict[str, Any] = {
    "summary": "Is the server there, and can it read its store.",
    "responses": _plain(
        "application/json",
        {
            "type": "object",
            "required": ["status"],
            "properties": {"status": {"const": "ok"}},
            "additionalProperties": False,
        },
        "It is, and it can.",
    ),
}
_METRICS: dict[str, Any] = {
    "summary": "Numbers for Prometheus.",
    "responses": _plain("text/plain", {"type": "string"}, "Prometheus' text format."),
}
