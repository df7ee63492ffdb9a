"""Characters of each kind of content on a transcript page, chosen so that the run fits.

What an agent did is shown before what it was sent: results are folded first, then answers, and
the code that a model wrote last. The answers that end the run are folded less than others: most
wrong results are explained there. Prompts stay short on every page: a larger budget must not
unfold boilerplate first. `--full` shows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from vestige.query.token_budget import CHARACTERS_A_TOKEN
from vestige.query.trajectory import Item, Step

Limits = Mapping[str, int]
"""Characters of one content: `code`, `answer`, `ending`, `result`, `user`, `system`."""

ENDINGS: Final = 3
"""Steps at the end of a run: an answer, its format, and a retry of one of them."""
ENDLESS: Final = 10**9
STEP_OVERHEAD: Final = 70
"""Characters of a step's own line, about."""
LOG_OVERHEAD: Final = 60
LOGS_SHOWN: Final = 6
CONTENT_OVERHEAD: Final = 20
"""Characters of a content's label and mark, about."""

LEVELS: Final[tuple[Limits, ...]] = (
    {
        "code": ENDLESS,
        "answer": 12_000,
        "ending": 12_000,
        "result": 4_000,
        "user": 1_500,
        "system": 900,
    },
    {
        "code": ENDLESS,
        "answer": 6_000,
        "ending": 8_000,
        "result": 2_000,
        "user": 900,
        "system": 700,
    },
    {"code": 12_000, "answer": 3_000, "ending": 6_000, "result": 1_000, "user": 600, "system": 600},
    {"code": 6_000, "answer": 1_200, "ending": 4_000, "result": 600, "user": 400, "system": 500},
    {"code": 4_000, "answer": 900, "ending": 3_000, "result": 500, "user": 220, "system": 300},
    {"code": 2_500, "answer": 600, "ending": 2_500, "result": 350, "user": 180, "system": 250},
    {"code": 1_600, "answer": 400, "ending": 2_000, "result": 250, "user": 150, "system": 200},
    {"code": 1_200, "answer": 300, "ending": 1_500, "result": 140, "user": 120, "system": 120},
    {"code": 900, "answer": 220, "ending": 1_200, "result": 100, "user": 80, "system": 80},
)
"""From a generous page to a full one."""
DEFAULT_LEVEL: Final = 4
"""The most generous level of a page with the default budget: a short run stays short."""
DEFAULT_BUDGET: Final = 4_000
"""Tokens of a page unless a budget is requested."""
READABLE: Final = 6
"""The level of one page of several."""
ESTIMATE_ERROR: Final = 1.3
"""The factor by which an estimate may exceed the lines of a step."""
FULL: Final[Limits] = dict.fromkeys(LEVELS[0], ENDLESS)


def find_endings(steps: Sequence[Step]) -> frozenset[int]:
    """Return the numbers of the last steps of a run that its sub-agents did not make."""
    return frozenset(step.number for step in [each for each in steps if not each.depth][-ENDINGS:])


def for_step(step: Step, limits: Limits, ends: frozenset[int]) -> Limits:
    """Return the limits of one step."""
    return {**limits, "answer": limits["ending"]} if step.number in ends else limits


def iter_levels(
    steps: Sequence[Step], others: int, budget: int, ends: frozenset[int] = frozenset()
) -> Iterator[Limits]:
    """Yield the levels with which the steps and `others` lines may fit, the most generous first."""
    room = (budget * CHARACTERS_A_TOKEN - 200 * others) * ESTIMATE_ERROR
    first = 0 if budget > DEFAULT_BUDGET else DEFAULT_LEVEL
    for limits in LEVELS[first:]:
        total = 0
        for step in steps:
            total += estimate(step, for_step(step, limits, ends))
            if total > room:
                break
        else:
            yield limits


def get_page_level(budget: int) -> Limits:
    """Return the level of a page that cannot contain the run: the next page continues."""
    return LEVELS[READABLE if budget >= DEFAULT_BUDGET // 4 else -1]


def get_limit(content: Item, limits: Limits) -> int:
    """Return how many characters of a content are shown."""
    if content.kind == "code":
        return limits["code"]
    if content.kind == "tool_result":
        return limits["result"]
    if content.kind == "thinking":
        return limits["user"]
    if content.role == "assistant" and content.side == "output":
        return limits["answer"]
    return limits.get(content.role, limits["user"])


def estimate(step: Step, limits: Limits) -> int:
    """Estimate the characters of a step on a page."""
    total = STEP_OVERHEAD + LOG_OVERHEAD * min(len(step.logs), LOGS_SHOWN)
    for content in step.items():
        if content.kind == "tool_call":
            total += min(len(content.text), limits["answer"]) + 60
            continue
        new = len(content.text) - sum(each.end - each.begin - 30 for each in content.repeats)
        shown = min(new, get_limit(content, limits))
        lines = min(content.text.count("\n"), shown // 40)
        total += shown + CONTENT_OVERHEAD + 5 * lines
    return total + sum(60 + min(len(action.error or ""), 800) for action in step.actions)
