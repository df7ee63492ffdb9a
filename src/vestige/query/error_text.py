"""Errors as a person reads them: the message first, the class that carried it last."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

READ_MAX: Final = 4_000
"""Characters of an error that are searched."""

_NAMED_EXCEPTION: Final = re.compile(r"\b(?:\w+\.)*([A-Z]\w*(?:Error|Exception))\b")


def find_innermost(error: str) -> re.Match[str] | None:
    """Return the last exception that an error names after its own type; None if it names none."""
    found = [*_NAMED_EXCEPTION.finditer(error[:READ_MAX])]
    return next((match for match in reversed(found) if match.start()), None)


def find_message(text: str) -> str | None:
    """Return the provider's message in an error: `message` or `error.message` of its JSON object.

    Clients put the provider's answer behind the names of their own classes.
    """
    start = text.find("{")
    if start < 0:
        return None
    try:
        value: Any = msgspec.json.decode(text[start : text.rfind("}") + 1])
    except (ValueError, RecursionError):
        return None
    for _ in range(3):
        if not isinstance(value, dict):
            return None
        if isinstance(value.get("message"), str) and value["message"].strip():
            return str(value["message"]).strip()
        value = value.get("error")
    return None
