"""The OpenWOP routes: recorded runs in the protocol of OpenWOP clients.

    GET  /.well-known/openwop                  capabilities of this host; needs no key
    GET  /v1/runs                              {runs: [...]}, newest first
    GET  /v1/runs/{runId}                      the run's snapshot
    GET  /v1/runs/{runId}/events/poll          {events, isComplete}; waits if there are none
    GET  /v1/runs/{runId}/debug-bundle         the complete run in one document, at most 8 MB
    GET, POST /v1/runs/{runId}/annotations     notes on the run
    POST /v1/runs                              starts a demo workflow if enabled; else 501

No response is cached (`no-store`). Each response reads the run in one transaction, and all of them
render the same Story (formats/openwop/from_records.py), so they are consistent.

Elsewhere: demo workflows in server/openwop/demo_workflows.py, request parsing in
server/openwop/request_parsing.py.
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
from vestige.formats.openwop.host_redaction import HostDetails
from vestige.formats.openwop.note_mapping import SIGNALS
from vestige.formats.openwop.redaction_modes import Privacy
from vestige.limits import OPENWOP_LIST_MAX, OPENWOP_REQUEST_MAX, TICK_S
from vestige.record.note import Note
from vestige.server.auth import GuardedRoute, principal
from vestige.server.openwop import openapi_schemas as shapes
from vestige.server.openwop import request_parsing as requests
from vestige.server.openwop.demo_workflows import WORKFLOWS, WorkflowRequest, start
from vestige.server.responses import NO_STORE, ApiError, compress, encode
from vestige.server.server_state import Server
from vestige.settings import find_store, read_settings
from vestige.store.open import open_store
from vestige.store.protocol import RunFilter
from vestige.transfer import load_run_to_write, read_hash_key

RUN = "/v1/runs/{runId}"
Handler = Callable[[Request], Awaitable[Response]]


class Host:
    """The OpenWOP settings and capabilities of a server."""

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
        """Render the discovery document."""
        document = {
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
        return encode(document)

    @contextmanager
    def open_story(self, caller: Principal, run_id: str) -> Iterator[Story]:
        """Read a run in one transaction, unaffected by concurrent writes."""
        with self.server.open_debugger(caller) as debugger:
            store = debugger.store
            try:
                with store.snapshot():
                    if not store.has_run(run_id):
                        raise _no_run()
                    with_logs = self.mode == "passthrough"
                    source = load_run_to_write(store, run_id, with_logs=with_logs)
                    yield Story(source, self.mode, key=self.key, cap_bytes=self.cap_bytes)
            except NotFoundError:
                raise _no_run() from None
            except SensitiveDataError as error:
                raise ApiError(409, "redaction_required", str(error)) from None


def _no_run() -> ApiError:
    return ApiError(404, "not_found", "No such run.")


def routes(server: Server) -> list[BaseRoute]:
    host = Host(server)
    # A disabled feature is 404 or 501 for every key, so its routes require no scope.
    bundle_scope = "debug-bundle:read" if host.bundles else None
    read_scope, write_scope = ("runs:read", "runs:write") if host.feedback else (None, None)
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
        GuardedRoute(
            f"{RUN}/debug-bundle", _bundle(host), scope=bundle_scope, operation=shapes.BUNDLE
        ),
        GuardedRoute(
            f"{RUN}/annotations", _annotations(host), scope=read_scope, operation=shapes.ANNOTATIONS
        ),
        GuardedRoute(
            f"{RUN}/annotations",
            _annotate(host),
            methods=("POST",),
            scope=write_scope,
            body_max=OPENWOP_REQUEST_MAX,
            operation=shapes.ANNOTATE,
        ),
    ]


def _render_response(
    body: bytes, request: Request, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    body, all_headers = compress(body, request.headers.get("accept-encoding", ""))
    all_headers |= {"content-type": "application/json", "cache-control": NO_STORE}
    return Response(body, status, {**all_headers, **(headers or {})})


# --- runs ---------------------------------------------------------------------------------------


def _discover(host: Host) -> Handler:
    async def discover(request: Request) -> Response:
        return _render_response(host.capabilities(), request)

    return discover


def _list(host: Host) -> Handler:
    def work(caller: Principal, limit: int, after: str | None) -> bytes:
        with host.server.open_debugger(caller) as debugger:
            store = debugger.store
            found = [run for run in store.find_runs(after or "-") if run.id == after]
            if after is not None and not found:
                raise _no_run()
            page = RunFilter(limit=limit + 1, after=found[0].short_id if found else None)
            runs = store.list_runs(page)
        # Names are redacted in a list, even if the mode is passthrough.
        privacy = Privacy(
            "mask" if host.mode == "passthrough" else host.mode, HostDetails(), host.key
        )
        items = b",".join(privacy.render(summary(run)) for run in runs[:limit])
        more = f',"nextAfter":"{runs[limit - 1].id}"'.encode() if len(runs) > limit else b""
        return b'{"runs":[' + items + b"]" + more + b"}"

    async def runs(request: Request) -> Response:
        query = request.query_params
        limit = requests.parse_integer(query.get("limit"), "limit", OPENWOP_LIST_MAX)
        limit = max(1, min(limit, OPENWOP_LIST_MAX))
        after = requests.parse_run_id(query["after"]) if "after" in query else None
        body = await host.server.in_thread(work, principal(request), limit, after)
        return _render_response(body, request)

    return runs


def _get(host: Host) -> Handler:
    def work(caller: Principal, run_id: str) -> bytes:
        with host.open_story(caller, run_id) as story:
            return story.snapshot

    async def get(request: Request) -> Response:
        run_id = requests.parse_run_id(request.path_params["runId"])
        return _render_response(
            await host.server.in_thread(work, principal(request), run_id), request
        )

    return get


def _poll(host: Host) -> Handler:
    def work(caller: Principal, run_id: str, after: int) -> Page:
        with host.open_story(caller, run_id) as story:
            return poll(story, after)

    async def poll_events(request: Request) -> Response:
        query, caller = request.query_params, principal(request)
        run_id = requests.parse_run_id(request.path_params["runId"])
        after = requests.parse_integer(query.get("lastSequence"), "lastSequence", -1, least=-1)
        until = clock.monotonic() + requests.parse_timeout(query.get("timeout"))
        while True:
            seen = host.server.state()
            page = await host.server.in_thread(work, caller, run_id, after)
            if page.events or page.is_complete:
                break
            # There are no new events before the store changes.
            while host.server.state() == seen and clock.monotonic() < until:
                if host.server.stopping.is_set() or await request.is_disconnected():
                    until = 0.0
                await asyncio.sleep(min(TICK_S, max(0.01, until - clock.monotonic())))
            if clock.monotonic() >= until:
                break
        # In a thread: compressing megabytes takes time.
        return await host.server.in_thread(_render_response, page.render(), request)

    return poll_events


def _bundle(host: Host) -> Handler:
    def work(caller: Principal, run_id: str, max_events: int | None) -> bytes:
        with host.open_story(caller, run_id) as story:
            return assemble(story, host.server.clock.now_ns(), max_events)

    async def bundle(request: Request) -> Response:
        if not host.bundles:
            raise ApiError(404, "not_found", "This host does not serve debug bundles.")
        caller = principal(request)
        run_id = requests.parse_run_id(request.path_params["runId"])
        max_events = requests.parse_max_events(request.query_params)
        body = await host.server.in_thread(work, caller, run_id, max_events)
        return await host.server.in_thread(_render_response, body, request)

    return bundle


# --- annotations ----------------------------------------------------------------------------------


def _check_feedback(host: Host) -> None:
    if not host.feedback:
        raise ApiError(501, "capability_not_provided", "This host does not accept annotations.")


def _annotations(host: Host) -> Handler:
    def work(caller: Principal, run_id: str) -> bytes:
        with host.open_story(caller, run_id) as story:
            return b'{"annotations":[' + b",".join(story.annotations()) + b"]}"

    async def annotations(request: Request) -> Response:
        _check_feedback(host)
        caller = principal(request)
        run_id = requests.parse_run_id(request.path_params["runId"])
        return _render_response(await host.server.in_thread(work, caller, run_id), request)

    return annotations


def _annotate(host: Host) -> Handler:
    def work(caller: Principal, note: Note) -> bytes:
        with host.open_story(caller, note.run_id) as story:
            if note.span_id is not None:
                span_id = story.find_span(note.span_id)
                if span_id is None:
                    raise ApiError(400, "validation_error", "target.nodeId: not in this run.")
                note = msgspec.structs.replace(note, span_id=span_id)
            if note.event_id is not None and not story.has_event(note.event_id):
                raise ApiError(400, "validation_error", "target.eventId: not in this run.")
        with open_store(find_store(host.server.home)) as store:
            store.add_note(note, caller.tenant)
        with host.open_story(caller, note.run_id) as story:
            return story.annotation(note.id)

    async def annotate(request: Request) -> Response:
        _check_feedback(host)
        caller = principal(request)
        run_id = requests.parse_run_id(request.path_params["runId"])
        note = requests.parse_note(
            await request.body(),
            run_id,
            caller.key_id,
            request.headers.get("idempotency-key"),
            host.server.clock,
        )
        body = await host.server.in_thread(work, caller, note)
        return _render_response(body, request, 201)

    return annotate


# --- demo workflows -------------------------------------------------------------------------------


def _create(host: Host) -> Handler:
    def work(caller: Principal, workflow: WorkflowRequest) -> tuple[bytes, str]:
        """Return the response's body and its traceparent."""
        run_id, root = start(host.server.home, caller.tenant, workflow)
        with host.open_story(caller, run_id) as story:
            status = summary(story.info)["status"]
        created = {
            "runId": run_id,
            "status": status,
            "eventsUrl": f"/v1/runs/{run_id}/events/poll",
            "statusUrl": f"/v1/runs/{run_id}",
        }
        return encode(created), requests.render_traceparent(workflow.traceparent, root, run_id)

    async def create(request: Request) -> Response:
        if not host.demo:
            raise ApiError(
                501, "capability_not_provided", "This host records runs and cannot start them."
            )
        traceparent = requests.parse_traceparent(request.headers.get("traceparent"))
        workflow = requests.parse_workflow(await request.body(), traceparent)
        if workflow.name not in WORKFLOWS:
            raise ApiError(
                404, "workflow_not_found", "No such workflow.", {"known": sorted(WORKFLOWS)}
            )
        body, trace = await host.server.in_thread(work, principal(request), workflow)
        return _render_response(body, request, 201, {"traceparent": trace})

    return create
