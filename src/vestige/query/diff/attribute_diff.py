"""Attributes of two spans side by side, and which of them differ between any two runs.

Between two runs `ids` and `times` are ignored (query/diff/word_diff.py), and with them what is named so: a
process id, how long the first byte took, the headers by which a server tells when it answered, to
which request, and how much of a limit is left. Else every model call would be a divergence.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from vestige.query import formatting
from vestige.query.diff.body_diff import VALUE_KEPT, Differences, diff_json
from vestige.query.diff.word_diff import normalise
from vestige.record.run import SpanInfo

_HEADERS: Final = ("request.headers", "response.headers")
_NAMED: Final = {
    "ids": re.compile(r"pid"),
    "times": re.compile(r".*_ns"),
}
_HEADERS_NAMED: Final = {
    "ids": re.compile(
        r".*request-?id|.*trace-?(?:id|parent|state)|.*correlation-id|.*invocation-id|idempotency-key"
        r"|cf-.*|x-amz-(?:cf|id)-.*|x-served-by|x-cache.*|set-cookie|cookie|etag|nel|report-to|via"
    ),
    "times": re.compile(
        r"date|age|expires|last-modified|retry-after|server-timing|.*-(?:ms|time|duration)"
        r"|.*ratelimit-.*|content-length"
    ),
}
_decode = msgspec.json.Decoder().decode


def diff_attributes(a: SpanInfo, b: SpanInfo, rules: tuple[str, ...], found: Differences) -> None:
    """Attributes by name; both in the first's order."""
    was, now = a.attributes, b.attributes
    for key in [*was, *(key for key in now if key not in was)]:
        if _is_named(key, rules, _NAMED):
            continue
        if key not in now:
            found.note("-", key, formatting.value(was[key], VALUE_KEPT))
        elif key not in was:
            found.note("+", key, None, formatting.value(now[key], VALUE_KEPT))
        elif was[key] != now[key]:
            _diff_values(key, was[key], now[key], rules, found)


def _diff_values(key: str, was: Any, now: Any, rules: tuple[str, ...], found: Differences) -> None:
    was_text, now_text = str(was), str(now)
    if normalise(was_text, rules) == normalise(now_text, rules):
        return
    a, b = _object(was_text), _object(now_text)
    if not a or not b:
        found.note("~", key, was_text, now_text)
    elif key in _HEADERS:
        diff_json(_lasting(a, rules), _lasting(b, rules), key, rules, found, 0)
    else:
        diff_json(a, b, key, rules, found, 0)


def _lasting(headers: dict[str, Any], rules: tuple[str, ...]) -> dict[str, Any]:
    return {
        name: text for name, text in headers.items() if not _is_named(name, rules, _HEADERS_NAMED)
    }


def _is_named(key: str, rules: tuple[str, ...], named: dict[str, re.Pattern[str]]) -> bool:
    """Does its name say that it is of a kind that is ignored?"""
    return any(rule in rules and pattern.fullmatch(key) for rule, pattern in named.items())


def _object(text: str) -> dict[str, Any]:
    """What an attribute holds as JSON; empty where that is no object."""
    try:
        value = _decode(text) if text.startswith("{") else None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
