"""Runs of requests and tasks, which open only if something inside is recorded."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from vestige.emit import context
from vestige.emit.pending_run import PendingRun
from vestige.integrations.services.incoming_requests import _wrap_asgi, _wrap_wsgi
from vestige.testing import FakeRecorder


def names(recorder: FakeRecorder) -> list[tuple[str, str]]:
    return [(span.type, span.name) for span in recorder.spans]


def record_step(recorder: FakeRecorder, name: str) -> None:
    recorder.logger("agent").span(name).end()


def test_work_that_records_nothing_has_no_run(recorder: FakeRecorder) -> None:
    pending = PendingRun(lambda: "GET /health")
    with pending.active():
        pass
    pending.end()
    assert recorder.spans == []


def test_the_first_span_opens_the_run_and_later_ones_are_inside(recorder: FakeRecorder) -> None:
    pending = PendingRun(lambda: "POST /refund", {"method": "POST"}, "run-1/span-1")
    with pending.active():
        contextvars.copy_context().run(record_step, recorder, "one")
        record_step(recorder, "two")
        recorder.logger("agent").info("inside")
    pending.end(ValueError("no such customer"))
    run, one, two = recorder.spans
    assert (run.type, run.name, run.attributes) == ("run", "POST /refund", {"method": "POST"})
    assert one.parent_id == two.parent_id == run.span_id
    assert recorder.logs[-1].run_id == run.run_id
    close = recorder.close_of(run.span_id)
    assert close is not None and close.attributes["error.type"] == "ValueError"
    assert context.current() is None


def test_requests_at_the_same_time_are_separate_runs(recorder: FakeRecorder) -> None:
    class App:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await asyncio.sleep(0)
            record_step(recorder, scope["path"])
            await send({"type": "http.response.start", "status": 200})
            await asyncio.sleep(0)
            record_step(recorder, "after the response")

    _wrap_asgi(App)

    async def send(message: Any) -> None:
        pass

    async def request(number: int) -> None:
        scope = {
            "type": "http",
            "method": "POST",
            "path": f"/refund/{number}",
            "path_params": {"order_id": number},
        }
        await App()(scope, None, send)  # type: ignore[misc]

    async def serve() -> None:
        await asyncio.gather(*map(request, range(8)))

    asyncio.run(serve())
    runs = {span.span_id: span for span in recorder.spans if span.type == "run"}
    assert [run.name for run in runs.values()] == ["POST /refund/{order_id}"] * 8
    steps = [span.parent_id for span in recorder.spans if span.type == "step"]
    assert sorted(steps, key=str) == sorted([*runs, *runs])
    assert all(recorder.close_of(span_id) for span_id in runs)


def test_a_streamed_response_ends_its_run_with_its_last_chunk(recorder: FakeRecorder) -> None:
    class App:
        def __call__(self, environ: Any, start_response: Any) -> Any:
            start_response("200 OK", [])

            def chunks() -> Any:
                record_step(recorder, "chunk")
                yield b"one"

            return chunks()

    _wrap_wsgi(App, "__call__", lambda app, environ: environ["PATH_INFO"])
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/stream"}
    response = iter(App()(environ, lambda *_: None))
    assert next(response) == b"one"
    (run, _) = recorder.spans
    assert recorder.close_of(run.span_id) is None
    assert list(response) == []
    close = recorder.close_of(run.span_id)
    assert close is not None
    assert (close.status, close.attributes) == ("ok", {"status_code": 200})


@pytest.mark.parametrize("code", ["500 Internal Server Error", "503 Unavailable"])
def test_a_server_error_fails_the_run(recorder: FakeRecorder, code: str) -> None:
    class App:
        def __call__(self, environ: Any, start_response: Any) -> Any:
            record_step(recorder, "work")
            start_response(code, [])
            return []

    _wrap_wsgi(App, "__call__", lambda app, environ: "/")
    App()({"REQUEST_METHOD": "GET"}, lambda *_: None).close()
    close = recorder.close_of(recorder.spans[0].span_id)
    assert close is not None and close.status == "error"
