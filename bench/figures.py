"""A figure with its yardsticks, and the goal that decides whether it is met.

    Figure("span, bare", "µs", ours=5.1, floor=3.6, goal=at_most_floor(1.5)).met

A goal names what it compares: a ratio to the floor, a ratio to a peer, or a bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Measure = Literal["of floor", "less than peer", "at most", "below", "at least"]
HEADER = ("what", "ours", "floor", "peer", "ratio", "target", "met")


def added(total: float, bare: float) -> float | None:
    """What something adds; None where the noise of the machine hides it."""
    return total - bare if total > bare else None


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure should reach."""

    measure: Measure
    bound: float

    def __str__(self) -> str:
        if self.measure == "of floor":
            return f"<= {self.bound:g}x floor"
        if self.measure == "less than peer":
            return f">= {self.bound:g}x less than peer"
        return f"{_SIGN[self.measure]} {number(self.bound)}"


_SIGN = {"at most": "<=", "below": "<", "at least": ">="}


def at_most_floor(times: float) -> Goal:
    return Goal("of floor", times)


def less_than_peer(times: float) -> Goal:
    return Goal("less than peer", times)


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table. None: there is none, or it could not be measured."""

    name: str
    unit: str
    ours: float | None
    floor: float | None = None
    peer: float | None = None
    goal: Goal | None = None

    @property
    def met(self) -> bool | None:
        """Return whether the goal was met; None without a goal or a measured value."""
        if self.goal is None or self.ours is None:
            return None
        bound = self.goal.bound
        match self.goal.measure:
            case "of floor":
                return self.ours <= bound * self.floor if self.floor else None
            case "less than peer":
                return self.ours * bound <= self.peer if self.peer else None
            case "at most":
                return self.ours <= bound
            case "below":
                return self.ours < bound
            case "at least":
                return self.ours >= bound

    @property
    def ratio(self) -> str:
        """To what the goal compares with; without such a goal, to the peer or the floor."""
        wants_floor = self.goal is not None and self.goal.measure == "of floor"
        if not self.ours:
            return "-"
        if self.peer is None or wants_floor:
            return f"{self.ours / self.floor:.2f}x floor" if self.floor else "-"
        if not self.more_is_better:
            return f"{self.peer / self.ours:.1f}x less than peer"
        return f"{self.ours / self.peer:.1f}x peer" if self.peer else "peer has none"

    @property
    def more_is_better(self) -> bool:
        return self.goal is not None and self.goal.measure == "at least"

    def cells(self) -> tuple[str, ...]:
        """As HEADER says."""
        goal = "-" if self.goal is None else str(self.goal)
        met = {True: "yes", False: "NO", None: "-"}[self.met]
        values = (number(value) for value in (self.ours, self.floor, self.peer))
        return (f"{self.name}, {self.unit}", *values, self.ratio, goal, met)


def figure_of(row: Mapping[str, Any]) -> Figure:
    """A row of bench/storage.py, whose target is a bound: of a speed from below, of a size from
    above.
    """
    measure: Measure = "at least" if row["unit"].endswith("/s") else "at most"
    goal = Goal(measure, row["target"]) if row["target"] is not None else None
    return Figure(row["name"], row["unit"], row["ours"], row["floor"], row["peer"], goal)


def number(value: float | None) -> str:
    """Three digits that matter."""
    if value is None:
        return "-"
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3g}"
