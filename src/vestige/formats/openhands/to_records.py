"""Events of a conversation of version 1 as records.

    MessageEvent, source user       a turn
    ActionEvent                     a tool call; those of one answer have one llm_response_id
    MessageEvent, source agent      an answer without a call
    ObservationEvent                the end of a tool
    AgentErrorEvent                 the end of a tool that could not be executed
    ConversationErrorEvent          a failed model call
    Condensation                    a span `compaction`

Tokens of answers are in the state of the conversation, by the ids of the responses. It is written
again with each answer.
"""

from __future__ import annotations

from typing import Any, Final

from vestige.formats.openhands.constants import AGENT, FINISH, FORMAT, TASK
from vestige.formats.provider_bodies import OPENAI_CHAT, Object, render_json
from vestige.formats.session_builder import SessionBuilder
from vestige.formats.session_files import count_attributes, to_text
from vestige.formats.times_and_outcomes import parse_time_ns
from vestige.record.types import Attributes

_DENIED: Final = "UserRejectObservation"
_RESULTS: Final = ("ObservationEvent", "AgentErrorEvent", _DENIED, "HookExecutionEvent")


class ConversationReader:
    """Converts the events of one conversation, in order."""

    def __init__(
        self, conversation_id: str, state: Object, builder: SessionBuilder | None = None
    ) -> None:
        self._id = conversation_id
        self.builder = builder or SessionBuilder(FORMAT, conversation_id, OPENAI_CHAT, AGENT)
        self._model = _find_model(state)
        self._usage = read_usages(state)
        self._answer_key = ""
        self._tasks: dict[str, list[tuple[str, str]]] = {}
        """Spans of calls that start a sub-agent, and its type, by their prompts."""
        facts = self.builder.facts
        facts["source_session_id"] = to_text(state.get("id")) or conversation_id
        workspace = state.get("workspace")
        cwd = to_text(workspace.get("working_dir")) if isinstance(workspace, dict) else ""
        if cwd:
            facts["cwd"] = cwd[:1_000]

    def open_subagent(self, key: str, state: Object, first: list[Object]) -> ConversationReader:
        """Return the reader of a sub-agent, below the call with the prompt in its first events."""
        prompts = [_message_text(event) for event in first if event.get("source") == "user"]
        calls = self._tasks.get(prompts[0] if prompts else "", [])
        parent_id, agent = calls.pop(0) if calls else (self.builder.top_id, "sub-agent")
        builder = SessionBuilder(
            FORMAT,
            self._id,
            OPENAI_CHAT,
            agent,
            stream=key,
            parent_id=parent_id,
        )
        builder.facts.update({"agent_name": agent, "agent_id": key})
        return ConversationReader(key, state, builder)

    def add(self, number: int, size: int, event: Object) -> None:
        """Add an event."""
        self.builder.entry_size = size
        key = to_text(event.get("id")) or str(number)
        time_ns = parse_time_ns(event.get("timestamp"))
        match event.get("kind"):
            case "MessageEvent" if event.get("source") == "user":
                text = _message_text(event)
                message = {"role": "user", "content": _content(event)}
                self.builder.prompt(key, time_ns, message, text, facts={"message_id": key})
            case "MessageEvent":
                self._add_answer(key, time_ns, event, _message_text(event))
                self.builder.finish_turn()
            case "ActionEvent":
                self._add_call(key, time_ns, event)
            case kind if kind in _RESULTS:
                self._add_result(time_ns, event)
            case "ConversationErrorEvent":
                self._add_error(key, time_ns, event)
            case "Condensation" | "CondensationSummaryEvent":
                self.builder.span(
                    key, "compaction", "compaction", time_ns, to_text(event.get("summary")) or None
                )
            case "SystemPromptEvent":
                prompt = event.get("system_prompt")
                text = to_text(prompt.get("text")) if isinstance(prompt, dict) else ""
                self.builder.context({"role": "system", "content": text}, time_ns)
            case "PauseEvent":
                self.builder.log("info", "paused by the user", time_ns)
                self.builder.finish_turn(is_cancelled=True)

    # --- the model ----------------------------------------------------------------------------

    def _add_answer(self, key: str, time_ns: int | None, event: Object, text: str) -> str:
        """Add an answer, or the next call of it. Return its key."""
        answer = to_text(event.get("llm_response_id")) or key
        parts: list[Object] = []
        message = event.get("llm_message")
        holder = message if isinstance(message, dict) else event
        if thought := to_text(holder.get("reasoning_content")):
            parts.append({"thinking": thought})
        if text:
            parts.append({"text": text})
        call = event.get("tool_call")
        if isinstance(call, dict):
            arguments = to_text(call.get("arguments"))
            function = {"name": to_text(call.get("name")), "arguments": arguments}
            call_id = to_text(event.get("tool_call_id"))
            parts.append({"call": {"id": call_id, "type": "function", "function": function}})
        usage = self._usage.get(answer, {})
        self.builder.answer(
            answer,
            time_ns,
            parts,
            text=text,
            model=to_text(usage.get("model")) or self._model,
            reason="tool_calls" if isinstance(call, dict) else "stop",
            facts={"message_id": answer},
        )
        self.builder.usage(answer, {name: each for name, each in usage.items() if name != "model"})
        return answer

    def _add_call(self, key: str, time_ns: int | None, event: Object) -> None:
        self._add_answer(key, time_ns, event, _texts(event.get("thought")))
        call = event.get("tool_call")
        call = call if isinstance(call, dict) else {}
        call_id = to_text(event.get("tool_call_id")) or key
        name = to_text(event.get("tool_name")) or to_text(call.get("name")) or "tool"
        arguments = to_text(call.get("arguments")) or render_json(event.get("action"))
        span_id = self.builder.call(call_id, time_ns, name, arguments)
        action = event.get("action")
        if name == TASK and isinstance(action, dict):
            agent = to_text(action.get("subagent_type")) or "sub-agent"
            self._tasks.setdefault(to_text(action.get("prompt")), []).append((span_id, agent))

    def _add_error(self, key: str, time_ns: int | None, event: Object) -> None:
        text = to_text(event.get("detail")) or to_text(event.get("code")) or "error"
        facts: Attributes = {"message_id": key, "error.type": to_text(event.get("code"))}
        self.builder.answer(key, time_ns, [], model=self._model, error=text, facts=facts)
        self.builder.finish_turn(text)

    # --- tools --------------------------------------------------------------------------------

    def _add_result(self, time_ns: int | None, event: Object) -> None:
        call_id = to_text(event.get("tool_call_id"))
        observation = event.get("observation")
        observation = observation if isinstance(observation, dict) else {}
        text = _texts(observation.get("content")) or to_text(event.get("error"))
        failed = observation.get("is_error") is True or event.get("kind") == "AgentErrorEvent"
        facts: Attributes = {}
        code = observation.get("exit_code")
        if type(code) is int and abs(code) < 2**31:
            facts["exit_code"] = code
            failed = failed or code != 0
        if event.get("kind") == _DENIED:
            facts["error.type"] = "PermissionDenied"
            text, failed = to_text(event.get("rejection_reason")), True
        name = event.get("tool_name")
        shown = {"role": "tool", "tool_call_id": call_id, "content": _images(observation)}
        self.builder.result(call_id, time_ns, shown, text, is_error=failed, facts=facts)
        if name == FINISH and not failed:
            self.builder.finish_turn()


