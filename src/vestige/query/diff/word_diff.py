"""Compare two texts: the first difference, and the words that changed.

Rules select the values to ignore: `ids` (UUIDs, long hex, `call_...`, `msg_...`), `times`
(ISO 8601, epochs) and `numbers`. An ignored id is replaced by its order of appearance, so two
texts are equal only if their ids repeat at the same positions.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Final

from vestige.errors import UsageError
from vestige.query import formatting
from vestige.query.diff.sequence_alignment import align

RULES: Final = ("ids", "times", "numbers")
DEFAULT_RULES: Final = ("ids", "times")
"""Ignored between two runs unless other rules are given: no two runs share these values."""

BEFORE_SHOWN = 20
AFTER_SHOWN = 40
"""Characters to show before and after the first difference."""

WINDOW = 240
"""Characters of each side that are compared word by word."""

# Lookaheads are bounded. Otherwise a text such as `run-run-run-...` without a digit would be
# read to its end from each of its words.
_PATTERNS: Final = {
    "ids": r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
    r"|\b(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{16,}\b"
    r"|\b(?:call|msg|toolu|chatcmpl|resp|req|fc|rs|gen|run|trace|span)"
    r"[_-](?=[A-Za-z_-]{0,64}\d)[A-Za-z0-9_-]+",
    "times": r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\b1\d{9}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?\b",
    "numbers": r"\b\d+(?:\.\d+)?\b",
}
_WORD = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?)?"
    r"|\d+(?:[.,:]\d+)*"
    r"|[^\W_　-鿿가-힯]+|\s+|.",
    re.DOTALL,
)
"""A date, a number, a word, white space, or one other character.

Scripts without spaces split by character.
"""


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The position at which two texts start to differ."""

    offset_bytes: int
    """Offset in the first text, as UTF-8."""
    a: str
    b: str
    """An excerpt of each side, on one line."""
    a_at: int
    b_at: int
    """Offsets in characters."""


def validate_rules(ignore: Collection[str]) -> tuple[str, ...]:
    """Return the rules to apply, in a fixed order. The value `none` selects no rule."""
    unknown = sorted(set(ignore) - {*RULES, "none"})
    if unknown:
        raise UsageError(
            f"ignore: unknown rule {formatting.single_line(unknown[0], 40)!r} "
            f"(expected {', '.join(RULES)} or none)."
        )
    return tuple(rule for rule in RULES if rule in ignore)


@cache
def _pattern(rules: tuple[str, ...]) -> re.Pattern[str]:
    # Every alternative starts at a word with one of these characters. The lookahead skips
    # all other positions quickly.
    either = "|".join(f"(?P<{rule}>{_PATTERNS[rule]})" for rule in rules)
    return re.compile(rf"\b(?=[\da-fA-Fgmrst])(?:{either})")


def _chunks(text: str, rules: tuple[str, ...]) -> list[tuple[str, int]]:
    """Split a text into (chunk, offset). Odd chunks are placeholders of volatile values."""
    if not rules:
        return [(text, 0)]
    chunks, at = [], 0
    names: dict[str, str] = {}
    for found in _pattern(rules).finditer(text):
        # The literal before a volatile value is added even if empty, so that odd chunks are
        # placeholders in every text.
        chunks.append((text[at : found.start()], at))
        if found.lastgroup == "ids":
            placeholder = names.setdefault(found.group(), f"<id {len(names) + 1}>")
        else:
            placeholder = f"<{found.lastgroup}>"
        chunks.append((placeholder, found.start()))
        at = found.end()
    chunks.append((text[at:], at))
    return chunks


def normalise(text: str, rules: tuple[str, ...]) -> str:
    """Replace the values that the rules ignore with placeholders."""
    return "".join(chunk for chunk, _ in _chunks(text, rules)) if rules else text


def find_difference(a: str, b: str, rules: tuple[str, ...] = ()) -> FirstDifference | None:
    """Find the first difference that the rules do not ignore."""
    if a == b:
        return None
    a_chunks, b_chunks = _chunks(a, rules), _chunks(b, rules)
    pairs = zip(a_chunks, b_chunks, strict=False)
    for number, ((a_chunk, a_at), (b_chunk, b_at)) in enumerate(pairs):
        if a_chunk != b_chunk:
            is_placeholder = number % 2 == 1
            same = 0 if is_placeholder else _common_prefix(a_chunk, b_chunk)
            return _difference_at(a, b, a_at + same, b_at + same)
    if len(a_chunks) == len(b_chunks):
        return None
    shorter = min(len(a_chunks), len(b_chunks))
    a_at = a_chunks[shorter][1] if shorter < len(a_chunks) else len(a)
    b_at = b_chunks[shorter][1] if shorter < len(b_chunks) else len(b)
    return _difference_at(a, b, a_at, b_at)


def _difference_at(a: str, b: str, a_at: int, b_at: int) -> FirstDifference:
    return FirstDifference(
        len(a[:a_at].encode(errors="replace")), _excerpt(a, a_at), _excerpt(b, b_at), a_at, b_at
    )


def _excerpt(text: str, at: int) -> str:
    begin, end = max(0, at - BEFORE_SHOWN), at + AFTER_SHOWN
    if at >= len(text):
        return ("…" if begin else "") + formatting.single_line(text[begin:at], 200) + "(end)"
    shown = formatting.single_line(text[begin:end], 200)
    return ("…" if begin else "") + shown + ("…" if end < len(text) else "")


def _common_prefix(a: str, b: str) -> int:
    """Return the length of the common prefix, by bisection: slices compare faster than a loop."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def diff_words(a: str, b: str, first: FirstDifference, length_max: int = 160) -> str:
    """Format the words around the first difference: `…the [-refund-]{+return+} policy…`."""
    a_from, b_from = _word_start(a, first.a_at), _word_start(b, first.b_at)
    a_words = _WORD.findall(a[a_from : first.a_at + WINDOW])
    b_words = _WORD.findall(b[b_from : first.b_at + WINDOW])
    alignment = align(a_words, b_words)
    parts: list[str] = []
    a_next = b_next = 0
    for a_at, b_at in alignment.pairs:
        parts.append(_format_change(a_words[a_next:a_at], b_words[b_next:b_at]))
        parts.append(a_words[a_at])
        a_next, b_next = a_at + 1, b_at + 1
    # The ends of two windows differ by chance, unless both windows reach the end of the text.
    # They are shown only then, or if they are the only change.
    at_end = first.a_at + WINDOW >= len(a) and first.b_at + WINDOW >= len(b)
    if at_end or not any(part.startswith(("[-", "{+")) for part in parts):
        parts.append(_format_change(a_words[a_next:], b_words[b_next:]))
    shown = formatting.single_line("".join(parts), length_max)
    return ("…" if a_from else "") + shown


def _word_start(text: str, at: int) -> int:
    """Return the start of a word that is a few words before `at`."""
    begin = max(0, at - BEFORE_SHOWN * 2)
    if begin:
        blank = text.find(" ", begin, at)
        begin = blank + 1 if blank >= 0 else begin
    return begin


def _format_change(removed: list[str], added: list[str]) -> str:
    return "".join(
        f"{mark}{text if len(text) <= 60 else text[:59] + '…'}{end}"
        for mark, text, end in (("[-", "".join(removed), "-]"), ("{+", "".join(added), "+}"))
        if text
    )
