"""Parse one chat message of any supported shape into a common form.

    {"role": "assistant", "content": "...", "tool_calls": [...]}            OpenAI
    {"role": "assistant", "content": [{"type": "tool_use", ...}]}           Anthropic
    {"role": "user", "name": "Planner", "content": "..."}                   group chats
    {"role": "Orchestrator (thought)", "content": "..."}                    group chats
    {"source": "Planner", "content": "..."}                                 AutoGen
    {"from": "human", "value": "..."}                                       ShareGPT

In a group chat the roles `user` and `assistant` are relative to one participant, so a name
that is not a person's decides: it is an agent.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from vestige.formats.openai_bodies import Call
from vestige.record.coercion import clean_name, clean_text, flat

Object = dict[str, Any]

_SYSTEM: Final = frozenset(["system", "developer"])
_PERSON: Final = frozenset(["user", "human", "user_proxy", "userproxy", "customer", "admin"])
_MODEL: Final = frozenset(["assistant", "ai", "model", "gpt", "bot", "agent", "chatgpt"])
_EXIT: Final = "exit"
"""The last message of mini-swe-agent: what its last command submitted."""
_RESULT: Final = frozenset(
    ["tool", "function", "tool-response", "tool_response", "tool_result", "observation", "ipython"]
)
_AGENT_KEYS: Final = ("name", "source", "sender", "agent", "agent_name")
_SUFFIX: Final = re.compile(r"\s*\(([^()]{1,80})\)\s*$")
_EXECUTOR: Final = re.compile(
    r"(?:^|[_\W]|(?<=[a-z]))(?:terminal|executor|interpreter|sandbox|shell)$", re.IGNORECASE
)
_EXIT_CODE: Final = re.compile(r"\s*exitcode:\s*(-?\d{1,6})\b", re.IGNORECASE)
"""The first line of a code executor's message in AutoGen."""


