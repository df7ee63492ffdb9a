"""Convert a run to threads of chat messages, for formats that are lists of messages or steps.

    for thread in read_threads(run_to_write):
        thread.scope            # the agent or tool that contains the thread; None: the run
        for turn in thread.turns: turn.role, turn.text, turn.calls, turn.results

A recorded request repeats the history, so only its new messages are turns. A request that does
not continue a known thread begins another one. Imported requests have only new messages.
Results of tools come from the next request, or else from the span of the tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from vestige.formats.protocol import RunToWrite
from vestige.providers.chat_types import Message, Response, ToolCall, ToolResult
from vestige.providers.parsing import parse_request, parse_response
from vestige.record.run import BodyRef, SpanInfo, in_order
from vestige.record.types import Attributes

Object = dict[str, Any]
Key = tuple[object, ...]

_SCOPES: Final = ("agent", "tool")
_ANCESTORS_MAX: Final = 200
_READ_MAX: Final = 16 * 1024 * 1024
"""Bytes of a body that is parsed."""


class Turn(msgspec.Struct, kw_only=True):
    """A message of a thread."""

    role: str
    """`system`, `user`, `assistant` or `tool`."""
    text: str = ""
    thinking: str = ""
    calls: list[ToolCall] = []
    results: list[ToolResult] = []
    media: list[str] = []
    """Descriptions of parts that are not text: `image image/png`."""
    span: SpanInfo | None = None
    """The model call of an answer; None for a message that was only sent."""
    tool_spans: dict[str, SpanInfo] = {}
    """The spans that executed the calls, by the id of the call."""
    time_ns: int = 0


class MessageThread(msgspec.Struct, kw_only=True):
    """Model calls that share a history."""

    scope: SpanInfo | None
    agent: str
    turns: list[Turn]
    tools: list[Object] = []
    """Definitions of the tools that were offered, as they were sent."""

    @property
    def model(self) -> str | None:
        """The model of the last answer."""
        for turn in reversed(self.turns):
            model = turn.span.attributes.get("model") if turn.span is not None else None
            if isinstance(model, str):
                return model
        return None


def read_threads(source: RunToWrite) -> list[MessageThread]:
    """Return the threads of a run, in the order in which they begin."""
    return _ThreadReader(source).read()


class _Draft:
    """A thread that is being read, with the keys of its turns."""

    def __init__(self, thread: MessageThread) -> None:
        self.thread = thread
        self.keys: list[Key] = []

    def add(self, turn: Turn) -> None:
        self.thread.turns.append(turn)
        self.keys.append(_key(turn))


class _ThreadReader:
    def __init__(self, source: RunToWrite) -> None:
        self._source = source
        self._spans = {span.id: span for span in source.run.spans}
        self._drafts: list[_Draft] = []
        self._by_scope: dict[str | None, list[_Draft]] = {}
        self._tools: dict[str | None, list[SpanInfo]] = {}
        self._scoped: set[str] = set()

    def read(self) -> list[MessageThread]:
        ordered = in_order(self._source.run.spans)
        calls = [span for span in ordered if span.type == "llm"]
        wrappers = {parent.id for call in calls for parent in self._wrappers(call)}
        for call in calls:
            self._scoped.update(parent.id for parent in self._ancestors(call))
        for call in calls:
            if call.id not in wrappers:
                self._add_call(call)
        for span in ordered:
            if span.type == "tool":
                scope = self._scope_of(span)
                self._tools.setdefault(scope.id if scope else None, []).append(span)
        for draft in self._drafts:
            scope = draft.thread.scope
            tools = self._tools.get(scope.id if scope else None, [])
            draft.thread.turns = list(self._with_results(draft.thread.turns, tools))
        return [draft.thread for draft in self._drafts]

    # --- scopes ---------------------------------------------------------------------------------

    def _ancestors(self, span: SpanInfo) -> Iterator[SpanInfo]:
        for _ in range(_ANCESTORS_MAX):
            parent = self._spans.get(span.parent_id or "")
            if parent is None or parent is span:
                return
            yield parent
            span = parent

    def _wrappers(self, call: SpanInfo) -> Iterator[SpanInfo]:
        """Yield the client spans around a model call, which repeat it."""
        for parent in self._ancestors(call):
            if parent.type in _SCOPES:
                return
            if parent.type == "llm":
                yield parent

    def _scope_of(self, span: SpanInfo) -> SpanInfo | None:
        for parent in self._ancestors(span):
            if parent.type in _SCOPES and parent.id in self._scoped and parent.parent_id:
                return parent
        return None

    # --- model calls ----------------------------------------------------------------------------

    def _add_call(self, call: SpanInfo) -> None:
        hint = call.attributes.get("provider")
        hint = hint if isinstance(hint, str) else None
        text = self._text(call.input)
        request = parse_request(text, hint) if text else None
        turns = [_to_turn(message, call) for message in request.messages] if request else []
        if request is None and text:
            turns = [Turn(role="user", text=text, time_ns=call.started_ns)]
        draft = self._find_draft(call, turns)
        for turn in turns if _is_import(call) else turns[len(draft.keys) :]:
            draft.add(turn)
        if request is not None and text:
            draft.thread.tools = _tools(text) or draft.thread.tools
        output = self._text(call.output)
        response = parse_response(output, hint) if output else None
        if response is not None and response.error is None:
            draft.add(_answer(response, call))
        elif response is None and output:
            draft.add(_empty_answer(call, output))

    def _find_draft(self, call: SpanInfo, turns: list[Turn]) -> _Draft:
        scope = self._scope_of(call)
        known = self._by_scope.setdefault(scope.id if scope else None, [])
        if _is_import(call) and known:
            return known[-1]
        keys = [_key(turn) for turn in turns]
        matching = [draft for draft in known if draft.keys == keys[: len(draft.keys)]]
        if matching:
            return max(matching, key=lambda draft: len(draft.keys))
        agent = _agent_name(scope) if scope is not None else call.component
        draft = _Draft(MessageThread(scope=scope, agent=agent, turns=[]))
        known.append(draft)
        self._drafts.append(draft)
        return draft

    def _text(self, ref: BodyRef | None) -> str:
        if ref is None or ref.size_bytes > _READ_MAX:
            return ""
        data = self._source.body(ref)
        return data.decode(errors="replace") if data is not None else ""

    # --- results --------------------------------------------------------------------------------

    def _with_results(self, turns: list[Turn], tools: Iterable[SpanInfo]) -> Iterator[Turn]:
        """Yield the turns, with results of tools that no later request has."""
        unused = list(tools)
        for index, turn in enumerate(turns):
            yield turn
            if turn.role != "assistant" or not turn.calls:
                continue
            following: set[str | None] = set()
            for later in turns[index + 1 :]:
                if later.role == "assistant":
                    break
                following.update(result.call_id for result in later.results)
            missing: list[ToolResult] = []
            for call in turn.calls:
                span = _take_span(unused, call)
                if span is None:
                    continue
                turn.tool_spans = turn.tool_spans | {call.id or call.name: span}
                if call.id not in following and span.output is not None:
                    missing.append(
                        ToolResult(
                            call_id=call.id,
                            text=self._text(span.output),
                            is_error=span.status not in ("ok", None),
                        )
                    )
            if missing:
                yield Turn(role="tool", results=missing, time_ns=turn.time_ns)


def _take_span(unused: list[SpanInfo], call: ToolCall) -> SpanInfo | None:
    """Return the span that executed a call, and remove it from the list."""
    for place, span in enumerate(unused):
        call_id = span.attributes.get("tool_call_id")
        name = span.attributes.get("tool_name") or span.name
        if call_id == call.id if call_id and call.id else name == call.name:
            return unused.pop(place)
    return None


def _is_import(call: SpanInfo) -> bool:
    return "message_index" in call.attributes


def _to_turn(message: Message, call: SpanInfo) -> Turn:
    return Turn(
        role=message.role,
        text=message.text,
        thinking="\n".join(part.text for part in message.parts if part.kind == "thinking"),
        calls=message.calls,
        results=message.results,
        media=[
            " ".join(filter(None, (part.kind, part.mime_type, part.url)))
            for part in message.parts
            if part.kind in ("image", "audio", "file")
        ],
        time_ns=call.started_ns,
    )


def _answer(response: Response, call: SpanInfo) -> Turn:
    return Turn(
        role="assistant",
        text=response.text,
        thinking="\n".join(part.text for part in response.parts if part.kind == "thinking"),
        calls=response.calls,
        span=call,
        time_ns=call.started_ns + (call.duration_ns or 0),
    )


def _empty_answer(call: SpanInfo, output: str) -> Turn:
    return Turn(
        role="assistant",
        text=output,
        span=call,
        time_ns=call.started_ns + (call.duration_ns or 0),
    )


def _key(turn: Turn) -> Key:
    """Return a key that is equal for an answer and for its repetition in a later request."""
    if turn.calls:
        return ("calls", *((call.id or call.name) for call in turn.calls))
    if turn.results:
        return ("results", *((result.call_id or result.text) for result in turn.results))
    return (turn.role, turn.text.strip(), *turn.media)


def _agent_name(scope: SpanInfo) -> str:
    name = _first_text(scope.attributes, ("agent.name", "gen_ai.agent.name", "agent_name"))
    return name or scope.name


def _first_text(attributes: Attributes, keys: tuple[str, ...]) -> str:
    found = (attributes.get(key) for key in keys)
    return next((value for value in found if isinstance(value, str) and value), "")


def _tools(text: str) -> list[Object]:
    """Return the definitions of tools in a request, as they were sent."""
    try:
        request = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []
    tools = request.get("tools") if isinstance(request, dict) else None
    return [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []


def to_openai_tool(tool: Object) -> Object | None:
    """Return a tool definition of any provider in OpenAI's shape."""
    if isinstance(tool.get("function"), dict):
        return {"type": "function", "function": tool["function"]}
    name = tool.get("name")
    if not isinstance(name, str):
        return None
    function: Object = {"name": name}
    if isinstance(tool.get("description"), str):
        function["description"] = tool["description"]
    function["parameters"] = tool.get("input_schema") or tool.get("parameters") or {}
    return {"type": "function", "function": function}
