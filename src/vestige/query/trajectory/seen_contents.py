"""The contents that a trajectory shows already, compared by normalised text and by line.

Clients send the full history every turn, frameworks rewrite it, and wrappers repeat the output
of what they wrap. A content counts as shown if its normalised text was shown in the same
conversation as often as it occurs now. A longer text that contains shown lines has `repeats`.

    seen = SeenContents()
    seen.add("thought", step=1, family=0)
    seen.find("thought<end_code>", family=0)      # 1
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from vestige.query.trajectory.types import Repeat

LINES_MAX: Final = 2_000_000
"""Lines that are remembered; further ones are not compared."""
LINE_LENGTH: Final = 24
"""Shorter lines occur by chance, so they are not compared; they extend a repeated passage."""
REPEAT_LENGTH: Final = 160
"""Characters of a passage that is worth a reference."""
SHARED_LENGTH: Final = 160
"""A text of this length in another conversation is the same content, not a coincidence."""
NEW_LENGTH_MAX: Final = 120
"""New characters around repeated passages that are only their introduction."""

_STOP_TOKENS: Final = re.compile(
    r"(?:<end_code>|</code>|<end_action>|<end_of_turn>|</s>|<\|[\w-]{2,24}\|>|```|\s)+\Z"
)
_FENCES: Final = re.compile(r"(?m)^[ \t]*(?:Code:[ \t]*\n[ \t]*)?(?:```[\w+-]*|</?code>)[ \t]*$")
"""Fences of code, which an answer and its copy in a history may write in different ways."""
_LABELS: Final = re.compile(
    r"\A\s*(?:Call id: [^\n]*\n\s*)?"
    r"(?:(?:Observation|Execution logs|Last output from code snippet|Output|Result|"
    r"New task|Code output|exitcode: 0 \(execution succeeded\))\s*:?[ \t]*\n?\s*)*"
)


def normalize(text: str) -> str:
    """Return the text without stop tokens, fences, labels and differences in blanks."""
    if text.endswith((">", "```")) or text[-1:].isspace():
        text = _STOP_TOKENS.sub("", text)
    text = strip_labels(text)
    if "```" in text or "<code>" in text:
        text = _FENCES.sub("\n", text)
    return " ".join(text.split())


def strip_labels(text: str) -> str:
    """Return an observation without the words that a framework puts before it."""
    found = _LABELS.match(text)
    return text[found.end() :] if found else text


class SeenContents:
    """The contents shown so far, with the step that shows each."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, int]] = Counter()
        self._steps: dict[int, int] = {}
        self._families: dict[int, int] = {}
        self._lines: dict[int, int] = {}

    def add(self, text: str, step: int, family: int, *, with_lines: bool = True) -> None:
        """Remember a text that a step shows."""
        key = hash(normalize(text))
        self._counts[family, key] += 1
        self._steps.setdefault(key, step)
        self._families[key] = family
        if with_lines:
            self.add_lines(text, step)

    def add_lines(self, text: str, step: int) -> None:
        """Remember the lines of a text."""
        if len(self._lines) >= LINES_MAX:
            return
        for begin, end in _pieces(text):
            if end - begin >= LINE_LENGTH:
                self._lines.setdefault(_line_key(text[begin:end]), step)

    def find(self, text: str, family: int, occurrence: int = 1) -> int | None:
        """Return the step that shows a text already; None if the text is new.

        `occurrence` is 2 for the second message with this text in one request, and so on.
        """
        normalized = normalize(text)
        if not normalized:
            return 0
        key = hash(normalized)
        step = self._steps.get(key)
        if step is None:
            return None
        if self._counts[family, key] >= occurrence:
            return step
        return step if len(normalized) >= SHARED_LENGTH and occurrence == 1 else None

    def find_repeats(self, text: str) -> list[Repeat]:
        """Return the passages of a text that earlier steps show, in order."""
        found: list[Repeat] = []
        begin = end = -1
        steps: Counter[int] = Counter()
        for start, stop in _pieces(text):
            if stop - start < LINE_LENGTH:
                continue  # part of a passage only between two repeated lines
            shown = self._lines.get(_line_key(text[start:stop]))
            if shown is None:
                _add_repeat(found, begin, end, steps)
                begin = -1
                steps.clear()
                continue
            begin, end = start if begin < 0 else begin, stop
            steps[shown] += stop - start
        _add_repeat(found, begin, end, steps)
        return found

    def is_contained(self, text: str, repeats: list[Repeat]) -> bool:
        """Return True if a text is repeated passages with at most an introduction."""
        covered = sum(len(normalize(text[repeat.begin : repeat.end])) for repeat in repeats)
        return len(normalize(text)) - covered <= NEW_LENGTH_MAX

    def family_of(self, text: str) -> int | None:
        """Return the conversation family that shows a text."""
        return self._families.get(hash(normalize(text)))


def _add_repeat(found: list[Repeat], begin: int, end: int, steps: Counter[int]) -> None:
    """Add a passage with the step that shows most of it."""
    if begin >= 0 and end - begin >= REPEAT_LENGTH:
        found.append(Repeat(begin, end, max(steps, key=steps.__getitem__)))


def _pieces(text: str) -> list[tuple[int, int]]:
    """Return the lines of a text as offsets; escaped line breaks separate lines, too."""
    pieces = []
    begin = 0
    for line in text.split("\n"):
        end = begin + len(line)
        if "\\n" in line:
            inner = begin
            for part in line.split("\\n"):
                pieces.append((inner, inner + len(part)))
                inner += len(part) + 2
        else:
            pieces.append((begin, end))
        begin = end + 1
    return pieces


def _line_key(line: str) -> int:
    return hash(line.replace("\\", "").strip())
