"""Summarize a run's tree: siblings of the same type and name merged, longest first.

    run refund desk 5.7s
      llm messages.create ×4 4.8s 3.8k → 160 tokens
      tool ask_fraud 607.0ms
        agent fraud desk 605.0ms

Pure. The length depends on the distinct types, names and parents, not on the span count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vestige.query import formatting
from vestige.record.types import MODEL_CALL_TYPES

GROUPS_MAX = 2_000
"""Groups that are distinguished; names that contain ids make a group of every span."""

DEPTH_MAX = 40

OTHER = ("", "(other)")
"""Type and name of the groups beyond GROUPS_MAX."""


@dataclass(slots=True)
class SpanGroup:
    """Spans of the same type and name below the same parent group."""

    type: str
    name: str
    count: int = 0
    failed: int = 0
    unfinished: int = 0
    duration_us: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    children: dict[tuple[str, str], SpanGroup] = field(default_factory=dict)

    def summary(self) -> str:
        names = (formatting.single_line(self.type, 20), formatting.single_line(self.name, 60))
        parts = [" ".join(names).strip()]
        if self.count > 1:
            parts.append(f"×{self.count}")
        parts.append(formatting.duration(self.duration_us * 1000))
        if self.count > 1:
            parts.append(f"({formatting.duration(self.duration_us * 1000 // self.count)} each)")
        if self.input_tokens or self.output_tokens:
            parts.append(formatting.token_counts(self.input_tokens, self.output_tokens))
        if self.failed:
            parts.append(f"{self.failed} failed" if self.count > 1 else "failed")
        if self.unfinished:
            parts.append(f"{self.unfinished} open" if self.count > 1 else "open")
        return " ".join(parts)


def render_tree(spans: Mapping[str, Sequence[Any]], strings: Sequence[str]) -> list[str]:
    """Return indented lines for the columns of an `outline` answer."""
    top = SpanGroup("", "")
    rows: list[str] = []
    _group_spans(spans, strings, top)
    stack = [(group, 0) for group in reversed(_longest_first(top))]
    while stack:
        group, depth = stack.pop()
        rows.append("  " * min(depth, DEPTH_MAX) + group.summary())
        stack.extend((child, depth + 1) for child in reversed(_longest_first(group)))
    return rows


def _longest_first(group: SpanGroup) -> list[SpanGroup]:
    return sorted(
        group.children.values(), key=lambda each: (-each.duration_us, each.type, each.name)
    )


def _group_spans(
    spans: Mapping[str, Sequence[Any]], strings: Sequence[str], top: SpanGroup
) -> None:
    """Add each span to a child of its parent's group. A parent may come later, or never."""
    row_of = {number: row for row, number in enumerate(spans["number"])}
    grouped: dict[int, tuple[SpanGroup, int]] = {}
    groups = 0
    for row in range(len(spans["number"])):
        for at in _ungrouped_ancestors(row, spans["parent"], row_of, grouped):
            group, depth = grouped.get(row_of.get(spans["parent"][at], -1), (top, 0))
            key = (strings[spans["type"][at]], strings[spans["name"][at]])
            if key not in group.children:
                groups += 1
                key = key if groups <= GROUPS_MAX else OTHER
            if depth < DEPTH_MAX:
                group = group.children.setdefault(key, SpanGroup(*key))
            _add_span(group, spans, strings, at)
            grouped[at] = (group, depth + 1)


def _ungrouped_ancestors(
    row: int,
    parents: Sequence[int],
    row_of: Mapping[int, int],
    grouped: Mapping[int, tuple[SpanGroup, int]],
) -> list[int]:
    """Return this row and its ancestors without a group, topmost first; cycles are broken."""
    chain: list[int] = []
    visited: set[int] = set()
    at: int | None = row
    while at is not None and at not in grouped and at not in visited:
        chain.append(at)
        visited.add(at)
        at = row_of.get(parents[at])
    return chain[::-1]


def _add_span(
    group: SpanGroup, spans: Mapping[str, Sequence[Any]], strings: Sequence[str], at: int
) -> None:
    group.count += 1
    status = strings[spans["status"][at]]
    group.failed += status not in ("ok", "")
    group.unfinished += not status
    group.duration_us += spans["duration_us"][at] or 0
    if group.type in MODEL_CALL_TYPES:
        group.input_tokens += max(0, spans["input_tokens"][at])
        group.output_tokens += max(0, spans["output_tokens"][at])
