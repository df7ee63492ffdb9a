"""Parse run filters: `is:failed tool:search cost>0.1 since:2d "card refused"`.

A term is `key:value` or `key>number`, and a leading `-` negates it. A run matches if all terms
match. Any other words must begin words that are near each other in one text of the run, in any
order; quoted text must occur as it is; `r59` is the run with this id. `#culprit` and `tag:culprit`
match runs that have a note with this tag.

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
TEXTS: Final = (
    "run",
    "name",
    "component",
    "conversation",
    "model",
    "tool",
    "type",
    "check",
    "note",
    "tag",
)
AGES: Final = ("since", "before")
NUMBERS: Final = ("cost", "tokens", "duration", "spans", "errors", "logs")
KEYS: Final = ("is", "has", *TEXTS, *AGES, *NUMBERS)

SYNONYMS: Final = {
    "succeeded": "ok",
    "success": "ok",
    "passed": "ok",
    "failure": "failed",
    "crashed": "interrupted",
    "killed": "interrupted",
    "canceled": "cancelled",
    "open": "running",
    "live": "running",
}
"""Other words for a state: those that the viewer shows, and frequent ones."""
WORDS_MAX: Final = 8
"""Words that are searched near each other."""

_TAG = re.compile(r"#[^\W\d][\w-]*")
"""A word that is a tag. `#12` is a text: the number of an issue."""
_RUN_ID = re.compile(r"r\d{1,18}(?:\.s\d{1,18})?", re.IGNORECASE)
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
    words: list[str] = []
    ids: list[str] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        found = _TERM.match(text, at)
        assert found is not None  # Every part of the pattern is optional.
        if found.end() == at:
            raise _invalid(text[at:], "a term")
        term = _parse_term(found, now_ns)
        is_word = term.key == "text" and not found.group().lstrip("-").startswith('"')
        if is_word and _RUN_ID.fullmatch(term.value):
            run_id = term.value.lower().partition(".")[0]
            if term.negated:
                terms.append(Term("run", ":", (run_id,), negated=True))
            else:
                ids.append(run_id)
        elif is_word and _TAG.fullmatch(term.value):
            terms.append(Term("tag", ":", term.value[1:].lower(), term.negated))
        elif is_word and not term.negated:
            words.append(term.value)
        else:
            terms.append(term)
        at = found.end()
    count = len(terms) + len(words) + len(ids)
    if count > FILTER_TERMS_MAX:
        raise UsageError(f"filter: {count} terms (expected at most {FILTER_TERMS_MAX}).")
    if ids:
        terms.append(Term("run", ":", tuple(ids)))
    if len(words) > WORDS_MAX:
        raise UsageError(
            f"filter: {len(words)} words (expected at most {WORDS_MAX}). Quote a phrase."
        )
    if words:
        terms.append(Term("words", ":", tuple(words)))
    return tuple(terms)


def describe_search(terms: Sequence[Term]) -> str | None:
    """Return a sentence about what the words of a filter select; None without words."""
    parts: list[str] = []
    for term in terms:
        if term.key == "run":
            parts.append(f"{'not ' if term.negated else ''}run {' or '.join(term.value)}")
        elif term.key == "words":
            quoted = [_quote(word) for word in term.value]
            if len(quoted) == 1:
                parts.append(f"words that begin with {quoted[0]}")
            else:
                listed = f"{', '.join(quoted[:-1])} and {quoted[-1]}"
                parts.append(f"words that begin with {listed}, near each other, in any order")
        elif term.key == "tag":
            parts.append(f"{'no note' if term.negated else 'a note'} with the tag #{term.value}")
        elif term.key == "text":
            parts.append(f"{'not ' if term.negated else ''}the text {_quote(str(term.value))}")
    if any(term.partial for term in terms):
        parts.append("only the newest part of the store was searched")
    return "; ".join(parts) or None


def _quote(text: str) -> str:
    return f'"{formatting.single_line(text, 80)}"'


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
    if choices is not None:
        value = value.lower()
        value = SYNONYMS.get(value, value) if key == "is" else value
        if value not in choices:
            raise _invalid(text, f"{key}: and one of {', '.join(_nearest_first(value, choices))}")
    if not value:
        raise _invalid(text, f"a value after {key}:")
    if key == "tag":
        tag = value if value.startswith("#") else f"#{value}"
        if not re.fullmatch(r"#[\w-]+", tag):
            raise _invalid(text, "a tag of letters, digits, _ and -, as in tag:culprit")
        return Term(key, ":", tag[1:].lower(), negated)
    if key == "run":
        return Term(key, ":", (value.lower().partition(".")[0],), negated)
    return Term(key, ":", value, negated)


def _nearest_first(value: str, choices: Sequence[str]) -> list[str]:
    """Return the choices, those first that are spelled like the value."""
    states = {**{choice: choice for choice in choices}, **(SYNONYMS if choices is STATES else {})}
    near = difflib.get_close_matches(value, states, 3, 0.6)
    near += [word for word in states if value and word.startswith(value)]
    return list(dict.fromkeys([*(states[word] for word in near), *choices]))


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
