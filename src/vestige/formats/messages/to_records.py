"""A conversation as a run: the answers of models are `llm` spans, tool results are `tool` spans.

    system and user messages     input of the next answer
    an answer                    a span `llm`, its component is the agent
    a tool result                a span `tool` with the arguments of its call, and also input of
                                 the next answer

Each span has the attribute `message_index`. A span's input has the messages since the answer
before it: earlier ones are inputs and outputs of earlier spans, so every text is stored once or
twice, however long the conversation is.

Numbers of records derive from the messages before them, so a file that has grown adds records.
The end of the run has a writer of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from vestige.formats.messages.conversation_facts import ConversationFacts
from vestige.formats.messages.parse_message import ChatMessage, Object, Result, parse_message
from vestige.formats.openai_bodies import Call, render_request, render_response
from vestige.formats.protocol import TIME_MAX_NS
from vestige.formats.record_builder import RecordBuilder, encode_json, usage_attributes
from vestige.formats.times_and_outcomes import parse_time_ns
from vestige.limits import BODY_INLINE_MAX
from vestige.record.coercion import clean_name, truncate
from vestige.record.run import OUTCOME, UNKNOWN
from vestige.record.types import Attributes, KnownRecord, SpanOpen

FORMAT: Final = "messages"
_CALLS_MAX: Final = 10_000
"""Tool calls that wait for their results."""
_CODE_BLOCK: Final = re.compile(r"^```[\w+-]*[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_EXCEPTION: Final = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit))\b:? ?(.*)$")


class ConversationRecords:
    """Converts the messages of one conversation, in order."""

    def __init__(self, source_id: str, name: str, facts: ConversationFacts, time_ns: int) -> None:
        self._builder = RecordBuilder(FORMAT, source_id, time_ns)
        self.run_id, self.writer = self._builder.run_id, self._builder.writer
        self._name, self._facts = name, facts
        self._pending: list[Object] = []
        self._unanswered: list[Object] = []
        """Those of the pending messages that no span has."""
        self._unanswered_index = 0
        self._calls: dict[str, Call] = {}
        self._by_name: list[Call] = []
        self._agents: set[str] = set()
        self._last_text = ""
        self._code = ""

    def records(self, messages: Iterable[tuple[int, Object]]) -> Iterator[KnownRecord]:
        count = 0
        for count, (index, value) in enumerate(messages, 1):
            message = parse_message(value)
            self._builder.advance(parse_time(message.time))
            if count == 1:
                yield self._open_run(message)
            match message.role:
                case "assistant":
                    yield from self._add_answer(index, message)
                case "tool":
                    yield from self._add_results(index, message)
                case _ if message.results:
                    yield from self._add_results(index, message)
                case _:
                    self._add_pending(index, message)
        if count:
            yield from self._end_run(count)

    # --- the run --------------------------------------------------------------------------------

    def _open_run(self, first: ChatMessage) -> SpanOpen:
        task = self._facts.task or (first.text if first.role == "user" else "")
        return self._builder.open(
            self._builder.root_id,
            "run",
            self._name,
            component="agent",
            attributes=dict(self._facts.attributes),
            body=task or None,
        )

    def _end_run(self, count: int) -> Iterator[KnownRecord]:
        builder = self._builder
        if self._unanswered:
            span_id = builder.span_id("rest", str(count))
            opened = builder.open(
                span_id,
                "step",
                "messages without an answer",
                component="user",
                parent_id=builder.root_id,
                attributes={"message_index": self._unanswered_index},
                body=encode_json({"messages": self._unanswered}),
            )
            yield builder.move_to_end(opened, 3 * count)
            yield builder.move_to_end(builder.close(span_id), 3 * count + 1)
        facts = self._facts
        attributes: Attributes = {"message_count": count}
        if facts.is_failed:
            attributes["error.message"] = facts.error or facts.exit_status
        elif not facts.exit_status:
            attributes[OUTCOME] = UNKNOWN
        yield builder.end_run(
            "error" if facts.is_failed else "ok",
            count,
            attributes=attributes,
            body=facts.result or self._last_text or None,
        )

    # --- messages -------------------------------------------------------------------------------

    def _add_pending(self, index: int, message: ChatMessage) -> None:
        if not self._unanswered:
            self._unanswered_index = index
        pending = {"role": message.role, "content": message.content}
        self._pending.append(pending)
        self._unanswered.append(pending)

    def _add_answer(self, index: int, message: ChatMessage) -> Iterator[KnownRecord]:
        agent = message.agent or "assistant"
        span_id = self._builder.span_id(str(index), "answer")
        attributes: Attributes = {
            "message_index": index,
            "provider": "anthropic" if message.is_anthropic else "openai",
        }
        if message.remark:
            attributes["message.remark"] = message.remark
        if message.model:
            attributes["model"] = clean_name(message.model)
        attributes.update(usage_attributes(message.usage))
        if isinstance(message.cost, (int, float)) and message.cost > 0:
            attributes["cost_usd"] = message.cost
        context = self._take_pending(agent)
        yield self._builder.open(
            span_id,
            "llm",
            agent,
            component=agent,
            parent_id=self._builder.root_id,
            attributes=attributes,
            body=render_request(context),
        )
        yield self._builder.close(span_id, body=_render_response(message))
        self._remember(message.calls)
        self._code = "\n\n".join(block.strip() for block in _CODE_BLOCK.findall(message.text))
        if message.text:
            self._last_text = truncate(message.text, BODY_INLINE_MAX)

    def _take_pending(self, agent: str) -> list[Object]:
        """Return the messages since the last answer, after an agent's own prompt."""
        prompts = self._facts.system_prompts
        prompt = prompts.get(agent) or ("" if self._agents else prompts.get("", ""))
        context, self._pending, self._unanswered = self._pending, [], []
        if prompt and agent not in self._agents:
            context = [{"role": "system", "content": prompt}, *context]
        self._agents.add(agent)
        return context

    def _remember(self, calls: list[Call]) -> None:
        if len(self._calls) + len(self._by_name) > _CALLS_MAX:
            self._calls.clear()
            self._by_name.clear()
        for call in calls:
            if call.id is not None:
                self._calls[call.id] = call
            else:
                self._by_name.append(call)

    def _find_call(self, result: Result) -> Call | None:
        if result.call_id is not None:
            return self._calls.pop(result.call_id, None)
        for place, call in enumerate(self._by_name):
            if result.name in (None, call.name):
                return self._by_name.pop(place)
        if result.name is None and len(self._calls) == 1:
            return self._calls.popitem()[1]
        return None

    def _add_results(self, index: int, message: ChatMessage) -> Iterator[KnownRecord]:
        for place, result in enumerate(message.results):
            call = self._find_call(result)
            name = (call.name if call else result.name) or "tool"
            attributes: Attributes = {"message_index": index}
            call_id = result.call_id or (call.id if call else None)
            if call_id is not None:
                attributes["tool_call_id"] = call_id
            if message.exit_code is not None:
                attributes["exit_code"] = message.exit_code
            if result.is_error:
                attributes.update(_error(result.text))
            span_id = self._builder.span_id(str(index), f"result {place}")
            # An executor of a group chat runs the code blocks of the answer before it.
            arguments = call.arguments if call else self._code if message.agent else None
            yield self._builder.open(
                span_id,
                "tool",
                name,
                component=message.agent or "tools",
                parent_id=self._builder.root_id,
                attributes=attributes,
                body=arguments or None,
            )
            status = "error" if result.is_error else "ok"
            yield self._builder.close(span_id, status, body=result.text)
        if message.agent is not None:
            pending = {"role": "user", "name": message.agent, "content": message.content}
        elif message.role == "tool":
            result = message.results[0]
            pending = {"role": "tool", "tool_call_id": result.call_id, "content": message.content}
        else:
            pending = {"role": message.role, "content": message.content}
        self._pending.append(pending)


def _render_response(message: ChatMessage) -> str:
    """Return the answer as a provider's response, which queries and checks can parse."""
    if message.is_anthropic:
        return encode_json(
            {
                "type": "message",
                "role": "assistant",
                "model": message.model,
                "content": message.content,
                "stop_reason": "tool_use" if message.calls else "end_turn",
            }
        )
    return render_response(
        message.content, message.calls, thinking=message.thinking, model=message.model
    )


def _error(text: str) -> Attributes:
    """Return the error of a failed tool: the last line that names an exception, or the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        found = _EXCEPTION.match(line)
        if found:
            return {"error.type": found[1], "error.message": truncate(found[2] or line, 2_000)}
    return {"error.message": truncate(lines[0], 2_000)} if lines else {}


def parse_time(value: Any) -> int | None:
    """Return a time from ISO 8601, or from seconds or milliseconds since 1970."""
    if isinstance(value, str):
        return parse_time_ns(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = value / 1000 if value > 1e11 else value
        if 0 < seconds < TIME_MAX_NS / 1e9:
            return int(seconds * 1e9)
    return None
