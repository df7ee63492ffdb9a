"""Messages of a session as records.

    user, text                a turn; the task, an answer of the user, or feedback
    user, tool_result         the end of a tool; of older versions, a text `[tool] Result:`
    assistant                 a model call
    assistant, displayOnly    an error of the provider, or a notice

Details of the environment, which the program adds to each message, are input of the next answer
only.
"""

from __future__ import annotations

import re
from typing import Any, Final

from vestige.formats.cline.constants import AGENT, FORMAT, SPAWN
from vestige.formats.cline.request_usage import RequestFinder, read_cost
from vestige.formats.cline.xml_calls import find_arguments, split_result
from vestige.formats.provider_bodies import ANTHROPIC, Object, render_json
from vestige.formats.session_builder import SessionBuilder
from vestige.formats.session_files import count_attributes, to_count, to_text
from vestige.record.types import Attributes

_MS: Final = 1_000_000
_PROMPT: Final = re.compile(
    r"\s*<(task|user_message|feedback|answer|user_input)(?: [^>]{0,200})?>\s*"
)
_ENVIRONMENT: Final = "<environment_details>"
_EXIT: Final = re.compile(r"\[?(?:Command exited with code|Exit code:) (-?\d{1,9})\b")
_FAILED: Final = ("The tool execution failed", "<error>", "Error: ", "The tool was not executed")
_DENIED: Final = "The user denied"
_COMPLETION: Final = "attempt_completion"


