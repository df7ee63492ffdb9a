"""Tool calls of older versions, which are elements in the text of an answer.

    <execute_command>
    <command>ls</command>
    </execute_command>

The next message of the user begins with `[execute_command for 'ls'] Result:`. Only a tool that
is named there was executed, so other elements in a text are not calls.
"""

from __future__ import annotations

import re
from typing import Final

_RESULT: Final = re.compile(r"\[([a-z][a-z0-9_]{1,60})(?: for [^\n]{0,4000})?\] Result:\s*")
_NAME: Final = re.compile(r"<([a-zA-Z_][a-zA-Z0-9_]{0,60})>")
_PARAMETERS_MAX: Final = 100


def split_result(text: str) -> tuple[str, str] | None:
    """Return the name of the tool and its result; None if the text is not a result."""
    found = _RESULT.match(text)
    return (found[1], text[found.end() :]) if found else None


def find_arguments(text: str, tool: str) -> dict[str, str] | None:
    """Return the arguments of the last call of a tool in a text; None if there is none."""
    start = text.rfind(f"<{tool}>")
    if start < 0:
        return None
    end = text.find(f"</{tool}>", start)
    inner = text[start + len(tool) + 2 : end if end >= 0 else len(text)]
    arguments: dict[str, str] = {}
    position = 0
    while len(arguments) < _PARAMETERS_MAX:
        opening = _NAME.search(inner, position)
        if opening is None:
            break
        closing = inner.find(f"</{opening[1]}>", opening.end())
        if closing < 0:
            break
        arguments[opening[1]] = inner[opening.end() : closing].strip("\n")
        position = closing
    return arguments
