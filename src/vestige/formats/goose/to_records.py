"""Messages of a session as records.

    user, text                a turn; one that the user does not see is input of the next answer
    user, toolResponse        the end of a tool
    assistant                 a model call; calls of one answer are messages of their own

The first message of an answer has its usage. A later one repeats its thoughts, and has calls
whose number in the answer is above zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from vestige.formats.goose.constants import AGENT, FORMAT
from vestige.formats.provider_bodies import OPENAI_CHAT, Object, render_json
from vestige.formats.session_builder import SessionBuilder
from vestige.formats.session_files import count_attributes, to_count, to_text
from vestige.record.types import Attributes

_S: Final = 1_000_000_000
_INDEX: Final = "goose.toolCall.providerIndex"
_DENIAL: Final = "The user has declined"


@dataclass(frozen=True, slots=True)
class Message:
    """A message with its parts."""

    id: str
    role: str
    created_s: Any
    parts: list[Any]
    metadata: Any


@dataclass(frozen=True, slots=True)
class SubSession:
    """A sub-agent's session, and the tool call that started it."""

    session_id: str
    parent_id: str


class SessionReader:
    """Converts the messages of one session, in order."""

    def __init__(self, session_id: str, root: str, builder: SessionBuilder | None = None) -> None:
        """`root` identifies the session that the user sees."""
        self.session_id = session_id
        self._root = root
        self.builder = builder or SessionBuilder(FORMAT, root, OPENAI_CHAT, AGENT)
        self.builder.facts["source_session_id"] = session_id
        self.agents: list[SubSession] = []
        self._answer_key = ""
        self._thoughts: set[str] = set()
        """Thoughts of the current answer."""
        self._calls: dict[str, str] = {}
        """Spans of tools that are running."""

    def open_subagent(self, agent: SubSession) -> SessionReader:
        """Return the reader of a sub-agent's session."""
        builder = SessionBuilder(
            FORMAT,
            self._root,
            OPENAI_CHAT,
            "sub-agent",
            stream=agent.session_id,
            parent_id=agent.parent_id,
        )
        builder.facts.update({"agent_name": "sub-agent", "agent_id": agent.session_id})
        return SessionReader(agent.session_id, self._root, builder)

    def add_facts(self, facts: Object) -> None:
        """Add what is stored about the session."""
        for name, value in facts.items():
            if isinstance(value, str) and value:
                self.builder.facts[name] = value[:1_000]

    def add(self, message: Message, size: int) -> None:
        """Add a message."""
        self.builder.entry_size = size
        seconds = to_count(message.created_s)
        time_ns = seconds * _S if seconds and seconds < 2**33 else None
        metadata = message.metadata if isinstance(message.metadata, dict) else {}
        parts = [part for part in message.parts if isinstance(part, dict)]
        if message.role == "assistant":
            self._add_answer(message.id, time_ns, parts, metadata)
        else:
            self._add_user(message.id, time_ns, parts, metadata)

    # --- the user -----------------------------------------------------------------------------

    def _add_user(
        self, key: str, time_ns: int | None, parts: list[Object], metadata: Object
    ) -> None:
        results = [part for part in parts if part.get("type") == "toolResponse"]
        for part in results:
            self._add_result(time_ns, part)
        if results:
            return
        text = _text(parts)
        message = {"role": "user", "content": _content(parts)}
        if metadata.get("userVisible") is False or not parts:
            self.builder.context(message, time_ns)
        else:
            self.builder.prompt(key, time_ns, message, text, facts={"message_id": key})

    def _add_result(self, time_ns: int | None, part: Object) -> None:
        call_id = to_text(part.get("id"))
        outcome = part.get("toolResult")
        outcome = outcome if isinstance(outcome, dict) else {}
        value = outcome.get("value")
        # Older versions have the contents themselves.
        result: Object = value if isinstance(value, dict) else {"content": value}
        failed = outcome.get("status") == "error" or result.get("isError") is True
        text = _result_text(result.get("content")) or to_text(outcome.get("error"))
        details = result.get("structuredContent")
        code = details.get("exit_code") if isinstance(details, dict) else None
        facts: Attributes = {}
        if type(code) is int and abs(code) < 2**31:
            facts["exit_code"] = code
            failed = failed or code != 0
        if text.startswith(_DENIAL):
            facts["error.type"] = "PermissionDenied"
            failed = True
        span_id = self._calls.pop(call_id, "")
        meta = result.get("_meta")
        inner = to_text(meta.get("subagent_session_id")) if isinstance(meta, dict) else ""
        if inner and span_id:
            self.agents.append(SubSession(inner, span_id))
        shown = {"role": "tool", "tool_call_id": call_id, "content": _media(result.get("content"))}
        self.builder.result(call_id, time_ns, shown, text, is_error=failed, facts=facts)

    # --- the model ----------------------------------------------------------------------------

    def _add_answer(
        self, key: str, time_ns: int | None, parts: list[Object], metadata: Object
    ) -> None:
        calls = [part for part in parts if part.get("type") == "toolRequest"]
        is_rest = bool(self._answer_key) and any(map(_is_later_call, calls))
        if not is_rest:
            self._answer_key, self._thoughts = key, set()
        answer_key = self._answer_key
        inference = metadata.get("inference")
        inference = inference if isinstance(inference, dict) else {}
        facts: Attributes = {} if is_rest else {"message_id": key}
        if provider := to_text(inference.get("provider")):
            facts["provider"] = provider
        text = _text(parts)
        self.builder.answer(
            answer_key,
            time_ns,
            self._convert(parts),
            text=text,
            model=to_text(inference.get("requestedModel")) or None,
            reason="tool_calls" if calls else "stop",
            facts=facts,
        )
        self.builder.usage(answer_key, read_usage(metadata.get("usage")))
        for part in calls:
            self._add_call(time_ns, part)
        for part in parts:
            self._add_notice(key, time_ns, part)
        if not calls:
            self.builder.finish_turn()

    def _convert(self, parts: list[Object]) -> list[Object]:
        """Return the parts of an answer that are new."""
        found: list[Object] = []
        for part in parts:
            match part.get("type"):
                case "text":
                    found.append({"text": to_text(part.get("text"))})
                case "thinking":
                    thought = to_text(part.get("thinking"))
                    if thought and thought not in self._thoughts:
                        self._thoughts.add(thought)
                        found.append({"thinking": thought})
                case "toolRequest":
                    name, arguments = _call(part)
                    function = {"name": name, "arguments": render_json(arguments)}
                    call_id = to_text(part.get("id"))
                    found.append(
                        {"call": {"id": call_id, "type": "function", "function": function}}
                    )
        return found

    def _add_call(self, time_ns: int | None, part: Object) -> None:
        call_id = to_text(part.get("id"))
        if not call_id or self.builder.is_open(call_id):
            return
        name, arguments = _call(part)
        self._calls[call_id] = self.builder.call(call_id, time_ns, name, render_json(arguments))

    def _add_notice(self, key: str, time_ns: int | None, part: Object) -> None:
        match part.get("type"):
            case "conversationCompacted" | "summarizationRequested":
                self.builder.span(key, "compaction", "compaction", time_ns)
            case "systemNotification" | "contextLengthExceeded":
                self.builder.log("info", to_text(part.get("msg")), time_ns)


