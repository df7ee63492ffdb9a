"""The part of several texts that all of them have, as a title of a group.

common_text(["order A-1 was not found", "order A-2 was not found"])
    # "order … was not found"
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from vestige.query.diff.sequence_alignment import align

TEXTS_MAX: Final = 100
CHARS_MAX: Final = 2_000
WORDS_MIN: Final = 3
SHARE_MIN: Final = 0.3
"""Words that must remain, and their share of the shortest text: fewer say nothing."""

_TOKEN: Final = re.compile(r"\d[\d.,:]*\d|[^\s()\[\]{}\"',:;]+|[()\[\]{}\"',:;]")
_WORD: Final = re.compile(r"[^\W\d_]{2,}")
_GAP: Final = ""


def common_text(texts: Sequence[str]) -> str:
    """Return what all texts have, with `…` in place of the rest; empty if that is too little."""
    different = list(dict.fromkeys(" ".join(text[:CHARS_MAX].split()) for text in texts))
    if len(different) == 1:
        return different[0]
    first, *others = different[:TEXTS_MAX]
    found = [match.span() for match in _TOKEN.finditer(first)]
    words = [first[begin:end] for begin, end in found]
    for other in others:
        words = _keep_common(words, _TOKEN.findall(other))
    left = sum(_WORD.search(word) is not None for word in words)
    shortest = min(len(_WORD.findall(text)) for text in (first, *others))
    if left < max(WORDS_MIN, SHARE_MIN * shortest):
        return ""
    return _join(first, found, words)


def _keep_common(words: Sequence[str], other: Sequence[str]) -> list[str]:
    """Return the words with a gap in place of each that the other text does not have there."""
    common = {at for at, _ in align(words, other).pairs}
    return [word if at in common else _GAP for at, word in enumerate(words)]


def _join(text: str, places: Sequence[tuple[int, int]], words: Sequence[str]) -> str:
    """Return the text with one mark for each stretch of gaps."""
    parts: list[str] = []
    end = 0
    was_gap = False
    for (begin, after), word in zip(places, words, strict=True):
        if word != _GAP or not was_gap:
            parts += [text[end:begin], word or "…"]
        was_gap = word == _GAP
        end = after
    return "".join([*parts, text[end:]])
