"""Entries of a session as records.

type user          a prompt; one with function responses repeats the results of tools
type gemini        a model call; written again with its tool calls when they have ended
type error, info   a log record
$set               the complete history again, when a session is resumed; messages whose ids
                   are known are skipped
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from vestige.formats.gemini_cli.constants import AGENT, FORMAT, Entry
from vestige.formats.provider_bodies import GEMINI, Object, render_json
from vestige.formats.session_builder import SessionBuilder
from vestige.formats.session_files import count_attributes, to_count, to_text
from vestige.formats.times_and_outcomes import parse_time_ns
from vestige.record.types import Attributes

PATCH_MAX: Final = 16 * 1024
_IDS_MAX: Final = 100_000
_EXIT: Final = "\nExit Code: "


class SessionReader:
    """Converts the entries of one file, in order."""

    def __init__(self, session_id: str) -> None:
        self.builder = SessionBuilder(FORMAT, session_id, GEMINI, AGENT)
        self.builder.facts["source_session_id"] = session_id
        self._seen: set[str] = set()
        self._with_calls: set[str] = set()

    def add(self, number: int, size: int, entry: Entry) -> None:
        """Add the entry of a line."""
        self.builder.entry_size = size
        if isinstance(entry.set, dict):
            messages = entry.set.get("messages")
            for value in messages if isinstance(messages, list) else ():
                self._add_message(number, _convert(value), is_copy=True)
        else:
            self._add_message(number, entry, is_copy=False)

    def _add_message(self, number: int, entry: Entry, *, is_copy: bool) -> None:
        key = to_text(entry.id)
        is_known = key in self._seen
        if not key or entry.type is None or (is_copy and is_known):
            return
        if len(self._seen) < _IDS_MAX:
            self._seen.add(key)
        time_ns = parse_time_ns(entry.timestamp)
        match entry.type:
            case "user" if not is_known:
                self._add_user(key, time_ns, entry)
            case "gemini":
                self._add_answer(key, time_ns, entry, is_known=is_known)
            case "error" | "warning" | "info" if not is_known:
                level = {"error": "error", "warning": "warn"}.get(entry.type, "info")
                text = _text(entry.content)
                self.builder.log(level, text, time_ns)
                if level == "error":
                    self.builder.finish_turn(text)

    def _add_user(self, key: str, time_ns: int | None, entry: Entry) -> None:
        parts = _parts(entry.content)
        results = [part for part in parts if "functionResponse" in part]
        if results:
            media = [part for part in parts if "inlineData" in part]
            if media:
                self.builder.context({"role": "user", "parts": media}, time_ns)
            return
        text = _text(entry.content)
        message = {"role": "user", "parts": parts}
        if text.lstrip().startswith("<session_context>") or not text.strip():
            self.builder.context(message, time_ns)
        else:
            self.builder.prompt(key, time_ns, message, text, facts={"message_id": key})

    def _add_answer(self, key: str, time_ns: int | None, entry: Entry, *, is_known: bool) -> None:
        parts: list[Object] = []
        if not is_known:
            for thought in entry.thoughts if isinstance(entry.thoughts, list) else ():
                if isinstance(thought, dict):
                    words = (to_text(thought.get(name)) for name in ("subject", "description"))
                    parts.append({"text": "\n".join(filter(None, words)), "thought": True})
            parts += _parts(entry.content)
        calls: list[Object] = []
        if isinstance(entry.tool_calls, list) and key not in self._with_calls:
            calls = [call for call in entry.tool_calls if isinstance(call, dict)]
            self._with_calls.add(key)
        parts += [
            {
                "functionCall": {
                    "id": call.get("id"),
                    "name": call.get("name"),
                    "args": call.get("args"),
                }
            }
            for call in calls
        ]
        if parts or not is_known:
            self.builder.answer(
                key,
                None if is_known else time_ns,
                parts,
                text=_text(entry.content),
                model=to_text(entry.model) or None,
                reason="STOP",
                facts={"message_id": key},
            )
            self.builder.usage(key, read_usage(entry.tokens))
        for call in calls:
            name = to_text(call.get("name")) or "tool"
            self.builder.call(to_text(call.get("id")), time_ns, name, render_json(call.get("args")))
        for call in calls:
            self._add_result(call)
        self.builder.finish_turn()

    def _add_result(self, call: Object) -> None:
        call_id, name = to_text(call.get("id")), to_text(call.get("name")) or "tool"
        ended_ns = parse_time_ns(call.get("timestamp"))
        text = _result_text(call.get("result"))
        failed = call.get("status") in ("error", "cancelled")
        facts: Attributes = {}
        code = text.rpartition(_EXIT)[2].split("\n", 1)[0] if _EXIT in text else ""
        if code.lstrip("-").isdecimal() and len(code) < 9:
            facts["exit_code"] = int(code)
            failed = failed or int(code) != 0
        if call.get("status") == "cancelled":
            facts["error.type"] = "Cancelled"
        display = call.get("resultDisplay")
        if isinstance(display, dict) and isinstance(display.get("fileDiff"), str):
            facts["file_diff"] = display["fileDiff"][:PATCH_MAX]
        self.builder.result(
            call_id, ended_ns, _stub(call_id, name), text, is_error=failed, facts=facts
        )


def read_usage(tokens: Any) -> Attributes:
    """Return the tokens of an answer. Input includes what was read from the cache."""
    if not isinstance(tokens, dict):
        return {}
    output = to_count(tokens.get("output"))
    thoughts = to_count(tokens.get("thoughts")) or 0
    return count_attributes(
        input_tokens=tokens.get("input"),
        output_tokens=None if output is None else output + thoughts,
        cache_read_tokens=tokens.get("cached"),
        reasoning_tokens=thoughts or None,
    )


def _stub(call_id: str, name: str) -> Object:
    response = {"id": call_id, "name": name, "response": {}}
    return {"role": "user", "parts": [{"functionResponse": response}]}


def _convert(value: Any) -> Entry:
    try:
        return msgspec.convert(value, Entry)
    except (msgspec.ValidationError, RecursionError):
        return Entry()


def _parts(content: Any) -> list[Object]:
    if isinstance(content, str):
        return [{"text": content}] if content else []
    return [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []


def _text(content: Any) -> str:
    return "\n".join(to_text(part.get("text")) for part in _parts(content) if "text" in part)


def _result_text(result: Any) -> str:
    """Return the text of a result. Media are named; the next model call has them."""
    texts = []
    for part in _parts(result):
        response = part.get("functionResponse")
        inline = part.get("inlineData")
        if isinstance(response, dict):
            value = response.get("response")
            output = value.get("output", value.get("error")) if isinstance(value, dict) else value
            texts.append(output if isinstance(output, str) else render_json(value))
        elif isinstance(inline, dict):
            texts.append(f"[{to_text(inline.get('mimeType')) or 'media'}]")
    return "\n".join(texts)
