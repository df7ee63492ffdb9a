"""Edit strings as JSON writes them: characters, escapes, and the edits that mask a text."""

from __future__ import annotations

import json

from vestige._runtime.re_compat import re
from vestige.record.redaction.masking import MARK

Edit = tuple[int, int, str]
"""Start, end, and the replacement."""

_UNIT = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|.",
    re.DOTALL,
)


def split_units(raw: str) -> list[str]:
    return _UNIT.findall(raw)


def unescape(unit: str) -> str:
    if len(unit) == 1:
        return unit
    try:
        character: str = json.loads(f'"{unit}"')
    except ValueError:
        return unit[-1]
    return character


def escape(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


_MASK = re.compile(rf"""\\*["']?{MARK}\\*["']?""")


def find_edits(text: str, cleaned: str) -> list[Edit]:
    """Return the edits that turn `text` into `cleaned`, ascending.

    The parts between two masks are in `text` too, in the same order. Any match of them is
    right, because with these edits the result is exactly `cleaned`.
    """
    parts, masks = _MASK.split(cleaned), _MASK.findall(cleaned)
    edits: list[Edit] = []
    at = len(parts[0])
    fits = bool(masks) and text.startswith(parts[0])
    for mask, part in zip(masks, parts[1:], strict=True):
        low = at
        at = text.find(part, low)
        if at < 0:
            fits = False
            break
        edits.append((low, at, mask))
        at += len(part)
    if fits and at < len(text):
        # The last part was found too early: the text ends with it.
        low, _, mask = edits[-1]
        fits = text.endswith(parts[-1]) and len(text) - len(parts[-1]) >= low
        edits[-1] = low, len(text) - len(parts[-1]), mask
    if fits:
        return [edit for edit in edits if text[edit[0] : edit[1]] != edit[2]]
    return [_only_edit(text, cleaned)]


def _only_edit(text: str, cleaned: str) -> Edit:
    """Return one edit: everything between the common beginning and the common end."""
    begin = _common(text, cleaned)
    end = _common(text[begin:][::-1], cleaned[begin:][::-1])
    return begin, len(text) - end, cleaned[begin : len(cleaned) - end]


def _common(one: str, other: str) -> int:
    """Return the length of the common beginning of two texts."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
