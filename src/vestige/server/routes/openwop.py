"""OpenWOP: recorded runs as that protocol's clients ask for them.

    GET  /.well-known/openwop                  what this host can do; the one path without a key
    GET  /v1/runs                              {runs: [...]}, newest first
    GET  /v1/runs/{runId}                      its snapshot
    GET  /v1/runs/{runId}/events/poll          {events, isComplete}; waits if there is nothing new
    GET  /v1/runs/{runId}/debug-bundle         everything in one document, at most 8 MB
    GET, POST /v1/runs/{runId}/annotations     notes on it
    POST /v1/runs                              a demo workflow, where there are some; else 501

Nothing here is kept by anybody (`no-store`). A run is read once for an answer, in one transaction;
all of its answers are told by the same story (formats/openwop/from_records.py), and so cannot differ.

Elsewhere: demo workflows in server/openwop/demo_workflows.py; what a request may hold in server/openwop/request_parsing.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from vestige._runtime import clock
from vestige.errors import NotFoundError, SensitiveDataError
from vestige.fleet.api_keys import Principal
from vestige.formats.openwop.assemble import HOST, Page, assemble, poll
from vestige.formats.openwop.constants import PROTOCOL_VERSION, Mode
from vestige.formats.openwop.from_records import Story, summary
from vestige.formats.openwop.host_details import HostDetails
from vestige.formats.openwop.note_mapping import SIGNALS
from vestige.formats.openwop.redaction_modes import Privacy
from vestige.limits import OPENWOP_LIST_MAX, OPENWOP_REQUEST_MAX, TICK_S
from vestige.record.note import Note
from vestige.server.auth import GuardedRoute, principal
from vestige.server.openwop import openapi_schemas as shapes
from vestige.server.openwop import request_parsing as requests
from vestige.server.openwop.demo_workflows import WORKFLOWS, Started, start
from vestige.server.responses import NO_STORE, ApiError, encode, packed
from vestige.server.server_state import Server
from vestige.settings import read_settings
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.read.reports import connection_of
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import load_run_to_write, read_hash_key

RUN = "/v1/runs/{runId}"
Handler = Callable[[Request], Awaitable[Response]]


class Host:
    """What of this protocol a server offers, and how it answers."""

    def __init__(self, server: Server) -> None:
        self.server = server
        settings = read_settings(server.home)
        self.bundles = settings.openwop_bundle
        self.feedback = settings.openwop_feedback
        self.cap_bytes = settings.openwop_bundle_bytes
        self.mode: Mode = settings.openwop_redaction  # type: ignore[assignment]  # one of the four
        self.key = read_hash_key(server.home) if self.mode == "hash" else b""
        self.demo = server.demo_workflows

    def capabilities(self) -> bytes:
        """Of the whole host: flags stand at the root of the document."""
        told = {
            "protocolVersion": PROTOCOL_VERSION,
            "supportedEnvelopes": [],
            "schemaVersions": {},
            "limits": {
                "clarificationRounds": 0,
                "schemaRounds": 0,
                "envelopesPerTurn": 0,
                "maxRequestBodyBytes": OPENWOP_REQUEST_MAX,
            },
            "implementation": HOST,
            "supportedTransports": ["rest"],
            "debugBundle": {"supported": self.bundles},
            "feedback": {
                "supported": self.feedback,
                "targets": ["run", "event", "node"],
                "signals": list(SIGNALS),
            },
            "compliance": {"defaultMode": self.mode},
            "observability": {"namespace": "openwop"},
            "secrets": {"supported": False},
            "fixtures": sorted(WORKFLOWS) if self.demo else [],
        }
        return encode(told)

    @contextmanager
    def story(self, who: Principal, run_id: str) -> Iterator[Story]:
        """A run, read in one transaction: what is written meanwhile is for the next answer."""
        with self.server.asking(who) as debugger:
            store = debugger.store
            connection = connection_of(store)
            connection.execute("BEGIN")
            try:
                if not store.has_run(run_id):
                    raise _no_run()
                source = load_run_to_write(store, run_id, with_logs=self.mode == "passthrough")
                yield Story(source, self.mode, key=self.key, cap_bytes=self.cap_bytes)
            except NotFoundError:
                raise _no_run() from None
            except SensitiveDataError as error:
                raise ApiError(409, "redaction_required", str(error)) from None
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")


def _no_run() -> ApiError:
    return ApiError(404, "not_found", "No such run.")


def routes(server: Server) -> list[BaseRoute]:
    host = Host(server)
    # What is off is 404 or 501 to everybody, before anything is said about keys.
    bundles = "debug-bundle:read" if host.bundles else None
    reads, writes = ("runs:read", "runs:write") if host.feedback else (None, None)
    return [
        GuardedRoute(
            "/.well-known/openwop", _discover(host), public=True, operation=shapes.DISCOVERY
        ),
        GuardedRoute("/v1/runs", _list(host), scope="runs:read", operation=shapes.LIST),
        GuardedRoute(
            "/v1/runs",
            _create(host),
            methods=("POST",),
            scope="runs:write",
            body_max=OPENWOP_REQUEST_MAX,
            operation=shapes.CREATE,
        ),
        GuardedRoute(RUN, _get(host), scope="runs:read", operation=shapes.GET),
        GuardedRoute(f"{RUN}/events/poll", _poll(host), scope="runs:read", operation=shapes.POLL),
        GuardedRoute(f"{RUN}/debug-bundle", _bundle(host), scope=bundles, operation=shapes.BUNDLE),
        GuardedRoute(
            f"{RUN}/annotations", _annotations(host), scope=reads, operation=shapes.ANNOTATIONS
        ),
        GuardedRoute(
            f"{RUN}/annotations",
            _annotate(host),
            methods=("POST",),
            scope=writes,
            body_max=OPENWOP_REQUEST_MAX,
            operation=shapes.ANNOTATE,
        ),
    ]


def _answer(
    body: bytes, request: Request, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    body, more = packed(body, request.headers.get("accept-encoding", ""))
    given = {"content-type": "application/json", "cache-control": NO_STORE, **(headers or {})}
    return Response(body, status, {**more, **given})


# --- runs ---------------------------------------------------------------------------------------


def _discover(host: Host) -> Handler:
    async def discover(request: Request) -> Response:
        return _answer(host.capabilities(), request)

    return discover


def _list(host: Host) -> Handler:
    def work(who: Principal, limit: int, after: str | None) -> bytes:
        with host.server.asking(who) as debugger:
            store = debugger.store
            found = [run for run in store.find_runs(after or "-") if run.id == after]
            if after is not None and not found:
                raise _no_run()
            wanted = RunFilter(limit=limit + 1, after=found[0].short_id if found else None)
            runs = store.list_runs(wanted)
        # A name that has to be hidden is hidden in a list too, whatever the mode.
        privacy = Privacy(
            "mask" if host.mode == "passthrough" else host.mode, HostDetails(), host.key
        )
        told = b",".join(privacy.render(summary(run)) for run in runs[:limit])
        more = f',"nextAfter":"{runs[limit - 1].id}"'.encode() if len(runs) > limit else b""
        return b'{"runs":[' + told + b"]" + more + b"}"

    async def runs(request: Request) -> Response:
        given = request.query_params
        limit = requests.whole(given.get("limit"), "limit", OPENWOP_LIST_MAX)
        limit = max(1, min(limit, OPENWOP_LIST_MAX))
        after = requests.run_id(given["after"]) if "after" in given else None
        body = await host.server.in_thread(work, principal(request), limit, after)
        return _answer(body, request)

    return runs


def _get(host: Host) -> Handler:
    def work(who: Principal, run_id: str) -> bytes:
        with host.story(who, run_id) as story:
            return story.snapshot

    async def get(request: Request) -> Response:
        run_id = requests.run_id(request.path_params["runId"])
        return _answer(await host.server.in_thread(work, principal(request), run_id), request)

    return get


def _poll(host: Host) -> Handler:
    def work(who: Principal, run_id: str, after: int) -> Page:
        with host.story(who, run_id) as story:
            return poll(story, after)

    async def poll_events(request: Request) -> Response:
        given, who = request.query_params, principal(request)
        run_id = requests.run_id(request.path_params["runId"])
        after = requests.whole(given.get("lastSequence"), "lastSequence", -1, least=-1)
        until = clock.monotonic() + requests.seconds(given.get("timeout"))
        while True:
            seen = host.server.state()
            page = await host.server.in_thread(work, who, run_id, after)
            if page.events or page.is_complete:
                break
            # Only a store that changed can have something new.
            while host.server.state() == seen and clock.monotonic() < until:
                if host.server.stopping.is_set() or await request.is_disconnected():
                    until = 0.0
                await asyncio.sleep(min(TICK_S, max(0.01, until - clock.monotonic())))
            if clock.monotonic() >= until:
                break
        # In a thread, as packing megabytes takes its time.
        return await host.server.in_thread(_answer, page.render(), request)

    return poll_events


def _bundle(host: Host) -> Handler:
    def work(who: Principal, run_id: str, max_events: int | None) -> bytes:
        with host.story(who, run_id) as story:
            return assemble(story, host.server.clock.now_ns(), max_events)

    async def bundle(request: Request) -> Response:
        if not host.bundles:
            raise ApiError(404, "not_found", "This host does not serve debug bundles.")
        who = principal(request)
        run_id = requests.run_id(request.path_params["runId"])
        most = requests.max_events(request.query_params)
        body = await host.server.in_thread(work, who, run_id, most)
        return await host.server.in_thread(_answer, body, request)

    return bundle


# --- annotations ----------------------------------------------------------------------------------


def _check_feedback(host: Host) -> None:
    if not host.feedback:
        raise ApiError(501, "capability_not_provided", "This host does not take annotations.")


def _annotations(host: Host) -> Handler:
    def work(who: Principal, run_id: str) -> bytes:
        with host.story(who, run_id) as story:
            return b'{"annotations":[' + b",".join(story.annotations()) + b"]}"

    async def annotations(request: Request) -> Response:
        _check_feedback(host)
        who = principal(request)
        run_id = requests.run_id(request.path_params["runId"])
        return _answer(await host.server.in_thread(work, who, run_id), request)

    return annotations


def _annotate(host: Host) -> Handler:
    def work(who: Principal, note: Note) -> bytes:
        with host.story(who, note.run_id) as story:
            if note.span_id is not None:
                span_id = story.find_span(note.span_id)
                if span_id is None:
                    raise ApiError(400, "validation_error", "target.nodeId: no node of this run.")
                note = msgspec.structs.replace(note, span_id=span_id)
            if note.event_id is not None and not story.has_event(note.event_id):
                raise ApiError(400, "validation_error", "target.eventId: no event of this run.")
        with SqliteStore.open(host.server.home.store) as store:
            store.add_note(note, who.tenant)
        with host.story(who, note.run_id) as story:
            return story.annotation(note.id)

    async def annotate(request: Request) -> Response:
        _check_feedback(host)
        who = principal(request)
        run_id = requests.run_id(request.path_params["runId"])
        note = requests.note(
            await request.body(),
            run_id,
            who.key_id,
            request.headers.get("idempotency-key"),
            host.server.clock,
        )
        body = await host.server.in_thread(work, who, note)
        return _answer(body, request, 201)

    return annotate


# --- demo workflows -------------------------------------------------------------------------------


def _create(host: Host) -> Handler:
    def work(who: Principal, started: Started) -> tuple[bytes, str]:
        """The answer, and the trace that it belongs to."""
        run_id, root = start(host.server.home, who.tenant, started)
        with host.story(who, run_id) as story:
            status = summary(story.info)["status"]
        told = {
            "runId": run_id,
            "status": status,
            "eventsUrl": f"/v1/runs/{run_id}/events/poll",
            "statusUrl": f"/v1/runs/{run_id}",
        }
        return encode(told), requests.render_traceparent(started.traceparent, root, run_id)

    async def create(request: Request) -> Response:
        if not host.demo:
            raise ApiError(
                501, "capability_not_provided", "This host records runs; it starts none."
            )
        given = requests.new_run(await request.body())
        if given.workflow not in WORKFLOWS:
            raise ApiError(
                404, "workflow_not_found", "No such workflow.", {"known": sorted(WORKFLOWS)}
            )
        within = requests.traceparent(request.headers.get("traceparent"))
        started = Started(given.workflow, given.inputs, within)
        body, trace = await host.server.in_thread(work, principal(request), started)
        return _answer(body, request, 201, {"traceparent": trace})

    return create
