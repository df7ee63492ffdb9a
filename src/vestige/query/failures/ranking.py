"""The order of findings of equal severity: causes of a failure before its effects and its costs.

    1  the answer itself is unsupported, or refuses the task, or no model received the task
    2  a tool was announced and not called
    3  an instruction of the prompt was not followed
    4  an action of the model failed: wrong arguments, code that raised, output that was rejected
    5  a tool failed for its own reasons, the answer's origin is unknown, and everything else
    6  repetition, which follows from something else
    7  time, tokens and prompt cache, which only cost money

An agent may recover from a failed action, but not from the answer that it gave. A kind that points
at a labelled error less often than a random span does never leads (BELOW_CHANCE).
"""

from __future__ import annotations

from typing import Final

from vestige.record.finding import SEVERITIES, Finding

_TIERS: Final = (
    (5, ("answer/origin",)),
    (1, ("answer/", "task/")),
    (2, ("tool/announced",)),
    (3, ("instruction/",)),
    (
        4,
        (
            "action/",
            "output/rejected",
            "tool/bad-arguments",
            "tool/no-results",
            "resource/",
            "bad-arguments",
            "unknown-tool",
        ),
    ),
    (6, ("repeated-", "loop/", "retry-storm", "detour/", "exit/")),
    (
        7,
        (
            "cache/",
            "cache-churn",
            "stalled-step",
            "standstill",
            "runaway",
            "context-pressure",
            "history-loss",
        ),
    ),
)
_OTHER: Final = 5

BELOW_CHANCE: Final = frozenset(["health/secret"])
"""Kinds with at least 5 findings in bench/precision.json, and a precision below chance there."""


def get_tier(kind: str) -> int:
    """Return the tier of a kind of finding, the first to be shown is 1."""
    return next((tier for tier, prefixes in _TIERS if kind.startswith(prefixes)), _OTHER)


def severity_key(finding: Finding) -> tuple[int, int, float]:
    """Return a sort key: severity, then tier, then confidence."""
    severity = finding.severity
    if finding.kind in BELOW_CHANCE and severity == "warning":
        severity = "hint"
    return SEVERITIES.index(severity), get_tier(finding.kind), -finding.confidence