class Result(msgspec.Struct, frozen=True):
    """A tool result of a message."""

    call_id: str | None
    name: str | None
    text: str
    is_error: bool = False


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message."""

    role: str
    """`system`, `user`, `assistant` or `tool`."""
    agent: str | None
    """The participant of a group chat, or None."""
    remark: str | None
    """The text in parentheses after a role: `thought`, `-> WebSurfer`."""
    content: Any
    """The content as it was stored."""
    text: str
    calls: list[Call]
    results: list[Result]
    is_anthropic: bool = False
    exit_code: int | None = None
    thinking: str = ""
    model: str | None = None
    usage: Object = {}
    cost: Any = None
    """US dollars, if the agent computed them."""
    time: Any = None


def is_message(value: Any) -> bool:
    """Return whether a JSON value looks like a chat message."""
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("from"), str) and isinstance(value.get("value"), str):
        return True
    named = isinstance(value.get("role"), str) or isinstance(value.get("source"), str)
    return named and ("content" in value or "tool_calls" in value or "parts" in value)


def parse_message(value: Object) -> ChatMessage:
    """Parse one message. `is_message` holds for it."""
    role, agent, remark = _parse_role(value)
    content = value.get("content", value.get("value", value.get("parts")))
    blocks = content if isinstance(content, list) else []
    calls = [*_openai_calls(value), *_anthropic_calls(blocks)]
    text = join_text(content)
    results = _anthropic_results(blocks)
    if role == "tool" and not results:
        name = value.get("name")
        results = [Result(_result_id(value), name if isinstance(name, str) else None, text)]
    exit_match = _EXIT_CODE.match(text) if agent is not None else None
    if agent is not None and (exit_match is not None or _EXECUTOR.search(agent)):
        role = "tool"
        results = [Result(None, agent, text, is_error=_failed(exit_match))]
    extra = _as_object(value.get("extra"))
    response = _as_object(extra.get("response"))
    model = (
        response.get("model") or value.get("model") or _as_object(value.get("modelInfo")).get("id")
    )
    return ChatMessage(
        role=role,
        agent=agent,
        remark=remark,
        content=content,
        text=text,
        calls=calls,
        results=results,
        is_anthropic=any(_type(block) in ("tool_use", "tool_result") for block in blocks),
        exit_code=int(exit_match[1]) if exit_match else _find_int(extra.get("returncode")),
        thinking=_thinking(value, blocks),
        model=model if isinstance(model, str) else None,
        usage=_as_object(response.get("usage") or value.get("usage") or _cline_usage(value)),
        cost=extra.get("cost"),
        time=value.get(
            "timestamp", value.get("created_at", value.get("ts", extra.get("timestamp")))
        ),
    )


def _cline_usage(value: Object) -> Object:
    """Return the tokens that Cline stores with an answer. Input includes what was cached."""
    metrics = _as_object(value.get("metrics"))
    return {
        "prompt_tokens": metrics.get("inputTokens"),
        "completion_tokens": metrics.get("outputTokens"),
        "prompt_tokens_details": {"cached_tokens": metrics.get("cacheReadTokens")},
    }


def _parse_role(value: Object) -> tuple[str, str | None, str | None]:
    """Return the role, the agent and the remark of a message."""
    raw = value.get("role", value.get("from", value.get("source")))
    raw = raw if isinstance(raw, str) else "user"
    suffix = _SUFFIX.search(raw)
    remark = suffix[1].strip() if suffix else None
    role = _SUFFIX.sub("", raw).strip()
    known = role.lower()
    named = next((value[key] for key in _AGENT_KEYS if isinstance(value.get(key), str)), None)
    agent = clean_name(named) if named and named.lower() not in _PERSON | _MODEL else None
    if known in _SYSTEM:
        return "system", None, remark
    if known in _RESULT or (known == _EXIT and "exit_status" in _as_object(value.get("extra"))):
        return "tool", None, remark
    if known in _MODEL:
        return "assistant", agent, remark
    if known in _PERSON:
        is_agent = agent is not None and "agent" not in value and "tool_call_id" not in value
        return ("assistant", agent, remark) if is_agent else ("user", None, remark)
    return "assistant", agent or clean_name(role), remark


def _failed(exit_match: re.Match[str] | None) -> bool:
    return exit_match is not None and int(exit_match[1]) != 0


def _openai_calls(value: Object) -> list[Call]:
    found = value.get("tool_calls")
    calls = list(found) if isinstance(found, list) else []
    if isinstance(value.get("function_call"), dict):  # the form before tool calls
        calls.append({"function": value["function_call"]})
    parsed: list[Call] = []
    for call in calls:
        if isinstance(call, dict):
            function = _as_object(call.get("function")) or call
            name = function.get("name")
            arguments = function.get("arguments", function.get("args", ""))
            parsed.append(Call(_text_id(call.get("id")), _name(name), _json_text(arguments)))
    return parsed


def _anthropic_calls(blocks: list[Any]) -> list[Call]:
    return [
        Call(_text_id(block.get("id")), _name(block.get("name")), _json_text(block.get("input")))
        for block in blocks
        if _type(block) == "tool_use"
    ]


def _anthropic_results(blocks: list[Any]) -> list[Result]:
    return [
        Result(
            _text_id(block.get("tool_use_id")),
            None,
            join_text(block.get("content")),
            block.get("is_error") is True,
        )
        for block in blocks
        if _type(block) == "tool_result"
    ]


def _result_id(value: Object) -> str | None:
    ids = value.get("tool_call_ids")
    first = ids[0] if isinstance(ids, list) and ids else None
    return _text_id(value.get("tool_call_id") or first)


def join_text(content: Any) -> str:
    """Return the text of a content, which may be a list of parts."""
    if isinstance(content, str):
        return clean_text(content)
    if isinstance(content, list):
        texts = (
            part if isinstance(part, str) else _as_object(part).get("text") for part in content
        )
        return clean_text("\n".join(text for text in texts if isinstance(text, str)))
    return "" if content is None else _json_text(content)


def _thinking(value: Object, blocks: list[Any]) -> str:
    found = [block.get("thinking") for block in blocks if _type(block) == "thinking"]
    found.extend(value.get(key) for key in ("reasoning_content", "reasoning"))
    return clean_text("\n".join(text for text in found if isinstance(text, str)))


def _find_int(value: Any) -> int | None:
    return value if type(value) is int else None


def _type(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else None


def _as_object(value: Any) -> Object:
    return value if isinstance(value, dict) else {}


def _text_id(value: Any) -> str | None:
    return clean_name(value) if isinstance(value, str) and value else None


def _name(value: Any) -> str:
    return clean_name(value) if isinstance(value, str) and value else "tool"


def _json_text(value: Any) -> str:
    if isinstance(value, str):
        return clean_text(value)
    if value is None:
        return ""
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeError, OverflowError, RecursionError):
        return str(flat(value))
