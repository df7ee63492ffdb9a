"""Texts in which two runs differ already, so that later prompts that repeat them can be folded.

A difference goes on: the result of a tool is in every prompt after it. A later pair of texts only
repeats it if all lines that one side alone has were in an earlier difference, or if the pair is
equal once the values are left out in which the runs differ already.

    changes = RepeatedChanges(rules)
    changes.add(["rate: 0.92"], ["rate: 10.0"])
    changes.covers(["The rate: 0.92"], ["The rate: 10.0"])     # True
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from vestige.query.diff.word_diff import normalise
from vestige.query.evidence import Evidence
from vestige.record.run import SpanInfo
from vestige.record.types import MODEL_CALL_TYPES

LINES_MAX: Final = 200_000
"""Lines of each side that are remembered. Further differences count as new."""
VALUES_MAX: Final = 200
VALUE_LENGTHS: Final = range(4, 201)
"""Differing values that are looked for inside of lines, and their lengths: short values occur by
chance."""
NEW_LINES_MAX: Final = 400
"""Lines with new text in which values are looked for."""
_USAGE: Final = re.compile(r"(\b\w{0,40}_tokens['\"]?\s?[:=])\s?\d+")
"""Counts of tokens in a text that a framework printed."""
LEAVES_MAX: Final = 20_000
DEPTH_MAX: Final = 40


class RepeatedChanges:
    """The differences that earlier steps of two runs showed."""

    def __init__(self, rules: tuple[str, ...]) -> None:
        self._rules = rules
        self._lines: tuple[set[str], set[str]] = (set(), set())
        self._normalised: dict[str, str] = {}
        self._values: tuple[dict[str, None], dict[str, None]] = ({}, {})

    def add(self, a: Iterable[str], b: Iterable[str]) -> None:
        """Remember in what the texts of a step differ."""
        sides = self._only(a, b)
        for known, values, only in zip(self._lines, self._values, sides, strict=True):
            if len(known) + len(only) <= LINES_MAX:
                known |= only
            for line in only:
                if len(line) in VALUE_LENGTHS and len(values) < VALUES_MAX:
                    values[line] = None

    def covers(self, a: Iterable[str], b: Iterable[str]) -> bool:
        """Return True if the texts differ only in what is remembered."""
        only = self._only(a, b)
        new = [lines - known for lines, known in zip(only, self._lines, strict=True)]
        if max(map(len, new)) > NEW_LINES_MAX:
            return False
        longest_first = [sorted(values, key=len, reverse=True) for values in self._values]
        blanked = [
            {_blank(line, values) for line in lines}
            for lines, values in zip(new, longest_first, strict=True)
        ]
        return blanked[0] == blanked[1]

    def _only(self, a: Iterable[str], b: Iterable[str]) -> tuple[set[str], set[str]]:
        """Return the lines that only one side has."""
        lines_a, lines_b = (
            {line for text in texts for line in text.split("\n")} for texts in (a, b)
        )
        # Most lines are equal, so only the others are normalised.
        only_a, only_b = (
            {stripped for line in lines if (stripped := self._normalise(line))}
            for lines in (lines_a - lines_b, lines_b - lines_a)
        )
        return only_a - only_b, only_b - only_a

    def _normalise(self, line: str) -> str:
        """Return a line without values that differ in any two runs; each is computed once."""
        known = self._normalised.get(line)
        if known is None:
            known = normalise(_USAGE.sub(r"\1", line), self._rules).strip()
            if len(self._normalised) < LINES_MAX:
                self._normalised[line] = known
        return known


def _blank(line: str, values: Sequence[str]) -> str:
    """Return the line without the values in which the runs differ."""
    for value in values:
        if value in line:
            line = line.replace(value, "\0")
    return line


def input_texts(evidence: Evidence, span: SpanInfo) -> list[str]:
    """Return the texts of a request's messages, or of another input."""
    request = evidence.request(span) if span.type in MODEL_CALL_TYPES else None
    if request is None:
        return leaves_of(evidence.input(span))
    texts: list[str] = []
    for message in request.messages:
        texts.append(message.text)
        for call in message.calls:
            texts += [call.name, *leaves_of(call.arguments)]
        for result in message.results:
            texts += leaves_of(result.text)
    return texts


def output_texts(evidence: Evidence, span: SpanInfo) -> list[str]:
    """Return the texts of a model's answer, or of another output."""
    response = evidence.response(span) if span.type in MODEL_CALL_TYPES else None
    if response is None:
        return leaves_of(evidence.output(span))
    calls = [text for call in response.calls for text in (call.name, *leaves_of(call.arguments))]
    return [response.text, *calls]


def leaves_of(text: str | None) -> list[str]:
    """Return the values of a JSON document, also of JSON in its strings; else the text itself."""
    found: list[str] = []
    _collect(text or "", 0, found)
    return found


def _collect(value: Any, depth: int, found: list[str]) -> None:
    if len(found) >= LEAVES_MAX or depth > DEPTH_MAX:
        return
    if isinstance(value, str):
        parsed = _parse(value)
        if parsed is None:
            found.append(value)
        else:
            _collect(parsed, depth + 1, found)
    elif isinstance(value, dict):
        for key, each in value.items():
            if not (isinstance(each, int) and key.endswith("tokens")):
                _collect(each, depth + 1, found)
    elif isinstance(value, list):
        for each in value:
            _collect(each, depth + 1, found)
    elif value is not None:
        found.append(msgspec.json.encode(value).decode())


def _parse(text: str) -> Sequence[Any] | dict[str, Any] | None:
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        value = msgspec.json.decode(text.encode(errors="replace"))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None
