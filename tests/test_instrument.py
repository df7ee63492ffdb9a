"""Before and after: what a program hands to a real SDK, beside what left.

The wire is played by a transport of the client's own: it rewrites a message, as a middleware
would, and opens the model call's span with the bytes that really leave.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anthropic
import httpx2
import openai
import pytest

import vestige
from support import commands
from vestige.emit import requested_tool_calls
from vestige.home import Home
from vestige.record.run import Run, SpanInfo
from vestige.recorder import Recorder

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "my secret plan"}]}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "search", "arguments": '{"q": "x"}'},
}
CHAT = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": None, "tool_calls": [CALL]},
        }
    ],
}
CHUNK = {
    "id": "c",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "delta": {"role": "assistant", "content": "hi"}, "finish_reason": None}
    ],
}
RESPONSE = {
    "id": "r",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [
        {
            "type": "function_call",
            "id": "fc",
            "call_id": "call_1",
            "name": "search",
            "arguments": '{"q": "x"}',
        }
    ],
}
MESSAGE = {
    "id": "msg",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "content": [{"type": "tool_use", "id": "call_1", "name": "search", "input": {"q": "x"}}],
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
EVENTS = [
    {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 1},
    },
    {"type": "message_stop"},
]


class Provider(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind, status = "application/json", 200
        if body["model"] == "refused":
            answer, status = b'{"error": {"message": "no", "type": "bad"}}', 400
        elif body.get("stream"):
            kind, answer = "text/event-stream", self._events().encode()
        else:
            by_path = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSE}
            answer = json.dumps(by_path.get(self.path.partition("?")[0], MESSAGE)).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _events(self) -> str:
        if self.path == "/v1/chat/completions":
            return f"data: {json.dumps(CHUNK)}\n\ndata: [DONE]\n\n"
        return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in EVENTS)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = Server(("127.0.0.1", 0), Provider)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def rewritten(request: httpx2.Request) -> httpx2.Request:
    """What a middleware might do, and then what the wire will: the model call's span."""
    changed = request.content.replace(b"my secret plan", b"[removed by policy]")
    span = vestige.current_span().child("POST", "llm", {"model": "m"}, body=changed)
    span.end()
    headers = {**request.headers, "content-length": str(len(changed))}
    return httpx2.Request(
        request.method, request.url, headers=headers, content=changed, extensions=request.extensions
    )


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # twenty clients at once must not be refused


class Middleware(httpx2.HTTPTransport):
    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return super().handle_request(rewritten(request))


class AsyncMiddleware(httpx2.AsyncHTTPTransport):
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await super().handle_async_request(rewritten(request))


def openai_client(url: str) -> openai.OpenAI:
    http = httpx2.Client(transport=Middleware())
    return openai.OpenAI(api_key="k", base_url=f"{url}/v1", http_client=http, max_retries=0)


def anthropic_client(url: str) -> anthropic.Anthropic:
    http = httpx2.Client(transport=Middleware())
    return anthropic.Anthropic(api_key="k", base_url=url, http_client=http, max_retries=0)


def async_openai_client(url: str) -> openai.AsyncOpenAI:
    http = httpx2.AsyncClient(transport=AsyncMiddleware())
    return openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", http_client=http, max_retries=0)


def async_anthropic_client(url: str) -> anthropic.AsyncAnthropic:
    http = httpx2.AsyncClient(transport=AsyncMiddleware())
    return anthropic.AsyncAnthropic(api_key="k", base_url=url, http_client=http, max_retries=0)


@pytest.fixture
def recorder(home: Home) -> Iterator[Recorder]:
    requested_tool_calls.forget_all()
    with Recorder(home) as recorder:
        yield recorder


def pairs(run: Run) -> list[tuple[SpanInfo, SpanInfo]]:
    """Each step of ours with the model call in it."""
    steps = {span.id: span for span in run.spans if span.type == "step"}
    return [(steps[s.parent_id], s) for s in run.spans if s.type == "llm" and s.parent_id in steps]


# --- the two sides --------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_diff_shows_what_a_middleware_changed(
    home: Home, recorder: Recorder, url: str, read_runs: Callable[[], list[Run]]
) -> None:
    """With the real SDK, through the command that a user types."""
    client = vestige.instrument_openai(openai_client(url))
    with recorder.run("r"):
        client.chat.completions.create(**ASK, temperature=0.5)
    run = read_runs()[-1]

    ((step, call),) = pairs(run)
    answer = commands.vestige("diff", call.short_id, "--before-after")
    assert (step.name, step.attributes) == (
        "openai chat.completions.create",
        {"provider": "openai"},
    )
    assert answer.exit_code == 1
    assert "my secret plan → [removed by policy]" in answer.output


