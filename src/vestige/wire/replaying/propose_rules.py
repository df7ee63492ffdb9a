"""Explain how a request differs from the recorded one, and propose what to ignore.

    proposal = propose(recorded, actual, rules)
    proposal.lines()     # where the bodies differ, and what kind of value it is
    proposal.rules       # rules to add, with which the two requests match; empty if there are none

A difference in text that is not a time, an id or another generated value is never proposed: the
program asked something else.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.wire.replaying.matching_rules import (
    KINDS,
    Rule,
    normalize,
    normalize_text,
    parse_rules,
)

DIFFERENCES_MAX = 100
"""Differences that are compared. With more, the request is a different one."""

SHOWN_MAX = 3
QUOTE_MAX = 40

CONTEXT = 10
"""Characters before the difference that are shown."""

_NUMBER = "number"
_ORDER = "order"

_COMBINATIONS = [each for size in range(1, len(KINDS) + 1) for each in combinations(KINDS, size)]
"""Kinds that together may explain a difference, fewest first."""


class Difference(msgspec.Struct, frozen=True):
    """A value that differs."""

    path: str
    before: str
    after: str
    kinds: tuple[str, ...] = ()
    """The explanation of the difference: `time`, `uuid`, `id`, `number`, `order`."""


class Proposal(msgspec.Struct, frozen=True):
    """The differences of two requests, and the rules that make them match."""

    offset: int
    """First byte that differs."""
    differences: list[Difference]
    rules: list[str]

    @property
    def is_another_request(self) -> bool:
        """Return whether a difference is neither a generated value nor an order."""
        return any(not each.kinds for each in self.differences)

    def lines(self) -> list[str]:
        """Render the differences for a person."""
        lines = [f"first difference at byte {self.offset}"]
        if not self.differences:
            lines.append("the same JSON, written differently: keep the order of members the same")
        for each in self.differences[:SHOWN_MAX]:
            if each.kinds == (_ORDER,):
                lines.append(f"{each.path}: {_ORDER_ADVICE}")
                continue
            names = " and a ".join(_NAMES[kind] for kind in each.kinds)
            what = f" (looks like a {names})" if names else ""
            lines.append(f"{each.path}: {each.before} → {each.after}{what}")
        more = len(self.differences) - SHOWN_MAX
        if more > 0:
            lines.append(f"and {more} more")
        return lines


_ORDER_ADVICE = (
    "the same items in another order (parallel work?). Let the program sort them, for example in"
    " the order in which they were requested"
)
_NAMES = {"time": "time", "uuid": "UUID", "id": "generated id", _NUMBER: "number"}


def propose(recorded: bytes, actual: bytes, rules: list[Rule]) -> Proposal:
    """Compare two request bodies, of which the ignored values are already out of account."""
    before, after = normalize(recorded, rules), normalize(actual, rules)
    differences: list[Difference] = []
    try:
        _compare(msgspec.json.decode(before), msgspec.json.decode(after), "", differences)
    except (ValueError, RecursionError):
        differences = [
            _describe("body", before.decode(errors="replace"), after.decode(errors="replace"))
        ]
    found = [] if len(differences) > DIFFERENCES_MAX else _find_rules(differences)
    if found and normalize(recorded, [*rules, *parse_rules(found)]) != normalize(
        actual, [*rules, *parse_rules(found)]
    ):
        found = []
    return Proposal(find_first_difference(before, after), differences, found)


def find_first_difference(before: bytes, after: bytes) -> int:
    """Return the offset of the first byte that differs."""
    low, high = 0, min(len(before), len(after))
    while low < high:  # binary search, because slices are compared much faster than bytes
        middle = (low + high + 1) // 2
        if before[:middle] == after[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _find_rules(differences: list[Difference]) -> list[str]:
    rules: list[str] = []
    for each in differences:
        if not each.kinds or _ORDER in each.kinds:
            return []
        rules += [each.path if kind == _NUMBER else kind for kind in each.kinds]
    return list(dict.fromkeys(rules))


def _compare(before: Any, after: Any, path: str, found: list[Difference]) -> None:
    if len(found) > DIFFERENCES_MAX or before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            inner = f"{path}.{key}" if path else key
            if key in before and key in after:
                _compare(before[key], after[key], inner, found)
            else:
                found.append(_missing(inner, key in before))
    elif isinstance(before, list) and isinstance(after, list) and _is_reordered(before, after):
        found.append(Difference(path or "body", "", "", (_ORDER,)))
    elif isinstance(before, list) and isinstance(after, list):
        for index, (one, other) in enumerate(zip(before, after, strict=False)):
            _compare(one, other, f"{path}[{index}]", found)
        if len(before) != len(after):
            text = (f"{len(before)} items", f"{len(after)} items")
            found.append(Difference(path or "body", *text))
    elif isinstance(before, str) and isinstance(after, str):
        found.append(_describe(path, before, after))
    else:
        found.append(_describe_scalars(path, before, after))


def _is_reordered(before: list[Any], after: list[Any]) -> bool:
    if len(before) != len(after):
        return False
    return sorted(map(msgspec.json.encode, before)) == sorted(map(msgspec.json.encode, after))


def _describe_scalars(path: str, before: object, after: object) -> Difference:
    words = (_quote(str(before)), _quote(str(after)))
    if not _is_number(before) or not _is_number(after):
        return Difference(path, *words)
    is_time = _is_same(str(before), str(after), ("time",))
    return Difference(path, *words, ("time",) if is_time else (_NUMBER,))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _missing(path: str, in_recording: bool) -> Difference:
    words = ("present", "missing") if in_recording else ("missing", "present")
    return Difference(path, *words)


def _describe(path: str, before: str, after: str) -> Difference:
    """Describe two texts by the part of them that differs."""
    kinds = next((each for each in _COMBINATIONS if _is_same(before, after, each)), ())
    for kind in kinds:
        values = zip(KINDS[kind].findall(before), KINDS[kind].findall(after), strict=False)
        pair = next(((one, other) for one, other in values if one != other), None)
        if pair is not None:
            return Difference(path, _quote(pair[0]), _quote(pair[1]), kinds)
    begin = find_first_difference(before.encode(errors="replace"), after.encode(errors="replace"))
    begin = len(before.encode(errors="replace")[:begin].decode(errors="ignore"))
    begin = max(0, begin - CONTEXT)
    return Difference(path, _quote(before[begin:]), _quote(after[begin:]), kinds)


def _is_same(before: str, after: str, kinds: tuple[str, ...]) -> bool:
    """Return whether the texts are equal without the values of these kinds."""
    rules = [Rule(kind, KINDS[kind]) for kind in kinds]
    return normalize_text(before, rules) == normalize_text(after, rules)


def _quote(text: str) -> str:
    return repr(text if len(text) <= QUOTE_MAX else text[:QUOTE_MAX] + "…")
