"""Convert the events and the transcript of a bundle to spans of model and tool calls.

    calls = CallSpans(run_id, root, manifest, has_transcript(content.logs()))
    for record in calls.take_snapshot(snapshot): ...    # in the order of their times
    for record in calls.take_log(entry): ...
    for record in calls.finish(): ...

A session's state holds its events (`PromptRendered`, `ToolInvoked`, `PromptExecuted`), and every
snapshot repeats those before it. A log may hold the transcript (`transcript.entry`), which has
more:
each turn of the model, and the ids of tool calls. Where there is a transcript, the model calls are
its turns; else one call represents an evaluation, from the rendered prompt to the result, and asks
for all tools that ran meanwhile. A tool call in both is one span.

The records have their own writer, so that importing a bundle again adds them, if an earlier
version imported it without them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from vestige.formats.protocol import derived_span_id, derived_writer
from vestige.formats.wink.jsonl_entries import LogEntry, SnapshotPayload
from vestige.formats.wink.log_records import to_ns
from vestige.formats.wink.manifest import UNKNOWN, Manifest
from vestige.limits import BUNDLE_EVENTS_MAX, MIB
from vestige.record.coercion import clean_attributes, clean_text, truncate
from vestige.record.types import VERSION, Attributes, KnownRecord, SpanClose, SpanOpen

FORMAT: Final = "wink"
TRANSCRIPT: Final = "transcript.entry"
EVENTS: Final = ("PromptRendered", "ToolInvoked", "PromptExecuted")
HISTORY_MAX: Final = 8 * MIB
"""Bytes of messages that a request repeats; a longer history starts again."""

Object = Mapping[str, Any]
Key = tuple[str, str]
"""The key of an evaluation: the session's id, and the name of the prompt."""
_NOTHING: Final[Object] = {}
_sorted = msgspec.json.Encoder(order="sorted", enc_hook=str).encode


@dataclass(slots=True)
class _Tool:
    """A tool call that was asked for."""

    span_id: str
    name: str
    call_id: str
    arguments: str
    started_ns: int
    evaluation: Key = ("", "")
    """Whose turn asked for it."""


@dataclass(slots=True)
class _Turn:
    """An answer of the model, as far as it was recorded."""

    span_id: str
    started_ns: int
    ended_ns: int
    messages: list[Object]
    left_out: int
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Object] = field(default_factory=list)
    tools: list[_Tool] = field(default_factory=list)
    """Not yet among the records: they come behind the call that asked for them."""
    usage: dict[str, int] = field(default_factory=dict)
    error: str | None = None


@dataclass(slots=True)
class _Evaluation:
    """A prompt that is evaluated: its conversation so far."""

    prompt_name: str
    messages: list[Object] = field(default_factory=list)
    size: int = 0
    left_out: int = 0
    asked_ns: int = 0
    """When the last message went to the model."""
    turn: _Turn | None = None
    turns: int = 0
    usage: dict[str, int] = field(default_factory=dict)
    """Arrived before the turn that it belongs to."""
    usages: int = 0