def test_what_nobody_changed_is_the_same(
    home: Home, recorder: Recorder, url: str, read_runs: Callable[[], list[Run]]
) -> None:
    """An answer of the SDK among the messages, arguments not given and transport options included:
    the before body is what the SDK would send by itself."""
    client = vestige.instrument_openai(openai_client(url))
    with recorder.run("r"):
        first = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}]
        )
        client.chat.completions.create(
            model="m",
            messages=[
                {"role": "user", "content": "hi"},
                first.choices[0].message,  # type: ignore[list-item]  # as every program does
                {"role": "tool", "tool_call_id": "call_1", "content": "[]"},
            ],
            temperature=openai.omit,
            extra_headers={"X-Api-Key": "hunter2-hunter2"},
            timeout=9,
        )
    run = read_runs()[-1]

    step, _ = pairs(run)[-1]
    answer = commands.vestige("diff", step.short_id, "--before-after")
    assert "as built and as sent are the same" in answer.output
    assert step.attributes["timeout"] == 9
    assert "hunter2-hunter2" not in str(step.attributes["extra_headers"])


@pytest.mark.slow
@pytest.mark.parametrize("instrumented", [True, False])
def test_every_way_to_ask_works_as_before(
    home: Home, recorder: Recorder, url: str, read_runs: Callable[[], list[Run]], instrumented: bool
) -> None:
    """Return values and types are the SDK's own; each call has its step, and only one."""
    chat, claude = openai_client(url), anthropic_client(url)
    if instrumented:
        assert vestige.instrument_openai(chat) is chat
        vestige.instrument_openai(chat)
        vestige.instrument_anthropic(claude)
    with recorder.run("r"):
        reply = chat.chat.completions.create(**ASK)
        assert isinstance(reply, openai.types.chat.ChatCompletion)
        stream = chat.chat.completions.create(**ASK, stream=True)
        assert isinstance(stream, openai.Stream)
        assert [chunk.choices[0].delta.content for chunk in stream] == ["hi"]
        with chat.chat.completions.stream(**ASK) as events:
            assert next(event.type for event in events) == "chunk"
        raw = chat.chat.completions.with_raw_response.create(**ASK)
        assert (raw.status_code, raw.parse().id) == (200, "c")
        answer = chat.with_options(timeout=5).responses.create(model="m", input="my secret plan")
        assert isinstance(answer, openai.types.responses.Response)
        message = claude.messages.create(**ASK, max_tokens=9)
        assert isinstance(message, anthropic.types.Message)
        with claude.messages.stream(**ASK, max_tokens=9) as text:
            assert "".join(text.text_stream) == "hi"
        claude.beta.messages.create(**ASK, max_tokens=9)
    run = read_runs()[-1]

    calls = [span for span in run.spans if span.type == "llm"]
    assert len(calls) == 8
    names = [step.name.split(" ")[1] for step, _ in pairs(run)]
    assert names == instrumented * [
        "chat.completions.create",
        "chat.completions.create",
        "chat.completions.stream",
        "chat.completions.create",
        "responses.create",
        "messages.create",
        "messages.stream",
        "beta.messages.create",
    ]
    assert recorder.faults == {}


@pytest.mark.slow
def test_async_clients_too(
    home: Home, recorder: Recorder, url: str, read_runs: Callable[[], list[Run]]
) -> None:
    """Twenty at once: every model call is in the step of its own arguments."""

    async def ask(client: openai.AsyncOpenAI, number: int) -> str:
        reply = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": f"number {number}!"}]
        )
        return reply.id

    async def texts(stream: AsyncIterator[str]) -> list[str]:
        return [text async for text in stream]

    async def all_of_it() -> None:
        chat = vestige.instrument_openai(async_openai_client(url))
        claude = vestige.instrument_anthropic(async_anthropic_client(url))
        assert await asyncio.gather(*(ask(chat, number) for number in range(20))) == ["c"] * 20
        chunks = await chat.chat.completions.create(**ASK, stream=True)
        assert [chunk.id async for chunk in chunks] == ["c"]
        async with claude.messages.stream(**ASK, max_tokens=9) as stream:
            assert await texts(stream.text_stream) == ["hi"]
        assert (
            await claude.messages.with_raw_response.create(**ASK, max_tokens=9)
        ).status_code == 200
        await chat.close()
        await claude.close()

    with recorder.run("r"):
        asyncio.run(all_of_it())
    run = read_runs()[-1]

    found = pairs(run)
    assert len(found) == 23
    for step, call in found[:20]:
        before = commands.vestige("diff", call.short_id, "--before-after")
        assert "are the same" in before.output, step.name
    assert recorder.faults == {}


# --- the SDK's behaviour --------------------------------------------------------------------------


