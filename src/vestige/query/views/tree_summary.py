"""The shape of a run: its tree with equal siblings added up, the longest first. Pure.

    run refund desk 5.7s
      llm messages.create x4 4.8s 3.8k+160 tokens
      tool ask_fraud 607.0ms
        agent fraud desk 605.0ms

However many spans there are, what differs in type, name or place is told once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vestige.query import formatting

KINDS_MAX = 2_000
"""Different places that are told apart; a run whose names hold ids has as many as it has spans."""

DEPTH_MAX = 40

REST = ("", "(other)")
"""Type and name of what comes after so many."""


@dataclass(slots=True)
class Shape:
    """Spans of one type and name at one place of the tree."""

    type: str
    name: str
    count: int = 0
    failed: int = 0
    unfinished: int = 0
    duration_us: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    children: dict[tuple[str, str], Shape] = field(default_factory=dict)

    def say(self) -> str:
        parts = [
            f"{formatting.single_line(self.type, 20)} {formatting.single_line(self.name, 60)}".strip()
        ]
        if self.count > 1:
            parts.append(f"x{self.count}")
        parts.append(formatting.duration(self.duration_us * 1000))
        if self.count > 1:
            parts.append(f"({formatting.duration(self.duration_us * 1000 // self.count)} each)")
        if self.input_tokens or self.output_tokens:
            tokens = (formatting.number(self.input_tokens), formatting.number(self.output_tokens))
            parts.append(f"{'+'.join(tokens)} tokens")
        if self.failed:
            parts.append(f"{self.failed} failed" if self.count > 1 else "failed")
        if self.unfinished:
            parts.append(f"{self.unfinished} open" if self.count > 1 else "open")
        return " ".join(parts)


def draw_shape(spans: Mapping[str, Sequence[Any]], strings: Sequence[str]) -> list[str]:
    """Lines, indented; of the columns that `outline` gives."""
    top = Shape("", "")
    rows: list[str] = []
    _add_up(spans, strings, top)
    stack = [(shape, 0) for shape in reversed(_by_time(top))]
    while stack:
        shape, depth = stack.pop()
        rows.append("  " * min(depth, DEPTH_MAX) + shape.say())
        stack.extend((child, depth + 1) for child in reversed(_by_time(shape)))
    return rows


def _by_time(shape: Shape) -> list[Shape]:
    return sorted(
        shape.children.values(), key=lambda each: (-each.duration_us, each.type, each.name)
    )


def _add_up(spans: Mapping[str, Sequence[Any]], strings: Sequence[str], top: Shape) -> None:
    """Each span to its place: below its parent's. A parent may come later, or never."""
    row_of = {number: row for row, number in enumerate(spans["number"])}
    placed: dict[int, tuple[Shape, int]] = {}
    kinds = 0
    for row in range(len(spans["number"])):
        for at in _unplaced(row, spans["parent"], row_of, placed):
            above, depth = placed.get(row_of.get(spans["parent"][at], -1), (top, 0))
            key = (strings[spans["type"][at]], strings[spans["name"][at]])
            if key not in above.children:
                kinds += 1
                key = key if kinds <= KINDS_MAX else REST
            if depth < DEPTH_MAX:
                above = above.children.setdefault(key, Shape(*key))
            _count(above, spans, strings, at)
            placed[at] = (above, depth + 1)


def _unplaced(
    row: int,
    parents: Sequence[int],
    row_of: Mapping[int, int],
    placed: Mapping[int, tuple[Shape, int]],
) -> list[int]:
    """This row and those above it that have no place yet, the topmost first; a circle is cut."""
    chain: list[int] = []
    met: set[int] = set()
    at: int | None = row
    while at is not None and at not in placed and at not in met:
        chain.append(at)
        met.add(at)
        at = row_of.get(parents[at])
    return chain[::-1]


def _count(
    shape: Shape, spans: Mapping[str, Sequence[Any]], strings: Sequence[str], at: int
) -> None:
    shape.count += 1
    status = strings[spans["status"][at]]
    shape.failed += status not in ("ok", "")
    shape.unfinished += not status
    shape.duration_us += spans["duration_us"][at] or 0
    if shape.type == "llm":
        shape.input_tokens += max(0, spans["input_tokens"][at])
        shape.output_tokens += max(0, spans["output_tokens"][at])
