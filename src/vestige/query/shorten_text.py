"""Fold long recorded text to its head, its tail and the lines that matter.

    fold_text(text, 600)                         # lines with errors, indentation kept
    fold_text(prompt, 300, keep="requirements")  # lines that say what has to be done

Passages that another step shows, base64 and markup are replaced by a short description.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

from vestige.query import formatting
from vestige.query.trajectory.types import Repeat

LINE_MAX: Final = 600
"""Characters of one line before its middle is left out, where a text is folded."""
ERROR_LINES_MAX: Final = 4
REQUIREMENT_LINES_MAX: Final = 12
WORDS_MIN: Final = 2
"""Words of a line that says something."""
SHORTEN_MIN: Final = 40
"""Characters that are worth leaving out."""
TAB: Final = "    "

_BASE64: Final = re.compile(r"(?:data:[\w/+.-]{3,60};base64,)?[A-Za-z0-9+/]{240,}={0,2}")
_TAG: Final = re.compile(r"</?[a-zA-Z][^<>]{0,400}>|<!--.{0,2000}?-->", re.DOTALL)
_HIDDEN: Final = re.compile(r"<(script|style)\b.{0,20000}?</\1>", re.DOTALL | re.IGNORECASE)
_ERROR: Final = re.compile(
    r"\b(?:[A-Za-z]+(?:Error|Exception)|Traceback|FAILED|ERROR|FATAL)\b"
    r"|(?i:^\W{0,4}(?:\w+ ){0,3}(?:error|failed|failure|fatal|denied|timed? ?out)\b"
    r"|\b(?:no such file|not found|permission denied|connection refused|exit ?code:? [1-9]"
    r"|status:? [45]\d\d)\b)"
)
_STRICT: Final = re.compile(
    r"\b(?:must|never|always|exactly|at most|no more than|strictly|do not|don't|cannot)\b"
    r"|</?\w[\w ]*>|\btags?\b",
    re.IGNORECASE,
)
_REQUIREMENT: Final = re.compile(
    rf"{_STRICT.pattern}|\b(?:at least|only|required|have to|make sure|ensure"
    r"|(?:format|formatted) (?:your|the|like|as|of))\b",
    re.IGNORECASE,
)
_FENCE: Final = re.compile(r"\s*(?:`{3,}\w*|-{3,}|={3,})\s*")

Keep = Literal["errors", "requirements"]
"""Lines of the folded middle that are shown."""


def fold_text(
    text: str, limit: int, repeats: Sequence[Repeat] = (), *, keep: Keep = "errors"
) -> list[str]:
    """Return lines with about `limit` characters in all, and a mark where some are left out."""
    shown = _drop_markup(replace_repeats(text, repeats))
    lines = [clean_line(line) for line in shown.strip("\n").splitlines()]
    lines = _join_blank(lines)
    if _length(lines) <= limit:
        return lines
    if keep == "requirements":
        lines = [line for line in lines if not _FENCE.fullmatch(line)]
    lines = [line for line in lines if line]
    return lines if _length(lines) <= limit else _head_and_tail(lines, limit, keep)


def _length(lines: Sequence[str]) -> int:
    return sum(map(len, lines)) + len(lines)


def clean_line(line: str) -> str:
    """Return a line without control characters; indentation is kept."""
    line = line.rstrip()
    body = line.lstrip(" \t")
    indent = line[: len(line) - len(body)].replace("\t", TAB)
    return indent + formatting.clean_controls(body)


def replace_repeats(text: str, repeats: Sequence[Repeat]) -> str:
    """Return a text with a reference in place of each repeated passage."""
    if not repeats:
        return text
    parts: list[str] = []
    at = 0
    for repeat in repeats:
        count = text.count("\n", repeat.begin, repeat.end) + 1
        size = formatting.size(repeat.end - repeat.begin)
        passage = f"{count} lines, {size}" if count > 1 else size
        where = f"step {repeat.step}" if repeat.step else "the task"
        parts += [text[at : repeat.begin], f"[{passage}: as in {where}]"]
        at = repeat.end
    return "".join([*parts, text[at:]])


def _drop_markup(text: str) -> str:
    if len(text) > 240:
        text = _BASE64.sub(lambda found: f"[base64, {formatting.size(len(found[0]))}]", text)
    if text.count("<") > 20:
        tags = sum(len(found[0]) for found in _TAG.finditer(text))
        if tags > len(text) // 4:
            return f"[markup left out]\n{_TAG.sub('', _HIDDEN.sub('', text))}"
    return text


def _join_blank(lines: list[str]) -> list[str]:
    """Drop all but one of consecutive blank lines."""
    found: list[str] = []
    for line in lines:
        if line or (found and found[-1]):
            found.append(line)
    return found


def _head_and_tail(lines: list[str], limit: int, keep: Keep) -> list[str]:
    complete = lines
    lines = [_shorten(line, max(80, min(LINE_MAX, limit // 2))) for line in lines]
    share = 6 if keep == "errors" else 4
    head, spent = _take(lines, limit * share // 10)
    tail, _ = _take(lines[head:][::-1], max(0, limit * (share + 4) // 10 - spent - limit // 8))
    middle = lines[head : len(lines) - tail]
    if not middle:
        return lines
    chosen = _choose(complete[head : len(lines) - tail], limit, keep)
    left_out = len(middle) - len(chosen)
    size = formatting.size(sum(map(len, middle)) - sum(map(len, chosen)))
    mark = [f"… {formatting.pluralize(left_out, 'line')}, {size} …"] if left_out else []
    return [*lines[:head], *mark, *(f"… {line}" for line in chosen), *lines[len(lines) - tail :]]


def _choose(middle: Sequence[str], limit: int, keep: Keep) -> list[str]:
    """Return the lines of the middle that matter most, shortened, in order."""
    pattern, lines_max, room = _ERROR, ERROR_LINES_MAX, limit // 2
    if keep == "requirements":
        pattern, lines_max, room = _REQUIREMENT, REQUIREMENT_LINES_MAX, max(240, limit * 4 // 10)
    found: dict[str, tuple[int, int]] = {}
    for index, line in enumerate(middle):
        match = pattern.search(line)
        if match is not None and len(line.split()) >= WORDS_MIN:
            weight = len(set(map(str.lower, _STRICT.findall(line))))
            shown = _around(line.strip(), match.group(), max(130, limit // 5))
            found.setdefault(shown, (-weight if keep == "requirements" else 0, index))
    chosen: list[str] = []
    for shown in sorted(found, key=found.__getitem__):
        if len(chosen) < lines_max and len(shown) <= room:
            chosen.append(shown)
            room -= len(shown)
    return sorted(chosen, key=lambda shown: found[shown][1])


def _around(line: str, word: str, length: int) -> str:
    """Return the part of a long line around a word."""
    if len(line) <= length:
        return line
    begin = max(0, min(line.find(word) - length // 3, len(line) - length))
    return f"{'…' if begin else ''}{line[begin : begin + length]}…"


def _take(lines: Sequence[str], room: int) -> tuple[int, int]:
    """Return how many of the first lines fit, at least one, and their length."""
    spent = count = 0
    for line in lines:
        if count and spent + len(line) > room:
            break
        if not count and len(line) > 4 * max(room, 40):
            break
        spent += len(line) + 1
        count += 1
    return count, spent


def _shorten(line: str, length: int) -> str:
    """Leave out the middle of a long line."""
    if len(line) <= length + SHORTEN_MIN:
        return line
    head = length * 3 // 4
    tail = length - head
    return f"{line[:head]} […{formatting.size(len(line) - length)}…] {line[-tail:]}"
