"""Facts stored beside the messages of a conversation: task, outcome and others.

{"history": [...], "question": ..., "system_prompt": {agent: prompt}}     Who&When
{"traj": [...], "task_id": 2, "reward": 0.0, "info": {...}}               tau-bench
{"messages": [...], "info": {"exit_status": ..., "submission": ...}}      mini-swe-agent
{"trajectory": [...], "history": [...], "info": {...}}                    SWE-agent
{"conversations": [{"from": "human", "value": ...}]}                      ShareGPT
{"system": ..., "messages": [...], "tools": [...]}                        Anthropic
{"sessionId": ..., "messages": [...], "system_prompt": ...}               Cline
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from vestige.formats.messages.parse_message import Object, join_text
from vestige.limits import ATTRIBUTE_VALUE_MAX
from vestige.record.coercion import clean_name, clean_text, truncate
from vestige.record.types import Attributes

LIST_KEYS: Final = ("messages", "history", "traj", "conversations", "conversation", "trajectory")
"""Members that hold the messages, the preferred one first."""

_TASK_KEYS: Final = ("question", "task", "problem_statement", "instruction", "prompt", "query")
_PROMPT_KEYS: Final = ("system_prompt", "system")
_NOT_FACTS: Final = frozenset([*_TASK_KEYS, *_PROMPT_KEYS])
_DONE: Final = frozenset(["submitted", "completed", "success", "done", "ok", "finished", "stop"])
_ATTRIBUTES_MAX: Final = 40


class ConversationFacts(msgspec.Struct, frozen=True):
    """Facts of a conversation."""

    task: str = ""
    attributes: Attributes = {}
    system_prompts: dict[str, str] = {}
    """Keyed by agent."""
    exit_status: str = ""
    error: str = ""
    result: str = ""

    @property
    def is_failed(self) -> bool:
        return bool(self.error) or not (
            not self.exit_status or self.exit_status.lower().partition(" ")[0] in _DONE
        )


def parse_conversation_facts(value: Object) -> ConversationFacts:
    """Return the facts beside the messages. Long values and nested ones are left out."""
    info = value.get("info")
    info = info if isinstance(info, dict) else {}
    facts: Attributes = {}
    for prefix, members in (("", value), ("info.", info)):
        for key, member in members.items():
            scalar = isinstance(member, (str, int, float, bool))
            if scalar and key not in _NOT_FACTS and len(facts) < _ATTRIBUTES_MAX:
                text = truncate(clean_text(member), 2_000) if isinstance(member, str) else member
                facts[clean_name(prefix + key)] = text
    return ConversationFacts(
        task=_find_task(value, info),
        attributes=facts,
        system_prompts=_find_prompts(value),
        exit_status=_text(info.get("exit_status") or value.get("exit_status")),
        error=_text(info.get("error") or value.get("error")),
        result=_text(info.get("submission") or value.get("submission")),
    )


def _find_task(value: Object, info: Object) -> str:
    for members in (value, info):
        for key in _TASK_KEYS:
            found = members.get(key)
            if isinstance(found, dict):  # tau-bench keeps the instruction in info.task
                found = found.get("instruction")
            if isinstance(found, str) and found.strip():
                return truncate(clean_text(found), ATTRIBUTE_VALUE_MAX)
    return ""


def _find_prompts(members: Object) -> dict[str, str]:
    value = next((members[key] for key in _PROMPT_KEYS if key in members), None)
    if isinstance(value, list):  # blocks of text
        value = join_text(value)
    if isinstance(value, dict):
        found = {clean_name(agent): join_text(prompt) for agent, prompt in value.items()}
        return {agent: prompt for agent, prompt in found.items() if prompt}
    return {"": clean_text(value)} if isinstance(value, str) and value else {}


def _text(value: Any) -> str:
    return truncate(clean_text(value), ATTRIBUTE_VALUE_MAX) if isinstance(value, str) else ""
