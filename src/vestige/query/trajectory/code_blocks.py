"""Code and tool calls that a model wrote as text: fenced blocks, ReAct, JSON actions.

split_code("Thought: look\nCode:\n```py\nsearch('x')\n```")
# [("text", "", "Thought: look\nCode:"), ("code", "py", "search('x')")]
parse_text_calls("Thought: ...\nAction: search\nAction Input: x")
# [TextCall("search", "x")]
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

import msgspec

_FENCE: Final = re.compile(
    r"^[ \t]*```[ \t]*(?P<language>[\w+#.-]*)[^\n]*\n(?P<code>.*?)"
    r"(?:^[ \t]*```[ \t]*$|^[ \t]*```|\Z)",
    re.MULTILINE | re.DOTALL,
)
_TAG: Final = re.compile(r"<code>\s*\n?(?P<code>.*?)(?:</code>|\Z)", re.DOTALL)
_END_CODE: Final = re.compile(r"\s*(?:<end_code>|<end_action>|</code>)\s*\Z")
_CODE_LABEL: Final = re.compile(r"\n?[ \t]*Code:[ \t]*\Z")
_REACT: Final = re.compile(
    r"^[ \t]*\**Action\**:\**[ \t]*(?P<name>[^\n{}]{1,120}?)[ \t]*\n+"
    r"[ \t]*\**Action Input\**:\**[ \t]*(?P<arguments>.*?)(?=^[ \t]*\**Observation\**:|\Z)",
    re.MULTILINE | re.DOTALL,
)
_JSON_ACTION: Final = re.compile(
    r"^[ \t]*Action:[ \t]*\n?[ \t]*(?:```(?:json)?\n)?(?P<json>\{)", re.M
)

_DECODER: Final = json.JSONDecoder()

ARGUMENTS_MAX: Final = 100_000
"""Characters of a JSON action that are parsed."""

NOT_CODE: Final = frozenset(
    ["json", "text", "txt", "markdown", "md", "output", "csv", "yaml", "xml", "html"]
)
"""Languages of blocks that nobody executes."""


class TextCall(NamedTuple):
    """A tool call that a model wrote as text."""

    name: str
    arguments: str


def split_code(text: str) -> list[tuple[str, str, str]]:
    """Split an answer into (`text` or `code`, language, text), without fences and stop tokens."""
    if "```" not in text and "<code>" not in text:
        return [("text", "", text)] if text.strip() else []
    pattern = _FENCE if "```" in text else _TAG
    parts: list[tuple[str, str, str]] = []
    at = 0
    for found in pattern.finditer(text):
        language = found.groupdict().get("language") or ""
        if not found["code"].strip() or language.lower() in NOT_CODE:
            continue
        before = _CODE_LABEL.sub("", text[at : found.start()].rstrip())
        if before.strip():
            parts.append(("text", "", before.strip("\n")))
        parts.append(("code", language, found["code"].rstrip()))
        at = found.end()
    rest = _END_CODE.sub("", text[at:])
    if rest.strip():
        parts.append(("text", "", rest.strip("\n")))
    return parts


def parse_text_calls(text: str) -> list[TextCall]:
    """Return the tool calls of ReAct text (`Action:`, `Action Input:`) and of JSON actions."""
    if "Action" not in text:
        return []
    calls = [
        TextCall(
            found["name"].strip(" `*\"'"), found["arguments"].strip().removesuffix("```").strip()
        )
        for found in _REACT.finditer(text)
    ]
    if calls:
        return calls
    for found in _JSON_ACTION.finditer(text):
        call = _parse_json_action(text[found.start("json") :])
        if call is not None:
            calls.append(call)
    return calls


def _parse_json_action(text: str) -> TextCall | None:
    """Parse `{"name": ..., "arguments": ...}` or `{"action": ..., "action_input": ...}`."""
    value = _decode_first(text)
    if not isinstance(value, dict):
        return None
    name = value.get("name") or value.get("action") or value.get("tool")
    if not isinstance(name, str):
        return None
    for key in ("arguments", "action_input", "parameters", "input"):
        if key in value:
            arguments = value[key]
            shown = (
                arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
            )
            return TextCall(name, shown)
    return TextCall(name, "")


def _decode_first(text: str) -> object:
    """Decode the JSON object at the start of a text."""
    try:
        return _DECODER.raw_decode(text[:ARGUMENTS_MAX])[0]
    except (ValueError, RecursionError):
        return None
