"""Events of version 0 as records.

    action `message`, source user       a turn
    other actions, source agent         a call; tool_call_metadata has the model's response
    observation                         the end of the call that is its `cause`
    observation `error`                 the end of a call that failed

A response is repeated in each of its actions and observations, so its tokens count once.
"""

from __future__ import annotations

from typing import Any, Final

from vestige.formats.openhands.constants import AGENT, FINISH, FORMAT
from vestige.formats.provider_bodies import OPENAI_CHAT, Object, render_json
from vestige.formats.session_builder import SessionBuilder
from vestige.formats.session_files import count_attributes, to_count, to_text
from vestige.formats.times_and_outcomes import parse_time_ns
from vestige.record.types import Attributes

_NOT_CALLS: Final = frozenset(
    ["change_agent_state", "system", "recall", "null", "start", "pause", "resume", "condensation"]
)
_NOT_RESULTS: Final = frozenset(["agent_state_changed", "null", "recall"])


class LegacyReader:
    """Converts the events of one conversation, in order."""

    def __init__(self, name: str) -> None:
        self.builder = SessionBuilder(FORMAT, name, OPENAI_CHAT, AGENT)
        self.builder.facts["source_session_id"] = name
        self._calls: dict[int, str] = {}
        """Calls that are running, by the numbers of their events."""

    def add(self, number: int, size: int, event: Object) -> None:
        """Add an event."""
        self.builder.entry_size = size
        time_ns = parse_time_ns(event.get("timestamp"))
        identifier = to_count(event.get("id"))
        identifier = number if identifier is None else identifier
        if isinstance(event.get("action"), str):
            self._add_action(identifier, time_ns, event)
        elif isinstance(event.get("observation"), str):
            self._add_observation(time_ns, event)

    def _add_action(self, number: int, time_ns: int | None, event: Object) -> None:
        name, source = event["action"], event.get("source")
        raw = event.get("args")
        arguments: Object = raw if isinstance(raw, dict) else {}
        text = to_text(arguments.get("content")) or to_text(event.get("message"))
        if name == "system":
            self.builder.context({"role": "system", "content": text}, time_ns)
        elif name == "message" and source == "user":
            facts = {"message_id": str(number)}
            self.builder.prompt(
                str(number), time_ns, {"role": "user", "content": text}, text, facts=facts
            )
        elif name in _NOT_CALLS or source != "agent":
            if name == "condensation":
                self.builder.span(str(number), "compaction", "compaction", time_ns)
        else:
            self._add_answer(number, time_ns, event, arguments)

    def _add_answer(
        self, number: int, time_ns: int | None, event: Object, arguments: Object
    ) -> None:
        metadata = event.get("tool_call_metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        raw = metadata.get("model_response")
        response: Object = raw if isinstance(raw, dict) else {}
        key = to_text(response.get("id")) or str(number)
        is_message = event["action"] == "message"
        text = to_text(arguments.get("content" if is_message else "thought"))
        parts: list[Object] = [{"text": text}] if text else []
        call_id = to_text(metadata.get("tool_call_id")) or str(number)
        name = to_text(metadata.get("function_name")) or event["action"]
        shown = _find_arguments(response, call_id)
        if not shown:
            own = {key: each for key, each in arguments.items() if key != "thought"}
            shown = render_json(own)
        if not is_message:
            function = {"name": name, "arguments": shown}
            parts.append({"call": {"id": call_id, "type": "function", "function": function}})
        self.builder.answer(
            key,
            time_ns,
            parts,
            text=text,
            model=to_text(response.get("model")) or None,
            reason="stop" if is_message else "tool_calls",
            facts={"message_id": key},
        )
        self.builder.usage(key, _read_usage(response.get("usage")))
        if is_message or event["action"] == FINISH:
            self.builder.finish_turn()
        if not is_message and event["action"] != FINISH:
            self._calls[number] = call_id
            self.builder.call(call_id, time_ns, name, shown)

    def _add_observation(self, time_ns: int | None, event: Object) -> None:
        name = event["observation"]
        cause = to_count(event.get("cause"))
        call_id = self._calls.pop(cause, "") if cause is not None else ""
        text = to_text(event.get("content"))
        if not call_id:
            if name == "error":
                self.builder.log("error", text, time_ns)
                self.builder.finish_turn(text)
            return
        if name in _NOT_RESULTS:
            return
        raw = event.get("extras")
        extras: Object = raw if isinstance(raw, dict) else {}
        details = extras.get("metadata")
        code = details.get("exit_code") if isinstance(details, dict) else extras.get("exit_code")
        facts: Attributes = {}
        failed = name == "error"
        if type(code) is int and abs(code) < 2**31:
            facts["exit_code"] = code
            failed = failed or code != 0
        if name == "user_rejected":
            facts["error.type"], failed = "PermissionDenied", True
        diff = to_text(extras.get("diff"))
        if diff:
            facts["file_diff"] = diff[:_DIFF_MAX]
        shown = {"role": "tool", "tool_call_id": call_id, "content": ""}
        self.builder.result(call_id, time_ns, shown, text, is_error=failed, facts=facts)


_DIFF_MAX: Final = 16 * 1024


def _find_arguments(response: Object, call_id: str) -> str:
    """Return the arguments of a call as the model wrote them."""
    choices = response.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        message = choice.get("message") if isinstance(choice, dict) else None
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict) and call.get("id") == call_id:
                function = call.get("function")
                return to_text(function.get("arguments")) if isinstance(function, dict) else ""
    return ""


def _read_usage(usage: Any) -> Attributes:
    """Return the tokens of a response in the shape of LiteLLM. Input includes the cache."""
    if not isinstance(usage, dict):
        return {}
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return count_attributes(
        input_tokens=usage.get("prompt_tokens"),
        output_tokens=usage.get("completion_tokens"),
        cache_read_tokens=usage.get("cache_read_input_tokens", cached),
        cache_write_tokens=usage.get("cache_creation_input_tokens") or None,
    )
