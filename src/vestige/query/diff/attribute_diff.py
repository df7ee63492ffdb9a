"""Compare the attributes of two spans.

The rules `ids` and `times` (query/diff/word_diff.py) also ignore attributes and HTTP headers
by name: process ids, latencies, request ids, dates, rate limits. They differ between any two
runs, so without this every model call would be a difference.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from vestige.query import formatting
from vestige.query.diff.body_diff import VALUE_CHARS_MAX, Differences, diff_json
from vestige.query.diff.word_diff import normalise
from vestige.record.run import SpanInfo

_HEADERS: Final = ("request.headers", "response.headers")
_VOLATILE_NAMES: Final = {
    "ids": re.compile(r"pid"),
    "times": re.compile(r".*_ns"),
}
_VOLATILE_HEADERS: Final = {
    "ids": re.compile(
        r".*request-?id|.*trace-?(?:id|parent|state)|.*correlation-id|.*invocation-id"
        r"|idempotency-key|cf-.*|x-amz-(?:cf|id)-.*|x-served-by|x-cache.*|set-cookie|cookie"
        r"|etag|nel|report-to|via"
    ),
    "times": re.compile(
        r"date|age|expires|last-modified|retry-after|server-timing|.*-(?:ms|time|duration)"
        r"|.*ratelimit-.*|content-length"
    ),
}
_decode = msgspec.json.Decoder().decode


def diff_attributes(a: SpanInfo, b: SpanInfo, rules: tuple[str, ...], found: Differences) -> None:
    """Add the attributes that differ to `found`."""
    was, now = a.attributes, b.attributes
    for key in [*was, *(key for key in now if key not in was)]:
        if _is_volatile(key, rules, _VOLATILE_NAMES):
            continue
        if key not in now:
            found.add("-", key, formatting.value(was[key], VALUE_CHARS_MAX))
        elif key not in was:
            found.add("+", key, None, formatting.value(now[key], VALUE_CHARS_MAX))
        elif was[key] != now[key]:
            _diff_values(key, was[key], now[key], rules, found)


def _diff_values(key: str, was: Any, now: Any, rules: tuple[str, ...], found: Differences) -> None:
    was_text, now_text = str(was), str(now)
    if normalise(was_text, rules) == normalise(now_text, rules):
        return
    a, b = _parse_object(was_text), _parse_object(now_text)
    if not a or not b:
        found.add("~", key, was_text, now_text)
    elif key in _HEADERS:
        diff_json(_stable_headers(a, rules), _stable_headers(b, rules), key, rules, found, 0)
    else:
        diff_json(a, b, key, rules, found, 0)


def _stable_headers(headers: dict[str, Any], rules: tuple[str, ...]) -> dict[str, Any]:
    return {
        name: value
        for name, value in headers.items()
        if not _is_volatile(name, rules, _VOLATILE_HEADERS)
    }


def _is_volatile(name: str, rules: tuple[str, ...], patterns: dict[str, re.Pattern[str]]) -> bool:
    return any(rule in rules and pattern.fullmatch(name) for rule, pattern in patterns.items())


def _parse_object(text: str) -> dict[str, Any]:
    """Return the JSON object in an attribute; empty if the text is not one."""
    try:
        value = _decode(text) if text.startswith("{") else None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
