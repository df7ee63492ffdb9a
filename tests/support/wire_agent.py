"""A small agent over HTTP against a scripted provider on loopback, for bugs and healthy styles.

    with WireAgent(home, [ask_tool("find", {"id": 7}), text_reply("Done.")]) as agent:
        agent.converse("Where is order 7?", find=lambda id: "shipped")

The calls are recorded at the wire and the tools as spans, as programs without a framework do.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import httpx

import vestige
from support.provider_server import Reply, Server
from vestige.home import Home

Message = dict[str, Any]

_numbers = itertools.count()

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {argument: {"type": kind}},
                "required": [argument],
            },
        },
    }
    for name, argument, kind in (("find", "id", "integer"), ("search", "q", "string"))
]


def text_reply(text: str | None, finish: str = "stop", **more: Any) -> Reply:
    """Return an answer of text."""
    message = {"role": "assistant", "content": text}
    return _answer(message, finish, **more)


def ask_tool(name: str, *arguments: Any, text: str | None = None) -> Reply:
    """Return an answer that requests a tool, once for each of the arguments."""
    calls = [
        {
            "id": f"call_{next(_numbers)}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(each)},
        }
        for each in arguments
    ]
    return _answer({"role": "assistant", "content": text, "tool_calls": calls}, "tool_calls")


def refuse(status: int, message: str, kind: str = "invalid_request_error") -> Reply:
    body = {"error": {"message": message, "type": kind, "code": None}}
    return Reply(status, json.dumps(body).encode())


def _answer(message: Message, finish: str, cached: int = 0) -> Reply:
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": 2_100,
            "completion_tokens": 20,
            "total_tokens": 2_120,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }
    return Reply(body=json.dumps(body).encode())


class WireAgent:
    """A run, a provider with its answers, and the messages of one conversation."""

    def __init__(
        self, home: Home, replies: Sequence[Reply], system: str = "You look up orders."
    ) -> None:
        self._server = Server(list(replies))
        self._capture = vestige.capture_http()
        self._recorder = vestige.Recorder(home, crash_hooks=False)
        self.messages: list[Message] = [{"role": "system", "content": system}]
        self.timeout_s = 60.0

    def __enter__(self) -> Self:
        self._capture.__enter__()
        self._server.__enter__()
        self.run = self._recorder.run("agent").__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self.run.__exit__(kind, error, traceback)
        self._recorder.close()
        self._server.__exit__()
        self._capture.__exit__(None, None, None)
        return isinstance(error, Exception)  # it is recorded; the test goes on

    def send(self, messages: list[Message] | None = None, **more: Any) -> Message:
        """Send the conversation, and return the answer's message."""
        body = {"model": "gpt-4o", "messages": messages or self.messages, "tools": TOOLS, **more}
        response = httpx.post(
            f"{self._server.url}/v1/chat/completions", json=body, timeout=self.timeout_s
        )
        response.raise_for_status()
        answer: Message = response.json()["choices"][0]["message"]
        return answer

    def use(self, call: Message, tools: dict[str, Callable[..., Any]]) -> str:
        """Run a requested tool in a span; a failed one answers with its error."""
        name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
        span = self.run.span(name, "tool", {"tool_call_id": call["id"]}, body=arguments)
        try:
            tool = tools.get(name)
            if tool is None:
                raise LookupError(f"unknown tool {name}")
            result = tool(**arguments)
        except Exception as error:
            span.end(error)
            return f"Error: {error}"
        text = result if isinstance(result, str) else json.dumps(result)
        span.end(body=text)
        return text

    def add_results(self, answer: Message, tools: dict[str, Callable[..., Any]]) -> None:
        self.messages.append(answer)
        for call in answer.get("tool_calls") or ():
            result = {"role": "tool", "tool_call_id": call["id"], "content": self.use(call, tools)}
            self.messages.append(result)

    def converse(self, question: str, **tools: Callable[..., Any]) -> str | None:
        """Ask, run the tools that the model requests, and return its last answer."""
        self.messages.append({"role": "user", "content": question})
        while True:
            answer = self.send()
            self.add_results(answer, tools)
            if not answer.get("tool_calls"):
                return answer["content"]  # type: ignore[no-any-return]