class SessionReader:
    """Converts the messages of one session, in order."""

    def __init__(
        self, session_id: str, agent: str = AGENT, builder: SessionBuilder | None = None
    ) -> None:
        self._session_id = session_id
        self._agent = agent
        self.builder = builder or SessionBuilder(FORMAT, session_id, ANTHROPIC, agent)
        self.builder.facts["source_session_id"] = session_id.partition(" ")[0]
        self.requests = RequestFinder([])
        self._spawned: dict[str, list[str]] = {}
        """Spans of calls that start a sub-agent, by their task."""
        self._xml_call: tuple[str, str] | None = None
        """Tool and id of the call in the latest answer, of an older version."""

    def open_subagent(self, key: str, first: Object) -> SessionReader:
        """Return the reader of a sub-agent's session, below the call with the same task."""
        calls = self._spawned.get(_text(_blocks(first.get("content"))).strip(), [])
        builder = SessionBuilder(
            FORMAT,
            self._session_id,
            ANTHROPIC,
            "sub-agent",
            stream=key,
            parent_id=calls.pop(0) if calls else self.builder.top_id,
        )
        builder.facts.update({"agent_name": "sub-agent", "agent_id": key})
        reader = SessionReader(self._session_id, self._agent, builder)
        reader._spawned = self._spawned
        return reader

    def add(self, index: int, size: int, message: Object, following: Object | None) -> None:
        """Add a message. `following` is the one after it."""
        self.builder.entry_size = size
        key = to_text(message.get("id")) or str(index)
        time_ms = to_count(message.get("ts"))
        time_ns = time_ms * _MS if time_ms and time_ms < 2**43 else None
        blocks = _blocks(message.get("content"))
        if message.get("isSummary"):
            self.builder.span(key, "compaction", "compaction", time_ns)
            self.builder.context({"role": "user", "content": blocks}, time_ns)
        elif message.get("role") == "assistant":
            self._add_answer(key, time_ns, message, blocks, following)
        elif message.get("role") == "user":
            self._add_user(key, time_ns, blocks)

    # --- the user -----------------------------------------------------------------------------

    def _add_user(self, key: str, time_ns: int | None, blocks: list[Object]) -> None:
        results = [block for block in blocks if block.get("type") == "tool_result"]
        for block in results:
            self._add_result(time_ns, block)
        rest = [block for block in blocks if block.get("type") != "tool_result"]
        if not results and self._xml_call is not None:
            rest = self._add_xml_result(time_ns, rest)
        prompt = _find_prompt(rest, is_first=not results and len(rest) == len(blocks))
        if prompt:
            message = {"role": "user", "content": rest}
            self.builder.prompt(key, time_ns, message, prompt, facts={"message_id": key})
        elif rest:
            self.builder.context({"role": "user", "content": rest}, time_ns)

    def _add_result(self, time_ns: int | None, block: Object) -> None:
        call_id = to_text(block.get("tool_use_id"))
        content = block.get("content")
        text, failed = _read_result(content)
        facts, has_failed = _find_failure(text)
        failed = failed or has_failed or block.get("is_error") is True
        images = [each for each in _blocks(content) if each.get("type") == "image"]
        shown: Object = {"type": "tool_result", "tool_use_id": call_id, "content": images or None}
        message = {"role": "user", "content": [shown]}
        self.builder.result(call_id, time_ns, message, text, is_error=failed, facts=facts)

    def _add_xml_result(self, time_ns: int | None, blocks: list[Object]) -> list[Object]:
        """Add the result of a call in the text of an answer. Return the blocks after it."""
        (_, call_id), self._xml_call = self._xml_call or ("", ""), None
        texts: list[str] = []
        rest = list(blocks)
        while rest and rest[0].get("type") == "text":
            text = to_text(rest[0].get("text"))
            if texts and (_ENVIRONMENT in text or _PROMPT.match(text)):
                break
            texts.append(text)
            rest.pop(0)
        found = split_result("\n".join(texts))
        text = found[1] if found else "\n".join(texts)
        text = text.partition(_ENVIRONMENT)[0].rstrip()
        facts, failed = _find_failure(text)
        shown = {"role": "user", "content": "\n".join(texts)}
        self.builder.result(call_id, time_ns, shown, text, is_error=failed, facts=facts)
        return rest

    # --- the model ----------------------------------------------------------------------------

    def _add_answer(
        self,
        key: str,
        time_ns: int | None,
        message: Object,
        blocks: list[Object],
        following: Object | None,
    ) -> None:
        text = _text(blocks)
        metadata = message.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        is_error = metadata.get("displayRole") == "error"
        if metadata.get("displayOnly") and not is_error:
            self.builder.log("info", text, time_ns)
            return
        model = message.get("modelInfo")
        model = model if isinstance(model, dict) else {}
        facts: Attributes = {"message_id": key}
        if provider := to_text(model.get("provider")) or to_text(model.get("providerId")):
            facts["provider"] = provider
        call = None if is_error else self._find_xml_call(key, text, blocks, following)
        calls = [block for block in blocks if block.get("type") == "tool_use"]
        self.builder.answer(
            key,
            time_ns,
            [] if is_error else [*blocks, *([call] if call else [])],
            text=text,
            model=to_text(model.get("id")) or to_text(model.get("modelId")) or None,
            reason="tool_use" if calls or call else "end_turn",
            error=text if is_error else None,
            facts=facts | ({"error.type": "APIError"} if is_error else {}),
        )
        self._add_usage(key, time_ns, message)
        for block in [*calls, *([call] if call else [])]:
            self._add_call(time_ns, block)
        if is_error:
            self.builder.finish_turn(text)
        elif not calls and not call:
            self.builder.finish_turn()

    def _add_usage(self, key: str, time_ns: int | None, message: Object) -> None:
        usage = read_metrics(message.get("metrics"))
        found = self.requests.usage(time_ns // _MS if time_ns else None)
        self.builder.usage(key, usage or found)
        for request in self.requests.cancelled:
            reason = request.cancelled.replace("_", " ") or "no answer was stored"
            self.builder.log("warn", f"request without an answer: {reason}", None)
        self.requests.cancelled.clear()

    def _add_call(self, time_ns: int | None, block: Object) -> None:
        call_id, name = to_text(block.get("id")), to_text(block.get("name")) or "tool"
        if not call_id or self.builder.is_open(call_id):
            return
        arguments = block.get("input")
        span_id = self.builder.call(call_id, time_ns, name, render_json(arguments))
        if name == SPAWN and isinstance(arguments, dict):
            task = to_text(arguments.get("task")).strip()
            self._spawned.setdefault(task, []).append(span_id)
        if name == _COMPLETION:  # its result is the next prompt of the user
            self.builder.finish_turn()

    def _find_xml_call(
        self, key: str, text: str, blocks: list[Object], following: Object | None
    ) -> Object | None:
        """Return the call in the text of an answer, if the next message has its result."""
        if following is None or following.get("role") != "user":
            return None
        if any(block.get("type") == "tool_use" for block in blocks):
            return None
        result = split_result(_text(_blocks(following.get("content")))[:8_000])
        arguments = find_arguments(text, result[0]) if result else None
        if result is None or arguments is None:
            return None
        self._xml_call = (result[0], f"call {key}")
        return {"type": "tool_use", "id": f"call {key}", "name": result[0], "input": arguments}


# --- parts of messages ------------------------------------------------------------------------


def read_metrics(metrics: Any) -> Attributes:
    """Return the tokens and the cost of an answer. Input includes the cache."""
    if not isinstance(metrics, dict):
        return {}
    fresh = to_count(metrics.get("inputTokens"))
    read = to_count(metrics.get("cacheReadTokens"))
    written = to_count(metrics.get("cacheWriteTokens"))
    cached = (read or 0) + (written or 0)
    usage = count_attributes(
        input_tokens=fresh if fresh is None or fresh >= cached else fresh + cached,
        output_tokens=metrics.get("outputTokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )
    return usage | read_cost(metrics.get("cost"))


def _blocks(content: Any) -> list[Object]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []


def _text(blocks: list[Object]) -> str:
    return "\n".join(to_text(each.get("text")) for each in blocks if each.get("type") == "text")


def _find_prompt(blocks: list[Object], *, is_first: bool) -> str:
    """Return what the user wrote. A text without a tag counts if it is not beside a result."""
    for block in blocks:
        text = to_text(block.get("text"))
        tag = _PROMPT.match(text)
        if tag is not None:
            return text[tag.end() :].partition(f"</{tag[1]}>")[0].strip()
        plain = text.partition(_ENVIRONMENT)[0].strip()
        if is_first and plain and split_result(text) is None:
            return plain
    return ""


def _read_result(content: Any) -> tuple[str, bool]:
    """Return the text of a result, and whether a command in it failed. Media are named."""
    if isinstance(content, str):
        return content, False
    texts, failed = [], False
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        if block.get("type") == "text":
            texts.append(to_text(block.get("text")))
        elif "success" in block:
            failed = failed or block.get("success") is False
            result = block.get("result")
            shown = result if isinstance(result, str) else render_json(result)
            texts.append(shown if result else to_text(block.get("error")))
        elif block.get("type") == "image":
            source = block.get("source")
            media = to_text(source.get("media_type")) if isinstance(source, dict) else ""
            texts.append(f"[{media or 'image'}]")
        else:
            texts.append(render_json(block))
    return "\n".join(texts), failed


def _find_failure(text: str) -> tuple[Attributes, bool]:
    """Return attributes of a failure, and whether the text says that a tool failed."""
    if text.startswith(_DENIED):
        return {"error.type": "PermissionDenied"}, True
    found = _EXIT.search(text[:2_000])
    if found is not None:
        return {"exit_code": int(found[1])}, int(found[1]) != 0
    return {}, text.startswith(_FAILED)
