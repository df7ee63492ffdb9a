"""Tool calls and sub-agents of a program of which only the model calls are seen.

A tool span opens when a response requests the call, and ends when a request contains its result.
A conversation with tools is an agent, from the user's message to the response that requests no more
tools. One that begins with an argument of a tool call, such as a prompt, is a sub-agent inside that
call. All these spans have the attribute `inferred`: the times of tools include what the program
does before and after.

    conversation = tools.begin_request(context, body, provider)
    ...                                                  # the model call, inside conversation.place
    tools.end_response(conversation, span, response)
    tools.close("interrupted")                           # the program has ended
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.emit import requested_tool_calls
from vestige.emit.span import Span
from vestige.emit.tools import REASON
from vestige.limits import INFERRED_CONVERSATIONS_MAX, INFERRED_TOOLS_MAX
from vestige.providers.chat_types import Message, Response, ToolCall, ToolResult
from vestige.providers.injected_context import strip_context
from vestige.providers.parsing import TEXT_MAX, parse_request
from vestige.record.types import Link
from vestige.wire.outgoing_request import SpanContext

_PROMPT_MIN = 8
"""Shorter arguments are not compared with the messages of other conversations."""
_ARGUMENTS_MAX = 1_000_000
_ERROR_MAX = 2_000
_NAME_KEYS = ("subagent_type", "agent_type", "agent_name", "nickname", "name", "description")
"""Arguments that name a sub-agent, in order of preference."""


class Conversation:
    """Model calls that continue each other."""

    __slots__ = ("agent", "parent_id", "starter")

    def __init__(self, parent_id: str | None, starter: _Tool | None = None) -> None:
        self.parent_id = parent_id
        self.starter = starter
        """The tool call that started it. None: the program itself did."""
        self.agent: Span | None = None
        """The span of the agent while it works."""

    @property
    def place(self) -> str | None:
        """Return the parent of its model calls and tools."""
        return self.parent_id if self.agent is None else self.agent.id


class _Tool:
    """A requested tool call."""

    __slots__ = ("agent_name", "has_agent", "prompts", "span")

    def __init__(self, span: Span, arguments: Any) -> None:
        self.span = span
        values = arguments if isinstance(arguments, dict) else {}
        texts = {value.strip() for value in values.values() if isinstance(value, str)}
        self.prompts = {hash(text) for text in texts if len(text) >= _PROMPT_MIN}
        names = (values.get(key) for key in _NAME_KEYS)
        found = next((name for name in names if isinstance(name, str) and name), None)
        self.agent_name = found or "sub-agent"
        self.has_agent = False

    def end(self, result: ToolResult, call_id: str | None = None) -> None:
        """End the span. `call_id`: the id that the client has given to the call."""
        attributes = {} if call_id is None else {"tool_call_id": call_id}
        if result.is_error:
            attributes |= {"error.type": "tool error", "error.message": result.text[:_ERROR_MAX]}
        status = "error" if result.is_error else "ok"
        self.span.end(attributes=attributes, body=result.text, status=status)


class InferredTools:
    """The tool calls of one run. All methods are called by one thread."""

    def __init__(self) -> None:
        self._by_id: dict[str, _Tool] = {}
        """Calls without a result."""
        self._by_name: dict[str, list[_Tool]] = {}
        """The same, of providers that have no ids."""
        self._starters: dict[str, _Tool] = {}
        """The newest calls by span: each may have started a sub-agent."""
        self._by_call: dict[str, Conversation] = {}
        self._by_opening: dict[int, Conversation] = {}

    # --- requests -------------------------------------------------------------------------------

    def begin_request(
        self, context: SpanContext, body: bytes, provider: str | None
    ) -> Conversation | None:
        """End the tools whose results a request contains. None: not a request that we know."""
        request = parse_request(body, provider) if 0 < len(body) <= TEXT_MAX else None
        if request is None:
            return None
        conversation = self._find_conversation(context, request.messages)
        self._end_tools(request.messages, conversation)
        starter = conversation.starter
        if conversation.agent is None and (
            starter is not None or (context.program and request.tools)
        ):
            name = context.program if starter is None else starter.agent_name
            conversation.agent = _open_agent(context, conversation, name, request.messages)
        return conversation

    def _find_conversation(self, context: SpanContext, messages: Sequence[Message]) -> Conversation:
        for call_id in _iter_call_ids(messages):
            if (found := self._by_call.get(call_id)) is not None:
                return found
        key = _opening_key(messages)
        conversation = self._by_opening.get(key)
        is_beginning = not any(message.role == "assistant" for message in messages)
        starter = self._find_starter(messages) if is_beginning else None
        if starter is not None:
            starter.has_agent = True
            conversation = Conversation(starter.span.id, starter)
        elif conversation is None:
            conversation = Conversation(context.parent_id)
        self._by_opening[key] = conversation
        _trim(self._by_opening, INFERRED_CONVERSATIONS_MAX)
        return conversation

    def _find_starter(self, messages: Sequence[Message]) -> _Tool | None:
        """Return the newest tool call that has a message of a new conversation as argument."""
        texts = {
            hash(text.strip())
            for message in messages
            if message.role == "user"
            for text in (message.text, *(part.text for part in message.parts))
        }
        tools = reversed(self._starters.values())
        return next((each for each in tools if not each.has_agent and each.prompts & texts), None)

    def _end_tools(self, messages: Sequence[Message], conversation: Conversation) -> None:
        """End the tools of a request's results, by their ids, or else by their names.

        Some clients add ids to calls that came without. A name may be that of an earlier call,
        unless the result follows the last response.
        """
        names = {call.id: call.name for message in messages for call in message.calls if call.id}
        last = next((each for each in reversed(messages) if each.role == "assistant"), None)
        is_new = last is None
        for message in messages:
            is_new = is_new or message is last
            for result in message.results:
                call_id = result.call_id or ""
                tool = self._by_id.pop(call_id, None)
                named = self._by_name.get(names.get(call_id, call_id)) if is_new else None
                if tool is not None:
                    tool.end(result)
                elif named:
                    named.pop(0).end(result, call_id if call_id in names else None)
                    self._by_call[call_id] = conversation

    # --- responses ------------------------------------------------------------------------------

    def end_response(self, conversation: Conversation, span: Span, response: Response) -> None:
        """Open the tools that a response requests, or end the sub-agent that has answered."""
        for call in response.calls:
            self._open_tool(conversation, span, call)
        if not response.calls and response.error is None and conversation.agent is not None:
            conversation.agent.end(body=response.text or None)
            conversation.agent = None

    def _open_tool(self, conversation: Conversation, span: Span, call: ToolCall) -> None:
        attributes: dict[str, Any] = {"tool_name": call.name, "inferred": True}
        if call.id:
            attributes["tool_call_id"] = call.id
            requested_tool_calls.find(span.run_id, call.id)  # This span answers it.
        opened = Span(
            span._emitter,
            span.run_id,
            conversation.place,
            span.component,
            call.name,
            "tool",
            attributes,
            call.arguments or None,
            [Link(span.id, None, REASON)],
        )
        tool = _Tool(opened, _parse(call.arguments))
        self._starters[opened.id] = tool
        _trim(self._starters, INFERRED_TOOLS_MAX)
        if call.id is None:
            self._by_name.setdefault(call.name, []).append(tool)
            _trim(self._by_name, INFERRED_TOOLS_MAX)
            return
        self._by_id[call.id] = tool
        self._by_call[call.id] = conversation
        _trim(self._by_id, INFERRED_TOOLS_MAX)
        _trim(self._by_call, INFERRED_TOOLS_MAX)

    def close(self, status: str) -> None:
        """End what is open: the program has ended."""
        tools = [
            *self._by_id.values(),
            *(each for named in self._by_name.values() for each in named),
        ]
        for tool in reversed(tools):
            tool.span.end(status=status)
        self._by_id.clear()
        self._by_name.clear()
        for conversation in [*self._by_opening.values()]:
            if conversation.agent is not None:
                conversation.agent.end(status=status)
                conversation.agent = None


def _open_agent(
    context: SpanContext, conversation: Conversation, name: str, messages: Sequence[Message]
) -> Span:
    return Span(
        context.emitter,
        context.run_id,
        conversation.parent_id,
        context.component,
        name,
        "agent",
        {"agent_name": name, "inferred": True},
        _find_prompt(messages),
    )


def _find_prompt(messages: Sequence[Message]) -> str | None:
    """Return the last words of the user, without context that the program adds."""
    for message in reversed(messages):
        if message.role == "user":
            texts = [part.text for part in message.parts if part.kind == "text"] or [message.text]
            found = [text for text in map(strip_context, texts) if text]
            if found:
                return found[-1]
    return None


def _iter_call_ids(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the ids of the calls and results in a request, the newest first."""
    for message in reversed(messages):
        yield from filter(None, (result.call_id for result in message.results))
        yield from filter(None, (call.id for call in message.calls))


def _opening_key(messages: Sequence[Message]) -> int:
    """Return a key of the system prompt and the first message, which a conversation repeats."""
    texts = [message.text for message in messages if message.role == "system"]
    texts += [message.text for message in messages if message.role == "user"][:1]
    return hash(tuple(texts))


def _parse(arguments: str) -> Any:
    if not arguments or len(arguments) > _ARGUMENTS_MAX:
        return None
    try:
        return msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        return None


def _trim(entries: dict[Any, Any], count_max: int) -> None:
    while len(entries) > count_max:
        del entries[next(iter(entries))]
