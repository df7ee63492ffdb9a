"""Provider-neutral models of requests, messages, tool calls, responses and usage.

The modules of providers/apis parse the JSON of each provider into these.
Offsets are bytes of the body as it was sent, so that a check can point at the exact position.
"""

from __future__ import annotations

from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec


class MessagePart(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A part of a message or response: text, thinking, media, a tool call or its result."""

    kind: str
    """`text`, `thinking`, `image`, `audio`, `file`, `tool_call`, `tool_result` or `other`."""
    type: str = ""
    """The provider's own name of the part: `input_image`, `redacted_thinking`, `inlineData`."""
    text: str = ""
    """Text, thinking, a transcript, the arguments of a call (JSON text) or the text of a result."""
    name: str | None = None
    """Name of the tool or of the file."""
    call_id: str | None = None
    mime_type: str | None = None
    size_bytes: int | None = None
    """Size of the decoded media, or of encrypted thinking as it was sent."""
    width: int | None = None
    height: int | None = None
    """Pixels, if the header of a PNG, JPEG, GIF or WebP image is in the data."""
    url: str | None = None
    """Address of the media; never a `data:` URL."""
    file_id: str | None = None
    is_redacted: bool = False
    """Thinking that the provider returned encrypted or redacted; it has no text."""
    is_hosted: bool = False
    """A tool that the provider runs itself: web search, code execution, remote MCP."""
    is_error: bool = False
    parts: list[MessagePart] = []
    """Parts of a tool result that are not text, such as a screenshot."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A tool call that the model requests."""

    id: str | None
    name: str
    arguments: str
    """JSON text, as the provider wrote it."""


class ToolResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The result of a tool, as a request contains it."""

    call_id: str | None
    text: str
    is_error: bool = False
    parts: list[MessagePart] = []
    """Parts that are not text: images, files."""


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message of a request."""

    role: str
    """`system`, `user`, `assistant`, `tool`: the same word for every provider."""
    text: str
    calls: list[ToolCall] = []
    results: list[ToolResult] = []
    parts: list[MessagePart] = []
    """Everything that the message contains, in order; `text` has only what was written."""
    begin: int
    """Offset in the body, in bytes; `begin` and `end` are 0 if it is not known."""
    end: int


class ToolSchema(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A tool that the request offers."""

    name: str
    parameters: dict[str, Any] | None
    """JSON Schema of its arguments, if it has one."""
    size_bytes: int
    """Size of its definition in the body, which every turn sends again."""


class PromptPart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A piece of the prompt, with its offsets in the body."""

    kind: str
    """`tool`, `system`, `setting` (an option that is part of what is cached) or `message`."""
    path: str
    """`tools[2]`, `system`, `messages[4]`: what `body --path` takes."""
    index: int
    """Its index in its array; 0 if it is not in an array."""
    role: str | None
    begin: int
    end: int


class Request(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request to a model."""

    provider: str
    """`openai`, `openai-responses`, `anthropic`, `gemini`, `bedrock`, `cohere`, `ollama`."""
    model: str | None
    messages: list[Message]
    """System prompts included, first."""
    tools: list[ToolSchema]
    breakpoints: list[int]
    """Byte offsets where cacheable prefixes end (`cache_control`); empty for automatic caching."""
    prefix_end: int
    """Bytes of the body that a provider may serve from its cache: up to the last breakpoint, or, if
    caching is automatic, up to the end of the last message."""
    max_output_tokens: int | None = None
    problems: list[str] = []
    """Violations of the provider's own rules, each of which it would reject."""
    prompt: list[PromptPart] = []
    """The prompt in the order in which the provider reads and caches it: tools, system, messages.
    A body may have another order (the Anthropic SDK writes `system` and `tools` last). Empty if the
    offsets are not known."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Token counts of a response."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None


class Response(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A response of a model, complete or streamed."""

    provider: str
    model: str | None
    text: str
    calls: list[ToolCall]
    finish_reason: str | None
    """`stop`, `length`, `tool_calls`, `content_filter`, ...: one word for every provider."""
    usage: Usage
    error: str | None = None
    """The provider's own error message, if the call failed."""
    parts: list[MessagePart] = []
    """Everything that the model returned, in order: thinking, text, media, tool calls."""
