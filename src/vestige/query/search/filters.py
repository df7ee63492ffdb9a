"""The language in which one asks for runs: `is:failed tool:search cost>0.1 since:2d "card refused"`.

    terms = parse_filter('is:failed -tool:search duration>5s', now_ns)

A term is `key:value` or `key>number`; `-` before it turns it round; anything else, and whatever
stands in quotes, is text that a run must hold somewhere. All terms must hold. Pure: what a term
means for the rows of a store is in store/sqlite/read/filter_sql.py.
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
    "pinned",
)
HAVING: Final = ("finding", "conversation", "error", "cost")
TEXTS: Final = ("name", "component", "conversation", "model", "tool", "type", "check")
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
    """The terms. UsageError: which one does not fit, and what would."""
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
        assert found is not None  # every part of it may be missing
        if found.end() == at:
            raise _bad(text[at:], "a term")
        terms.append(_term(found, now_ns))
        at = found.end()
    if len(terms) > FILTER_TERMS_MAX:
        raise UsageError(f"filter: {len(terms)} terms (expected at most {FILTER_TERMS_MAX}).")
    return tuple(terms)


def is_filter(group: Sequence[str]) -> bool:
    """Do these words ask for runs, rather than name them? One of them is a term then."""
    return any(_BEGINS.match(word) for word in group)


_BEGINS = re.compile(rf"\s*-?(?:{'|'.join(KEYS)})(?::|>|<|=)", re.IGNORECASE)


def _term(found: re.Match[str], now_ns: int) -> Term:
    whole, key, value = found.group(), found["key"], found["value"]
    if found["unclosed"] is not None:
        raise _bad(whole, 'a closing quote, as in "card refused"')
    negated = found["not"] is not None and (key is not None or value is not None)
    if key is None:
        return Term("text", ":", _plain(value or whole), negated)
    key = key.lower()
    if key not in KEYS:
        near = difflib.get_close_matches(key, KEYS, 3, 0.6) or list(KEYS)
        quoted = formatting.single_line(whole.removeprefix("-"), 60)
        raise _bad(whole, f'{", ".join(near)}; as text: "{quoted}"')
    if value is None:
        raise _bad(whole, f"a value after {key}{found['op']}")
    op = cast(Op, found["op"])  # the pattern has no others
    return _checked(key, op, _plain(value), negated, whole, now_ns)


def _checked(key: str, op: Op, value: str, negated: bool, whole: str, now_ns: int) -> Term:
    if key in NUMBERS:
        if op == ":":
            raise _bad(whole, f"{key}> or {key}< and a number")
        return Term(key, op, _parse(_number_of(key), value, whole), negated)
    if op not in (":", "="):
        raise _bad(whole, f"{key}: and a value; {', '.join(NUMBERS)} can be compared")
    if key in AGES:
        age_s = _parse(parse_duration, value, whole)
        began_ns = max(0, now_ns - int(min(age_s, SECONDS_MAX) * 1e9))
        return Term("started_ns", ">=" if key == "since" else "<", began_ns, negated)
    choices = {"is": STATES, "has": HAVING}.get(key)
    if choices is not None and value.lower() not in choices:
        raise _bad(whole, f"{key}: and one of {', '.join(choices)}")
    if not value:
        raise _bad(whole, f"a value after {key}:")
    return Term(key, ":", value.lower() if choices else value, negated)


def _plain(value: str) -> str:
    if value.startswith('"'):
        return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)
    return value


def _parse(parse: Callable[[str], Any], value: str, whole: str) -> Any:
    try:
        return parse(value)
    except ValueError as error:
        raise _bad(whole, str(error).partition("expected ")[2].rstrip(")") or str(error)) from None


def _number_of(key: str) -> Callable[[str], Any]:
    if key == "duration":
        return lambda text: int(min(parse_duration(text), SECONDS_MAX) * 1e9)
    return _parse_number


def _parse_number(text: str) -> float | int:
    """`10`, `0.5`, `$0.1`, `10k`, `1.5M`."""
    found = _NUMBER.fullmatch(text.removeprefix("$"))
    if found is None:
        raise ValueError("no number (expected such as 10, 0.5, 10k)")
    number = min(float(found[1]) * _UNITS[found[2].lower()], 2.0**62)
    return int(number) if number.is_integer() else number


def _bad(term: str, expected: str) -> UsageError:
    return UsageError(
        f"filter {formatting.single_line(term, 60)!r}: does not fit (expected {expected})."
    )
