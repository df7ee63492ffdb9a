"""What changed between two states of a session: slice by slice, item by item. Pure.

    for change in diff_states(before, after):
        change.added, change.removed, change.changed       # counts
        change.told                                        # a line or two that say it

A slice that is a log only grows, so the usual difference is what was added at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from vestige.formats.wink.jsonl_entries import SnapshotPayload, SnapshotSlice
from vestige.query import formatting

TOLD_MAX = 3
"""Items of one slice that are shown; the others are counted."""
ITEM_SHOWN = 100
DEPTH_MAX = 20


@dataclass(frozen=True, slots=True)
class SliceChange:
    """How one slice differs from what it was."""

    slice_type: str
    before: int
    after: int
    added: int
    removed: int
    changed: int
    told: tuple[str, ...]

    @property
    def name(self) -> str:
        return short_type(self.slice_type)

    def summary(self) -> str:
        """`+2 ~1 ToolInvoked`."""
        marks = (("+", self.added), ("~", self.changed), ("-", self.removed))
        counts = [f"{mark}{count}" for mark, count in marks if count]
        return " ".join([*counts, formatting.single_line(self.name, 60)])


def short_type(name: str) -> str:
    """`weakincentives.runtime.events:PromptRendered` as `PromptRendered`."""
    return name.rpartition(":")[2].rpartition(".")[2] or name


def diff_states(before: SnapshotPayload | None, after: SnapshotPayload) -> list[SliceChange]:
    """The slices that are not what they were; against nothing, all that have items."""
    old = {one.slice_type: one for one in before.slices} if before else {}
    new = {one.slice_type: one for one in after.slices}
    found = []
    for name in [*old, *(name for name in new if name not in old)]:
        change = _diff_slice(name, _items(old.get(name)), _items(new.get(name)))
        if change is not None:
            found.append(change)
    return found


def _items(slice: SnapshotSlice | None) -> Sequence[Any]:
    return slice.items if slice is not None else ()


def _diff_slice(name: str, old: Sequence[Any], new: Sequence[Any]) -> SliceChange | None:
    same = 0
    while same < min(len(old), len(new)) and is_same(old[same], new[same]):
        same += 1
    if same == len(old) == len(new):
        return None
    pairs = list(zip(old[same:], new[same:], strict=False))
    changed = [place for place, (a, b) in enumerate(pairs, same) if not is_same(a, b)]
    added, removed = max(0, len(new) - len(old)), max(0, len(old) - len(new))
    told = [
        *(f"~ [{at}]{_first_difference(old[at], new[at])}" for at in changed[:TOLD_MAX]),
        *(f"+ [{at}] {_shown(new[at])}" for at in range(len(new))[len(old) :][:TOLD_MAX]),
        *(f"- [{at}] {_shown(old[at])}" for at in range(len(old))[len(new) :][:TOLD_MAX]),
    ]
    return SliceChange(name, len(old), len(new), added, removed, len(changed), tuple(told))


def is_same(a: Any, b: Any) -> bool:
    """As JSON has it: to Python, 1 and true are equal. Without recursion, as deep as it likes."""
    if a != b:
        return False
    stack = [(a, b)]
    while stack:
        one, other = stack.pop()
        if isinstance(one, dict):
            stack.extend((value, other[key]) for key, value in one.items())
        elif isinstance(one, list):
            stack.extend(zip(one, other, strict=True))
        elif isinstance(one, bool) != isinstance(other, bool):
            return False
    return True


def _first_difference(a: Any, b: Any) -> str:
    """Where two values part: `.steps[2]: "x" → "y"`."""
    path = ""
    for _ in range(DEPTH_MAX):
        step = next(_steps(a, b), None)
        if step is None:
            break
        key, a, b = step
        path += key
    return f"{formatting.single_line(path, 80)}: {_shown(a)} → {_shown(b)}"


def _steps(a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *(key for key in b if key not in a)]:
            if not is_same(a.get(key), b.get(key)):
                yield f".{key}", a.get(key), b.get(key)
    elif isinstance(a, list) and isinstance(b, list):
        for at in range(max(len(a), len(b))):
            pair = (a[at] if at < len(a) else None, b[at] if at < len(b) else None)
            if not is_same(*pair):
                yield f"[{at}]", *pair


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    try:
        return formatting.single_line(msgspec.json.encode(value).decode(), ITEM_SHOWN)
    except RecursionError:
        return "…"