class CallSpans:
    """Turns events and transcript entries into `llm` and `tool` spans."""

    def __init__(
        self, run_id: str, root: str, manifest: Manifest, transcript: bool = False
    ) -> None:
        self._run_id = run_id
        self._transcript = transcript
        self._root = root
        self._manifest = manifest
        self._writer = derived_writer(FORMAT, f"{manifest.bundle_id}\0events")
        self._seq = 0
        self._made = 0
        self._seen: set[bytes] = set()
        self._counts: dict[tuple[str | None, str], tuple[int, bytes]] = {}
        self._evaluations: dict[Key, _Evaluation] = {}
        self._rendered: dict[Key, _Turn] = {}
        """Prompts without a result so far."""
        self._tools: dict[str, _Tool] = {}
        """Tool calls of the transcript that were requested and have not ended, by id."""
        self._reported_calls: dict[tuple[str, str], int] = {}
        """Ended tool calls of the transcript without an event, by name and arguments."""

    @property
    def left_out(self) -> bool:
        """Return whether there were more calls than the limit."""
        return self._made >= BUNDLE_EVENTS_MAX

    # --- events of a session ---------------------------------------------------------------------

    def take_snapshot(self, snapshot: SnapshotPayload) -> Iterator[KnownRecord]:
        """Yield records of the events that are new in a snapshot."""
        new: list[tuple[int, str, Object]] = []
        for one in snapshot.slices:
            kind = one.slice_type.rpartition(":")[2].rpartition(".")[2]
            if kind in EVENTS:
                new.extend(
                    (to_ns(_text(item.get("created_at"))) or 0, kind, item)
                    for item in self._new_items((snapshot.session_id, kind), one.items)
                )
        new.sort(key=lambda each: each[0])
        for time_ns, kind, item in new:
            if kind == "PromptRendered":
                yield from self._rendered_event(time_ns, item)
            elif kind == "ToolInvoked":
                yield from self._tool_event(time_ns, item)
            else:
                yield from self._result_event(time_ns, item)

    def _new_items(self, place: tuple[str | None, str], items: tuple[Any, ...]) -> Iterator[Object]:
        """Yield the items that no snapshot had before: most lists only grow."""
        count, last = self._counts.get(place, (0, b""))
        if not 0 < count <= len(items) or _digest(items[count - 1]) != last:
            count = 0
        for item in items[count:]:
            digest = last = _digest(item)
            if isinstance(item, dict) and digest not in self._seen and not self.left_out:
                self._seen.add(digest)
                yield item
        self._counts[place] = len(items), last

    def _rendered_event(self, time_ns: int, item: Object) -> Iterator[KnownRecord]:
        name, prompt = _text(item.get("prompt_name")), _text(item.get("rendered_prompt"))
        key = _text(item.get("event_id")) or _digest(item).hex()
        turn = self._rendered[_key(item, {})] = _Turn(
            self._span_id("llm", key), time_ns, time_ns, [{"role": "user", "content": prompt}], 0
        )
        if not self._transcript:
            yield self._open_turn_record(turn, name, "PromptRendered")

    def _tool_event(self, time_ns: int, item: Object) -> Iterator[KnownRecord]:
        name, arguments = _text(item.get("name")), _json(item.get("params"))
        tool = self._find_tool(_text(item.get("call_id")), name, arguments)
        if tool is None and self._reported_calls.get((name, arguments), 0):
            self._reported_calls[name, arguments] -= 1
            return
        result = item.get("result")
        output = item.get("rendered_output")
        body = output if isinstance(output, str) and output else _shown(result)
        failed = isinstance(result, dict) and result.get("success") is False
        error = (
            _text(result.get("message")) or body if failed and isinstance(result, dict) else None
        )
        if tool is None:
            key = _text(item.get("event_id")) or _digest(item).hex()
            span_id = self._span_id("tool ToolInvoked", key)
            tool = _Tool(span_id, name, _text(item.get("call_id")) or span_id, arguments, time_ns)
            turn = self._rendered.get(_key(item, self._rendered))
            if turn is not None:
                turn.calls.append(_call(tool))
            yield self._open_tool(tool, "ToolInvoked")
        else:
            del self._tools[tool.span_id]
            yield from self._end_turn(self._evaluations[tool.evaluation])
        yield self._close_tool(tool, max(time_ns, tool.started_ns), body, error)

    def _find_tool(self, call_id: str, name: str, arguments: str) -> _Tool | None:
        for tool in self._tools.values():
            if call_id and tool.call_id == call_id:
                return tool
        for tool in self._tools.values():
            if (tool.name, tool.arguments) == (name, arguments):
                return tool
        return None

    def _result_event(self, time_ns: int, item: Object) -> Iterator[KnownRecord]:
        name = _text(item.get("prompt_name"))
        turn = self._rendered.pop(_key(item, self._rendered), None)
        usage = _usage(_mapping(item.get("usage")))
        place = _key(item, self._evaluations)
        evaluation = self._evaluations.get(place)
        if evaluation is not None and evaluation.turns:
            last = evaluation.turn
            if last is not None and (not evaluation.usages or _agrees(last.usage, usage)):
                last.usage = usage
            yield from self._end_turn(evaluation)
            self._evaluations[place] = _Evaluation(name)
            return
        if turn is None or self._transcript:
            key = _text(item.get("event_id")) or _digest(item).hex()
            turn = turn or _Turn(self._span_id("llm", key), time_ns, time_ns, [], 0)
            yield self._open_turn_record(turn, name, "PromptExecuted")
        result = item.get("result")
        answer = result.get("text") if isinstance(result, dict) else None
        turn.texts.append(answer if isinstance(answer, str) and answer else _shown(result))
        turn.usage = usage
        turn.ended_ns = max(time_ns, turn.started_ns)
        yield self._close_turn(turn)

    # --- the transcript --------------------------------------------------------------------------

    def take_log(self, entry: LogEntry) -> Iterator[KnownRecord]:
        """Yield records of an entry, if it is one of a transcript."""
        if entry.event != TRANSCRIPT or self.left_out:
            return
        context = entry.context
        name = _text(context.get("prompt_name"))
        time_ns = to_ns(_text(context.get("timestamp"))) or to_ns(entry.timestamp) or 0
        place = _key(context, self._evaluations)
        evaluation = self._evaluations.setdefault(place, _Evaluation(name))
        detail = _mapping(context.get("detail"))
        inner = _mapping(detail.get("sdk_entry") or detail.get("notification"))
        kind = context.get("entry_type")
        if kind == "user_message":
            yield from self._iter_message(
                evaluation, time_ns, {"role": "user", "content": _text_of(detail, inner)}
            )
        elif kind == "tool_result":
            yield from self._tool_result(evaluation, time_ns, detail, inner)
        elif kind in ("assistant_message", "thinking", "tool_use", "error"):
            turn = self._open_turn(evaluation, time_ns, context)
            if kind == "tool_use":
                self._tool_use(turn, time_ns, detail, inner, context)
            elif kind == "error":
                turn.error = _text_of(detail, inner) or _json(detail)
            else:
                texts = turn.texts if kind == "assistant_message" else turn.thoughts
                texts.append(_text_of(detail, inner))
        elif kind == "token_usage":
            self._take_usage(evaluation, detail, inner)

    def _take_usage(self, evaluation: _Evaluation, detail: Object, inner: Object) -> None:
        usage = _usage(_mapping(_mapping(inner.get("tokenUsage")).get("last"))) or _usage(detail)
        evaluation.usages += 1
        into = evaluation.usage if evaluation.turn is None else evaluation.turn.usage
        for key, count in usage.items():
            into[key] = into.get(key, 0) + count

    def _iter_message(
        self, evaluation: _Evaluation, time_ns: int, message: Object
    ) -> Iterator[KnownRecord]:
        """Convert a message to the model, which ends the turn before it."""
        yield from self._end_turn(evaluation)
        self._add_message(evaluation, message)
        evaluation.asked_ns = time_ns

    def _add_message(self, evaluation: _Evaluation, message: Object) -> None:
        evaluation.messages.append(message)
        evaluation.size += len(_json(message))
        if evaluation.size > HISTORY_MAX:
            evaluation.left_out += len(evaluation.messages) - 1
            evaluation.messages = [message]
            evaluation.size = len(_json(message))

    def _open_turn(self, evaluation: _Evaluation, time_ns: int, context: Object) -> _Turn:
        turn = evaluation.turn
        if turn is None:
            evaluation.turns += 1
            key = f"{evaluation.prompt_name}\0{context.get('session_id')}\0{time_ns}\0"
            key += str(context.get("sequence_number"))
            turn = evaluation.turn = _Turn(
                self._span_id("llm", key),
                evaluation.asked_ns or time_ns,
                time_ns,
                list(evaluation.messages),
                evaluation.left_out,
                usage=dict(evaluation.usage),
            )
            evaluation.usage.clear()
        turn.ended_ns = max(turn.ended_ns, time_ns)
        return turn

    def _end_turn(self, evaluation: _Evaluation) -> Iterator[KnownRecord]:
        turn, evaluation.turn = evaluation.turn, None
        if turn is None:
            return
        self._add_message(evaluation, _answer(turn))
        yield self._open_turn_record(turn, evaluation.prompt_name, TRANSCRIPT)
        yield self._close_turn(turn)
        yield from (self._open_tool(tool, TRANSCRIPT) for tool in turn.tools)

    def _tool_use(
        self, turn: _Turn, time_ns: int, detail: Object, inner: Object, context: Object
    ) -> None:
        name = _text(detail.get("tool_name") or inner.get("name") or inner.get("tool"))
        call_id = _text(detail.get("tool_call_id") or inner.get("id") or inner.get("callId"))
        arguments = _json(_first(detail.get("input"), inner.get("input"), inner.get("arguments")))
        key = f"{call_id}\0{time_ns}\0{context.get('sequence_number')}"
        span_id = self._span_id("tool", key)
        tool = _Tool(
            span_id,
            name,
            call_id or span_id,
            arguments,
            time_ns,
            _key(context, self._evaluations),
        )
        turn.calls.append(_call(tool))
        turn.tools.append(tool)
        self._tools[span_id] = tool

    def _tool_result(
        self, evaluation: _Evaluation, time_ns: int, detail: Object, inner: Object
    ) -> Iterator[KnownRecord]:
        call_id = _text(
            detail.get("tool_call_id") or inner.get("tool_use_id") or inner.get("callId")
        )
        content = _first(
            detail.get("content"), inner.get("content"), detail.get("output"), detail.get("result")
        )
        body = _text_of({"content": content}, _NOTHING) or _shown(content)
        failed = detail.get("is_error") is True or inner.get("is_error") is True
        tool = next(
            (one for one in self._tools.values() if call_id and one.call_id == call_id), None
        )
        if tool is not None:
            del self._tools[tool.span_id]
            call_key = tool.name, tool.arguments
            self._reported_calls[call_key] = self._reported_calls.get(call_key, 0) + 1
        yield from self._iter_message(
            evaluation, time_ns, {"role": "tool", "tool_call_id": call_id, "content": body}
        )
        if tool is not None:
            yield self._close_tool(tool, time_ns, body, body if failed else None)

    # --- the end ---------------------------------------------------------------------------------

    def finish(self) -> Iterator[KnownRecord]:
        """Yield records of calls that are known in part. A call without an end stays open."""
        for evaluation in self._evaluations.values():
            yield from self._end_turn(evaluation)
        execution = self._manifest.execution
        for place, turn in self._rendered.items():
            known = self._evaluations.get(_find_key(place, self._evaluations))
            if known is not None and known.turns:
                continue
            if self._transcript:
                yield self._open_turn_record(turn, place[1], "PromptRendered")
            if execution.outcome not in ("success", "in_progress", UNKNOWN):
                turn.ended_ns = max(turn.started_ns, to_ns(execution.ended_at or "") or 0)
                turn.error = _text((execution.error or {}).get("message")) or execution.outcome
                yield self._close_turn(turn)

    # --- records ---------------------------------------------------------------------------------

    def _span_id(self, kind: str, key: str) -> str:
        return derived_span_id(FORMAT, self._manifest.bundle_id, "event", kind, key)

    def _open_tool(self, tool: _Tool, source: str) -> SpanOpen:
        attributes: Attributes = {
            "tool_name": tool.name,
            "derived_from": source,
            "tool_call_id": tool.call_id,
        }
        return self._open(
            tool.span_id, tool.started_ns, "tool", tool.name, attributes, tool.arguments
        )

    def _close_tool(self, tool: _Tool, time_ns: int, body: str, error: str | None) -> SpanClose:
        attributes: Attributes = {}
        if error is not None:
            attributes = {"error.type": "ToolFailed", "error.message": truncate(error, 2_000)}
        return self._close(
            tool.span_id,
            tool.started_ns,
            max(time_ns, tool.started_ns),
            "ok" if error is None else "error",
            attributes,
            body,
        )

    def _close_turn(self, turn: _Turn) -> SpanClose:
        attributes: Attributes = dict(turn.usage)
        attributes["finish_reason"] = "tool_calls" if turn.calls else "stop"
        status = "ok"
        if turn.error is not None:
            status = "error"
            attributes["finish_reason"] = None
            attributes |= {
                "error.type": "EvaluationError",
                "error.message": truncate(turn.error, 2_000),
            }
        answer = {
            "model": self._manifest.agent.model,
            "choices": [
                {
                    "index": 0,
                    "message": _answer(turn),
                    "finish_reason": attributes["finish_reason"],
                }
            ],
        }
        body = _json(answer) if turn.error is None or turn.texts else None
        return self._close(turn.span_id, turn.started_ns, turn.ended_ns, status, attributes, body)

    def _open_turn_record(self, turn: _Turn, prompt_name: str, source: str) -> SpanOpen:
        agent = self._manifest.agent
        attributes: Attributes = {"prompt_name": prompt_name, "derived_from": source}
        if agent.model:
            attributes["model"] = agent.model
        if agent.adapter:
            attributes["adapter"] = agent.adapter
        if turn.left_out:
            attributes["messages_left_out"] = turn.left_out
        request = {"model": agent.model, "messages": turn.messages}
        name = agent.model or prompt_name or "model"
        return self._open(turn.span_id, turn.started_ns, "llm", name, attributes, _json(request))

    def _open(
        self, span_id: str, time_ns: int, type: str, name: str, attributes: Attributes, body: str
    ) -> SpanOpen:
        self._made += 1
        return SpanOpen(
            VERSION,
            self._writer,
            self._next(),
            time_ns,
            self._run_id,
            span_id,
            FORMAT,
            type,
            truncate(clean_text(name), 512) or type,
            self._root,
            None,
            clean_attributes(attributes),
            None,
            body,
        )

    def _close(
        self,
        span_id: str,
        started_ns: int,
        ended_ns: int,
        status: str,
        attributes: Attributes,
        body: str | None,
    ) -> SpanClose:
        present = {key: value for key, value in attributes.items() if value is not None}
        return SpanClose(
            VERSION,
            self._writer,
            self._next(),
            ended_ns,
            self._run_id,
            span_id,
            status,
            max(0, ended_ns - started_ns),
            clean_attributes(present),
            body,
        )

    def _next(self) -> int:
        self._seq += 1
        return self._seq


