"""From the wire to the tool: who asked is known without a word of the program's."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx
import openai
import pytest

import vestige
from support.provider_answers import chat, chat_call, claude, data
from support.provider_calls import spans_in
from support.provider_server import Reply, Server
from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore

KEY = "sk-test-4711471147114711"
HELLO: Any = [{"role": "user", "content": "find x"}]


@vestige.tool
def search(q: str) -> str:
    return f"found {q}"


def links_in(home: Home) -> list[tuple[str, str, str | None]]:
    """(span, target, reason) of every run."""
    catch_up(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        runs = [store.load_run(info.id) for info in store.list_runs(RunFilter(with_implicit=True))]
    return [(link.span_id, link.target_span, link.reason) for run in runs for link in run.links]


def ask_openai(server: Server) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY)
    message = client.chat.completions.create(model="m", messages=HELLO).choices[0].message
    for call in message.tool_calls or ():
        search(**json.loads(call.function.arguments))  # type: ignore[union-attr]


def ask_claude(server: Server) -> None:
    client = anthropic.Anthropic(base_url=server.url, api_key=KEY)
    answer = client.messages.create(model="m", max_tokens=9, messages=HELLO)
    for block in answer.content:
        if block.type == "tool_use":
            search(**block.input)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ask", "reply", "call_id"),
    [
        (ask_openai, chat(calls=[chat_call("call_7", "search")]), "call_7"),
        (ask_claude, claude(calls=True), "toolu_7"),
    ],
    ids=["openai", "anthropic"],
)
def test_a_tool_is_linked_to_the_model_call_that_asked(
    home: Home, ask: Any, reply: Reply, call_id: str
) -> None:
    """The program says nothing of ids: its loop is as it would be without us."""
    with (
        vestige.capture_http(),
        Server([reply]) as server,
        vestige.Recorder(home) as recorder,
        recorder.run("agent"),
    ):
        ask(server)

    spans = spans_in(home)
    (model,) = [span for span in spans.values() if span.type == "llm"]
    (tool,) = [span for span in spans.values() if span.type == "tool"]
    assert tool.attributes["tool_call_id"] == call_id
    assert (tool.id, model.id, "asked by") in links_in(home)


def test_arguments_of_a_long_stream_are_known(home: Home) -> None:
    """A stream of many events is thinned before it is read; what was asked for must survive
    that.
    """
    block = {"type": "tool_use", "id": "toolu_9", "name": "search", "input": {}}
    events = [
        data(
            {
                "type": "message_start",
                "message": {
                    "id": "m",
                    "role": "assistant",
                    "content": [],
                    "model": "m",
                    "type": "message",
                    "usage": {"input_tokens": 1, "output_tokens": 1},
                },
            }
        ),
        data(
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "text", "text": ""},
            }
        ),
        *(
            data(
                {
                    "type": "content_block_delta",
                    "index": 0,
                    "delta": {"type": "text_delta", "text": "w "},
                }
            )
            for _ in range(200)
        ),
        data({"type": "content_block_stop", "index": 0}),
        data({"type": "content_block_start", "index": 1, "content_block": block}),
        *(
            data(
                {
                    "type": "content_block_delta",
                    "index": 1,
                    "delta": {"type": "input_json_delta", "partial_json": part},
                }
            )
            for part in ('{"q"', ': "', "deep", '"}')
        ),
        data({"type": "content_block_stop", "index": 1}),
        data(
            {
                "type": "message_delta",
                "delta": {"stop_reason": "tool_use"},
                "usage": {"output_tokens": 9},
            }
        ),
        data({"type": "message_stop"}),
    ]
    body = b"".join(events)
    with (
        vestige.capture_http(),
        Server([Reply(body=body, type="text/event-stream")]) as server,
        vestige.Recorder(home) as recorder,
        recorder.run("agent"),
    ):
        request = {"model": "m", "max_tokens": 9, "stream": True, "messages": HELLO}
        httpx.post(f"{server.url}/v1/messages", json=request)
        search(q="deep")

    (tool,) = [span for span in spans_in(home).values() if span.type == "tool"]
    assert tool.attributes["tool_call_id"] == "toolu_9"
    assert tool.attributes["tool_call.matched"] == "name and arguments"


class Rewriting(httpx.HTTPTransport):
    """A middleware that changes what the program meant."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        body["messages"][0]["content"] = "something else"
        changed = httpx.Request(
            request.method,
            request.url,
            headers={
                name: value for name, value in request.headers.items() if name != "content-length"
            },
            json=body,
        )
        return super().handle_request(changed)


def test_what_a_middleware_changed_is_between_before_and_after(home: Home) -> None:
    """The SDK-level wrapper has what the program passed in, the wire what went out."""
    with vestige.capture_http(), Server([chat()]) as server:
        client = openai.OpenAI(
            base_url=f"{server.url}/v1",
            api_key=KEY,
            http_client=httpx.Client(transport=Rewriting()),
        )
        vestige.instrument_openai(client)
        with vestige.Recorder(home) as recorder, recorder.run("agent"):
            client.chat.completions.create(model="m", messages=HELLO)
        sent = server.seen[0].body
    (model,) = [span for span in spans_in(home).values() if span.type == "llm"]
    with vestige.open(home) as debugger:
        text = str(debugger.diff(model.id, before_after=True))

    assert b"something else" in sent
    assert "find x" in text and "something else" in text
