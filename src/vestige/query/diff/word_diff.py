"""The small end of a diff: what is volatile in a text, where two texts part, which words changed.

Volatile values can be ignored by rule: `ids` (UUIDs, long hex, `call_...`, `msg_...`),
`times` (ISO 8601, epochs) and, on request, `numbers`. An ignored id is replaced by its
number of appearance, so that two texts are alike only if their ids stand in the same places.
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
USUAL: Final = ("ids", "times")
"""Ignored between two runs unless told otherwise: no two runs share them."""

BEFORE_SHOWN = 20
AFTER_SHOWN = 40
"""Characters of each side around the place where two texts part: ~60 in all."""

WINDOW = 240
"""Characters of each side that are compared word by word."""

# Whatever looks ahead from many places looks a bounded way: a text of `run-run-run-` without a
# digit would else be read to its end from each of its words.
_PATTERNS: Final = {
    "ids": r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
    r"|\b(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{16,}\b"
    r"|\b(?:call|msg|toolu|chatcmpl|resp|req|fc|rs|gen|run|trace|span)[_-](?=[A-Za-z_-]{0,64}\d)[A-Za-z0-9_-]+",
    "times": r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\b1\d{9}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?\b",
    "numbers": r"\b\d+(?:\.\d+)?\b",
}
_WORD = re.compile(r"[^\W_　-鿿가-힯]+|\s+|.", re.DOTALL)
"""Words, white space, single signs; a script without spaces goes by character."""


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two texts stop being the same."""

    offset_bytes: int
    """In the first text, as UTF-8."""
    a: str
    b: str
    """A little of each side, on one line."""
    a_at: int
    b_at: int
    """In characters."""


def check_rules(ignore: Collection[str]) -> tuple[str, ...]:
    """The rules that are meant, in a fixed order; `none` stands for no rule at all."""
    unknown = sorted(set(ignore) - {*RULES, "none"})
    if unknown:
        raise UsageError(
            f"ignore: {formatting.single_line(unknown[0], 40)!r} is no rule (expected {', '.join(RULES)} or none)."
        )
    return tuple(rule for rule in RULES if rule in ignore)


@cache
def _pattern(rules: tuple[str, ...]) -> re.Pattern[str]:
    # All begin at a word, with one of these: elsewhere none of them need be tried.
    either = "|".join(f"(?P<{rule}>{_PATTERNS[rule]})" for rule in rules)
    return re.compile(rf"\b(?=[\da-fA-Fgmrst])(?:{either})")


def _chunks(text: str, rules: tuple[str, ...]) -> list[tuple[str, int]]:
    """The text in pieces with their offsets; a volatile value as its stand-in."""
    if not rules:
        return [(text, 0)]
    chunks, at = [], 0
    names: dict[str, str] = {}
    for found in _pattern(rules).finditer(text):
        # Always a literal before each volatile value, be it empty: so that two lists run in step.
        chunks.append((text[at : found.start()], at))
        if found.lastgroup == "ids":
            stand_in = names.setdefault(found.group(), f"<id {len(names) + 1}>")
        else:
            stand_in = f"<{found.lastgroup}>"
        chunks.append((stand_in, found.start()))
        at = found.end()
    chunks.append((text[at:], at))
    return chunks


def normalise(text: str, rules: tuple[str, ...]) -> str:
    """The text with what these rules ignore replaced by stand-ins."""
    return "".join(chunk for chunk, _ in _chunks(text, rules)) if rules else text


def find_parting(a: str, b: str, rules: tuple[str, ...] = ()) -> Parting | None:
    """The first place where they differ in more than what the rules ignore."""
    if a == b:
        return None
    a_chunks, b_chunks = _chunks(a, rules), _chunks(b, rules)
    pairs = zip(a_chunks, b_chunks, strict=False)
    for number, ((a_chunk, a_at), (b_chunk, b_at)) in enumerate(pairs):
        if a_chunk != b_chunk:
            stands_in = number % 2 == 1
            same = 0 if stands_in else _common_prefix(a_chunk, b_chunk)
            return _part(a, b, a_at + same, b_at + same)
    if len(a_chunks) == len(b_chunks):
        return None
    shorter = min(len(a_chunks), len(b_chunks))
    a_at = a_chunks[shorter][1] if shorter < len(a_chunks) else len(a)
    b_at = b_chunks[shorter][1] if shorter < len(b_chunks) else len(b)
    return _part(a, b, a_at, b_at)


def _part(a: str, b: str, a_at: int, b_at: int) -> Parting:
    return Parting(
        len(a[:a_at].encode(errors="replace")), _excerpt(a, a_at), _excerpt(b, b_at), a_at, b_at
    )


def _excerpt(text: str, at: int) -> str:
    begin, end = max(0, at - BEFORE_SHOWN), at + AFTER_SHOWN
    if at >= len(text):
        return ("…" if begin else "") + formatting.single_line(text[begin:at], 200) + "(end)"
    shown = formatting.single_line(text[begin:end], 200)
    return ("…" if begin else "") + shown + ("…" if end < len(text) else "")


def _common_prefix(a: str, b: str) -> int:
    """Its length, by halving: comparing slices is quick, a loop over characters is not."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def diff_words(a: str, b: str, parting: Parting, length_max: int = 160) -> str:
    """The words around a parting: `…the [-refund-]{+return+} policy…`."""
    a_from, b_from = _word_start(a, parting.a_at), _word_start(b, parting.b_at)
    a_words = _WORD.findall(a[a_from : parting.a_at + WINDOW])
    b_words = _WORD.findall(b[b_from : parting.b_at + WINDOW])
    alignment = align(a_words, b_words)
    parts: list[str] = []
    a_next = b_next = 0
    for a_at, b_at in alignment.pairs:
        parts.append(_change(a_words[a_next:a_at], b_words[b_next:b_at]))
        parts.append(a_words[a_at])
        a_next, b_next = a_at + 1, b_at + 1
    # Where a window ends in the middle of a text, its end says nothing; unless it is all there is.
    whole = parting.a_at + WINDOW >= len(a) and parting.b_at + WINDOW >= len(b)
    if whole or not any(part.startswith(("[-", "{+")) for part in parts):
        parts.append(_change(a_words[a_next:], b_words[b_next:]))
    shown = formatting.single_line("".join(parts), length_max)
    return ("…" if a_from else "") + shown


def _word_start(text: str, at: int) -> int:
    """A few words before `at`, at the beginning of one."""
    begin = max(0, at - BEFORE_SHOWN * 2)
    if begin:
        blank = text.find(" ", begin, at)
        begin = blank + 1 if blank >= 0 else begin
    return begin


def _change(removed: list[str], added: list[str]) -> str:
    return "".join(
        f"{mark}{text if len(text) <= 60 else text[:59] + '…'}{end}"
        for mark, text, end in (("[-", "".join(removed), "-]"), ("{+", "".join(added), "+}"))
        if text
    )
