"""Token budgets: fit an answer into a budget, with the command for the rest.

Tokens are estimated from characters: a quarter of a token for an ASCII character, one for any
other, which is a safe upper estimate for every script. No answer exceeds `TOKENS_MAX`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

TOKENS_MAX: Final = 50_000
"""The upper limit of any answer, which protects the context window of an agent."""

CHARACTERS_A_TOKEN: Final = 4

UNLIMITED: Final = 10**9
"""The budget of a person on a terminal, who scrolls."""


def count_tokens(text: str) -> int:
    """Estimate the tokens of a text, never far below the true count."""
    plain = len(text.encode("ascii", "ignore"))
    return math.ceil(plain / CHARACTERS_A_TOKEN) + (len(text) - plain)


def within(budget: int | None, default: int) -> int:
    """Return the requested budget or the default, at least 50 and at most TOKENS_MAX."""
    return max(50, min(budget if budget is not None else default, TOKENS_MAX))


def fit_lines(
    lines: Sequence[str], budget: int, more: Callable[[int], str], *, keep_end: bool = False
) -> list[str]:
    """Return the lines that fit, then `more(left_out)`, which has the next command.

    With `keep_end`, lines are left out in the middle. A first line longer than the budget is
    truncated.
    """
    costs = [count_tokens(line) + 1 for line in lines]
    if sum(costs) <= budget:
        return list(lines)
    room = budget - count_tokens(more(len(lines))) - 1
    if not keep_end:
        shown = count_fitting(costs, room)
        return [*_head(lines, shown, room), more(len(lines) - max(shown, 1))]
    head = count_fitting(costs, room // 3)
    spent = sum(costs[:head])
    tail = count_fitting(costs[: head - 1 if head else None : -1], room - spent)
    left_out = len(lines) - head - tail
    return [*lines[:head], more(left_out), *(lines[len(lines) - tail :] if tail else ())]


def count_fitting(costs: Sequence[int], room: int) -> int:
    """Return how many of the first items fit."""
    spent = 0
    for number, cost in enumerate(costs):
        spent += cost
        if spent > room:
            return number
    return len(costs)


def _head(lines: Sequence[str], shown: int, room: int) -> list[str]:
    if shown:
        return list(lines[:shown])
    return [lines[0][: max(1, room)] + "…"] if lines else []
