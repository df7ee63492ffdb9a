"""Budgets: an answer is small, and says how to get the rest.

Tokens are estimated from characters: a fourth of a token for a letter of ASCII, a whole
one for anything else, which is on the safe side for every script. No answer is larger than
`TOKENS_MAX`, whoever asks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

TOKENS_MAX: Final = 8_000
"""The hard cap of any answer: a reader's context is not ours to fill."""

CHARACTERS_A_TOKEN: Final = 4


def count_tokens(text: str) -> int:
    """An estimate, never far below the truth."""
    plain = len(text.encode("ascii", "ignore"))
    return math.ceil(plain / CHARACTERS_A_TOKEN) + (len(text) - plain)


def within(budget: int | None, default: int) -> int:
    """The budget in force: what was asked for, or the verb's own, and never above the cap."""
    return max(50, min(budget if budget is not None else default, TOKENS_MAX))


def fit_lines(
    lines: Sequence[str], budget: int, more: Callable[[int], str], *, keep_end: bool = False
) -> list[str]:
    """As many lines as fit, then `more(left_out)`: what was cut, and the exact next command.

    `keep_end` cuts in the middle instead: the end of a run is what one came for. A single
    line longer than the budget is cut itself.
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
    """How many of the first ones fit."""
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