def has_transcript(lines: Iterable[str]) -> bool:
    """Return whether a log has entries of a transcript."""
    return any(TRANSCRIPT in line for line in lines)


def _key(fields: Object, known: Mapping[Key, object]) -> Key:
    """Return the evaluation of an event or entry. Not all name their session."""
    return _find_key((_text(fields.get("session_id")), _text(fields.get("prompt_name"))), known)


def _find_key(key: Key, known: Mapping[Key, object]) -> Key:
    if key in known:
        return key
    alike = (one for one in known if one[1] == key[1] and "" in (one[0], key[0]))
    return next(alike, key)


def _call(tool: _Tool) -> Object:
    """Return a tool call as in the message of a model."""
    function = {"name": tool.name, "arguments": tool.arguments}
    return {"id": tool.call_id, "type": "function", "function": function}


def _answer(turn: _Turn) -> Object:
    """Return a turn as a message of the conversation."""
    content: Any = "\n\n".join(text for text in turn.texts if text) or None
    thought = "\n\n".join(text for text in turn.thoughts if text)
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if thought:
        message["reasoning_content"] = thought
    if turn.calls:
        message["tool_calls"] = turn.calls
    return message


def _usage(found: Object) -> dict[str, int]:
    """Return token counts under the names of attributes."""
    usage: dict[str, int] = {}
    for name, keys in _COUNTS.items():
        count = next((found[key] for key in keys if type(found.get(key)) is int), None)
        if count is not None and count >= 0:
            usage[name] = count
    return usage


