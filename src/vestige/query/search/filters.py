"""Parse run filters: `is:failed tool:search cost>0.1 since:2d "card refused"`.

A term is `key:value` or `key>number`, and a leading `-` negates it. Any other word, and quoted
text, must occur somewhere in the run. A run matches if all terms match.

    terms = parse_filter('is:failed -tool:search duration>5s', now_ns)

Elsewhere: terms become SQL in store/sqlite/read/filter_sql.py.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from vestige.errors import UsageError
from vestige.limits import FILTER_MAX, FILTER_TERMS_MAX, SECONDS_MAX
from vestige.query import formatting
from vestige.settings import parse_duration
from vestige.store.protocol import Op, Term

STATES: Final = (
    "failed",
    "ok",
    "running",
    "error",
    "cancelled",
    "timeout",
    "interrupted",
    "unknown",
    "pinned",
)
HAVING: Final = ("finding", "conversation", "error", "cost", "note")
TEXTS: Final = ("name", "component", "conversation", "model", "tool", "type", "check", "note")
AGES: Final = ("since", "before")
NUMBERS: Final = ("cost", "tokens", "duration", "spans", "errors", "logs")
KEYS: Final = ("is", "has", *TEXTS, *AGES, *NUMBERS)

_TERM = re.compile(
    r"""(?P<not>-)?
        (?:(?P<key>[A-Za-z_]+)(?P<op>:|>=|<=|>|<|=))?
        (?P<value>"(?:\\.|[^"\\])*"|[^\s"][^\s]*|"(?P<unclosed>.*))?""",
    re.VERBOSE | re.DOTALL,
)
_UNITS: Final = {"": 1, "k": 1_000, "m": 1_000_000}
_NUMBER = re.compile(r"(\d{1,15}(?:\.\d{1,9})?|\.\d{1,9})([kKmM]?)")


def parse_filter(text: str, now_ns: int) -> tuple[Term, ...]:
    """Parse a filter. Raise UsageError for an invalid term."""
    if len(text) > FILTER_MAX:
        raise UsageError(f"filter: {len(text)} characters (expected at most {FILTER_MAX}).")
    text = formatting.to_valid_utf8(text)
    terms: list[Term] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        found = _TERM.match(text, at)
        assert found is not None  # Every part of the pattern is optional.
        if found.end() == at:
            raise _invalid(text[at:], "a term")
        terms.append(_parse_term(found, now_ns))
        at = found.end()
    if len(terms) > FILTER_TERMS_MAX:
        raise UsageError(f"filter: {len(terms)} terms (expected at most {FILTER_TERMS_MAX}).")
    return tuple(terms)


def is_filter(group: Sequence[str]) -> bool:
    """Return True if one of these words is a filter term, so they are not run ids."""
    return any(_TERM_START.match(word) for word in group)


_TERM_START = re.compile(rf"\s*-?(?:{'|'.join(KEYS)})(?::|>|<|=)", re.IGNORECASE)


def _parse_term(found: re.Match[str], now_ns: int) -> Term:
    text, key, value = found.group(), found["key"], found["value"]
    if found["unclosed"] is not None:
        raise _invalid(text, 'a closing quote, as in "card refused"')
    negated = found["not"] is not None and (key is not None or value is not None)
    if key is None:
        return Term("text", ":", _unquote(value or text), negated)
    key = key.lower()
    if key not in KEYS:
        near = difflib.get_close_matches(key, KEYS, 3, 0.6) or list(KEYS)
        quoted = formatting.single_line(text.removeprefix("-"), 60)
        raise _invalid(text, f'{", ".join(near)}; as text: "{quoted}"')
    if value is None:
        raise _invalid(text, f"a value after {key}{found['op']}")
    op = cast(Op, found["op"])  # The pattern matches no other operators.
    return _build_term(key, op, _unquote(value), negated, text, now_ns)


def _build_term(key: str, op: Op, value: str, negated: bool, text: str, now_ns: int) -> Term:
    if key in NUMBERS:
        if op == ":":
            raise _invalid(text, f"{key}> or {key}< and a number")
        return Term(key, op, _parse_value(_number_parser(key), value, text), negated)
    if op not in (":", "="):
        raise _invalid(text, f"{key}: and a value; {', '.join(NUMBERS)} can be compared")
    if key in AGES:
        age_s = _parse_value(parse_duration, value, text)
        edge_ns = max(0, now_ns - int(min(age_s, SECONDS_MAX) * 1e9))
        return Term("started_ns", ">=" if key == "since" else "<", edge_ns, negated)
    choices = {"is": STATES, "has": HAVING}.get(key)
    if choices is not None and value.lower() not in choices:
        raise _invalid(text, f"{key}: and one of {', '.join(choices)}")
    if not value:
        raise _invalid(text, f"a value after {key}:")
    return Term(key, ":", value.lower() if choices else value, negated)


def _unquote(value: str) -> str:
    if value.startswith('"'):
        return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)
    return value


def _parse_value(parse: Callable[[str], Any], value: str, text: str) -> Any:
    try:
        return parse(value)
    except ValueError as error:
        expected = str(error).partition("expected ")[2].rstrip(")")
        raise _invalid(text, expected or str(error)) from None


def _number_parser(key: str) -> Callable[[str], Any]:
    if key == "duration":
        return lambda text: int(min(parse_duration(text), SECONDS_MAX) * 1e9)
    return _parse_number


def _parse_number(text: str) -> float | int:
    """Parse `10`, `0.5`, `$0.1`, `10k` or `1.5M`."""
    found = _NUMBER.fullmatch(text.removeprefix("$"))
    if found is None:
        raise ValueError("not a number (expected a number such as 10, 0.5, 10k)")
    number = min(float(found[1]) * _UNITS[found[2].lower()], 2.0**62)
    return int(number) if number.is_integer() else number


def _invalid(term: str, expected: str) -> UsageError:
    shown = formatting.single_line(term, 60)
    return UsageError(f"filter {shown!r}: invalid term (expected {expected}).")
