"""/metrics, for Prometheus: counters of this server, and gauges of its store.

It needs a key of the default tenant, or the local token: its numbers cover all tenants, and a
tenant must not see how much the others record or read.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from vestige._runtime import clock, file_locks
from vestige.fleet.segments.segment_storage import open_storage
from vestige.limits import METRICS_CACHE_S
from vestige.record.tenant import DEFAULT_TENANT
from vestige.server.auth import GuardedRoute, principal
from vestige.server.responses import NO_STORE, ApiError
from vestige.server.server_state import LOCAL, Server
from vestige.settings import find_segments, find_store
from vestige.store.open import is_server_address, read_server_status

Gauges = dict[str, tuple[float, str]]


def routes(server: Server) -> list[BaseRoute]:
    cached: tuple[float, Gauges] | None = None

    async def metrics(request: Request) -> Response:
        nonlocal cached
        caller = principal(request)
        if caller.tenant not in (None, DEFAULT_TENANT):
            raise ApiError(
                403,
                "forbidden",
                f"{caller.key_id}: metrics cover all tenants and need a key of the tenant"
                f" {DEFAULT_TENANT}.",
                {"tenant": DEFAULT_TENANT},
            )
        if cached is None or clock.monotonic() > cached[0]:
            gauges = await server.in_thread(_read_gauges, server)
            cached = clock.monotonic() + METRICS_CACHE_S, gauges
        waiting = {"vestige_http_waiting": (server.waiting, "Requests that wait for a thread.")}
        text = server.metrics.render({**cached[1], **waiting})
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(text, headers={"content-type": kind, "cache-control": NO_STORE})

    return [GuardedRoute("/metrics", metrics, scope="runs:read", operation=_METRICS)]


def _read_gauges(server: Server) -> Gauges:
    """Read the gauges that need the store and the journals."""
    with server.open_debugger(LOCAL) as debugger:
        store = debugger.store
        sizes, positions = store.sizes(), store.positions()
    lag_bytes = files = 0
    for writer, generation, path in server.home.journal_files():
        try:
            size = path.stat().st_size
        except OSError:
            continue
        files += 1
        lag_bytes += max(0, size - positions.get((writer, generation), 0))
    return {
        **_read_engine(server),
        **_read_segments(server),
        "vestige_store_runs": (sizes.runs, "Runs in the store."),
        "vestige_store_spans": (sizes.spans, "Spans in the store."),
        "vestige_store_logs": (sizes.logs, "Log lines in the store."),
        "vestige_store_bodies": (sizes.bodies, "Bodies in the store."),
        "vestige_store_bytes": (sizes.file_bytes, "Size of the store file."),
        "vestige_store_body_bytes": (sizes.body_bytes, "Size of the bodies in the store file."),
        "vestige_journal_files": (files, "Journals that are not completely ingested."),
        "vestige_collector_lag_bytes": (lag_bytes, "Journal bytes that are not ingested yet."),
        "vestige_collector_running": (
            float(file_locks.is_held(server.home.lock)),
            "1 if a collector is running.",
        ),
    }


def _read_engine(server: Server) -> Gauges:
    """Read the state of a store on a server."""
    location = find_store(server.home)
    if not is_server_address(location):
        return {}
    status = read_server_status(str(location))
    return {
        "vestige_engine_commits": (status.commits, "Commits of the store."),
        "vestige_engine_commit_age_seconds": (status.commit_age_s, "Time since the last commit."),
        "vestige_engine_failed_attempts": (
            status.failed_attempts,
            "Attempts to commit that failed or met another one.",
        ),
        "vestige_engine_parts": (status.parts, "Parts of all tables."),
        "vestige_engine_parts_in_partition": (
            status.parts_in_partition,
            "The highest number of parts in one partition.",
        ),
        "vestige_engine_rows": (status.rows, "Rows of all tables, in all versions."),
        "vestige_engine_bytes": (status.bytes_on_disk, "Size of the tables."),
        "vestige_engine_disk_free_bytes": (status.disk_free_bytes, "Free space of the disks."),
        "vestige_engine_problems": (
            len(status.problems),
            "Problems that `vestige doctor` explains.",
        ),
    }


def _read_segments(server: Server) -> Gauges:
    """Read what waits for `vestige store load`."""
    place = find_segments(server.home)
    if not place:
        return {}
    storage = open_storage(place)
    waiting = storage.list_segments()
    oldest = min((info.written_s for info in waiting), default=None)
    lag_s = 0.0 if oldest is None else max(0.0, clock.SYSTEM.now_ns() / 1e9 - oldest)
    size = sum(info.size_bytes for info in waiting)
    return {
        "vestige_segments_waiting": (len(waiting), "Segments that wait for the loader."),
        "vestige_segments_waiting_bytes": (size, "Size of the segments that wait."),
        "vestige_segments_lag_seconds": (lag_s, "Age of the oldest segment that waits."),
        "vestige_segments_rejected": (storage.count_rejected(), "Segments that were rejected."),
    }


_METRICS: dict[str, Any] = {
    "summary": "Metrics for Prometheus.",
    "responses": {
        "200": {
            "description": "Prometheus' text format.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
}
