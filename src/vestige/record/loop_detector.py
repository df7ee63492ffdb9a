"""Detect loops while they happen: the same calls repeated, with any period up to a window.

    detector = LoopDetector(window=12, repetitions=3)
    loop = detector.add("TOOL_CALL:search", arguments='{"q": 1}', evidence="e-17")
    if loop is not None and detector.is_new(loop): ...

Arguments count: the same tool with other arguments is progress. A call without comparable
arguments (a model's prompt grows with every turn, a state has a counter) does not break the
loop around it. A sequence of only such calls is a loop only if their details repeat too.

No I/O. The search over a recorded run is in query/checks/progress/repetition.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

WINDOW_MAX = 500
"""Steps per round. A longer round is not distinguishable from normal work."""

ROUNDS_STORED_MAX = 100
"""Rounds that are counted. A higher limit counts as reached at this number."""

_HAS_ARGUMENTS: Final = object()

PATTERNS_MAX = 1_000
"""Reported patterns that are remembered. Further patterns are not reported."""


class Loop(NamedTuple):
    """A pattern that repeated `repetitions` times in a row, up to the last step."""

    labels: tuple[str, ...]
    """A round of a loop."""
    repetitions: int
    evidence: tuple[str, ...]
    """The steps of all rounds, oldest first."""

    @property
    def pattern(self) -> str:
        return " -> ".join(self.labels)


class LoopDetector:
    """Find loops in the steps of one run. Not thread-safe."""

    def __init__(self, window: int, repetitions: int, rounds_stored: int = 0) -> None:
        self._window = max(1, min(window, WINDOW_MAX))
        self._repetitions = max(2, min(repetitions, ROUNDS_STORED_MAX))
        rounds = max(self._repetitions, min(rounds_stored, ROUNDS_STORED_MAX))
        self._length_max = self._window * rounds
        self._keys: list[int] = []
        self._key_counts: dict[int, int] = {}
        self._steps_since_arguments = 0
        """Steps since the last one that had arguments."""
        self._details: list[object] = []
        """`_HAS_ARGUMENTS`: the key of the step includes its arguments, so no detail is needed."""
        self._labels: list[str] = []
        self._evidence: list[str] = []
        self._reported: set[tuple[str, ...]] = set()

    def add(
        self, label: str, evidence: str, arguments: Hashable = None, detail: object = None
    ) -> Loop | None:
        """Add a step, and return the loop that it completes a round of, if any."""
        if len(self._keys) >= 2 * self._length_max:
            self._forget()
        key = hash((label, arguments))
        self._keys.append(key)
        self._labels.append(label)
        self._evidence.append(evidence)
        if arguments is None:
            self._details.append(detail)
            self._steps_since_arguments += 1
        else:
            self._details.append(_HAS_ARGUMENTS)
            self._steps_since_arguments = 0
        count = self._key_counts[key] = self._key_counts.get(key, 0) + 1
        return None if count < self._repetitions else self._find(key)

    def is_new(self, loop: Loop) -> bool:
        """Return whether this pattern, or a rotation of it, was not reported before."""
        labels = loop.labels
        first = min(labels[at:] + labels[:at] for at in range(len(labels)))
        if first in self._reported or len(self._reported) >= PATTERNS_MAX:
            return False
        self._reported.add(first)
        return True

    def _find(self, key: int) -> Loop | None:
        keys, details = self._keys, self._details
        longest = min(self._window, len(keys) // self._repetitions)
        no_arguments = self._steps_since_arguments >= longest
        if no_arguments and details[-1] not in details[-1 - longest : -1]:
            return None  # a fast exit for most states: no step has arguments, the detail is new
        for period in range(1, longest + 1):
            if keys[-1 - period] != key:
                continue
            has_arguments = period > self._steps_since_arguments
            if not has_arguments and details[-1 - period] != details[-1]:
                continue
            most = self._length_max // period
            rounds = _count_rounds(keys, period, most)
            if not has_arguments and rounds >= self._repetitions:
                rounds = _count_rounds(details, period, rounds)
            if rounds >= self._repetitions:
                return Loop(
                    tuple(self._labels[-period:]), rounds, tuple(self._evidence[-rounds * period :])
                )
        return None

    def _forget(self) -> None:
        # In bulk: removing one item from the front for each step would move all others.
        for steps in (self._keys, self._details, self._labels, self._evidence):
            del steps[: -self._length_max]
        self._key_counts = Counter(self._keys)


def _count_rounds(steps: Sequence[object], period: int, most: int) -> int:
    """Return how often the last `period` steps occur in a row at the end, at most `most`."""
    last = steps[-period:]
    rounds = 1
    while rounds < most and steps[-(rounds + 1) * period : -rounds * period] == last:
        rounds += 1
    return rounds
