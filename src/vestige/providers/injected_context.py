"""Context that coding agents put before the words of a user: `<environment>...</environment>`."""

from __future__ import annotations

from vestige._runtime.re_compat import re

_ELEMENT = re.compile(r"<([A-Za-z][\w-]{2,40})(?:\s[^<>]{0,200})?>")
_ELEMENTS_MAX = 50


def strip_context(text: str) -> str:
    """Return a message without the elements at its beginning: `<context>...</context>`.

    Coding agents put facts about the machine and reminders there. The result is empty if there is
    nothing else.
    """
    rest = text.strip()
    for _ in range(_ELEMENTS_MAX):
        found = _ELEMENT.match(rest)
        end = rest.find(f"</{found[1]}>") if found is not None else -1
        if found is None or end < 0:
            return rest
        rest = rest[end + len(found[1]) + 3 :].lstrip()
    return rest