# --- state ------------------------------------------------------------------------------------


def read_usages(state: Object) -> dict[str, Attributes]:
    """Return the model and the tokens of answers, by the ids of the responses."""
    stats = state.get("stats")
    metrics = stats.get("usage_to_metrics") if isinstance(stats, dict) else None
    found: dict[str, Attributes] = {}
    for each in metrics.values() if isinstance(metrics, dict) else ():
        usages = each.get("token_usages") if isinstance(each, dict) else None
        for usage in usages if isinstance(usages, list) else ():
            if isinstance(usage, dict) and to_text(usage.get("response_id")):
                found[usage["response_id"]] = read_usage(usage)
    return found


def read_usage(usage: Object) -> Attributes:
    """Return the model and the tokens of one answer. Input includes the cache."""
    attributes = count_attributes(
        input_tokens=usage.get("prompt_tokens"),
        output_tokens=usage.get("completion_tokens"),
        cache_read_tokens=usage.get("cache_read_tokens"),
        cache_write_tokens=usage.get("cache_write_tokens") or None,
        reasoning_tokens=usage.get("reasoning_tokens") or None,
    )
    if model := _short(to_text(usage.get("model"))):
        attributes["model"] = model
    return attributes


def _find_model(state: Object) -> str | None:
    agent = state.get("agent")
    llm = agent.get("llm") if isinstance(agent, dict) else None
    return _short(to_text(llm.get("model"))) or None if isinstance(llm, dict) else None


def _short(model: str) -> str:
    """Return the model without the provider that LiteLLM prefixes."""
    return model.rpartition("/")[2]


# --- content ----------------------------------------------------------------------------------


def _message_text(event: Object) -> str:
    message = event.get("llm_message")
    return _texts(message.get("content")) if isinstance(message, dict) else ""


def _texts(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (to_text(part.get("text")) for part in parts if isinstance(part, dict))
    return "\n".join(text for text in texts if text)


def _content(event: Object) -> str | list[Object]:
    message = event.get("llm_message")
    images = _images(message) if isinstance(message, dict) else ""
    text = _message_text(event)
    return [{"type": "text", "text": text}, *images] if isinstance(images, list) else text


def _images(holder: Object) -> str | list[Object]:
    """Return the images of a message or a result. The text of a result is its tool's output."""
    content = holder.get("content")
    urls = [
        url
        for part in (content if isinstance(content, list) else ())
        if isinstance(part, dict) and isinstance(part.get("image_urls"), list)
        for url in part["image_urls"]
        if isinstance(url, str)
    ]
    return [{"type": "image_url", "image_url": {"url": url}} for url in urls] or ""
