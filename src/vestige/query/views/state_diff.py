"""Changes between two states of a session, slice by slice and item by item. Pure.

    for change in diff_states(before, after):
        change.added, change.removed, change.changed       # counts
        change.examples                                    # a few lines with the changed items

Items are compared by position: a slice that is a log only grows at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from vestige.formats.wink.jsonl_entries import SnapshotPayload, SnapshotSlice
from vestige.query import formatting

EXAMPLES_MAX = 3
"""Changed, added and removed items of one slice that are shown; the others are counted."""
ITEM_SHOWN = 100
DEPTH_MAX = 20


@dataclass(frozen=True, slots=True)
class SliceChange:
    """The changes of one slice."""

    slice_type: str
    before: int
    after: int
    added: int
    removed: int
    changed: int
    examples: tuple[str, ...]

    @property
    def name(self) -> str:
        return short_type(self.slice_type)

    def summary(self) -> str:
        """`+2 ~1 ToolInvoked`."""
        marks = (("+", self.added), ("~", self.changed), ("-", self.removed))
        counts = [f"{mark}{count}" for mark, count in marks if count]
        return " ".join([*counts, formatting.single_line(self.name, 60)])

    def data(self) -> dict[str, Any]:
        """Return the JSON form, whose keys are public."""
        return asdict(self) | {"examples": list(self.examples)}


def short_type(name: str) -> str:
    """Shorten `weakincentives.runtime.events:PromptRendered` to `PromptRendered`."""
    return name.rpartition(":")[2].rpartition(".")[2] or name


def diff_states(before: SnapshotPayload | None, after: SnapshotPayload) -> list[SliceChange]:
    """Return the changed slices; without `before`, all slices that have items."""
    old = {part.slice_type: part for part in before.slices} if before else {}
    new = {part.slice_type: part for part in after.slices}
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
    changed = [index for index, (a, b) in enumerate(pairs, same) if not is_same(a, b)]
    added, removed = range(len(old), len(new)), range(len(new), len(old))
    examples = (
        *(f"~ [{at}]{_first_difference(old[at], new[at])}" for at in changed[:EXAMPLES_MAX]),
        *(f"+ [{at}] {_format_item(new[at])}" for at in added[:EXAMPLES_MAX]),
        *(f"- [{at}] {_format_item(old[at])}" for at in removed[:EXAMPLES_MAX]),
    )
    counts = (len(added), len(removed), len(changed))
    return SliceChange(name, len(old), len(new), *counts, examples)


def is_same(a: Any, b: Any) -> bool:
    """Compare as JSON values: unlike in Python, 1 and true differ. Not recursive."""
    if a != b:
        return False
    stack = [(a, b)]
    while stack:
        left, right = stack.pop()
        if isinstance(left, dict):
            stack.extend((value, right[key]) for key, value in left.items())
        elif isinstance(left, list):
            stack.extend(zip(left, right, strict=True))
        elif isinstance(left, bool) != isinstance(right, bool):
            return False
    return True


def _first_difference(a: Any, b: Any) -> str:
    """Format the first difference of two values: `.steps[2]: "x" → "y"`."""
    path = ""
    for _ in range(DEPTH_MAX):
        step = next(_differences(a, b), None)
        if step is None:
            break
        key, a, b = step
        path += key
    return f"{formatting.single_line(path, 80)}: {_format_item(a)} → {_format_item(b)}"


def _differences(a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *(key for key in b if key not in a)]:
            if not is_same(a.get(key), b.get(key)):
                yield f".{key}", a.get(key), b.get(key)
    elif isinstance(a, list) and isinstance(b, list):
        for at in range(max(len(a), len(b))):
            pair = (a[at] if at < len(a) else None, b[at] if at < len(b) else None)
            if not is_same(*pair):
                yield f"[{at}]", *pair


def _format_item(value: Any) -> str:
    if value is None:
        return "nothing"
    try:
        return formatting.single_line(msgspec.json.encode(value).decode(), ITEM_SHOWN)
    except RecursionError:
        return "…"