_COUNTS: Final = {
    "input_tokens": ("input_tokens", "inputTokens", "prompt_tokens"),
    "output_tokens": ("output_tokens", "outputTokens", "completion_tokens"),
    "cache_read_tokens": ("cached_tokens", "cachedInputTokens", "cache_read_input_tokens"),
}  # fmt: skip


def _agrees(usage: Mapping[str, int], total: Mapping[str, int]) -> bool:
    """Return whether one usage equals the total of an evaluation."""
    return all(usage.get(key) == total.get(key) for key in ("input_tokens", "output_tokens"))


def _text_of(detail: Object, inner: Object) -> str:
    """Return the text of an entry of any adapter."""
    message = _mapping(inner.get("message"))
    item = _mapping(inner.get("item"))
    for value in (
        detail.get("text"),
        inner.get("text"),
        inner.get("thinking"),
        item.get("text"),
        message.get("content"),
        detail.get("content"),
        inner.get("content"),
    ):
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list):
            blocks = [block for block in value if isinstance(block, dict)]
            texts = [_text(block.get("text") or block.get("thinking")) for block in blocks]
            if any(texts):
                return "\n\n".join(text for text in texts if text)
    return ""


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _mapping(value: Any) -> Object:
    return value if isinstance(value, dict) else _NOTHING


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else _json(value)


def _json(value: Any) -> str:
    try:
        return clean_text(_sorted(value).decode())
    except (UnicodeEncodeError, RecursionError):
        return clean_text(repr(value))


def _digest(item: Any) -> bytes:
    return hashlib.blake2b(_json(item).encode(errors="replace"), digest_size=12).digest()
