"""Loops, as they happen: the same calls again and again, of any period up to a window.

    detector = LoopDetector(window=12, repetitions=3)
    loop = detector.add("TOOL_CALL:search", arguments='{"q": 1}', evidence="e-17")
    if loop is not None and detector.is_news(loop): ...

Arguments count: the same tool with other arguments is progress. A call without arguments that
mean something (a model's prompt grows with every turn, a state has a counter) does not break
the loop around it; but a loop of such calls alone is one only if their details repeat too.

Pure. Elsewhere: the offline search over a whole run in query/checks/progress/repetition.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

WINDOW_MAX = 500
"""Steps of one round. More cannot be told apart from a program that does its work."""

ROUNDS_KEPT_MAX = 100
"""Rounds that are counted; a limit above it is reached when this is."""

_SAID: Final = object()

PATTERNS_MAX = 1_000
"""Patterns remembered as told. A program with more of them has other problems."""


class Loop(NamedTuple):
    """A pattern that came `repetitions` times in a row, the last time just now."""

    labels: tuple[str, ...]
    """One round."""
    repetitions: int
    evidence: tuple[str, ...]
    """The steps of all rounds, oldest first."""

    @property
    def pattern(self) -> str:
        return " -> ".join(self.labels)


class LoopDetector:
    """Told of every step of one run. Not for several threads at once."""

    def __init__(self, window: int, repetitions: int, rounds_kept: int = 0) -> None:
        self._window = max(1, min(window, WINDOW_MAX))
        self._repetitions = max(2, min(repetitions, ROUNDS_KEPT_MAX))
        kept = max(self._repetitions, min(rounds_kept, ROUNDS_KEPT_MAX))
        self._length_max = self._window * kept
        self._keys: list[int] = []
        self._times: dict[int, int] = {}
        """How often each key is among them."""
        self._since_said = 0
        """Steps since the last one that had arguments."""
        self._details: list[object] = []
        """`_SAID`: the step has arguments, and its key says all."""
        self._labels: list[str] = []
        self._evidence: list[str] = []
        self._told: set[tuple[str, ...]] = set()

    def add(
        self, label: str, evidence: str, arguments: Hashable = None, detail: object = None
    ) -> Loop | None:
        """A step; the loop that it completes a round of, if there is one."""
        if len(self._keys) >= 2 * self._length_max:
            self._forget()
        key = hash((label, arguments))
        self._keys.append(key)
        self._labels.append(label)
        self._evidence.append(evidence)
        if arguments is None:
            self._details.append(detail)
            self._since_said += 1
        else:
            self._details.append(_SAID)
            self._since_said = 0
        times = self._times[key] = self._times.get(key, 0) + 1
        return None if times < self._repetitions else self._find(key)

    def is_news(self, loop: Loop) -> bool:
        """Whether this pattern is told for the first time; wherever its round begins."""
        labels = loop.labels
        first = min(labels[at:] + labels[:at] for at in range(len(labels)))
        if first in self._told or len(self._told) >= PATTERNS_MAX:
            return False
        self._told.add(first)
        return True

    def _find(self, key: int) -> Loop | None:
        keys, details = self._keys, self._details
        longest = min(self._window, len(keys) // self._repetitions)
        if self._since_said >= longest and details[-1] not in details[-1 - longest : -1]:
            return None  # no arguments far and wide, and a detail that is new: most states
        for period in range(1, longest + 1):
            if keys[-1 - period] != key:
                continue
            told = period > self._since_said
            if not told and details[-1 - period] != details[-1]:
                continue
            most = self._length_max // period
            rounds = _rounds(keys, period, most)
            if not told and rounds >= self._repetitions:
                rounds = _rounds(details, period, rounds)
            if rounds >= self._repetitions:
                return Loop(
                    tuple(self._labels[-period:]), rounds, tuple(self._evidence[-rounds * period :])
                )
        return None

    def _forget(self) -> None:
        # In bulk: cutting one off the front for every step would move the whole list.
        for steps in (self._keys, self._details, self._labels, self._evidence):
            del steps[: -self._length_max]
        self._times = Counter(self._keys)


def _rounds(steps: Sequence[object], period: int, most: int) -> int:
    """How often the last `period` steps came in a row, up to now; no more than `most`."""
    last = steps[-period:]
    rounds = 1
    while rounds < most and steps[-(rounds + 1) * period : -rounds * period] == last:
        rounds += 1
    return rounds
