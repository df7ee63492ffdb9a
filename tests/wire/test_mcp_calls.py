"""MCP over HTTP: `tools/call` is a tool span, with the tool's name and error."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

import vestige
from support.provider_calls import calls_in
from support.provider_server import Reply, Server
from vestige.home import Home

CALL = {
    "jsonrpc": "2.0",
    "id": 3,
    "method": "tools/call",
    "params": {"name": "get_rate", "arguments": {"currency": "EUR"}},
}


def result(text: str, **more: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": 3,
        "result": {"content": [{"type": "text", "text": text}], **more},
    }


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("answer", "status", "message"),
    [
        (result("1.08"), "ok", None),
        (result("no such currency", isError=True), "error", "no such currency"),
        ({"jsonrpc": "2.0", "id": 3, "error": {"code": -1, "message": "bad"}}, "error", "bad"),
    ],
)
def test_a_tool_call_is_a_tool_span(
    home: Home, streamed: bool, answer: dict[str, Any], status: str, message: str | None
) -> None:
    body = json.dumps(answer).encode()
    reply = Reply(body=body)
    if streamed:
        reply = Reply(body=b"event: message\ndata: " + body + b"\n\n", type="text/event-stream")
    with Server([reply]) as server, vestige.capture_http(http=True):
        requests.post(server.url + "/mcp", data=json.dumps(CALL), timeout=120)
    (call,) = calls_in(home, "tool")

    assert (call.span.name, call["tool.name"], call.span.status) == ("get_rate", "get_rate", status)
    assert call["error.message"] == message
    assert json.loads(call.request) == CALL


def test_other_messages_of_mcp_are_http_calls(home: Home) -> None:
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    with Server([Reply(body=b"{}")]) as server, vestige.capture_http(http=True):
        requests.post(server.url + "/mcp", data=text, timeout=120)
    (call,) = calls_in(home)

    assert call.span.type == "http"