def test_an_exception_is_the_sdks_own(
    home: Home, recorder: Recorder, url: str, read_runs: Callable[[], list[Run]]
) -> None:
    """A refusal, and a call that the SDK itself does not accept; the step says how it ended."""
    client = vestige.instrument_anthropic(anthropic_client(url))
    with recorder.run("r"):
        with pytest.raises(anthropic.BadRequestError):
            client.messages.create(**{**ASK, "model": "refused"}, max_tokens=9)
        with pytest.raises(TypeError, match="Missing required arguments"):
            client.messages.create()  # type: ignore[call-overload]
    run = read_runs()[-1]

    failed = [span for span in run.spans if span.type == "step"]
    assert [span.attributes["error.type"] for span in failed] == [
        "anthropic.BadRequestError",
        "TypeError",
    ]


@pytest.mark.slow
def test_a_client_is_left_as_it_was(recorder: Recorder, url: str) -> None:
    client = openai_client(url)
    raw = type(client.chat.completions.with_raw_response)
    before = client.chat.completions.create
    vestige.instrument_openai(client)
    assert client.chat.completions.create != before
    assert type(client.chat.completions.with_raw_response) is raw

    assert vestige.uninstrument(client) is client
    assert client.chat.completions.create == before
    assert {"create", "parse", "stream"}.isdisjoint(vars(client.chat.completions))
    assert {"copy", "with_options"}.isdisjoint(vars(client))


class Odd:
    """An argument that cannot be looked at."""

    @property
    def model_dump(self) -> Any:
        raise RuntimeError("no")


def test_who_asks_whether_a_method_is_async_gets_the_answer_of_before(url: str) -> None:
    """Frameworks do, and await or not by it."""
    from vestige.integrations.sdk_call_arguments import _METHODS, _RESOURCES, _find_resource

    def kinds(client: Any, provider: str) -> dict[str, tuple[bool, bool]]:
        methods = {
            f"{path}.{name}": getattr(_find_resource(client, path), name, None)
            for path in _RESOURCES[provider]
            for name in _METHODS
        }
        return {
            name: (inspect.iscoroutinefunction(method), asyncio.iscoroutinefunction(method))
            for name, method in methods.items()
        }

    found = []
    for make, provider, instrument in (
        (async_openai_client, "openai", vestige.instrument_openai),
        (async_anthropic_client, "anthropic", vestige.instrument_anthropic),
        (openai_client, "openai", vestige.instrument_openai),
    ):
        client: Any = make(url)
        before = kinds(client, provider)
        found.append((before, kinds(instrument(client), provider)))

    assert (True, True) in found[0][0].values()
    assert all(before == after for before, after in found)


@pytest.mark.slow
def test_a_failure_of_ours_is_counted_and_not_raised(recorder: Recorder, url: str) -> None:
    """The call goes out as if we were not there."""
    client = vestige.instrument_openai(openai_client(url))
    with recorder.run("r"):
        vestige.instrument_openai(object())
        vestige.instrument_anthropic(client)
        vestige.uninstrument(None)
        reply = client.chat.completions.create(
            **ASK, extra_query={}, extra_body={"seed": 1}, user=openai.omit
        )
        with pytest.raises(TypeError):
            client.chat.completions.create(**ASK, metadata=Odd())  # type: ignore[arg-type]

    assert reply.id == "c"
    assert recorder.faults == {
        "instrument_openai: TypeError": 1,
        "instrument_anthropic: TypeError": 1,
        "before body: RuntimeError": 1,
        "uninstrument: TypeError": 1,
    }


@pytest.mark.slow
def test_what_an_answer_asks_for_is_remembered(
    home: Home, recorder: Recorder, url: str, read_runs: Callable[[], list[Run]]
) -> None:
    """Also without wire capture: the tool links to the step then."""
    chat = vestige.instrument_openai(openai_client(url))
    claude = vestige.instrument_anthropic(anthropic_client(url))
    search = vestige.tool(name="search")(lambda q: q)
    with recorder.run("r"):
        chat.chat.completions.create(**ASK)
        search(q="x")
        chat.responses.create(model="m", input="x")
        search(q="x")
        claude.messages.create(**ASK, max_tokens=9)
        search(q="x")
    run = read_runs()[-1]

    steps = {span.id: span.name for span in run.spans if span.type == "step"}
    assert [steps[link.target_span] for link in run.links if link.reason == "asked by"] == [
        "openai chat.completions.create",
        "openai responses.create",
        "anthropic messages.create",
    ]


def test_outside_any_run_and_switched_off(
    home: Home, url: str, read_runs: Callable[[], list[Run]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process's run has it; with recording off, nothing has."""
    client = vestige.instrument_openai(openai_client(url))
    client.chat.completions.create(**ASK)
    ((step, _),) = pairs(read_runs()[-1])
    assert step.name == "openai chat.completions.create"

    monkeypatch.setenv("VESTIGE_DISABLED", "1")
    vestige.process_recorder._default = None
    assert client.chat.completions.create(**ASK).id == "c"
    assert len(pairs(read_runs()[-1])) == 1