def read_usage(usage: Any) -> Attributes:
    """Return the tokens and the cost of an answer. Input includes the cache."""
    if not isinstance(usage, dict):
        return {}
    found = count_attributes(
        input_tokens=usage.get("inputTokens"),
        output_tokens=usage.get("outputTokens"),
        cache_read_tokens=usage.get("cacheReadTokens"),
        cache_write_tokens=usage.get("cacheWriteTokens"),
    )
    cost = usage.get("cost")
    if isinstance(cost, float) and 0 < cost < 1e9:
        found["cost_usd"] = cost
    return found


def _is_later_call(part: Object) -> bool:
    meta = part.get("_meta")
    return isinstance(meta, dict) and bool(to_count(meta.get(_INDEX)))


def _call(part: Object) -> tuple[str, Any]:
    """Return the name and the arguments of a call; a call that cannot be parsed has an error."""
    call = part.get("toolCall")
    call = call if isinstance(call, dict) else {}
    value = call.get("value")
    if not isinstance(value, dict):
        return "tool", call.get("error")
    return to_text(value.get("name")) or "tool", value.get("arguments")


def _text(parts: list[Object]) -> str:
    return "\n".join(to_text(part.get("text")) for part in parts if part.get("type") == "text")


def _content(parts: list[Object]) -> str | list[Object]:
    """Return the content of a message; images are kept as such."""
    images = [part for part in parts if part.get("type") == "image"]
    text = _text(parts)
    return [{"type": "text", "text": text}, *map(_to_image, images)] if images else text


def _media(contents: Any) -> str | list[Object]:
    """Return the images of a result. Its text is the output of the tool."""
    parts = contents if isinstance(contents, list) else []
    images = [part for part in parts if isinstance(part, dict) and part.get("type") == "image"]
    return [_to_image(part) for part in images] or ""


def _to_image(part: Object) -> Object:
    media = to_text(part.get("mimeType")) or "image/png"
    url = f"data:{media};base64,{to_text(part.get('data'))}"
    return {"type": "image_url", "image_url": {"url": url}}


def _result_text(contents: Any) -> str:
    """Return the text of a result. Media are named; the next model call has them."""
    texts = []
    for part in contents if isinstance(contents, list) else ():
        if not isinstance(part, dict):
            continue
        if part.get("type") == "text":
            texts.append(to_text(part.get("text")))
        elif part.get("type") == "image":
            texts.append(f"[{to_text(part.get('mimeType')) or 'image'}]")
        else:
            texts.append(render_json(part))
    return "\n".join(texts)
