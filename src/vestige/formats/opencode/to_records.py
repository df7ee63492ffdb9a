"""Rows of a session as records.

    message, role user          a turn
    message, role assistant     a model call; its parts are text, reasoning and tools
    part, type tool             the call and the result of a tool

Rows change until their message is complete. Messages from the first one on that is not complete
have a writer of their own, which depends on their content: when they change, their new records
replace the ends that were read before.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from vestige.formats.opencode.constants import DATABASES, FORMAT
from vestige.formats.provider_bodies import OPENAI_CHAT, Object, render_json
from vestige.formats.session_builder import SessionBuilder
from vestige.formats.session_files import count_attributes, to_count, to_text
from vestige.record.types import Attributes

PATCH_MAX: Final = 16 * 1024
_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Message:
    """A row of a message with its parts."""

    id: str
    created_ms: int
    data: Object
    parts: list[tuple[str, Object]]


@dataclass(frozen=True, slots=True)
class SubSession:
    """A sub-agent's session, and the tool call that started it."""

    session_id: str
    parent_id: str
    name: str


class SessionReader:
    """Converts the messages of one session, in order."""

    def __init__(
        self,
        session_id: str,
        builder: SessionBuilder | None = None,
        root: str | None = None,
        database: str = "",
    ) -> None:
        self.session_id = session_id
        self._root = root or session_id
        agent = DATABASES.get(database, FORMAT)
        self.builder = builder or SessionBuilder(FORMAT, session_id, OPENAI_CHAT, agent)
        self.builder.facts["source_session_id"] = session_id
        self.agents: list[SubSession] = []
        self._is_settled = True

    def open_subagent(self, agent: SubSession) -> SessionReader:
        """Return the reader of a sub-agent's session."""
        builder = SessionBuilder(
            FORMAT,
            self._root,
            OPENAI_CHAT,
            agent.name,
            stream=agent.session_id,
            parent_id=agent.parent_id,
        )
        builder.facts.update({"agent_name": agent.name, "agent_id": agent.session_id})
        return SessionReader(agent.session_id, builder, self._root)

    def add_facts(self, title: Any, directory: Any, version: Any) -> None:
        """Add the columns of the session."""
        facts = self.builder.facts
        for name, value in (("cwd", directory), ("agent_version", version), ("title", title)):
            if isinstance(value, str) and value:
                facts[name] = value[:1_000]

    def add(self, message: Message) -> None:
        """Add a message."""
        if self._is_settled and not _is_complete(message):
            self._is_settled = False
            digest = hashlib.sha256(msgspec.json.encode((message.id, message.data, message.parts)))
            self.builder.switch_writer(digest.hexdigest())
        self.builder.entry_size = 4_096
        if message.data.get("role") == "user":
            self._add_prompt(message)
        elif message.data.get("role") == "assistant":
            self._add_answer(message)

    def _add_prompt(self, message: Message) -> None:
        texts = [to_text(part.get("text")) for _, part in message.parts if "text" in part]
        text = "\n".join(texts)
        shown = {"role": "user", "content": text}
        self.builder.prompt(
            message.id, message.created_ms * _MS, shown, text, facts={"message_id": message.id}
        )

    def _add_answer(self, message: Message) -> None:
        data = message.data
        ended_ns = (_nested(data, "time", "completed") or message.created_ms) * _MS
        parts: list[Object] = []
        texts = []
        for _, part in message.parts:
            match part.get("type"):
                case "text":
                    texts.append(to_text(part.get("text")))
                    parts.append({"text": texts[-1]})
                case "reasoning":
                    parts.append({"thinking": to_text(part.get("text"))})
                case "tool":
                    parts.append({"call": _to_call(part)})
        error = _error(data.get("error"))
        facts: Attributes = {"message_id": message.id}
        provider = to_text(data.get("providerID"))
        if provider:
            facts["provider"] = provider
        if error:
            facts["error.type"] = "APIError"
        tools = [part for _, part in message.parts if part.get("type") == "tool"]
        first_ns = min((_start_ns(part) or ended_ns for part in tools), default=ended_ns)
        # The message ends after its tools, the model call before them.
        self.builder.answer(
            message.id,
            min(first_ns, ended_ns),
            parts,
            text="\n".join(texts),
            model=to_text(data.get("modelID")) or None,
            reason=_REASONS.get(to_text(data.get("finish")), to_text(data.get("finish"))) or None,
            error=error,
            facts=facts,
        )
        self.builder.usage(message.id, read_usage(data))
        spans = [
            self._add_call(part_id, part)
            for part_id, part in message.parts
            if part.get("type") == "tool"
        ]
        for call_id, span_id, part in spans:
            self._add_result(call_id, span_id, part)
        for part_id, part in message.parts:
            if part.get("type") == "compaction":
                self.builder.span(part_id, "compaction", "compaction", ended_ns)
        if error or data.get("finish") not in (None, "tool-calls"):
            self.builder.finish_turn(error)

    def _add_call(self, part_id: str, part: Object) -> tuple[str, str, Object]:
        call_id = to_text(part.get("callID")) or part_id
        name = to_text(part.get("tool")) or "tool"
        arguments = render_json(_state(part).get("input"))
        return call_id, self.builder.call(call_id, _start_ns(part), name, arguments), part

    def _add_result(self, call_id: str, span_id: str, part: Object) -> None:
        state, name = _state(part), part.get("tool")
        status = state.get("status")
        if status not in ("completed", "error"):
            return
        raw = state.get("metadata")
        metadata: Object = raw if isinstance(raw, dict) else {}
        text = to_text(state.get("output")) or to_text(state.get("error"))
        exit_code = to_count(metadata.get("exit"))
        facts = count_attributes(exit_code=exit_code)
        diff = metadata.get("diff")
        if isinstance(diff, str) and diff:
            facts["file_diff"] = diff[:PATCH_MAX]
        inner = metadata.get("sessionId")
        if name == "task" and isinstance(inner, str):
            raw_input = state.get("input")
            agent = to_text(raw_input.get("subagent_type")) if isinstance(raw_input, dict) else ""
            self.agents.append(SubSession(inner, span_id, agent or "sub-agent"))
        ended_ms = _nested(state, "time", "end")
        shown = {"role": "tool", "tool_call_id": call_id, "content": ""}
        failed = status == "error" or exit_code not in (None, 0)
        ended_ns = ended_ms * _MS if ended_ms else None
        self.builder.result(call_id, ended_ns, shown, text, is_error=failed, facts=facts)


