"""Steps of SWE-agent's trajectories as chat messages.

A step has the model's thought and action, and the observation that came back. The history that
is stored beside them contains demonstrations and truncated observations, so the steps are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vestige.formats.messages.parse_message import Object, join_text


def is_step(value: Any) -> bool:
    """Return whether a JSON value is a step of a trajectory."""
    return isinstance(value, dict) and "observation" in value and "action" in value


def iter_opening(history: Any) -> Iterator[Object]:
    """Yield the messages before the first answer, without demonstrations."""
    for message in history if isinstance(history, list) else ():
        if not isinstance(message, dict) or message.get("is_demo"):
            continue
        if message.get("role") == "assistant":
            return
        yield message


def step_to_messages(step: Object, number: int) -> list[Object]:
    """Return the answer of a step, and the result of its action."""
    action, thought = join_text(step.get("action")).strip(), join_text(step.get("thought"))
    text = join_text(step.get("response")) or thought
    call_id = f"step-{number}"
    answer: Object = {"role": "assistant", "content": text or thought}
    if not action:
        return [answer, {"role": "user", "content": step.get("observation")}]
    name = action.split(maxsplit=1)[0][:60]
    answer["tool_calls"] = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": action}}
    ]
    result = {
        "role": "tool",
        "name": name,
        "tool_call_id": call_id,
        "content": step.get("observation"),
    }
    return [answer, result]
