"""httpx and httpx2, by the real SDKs over them: captured bytes are the server's."""

from __future__ import annotations

import pytest
from openai import OpenAI

import vestige
from vestige.home import Home
from wire_answers import chat
from wire_calls import calls_in
from wire_server import Server


@pytest.fixture
def capture(home: Home):  # type: ignore[no-untyped-def]
    with vestige.capture_http() as handle:
        yield handle


def test_a_call_of_the_openai_sdk_is_captured_byte_for_byte(home: Home, capture: object) -> None:
    """Request and response as the server received and sent them; the call stands in the span
    that made it."""
    with Server([chat()]) as server, vestige.Recorder(home).run("agent") as run:
        client = OpenAI(base_url=f"{server.url}/v1", api_key="sk-test-4711471147114711")
        answer = client.chat.completions.create(
            model="gpt-5-mini", messages=[{"role": "user", "content": "Grüße"}], temperature=0.2
        )
    (call,) = calls_in(home)

    assert answer.choices[0].message.content == "Hello there"
    assert call.request == server.seen[0].body
    assert call.response == server.seen[0].sent
    assert (call.span.type, call.span.name, call.span.status) == ("llm", "chat.completions", "ok")
    assert call.span.parent_id == run.id
    assert call["model"] == "gpt-5-mini"
    assert call["temperature"] == 0.2
    assert (call["input_tokens"], call["output_tokens"], call["cache_read_tokens"]) == (12, 3, 8)
    assert (call["status_code"], call["request_id"], call["attempt"]) == (200, "req_chat_1", 1)
    assert call["finish_reason"] == "stop"
