"""Rules for values that may differ between a recorded request and its replay.

    rules = parse_rules(["time", "uuid", "metadata.session", "/nonce=[0-9a-f]+/"])
    normalize(body, rules)          # two requests match if these are equal

A rule is a kind of value (`time`, `uuid`, `id`), a path in the JSON body, in which `*` matches any
key or index, or a regular expression between slashes. Ignored values are replaced by a
placeholder, so a request that has one more or one less of them still differs.
"""

from __future__ import annotations

import re
from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.errors import UsageError

_MONTHS = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
_CLOCK = r"\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?: ?[AaPp][Mm]\b)?"
_ZONE = r"(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?"

KINDS = {
    "time": re.compile(
        rf"\b\d{{4}}-\d\d-\d\d(?:[T ]{_CLOCK}{_ZONE})?"
        rf"|\b{_MONTHS} \d{{1,2}},? \d{{4}}(?:,? (?:at )?{_CLOCK}{_ZONE})?"
        rf"|\b\d{{1,2}} {_MONTHS} \d{{4}}(?:,? (?:at )?{_CLOCK}{_ZONE})?"
        rf"|\b{_CLOCK}{_ZONE}"
        r"|\b1[5-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?\b"
    ),
    "uuid": re.compile(
        r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b|\b[0-9a-fA-F]{32}\b"
    ),
    "id": re.compile(
        r"\b[a-zA-Z][a-zA-Z]{1,15}(?:[_-][a-z]{2,12})?[_-](?=[A-Za-z0-9_-]*\d)[A-Za-z0-9_-]{6,}\b"
        r"|\b(?=[0-9a-f]*\d)[0-9a-f]{16,}\b"
    ),
}
"""Dates, times and Unix times; UUIDs; ids such as `call_8fk2…`, and long hexadecimal numbers."""

_STEP = re.compile(r"(?P<key>[^.\[\]]+)|\[(?P<index>\d+|\*)\]")
_PATH = re.compile(r"(?:[^.\[\]/\s]+|\[(?:\d+|\*)\])(?:\.[^.\[\]\s]+|\[(?:\d+|\*)\])*")

Step = str | int
ANY = "*"


class Rule(msgspec.Struct, frozen=True):
    """A value of `--ignore`."""

    text: str
    """The rule as it was written."""
    pattern: re.Pattern[str] | None = None
    path: tuple[Step, ...] = ()


def parse_rules(texts: list[str] | tuple[str, ...]) -> list[Rule]:
    """Parse the values of `--ignore`. Raises UsageError for an invalid one."""
    return [_parse_rule(text) for each in texts for text in _split_kinds(each)]


def _split_kinds(text: str) -> list[str]:
    """Split a list of kinds, `time,uuid`. A comma in anything else belongs to the rule."""
    kinds = text.split(",")
    return kinds if all(each in KINDS for each in kinds) else [text]


def _parse_rule(text: str) -> Rule:
    if text in KINDS:
        return Rule(text, KINDS[text])
    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        try:
            return Rule(text, re.compile(text[1:-1]))
        except re.error as error:
            raise UsageError(f"--ignore {text}: not a regular expression ({error}).") from None
    if _PATH.fullmatch(text):
        steps = [_parse_step(found) for found in _STEP.finditer(text)]
        return Rule(text, path=tuple(steps))
    raise UsageError(
        f"--ignore {text!r}: not a rule (expected {', '.join(KINDS)}, a path such as"
        " messages[0].content, or /a regular expression/)."
    )


def _parse_step(found: re.Match[str]) -> Step:
    index = found["index"]
    if index is None:
        return str(found["key"])
    return ANY if index == ANY else int(index)


def normalize(body: bytes, rules: list[Rule]) -> bytes:
    """Replace the ignored values of a request body. Without rules the body stays as it is."""
    if not rules:
        return body
    body = _replace_paths(body, [rule for rule in rules if rule.path])
    return normalize_text(body.decode(errors="surrogateescape"), rules).encode(
        errors="surrogateescape"
    )


def normalize_text(text: str, rules: list[Rule]) -> str:
    """Replace the values that patterns match."""
    for rule in rules:
        if rule.pattern is not None:
            text = rule.pattern.sub(f"<{rule.text}>" if rule.text in KINDS else "<ignored>", text)
    return text


def find_unused(body: bytes, rules: list[Rule]) -> list[str]:
    """Return the path rules that match nothing in a body: they may be misspelt."""
    try:
        data = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return []
    return [rule.text for rule in rules if rule.path and not _replace(data, rule.path)]


def _replace_paths(body: bytes, rules: list[Rule]) -> bytes:
    if not rules:
        return body
    try:
        data = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return body
    for rule in rules:
        _replace(data, rule.path)
    return msgspec.json.encode(data)


def _replace(data: Any, path: tuple[Step, ...]) -> bool:
    """Replace the values at a path. Return whether there are any."""
    step, rest = path[0], path[1:]
    if isinstance(data, dict):
        keys: list[Any] = list(data) if step == ANY else [step] if step in data else []
    elif isinstance(data, list):
        in_range = isinstance(step, int) and step < len(data)
        keys = list(range(len(data))) if step == ANY else [step] if in_range else []
    else:
        return False
    is_found = False
    for key in keys:
        if rest:
            is_found = _replace(data[key], rest) or is_found
        else:
            data[key] = "<ignored>"
            is_found = True
    return is_found
