"""What providers say, in one form: requests, messages, tool calls, answers, usage.

Provider modules (openai.py, anthropic.py, gemini.py) read their own JSON into these. Offsets
are bytes of the body as it was sent, so that a check can point at the very place.
"""

from __future__ import annotations

from typing import Any

import msgspec


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The model asks for a tool."""

    id: str | None
    name: str
    arguments: str
    """JSON text, as the provider wrote it."""


class ToolResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a tool gave back, as it stands in a request."""

    call_id: str | None
    text: str
    is_error: bool = False


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One message of a request."""

    role: str
    """`system`, `user`, `assistant`, `tool`: the same word for every provider."""
    text: str
    calls: list[ToolCall] = []
    results: list[ToolResult] = []
    begin: int
    """Where it stands in the body, in bytes; 0 and 0 where that is not known."""
    end: int


class ToolSchema(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A tool that the request offers."""

    name: str
    parameters: dict[str, Any] | None
    """JSON Schema of its arguments, if given."""
    size_bytes: int
    """Of its definition in the body: what it costs every turn."""


class PromptPart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A piece of the prompt, where it stands in the body."""

    kind: str
    """`tool`, `system`, `setting` (an option that is part of what is cached) or `message`."""
    path: str
    """`tools[2]`, `system`, `messages[4]`: what `body --path` takes."""
    index: int
    """Its number in its array; 0 where it stands alone."""
    role: str | None
    begin: int
    end: int


class Request(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request to a model."""

    provider: str
    """`openai`, `openai-responses`, `anthropic`, `gemini`."""
    model: str | None
    messages: list[Message]
    """System prompts included, first."""
    tools: list[ToolSchema]
    breakpoints: list[int]
    """Ends of cacheable prefixes (`cache_control`), as byte offsets; empty where caching is automatic."""
    prefix_end: int
    """Bytes of the body that a provider may serve from its cache: up to the last breakpoint, or, where
    caching is automatic, up to the end of the last message."""
    max_output_tokens: int | None = None
    problems: list[str] = []
    """What the provider itself would refuse, in its own rules (history.py checks word them)."""
    prompt: list[PromptPart] = []
    """The prompt in the order in which the provider reads and caches it: tools, system, messages. A body
    may hold them in another order (the Anthropic SDK writes `system` and `tools` last). Empty where the
    offsets are not known."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an answer cost."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None


class Response(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One answer of a model, whole or streamed."""

    provider: str
    model: str | None
    text: str
    calls: list[ToolCall]
    finish_reason: str | None
    """`stop`, `length`, `tool_calls`, `content_filter`, ...: one word for every provider."""
    usage: Usage
    error: str | None = None
    """The provider's own words, if it refused."""