_REASONS: Final = {"tool-calls": "tool_calls", "content-filter": "content_filter"}


def read_usage(data: Object) -> Attributes:
    """Return the tokens and the cost of an answer. Input includes the cache."""
    tokens = data.get("tokens")
    if not isinstance(tokens, dict):
        return {}
    fresh, output = to_count(tokens.get("input")), to_count(tokens.get("output"))
    read, written = _nested(tokens, "cache", "read"), _nested(tokens, "cache", "write")
    thoughts = to_count(tokens.get("reasoning")) or 0
    usage = count_attributes(
        input_tokens=None if fresh is None else fresh + (read or 0) + (written or 0),
        output_tokens=None if output is None else output + thoughts,
        cache_read_tokens=read,
        cache_write_tokens=written or None,
        reasoning_tokens=thoughts or None,
    )
    cost = data.get("cost")
    if isinstance(cost, (int, float)) and not isinstance(cost, bool) and 0 < cost < 1e9:
        usage["cost_usd"] = float(cost)
    return usage


def _is_complete(message: Message) -> bool:
    """Return whether the rows of a message will not change."""
    if message.data.get("role") == "user":
        return True
    states = [part.get("state") for _, part in message.parts if part.get("type") == "tool"]
    done = all(
        isinstance(state, dict) and state.get("status") in ("completed", "error")
        for state in states
    )
    return done and _nested(message.data, "time", "completed") is not None


def _state(part: Object) -> Object:
    state = part.get("state")
    return state if isinstance(state, dict) else {}


def _to_call(part: Object) -> Object:
    arguments = render_json(_state(part).get("input"))
    function = {"name": to_text(part.get("tool")), "arguments": arguments}
    return {"id": to_text(part.get("callID")), "type": "function", "function": function}


def _start_ns(part: Object) -> int | None:
    started = _nested(part.get("state"), "time", "start")
    return started * _MS if started else None


def _nested(value: Any, *names: str) -> int | None:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return to_count(value)


def _error(error: Any) -> str | None:
    if not isinstance(error, dict):
        return None
    data = error.get("data")
    message = to_text(data.get("message")) if isinstance(data, dict) else ""
    return message or to_text(error.get("name")) or "error"
