"""Claude Agent SDK: one agent for each session, and its tools, from the messages of its CLI.

Hooks of the SDK would change what the program sends to the CLI. Messages are only read. The model
calls leave the CLI: the proxy records them inside the agent's span, and infers the tools from them
(wire/inferred_tools.py). Without a proxy, the tools are recorded from the messages.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import AsyncIterator
from importlib import import_module
from types import ModuleType
from typing import Any

from vestige._runtime import proxy_folder
from vestige.integrations.failure_counts import guarded
from vestige.integrations.frameworks.span_tracker import SpanTracker

_PREFIX = "mcp__"
_SESSION = "_vestige_session"
_PROMPT_MAX = 1_000_000


def install(module: ModuleType) -> None:
    """Observe the connections of the SDK to its CLI. `module` is claude_agent_sdk."""
    transports: Any = import_module("claude_agent_sdk._internal.transport.subprocess_cli")
    cls = transports.SubprocessCLITransport
    for name, wrapper in (
        ("connect", _wrap_connect),
        ("write", _wrap_write),
        ("read_messages", _wrap_messages),
        ("close", _wrap_close),
    ):
        original = getattr(cls, name)
        setattr(cls, name, functools.wraps(original)(wrapper(original)))


def _wrap_connect(original: Any) -> Any:
    async def connect(self: Any, *args: Any, **kwargs: Any) -> Any:
        session = getattr(self, _SESSION, None)
        if session is None:
            session = _Session()
            setattr(self, _SESSION, session)
            session.start()
        try:
            return await original(self, *args, **kwargs)
        except BaseException as error:
            session.end(error)
            raise
        finally:
            session.leave()

    return connect


def _wrap_write(original: Any) -> Any:
    async def write(self: Any, data: str, *args: Any, **kwargs: Any) -> Any:
        session = getattr(self, _SESSION, None)
        if session is not None:
            session.sent(data)
        return await original(self, data, *args, **kwargs)

    return write


def _wrap_messages(original: Any) -> Any:
    def read_messages(self: Any, *args: Any, **kwargs: Any) -> Any:
        messages = original(self, *args, **kwargs)
        session = getattr(self, _SESSION, None)
        return messages if session is None else _observe(session, messages)

    return read_messages


async def _observe(session: _Session, messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async with contextlib.aclosing(messages):  # type: ignore[type-var]
        async for message in messages:
            session.received(message)
            yield message


def _wrap_close(original: Any) -> Any:
    async def close(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return await original(self, *args, **kwargs)
        finally:
            session = getattr(self, _SESSION, None)
            if session is not None:
                session.end()

    return close


class _Session:
    """A process of the CLI."""

    def __init__(self) -> None:
        self._spans = SpanTracker("claude-agent-sdk")
        self._has_tools = False
        """True if tools are recorded here: the proxy does not."""
        self._result: dict[str, Any] = {}

    @guarded
    def start(self) -> None:
        self._spans.start("agent", "Claude", "agent", attributes={"agent_name": "Claude"})

    @guarded
    def leave(self) -> None:
        """Leave the span: the CLI has been started inside, and works elsewhere."""
        self._has_tools = not proxy_folder.is_running(os.environ)
        self._spans.leave("agent")

    @guarded
    def sent(self, data: str) -> None:
        """Read a message to the CLI: the first one of the user is the agent's input."""
        if len(data) <= _PROMPT_MAX and '"user"' in data:
            message = json.loads(data)
            if message.get("type") == "user":
                content = (message.get("message") or {}).get("content")
                self._spans.complete("agent", body=_text_of(content))

    @guarded
    def received(self, message: Any) -> None:
        kind = message.get("type") if isinstance(message, dict) else None
        if kind == "result":
            self._result = message
        elif kind in ("assistant", "user") and self._has_tools:
            content = (message.get("message") or {}).get("content")
            parent = message.get("parent_tool_use_id") or "agent"
            for block in content if isinstance(content, list) else []:
                self._record_block(block, parent)

    def _record_block(self, block: Any, parent: str) -> None:
        if block.get("type") == "tool_use":
            name = str(block.get("name"))
            if name.startswith(_PREFIX):
                name = name.rpartition("__")[2]
            call_id = str(block.get("id"))
            self._spans.start(
                call_id,
                name,
                "agent" if name in ("Task", "Agent") else "tool",
                parent=parent,
                body=block.get("input"),
                call_id=call_id,
                ambient=False,
            )
        elif block.get("type") == "tool_result":
            text = _text_of(block.get("content"))
            error = text if block.get("is_error") is True else None
            self._spans.end(block.get("tool_use_id"), body=text, error=error)

    @guarded
    def end(self, error: BaseException | None = None) -> None:
        result = self._result
        usage = result.get("usage") or {}
        failed = (result.get("result") or result.get("subtype")) if result.get("is_error") else None
        facts = {
            "turns": result.get("num_turns"),
            "usage.input_tokens": usage.get("input_tokens"),
            "usage.output_tokens": usage.get("output_tokens"),
        }
        self._spans.end(
            "agent",
            body=result.get("result"),
            error=error or failed,
            attributes={name: value for name, value in facts.items() if value is not None},
        )


def _text_of(content: Any) -> Any:
    if isinstance(content, list):
        texts = [block.get("text") for block in content if isinstance(block, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return content
