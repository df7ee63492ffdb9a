"""Claude Agent SDK: agents and tools, from the messages between the SDK and its CLI.

Hooks of the SDK would change what the program sends to the CLI. Messages are only read.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from vestige.integrations.faults import guarded
from vestige.integrations.frameworks.span_tracker import SpanTracker
from vestige.integrations.frameworks.values import to_plain

_PREFIX = "mcp__"


def install(module: ModuleType) -> None:
    """Observe the messages of clients and queries. `module` is claude_agent_sdk."""
    client: Any = import_module("claude_agent_sdk._internal.client")
    message_parser: Any = import_module("claude_agent_sdk._internal.message_parser")
    observed = _observe(message_parser.parse_message)
    for owner in (message_parser, client):
        owner.parse_message = observed
    _observe_prompts(module)


def _observe(parse: Any) -> Any:
    def parse_message(data: Any, *args: Any, **kwargs: Any) -> Any:
        message = parse(data, *args, **kwargs)
        _events.record(message)
        return message

    parse_message.__wrapped__ = parse  # type: ignore[attr-defined]
    return parse_message


def _observe_prompts(module: ModuleType) -> None:
    original = module.ClaudeSDKClient.query

    async def query(self: Any, prompt: Any, *args: Any, **kwargs: Any) -> Any:
        session = kwargs.get("session_id", args[0] if args else "default")
        _events.prompt(session, prompt if isinstance(prompt, str) else None)
        return await original(self, prompt, *args, **kwargs)

    query.__wrapped__ = original  # type: ignore[attr-defined]
    module.ClaudeSDKClient.query = query


class _Events:
    def __init__(self) -> None:
        self._spans = SpanTracker("claude-agent-sdk")
        self._prompt: str | None = None

    @guarded
    def prompt(self, session: str, text: str | None) -> None:
        self._prompt = text
        self._start_agent()

    @guarded
    def record(self, message: Any) -> None:
        kind = type(message).__name__
        if kind == "ResultMessage":
            failed = getattr(message, "is_error", False)
            usage = getattr(message, "usage", None) or {}
            self._spans.end(
                "agent",
                body=getattr(message, "result", None),
                error=(getattr(message, "result", None) or message.subtype) if failed else None,
                attributes={
                    "turns": getattr(message, "num_turns", None),
                    "usage.input_tokens": usage.get("input_tokens"),
                    "usage.output_tokens": usage.get("output_tokens"),
                },
            )
            return
        if kind not in ("AssistantMessage", "UserMessage"):
            return
        self._start_agent()
        content = message.content if isinstance(message.content, list) else []
        parent = getattr(message, "parent_tool_use_id", None) or "agent"
        for block in content:
            if type(block).__name__ == "ToolUseBlock":
                self._start_tool(block, parent)
            elif type(block).__name__ == "ToolResultBlock":
                text = _text_of(block.content)
                failed = getattr(block, "is_error", None) is True
                self._spans.end(block.tool_use_id, body=text, error=text if failed else None)

    def _start_agent(self) -> None:
        if "agent" not in self._spans:
            name = "Claude"
            facts = {"agent_name": name}
            self._spans.start("agent", name, "agent", body=self._prompt, attributes=facts)
            self._prompt = None

    def _start_tool(self, block: Any, parent: str) -> None:
        name = str(block.name)
        if name.startswith(_PREFIX):
            name = name.rpartition("__")[2]
        kind = "agent" if name in ("Task", "Agent") else "tool"
        self._spans.start(
            block.id,
            name,
            kind,
            parent=parent,
            body=to_plain(block.input),
            call_id=block.id,
            ambient=False,
        )


def _text_of(content: Any) -> Any:
    if isinstance(content, list):
        texts = [block.get("text") for block in content if isinstance(block, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return content


_events = _Events()
