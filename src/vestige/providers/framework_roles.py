"""Roles that agent frameworks record, which never reach a provider in this form.

smolagents keeps `tool-call` and `tool-response` messages, whose content is text:

    tool-call:      Calling tools:\\n[{'id': 'call_1', 'type': 'function', 'function': {...}}]
    tool-response:  Observation:\\n...    or    Call id: call_1\\nError:\\n...

It converts them before it sends them, so the rules of a provider do not apply to such a body.
"""

from __future__ import annotations

import ast
from typing import Any

from vestige._runtime.re_compat import re
from vestige.limits import KIB
from vestige.providers.chat_types import ToolCall, ToolResult
from vestige.providers.json_access import as_dict, as_str, dicts, find_str, json_text

CALL_ROLES = frozenset({"tool-call", "tool_call"})
RESULT_ROLES = frozenset({"tool-response", "tool_response"})

TEXT_MAX = 256 * KIB
"""A longer text of calls is not parsed."""

_CALLS = re.compile(r"\s*Calling tools:\s*(\[.*\])\s*\Z", re.DOTALL)
_RESULT = re.compile(
    r"\s*(?:Call id:[ \t]*(?P<id>[^\n]+)\n)?(?:Observation:\n)?(?P<text>.*)", re.DOTALL
)
_ERROR = re.compile(r"\s*(?:Call id:[^\n]*\n)?Error:\n")


def is_framework_body(messages: list[Any]) -> bool:
    """Return whether the messages are a framework's own record, not a sent request."""
    roles = CALL_ROLES | RESULT_ROLES
    return any(as_str(message.get("role")) in roles for message in dicts(messages))


def parse_calls(text: str) -> list[ToolCall]:
    """Parse the calls in the text of a `tool-call` message; none if it has another form."""
    found = _CALLS.match(text) if len(text) <= TEXT_MAX else None
    if found is None:
        return []
    try:
        items = ast.literal_eval(found[1])
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return []
    calls = []
    for item in dicts(items):
        function = as_dict(item.get("function")) or item
        name = as_str(function.get("name"))
        arguments = json_text(function.get("arguments", {}))
        calls.append(ToolCall(id=find_str(item.get("id")), name=name, arguments=arguments))
    return calls


def parse_result(text: str) -> ToolResult:
    """Parse the text of a `tool-response` message."""
    found = _RESULT.fullmatch(text)
    call_id, rest = (found["id"], found["text"]) if found else (None, text)
    failed = _ERROR.match(text) is not None
    return ToolResult(call_id=call_id and call_id.strip(), text=rest, is_error=failed)
