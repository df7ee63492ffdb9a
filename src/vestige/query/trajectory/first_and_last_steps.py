"""The beginning and the end of a very long run as one trajectory, for a summary.

    ends = evidence.once(read_first_and_last_steps)
    ends.unread     # (4001, 10200): the steps between them, which were not built; None: all were

The steps of a run of 25,000 spans take 20 s of CPU, and those of one with 100,000 over a minute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vestige.limits import OVERVIEW_SPANS_MAX
from vestige.query.evidence import Evidence
from vestige.query.trajectory.costs import price_steps
from vestige.query.trajectory.run_parts import RunParts
from vestige.query.trajectory.types import Trajectory


@dataclass(frozen=True, slots=True)
class FirstAndLastSteps:
    """A trajectory, which may lack its middle."""

    trajectory: Trajectory
    unread: tuple[int, int] | None = None
    """The first and the last step that are missing."""
    step_count: int = 0


def read_first_and_last_steps(evidence: Evidence) -> FirstAndLastSteps:
    """Return the priced steps of a run; of a very long one, those of its two ends."""
    if len(evidence.run.spans) <= OVERVIEW_SPANS_MAX:
        trajectory = evidence.once(price_steps)
        return FirstAndLastSteps(trajectory, None, len(trajectory.steps))
    parts = RunParts(evidence, OVERVIEW_SPANS_MAX // 2)
    begin = price_steps(parts.open(0))
    end = price_steps(parts.open(parts.count - 1))
    if not end.steps or not begin.steps or end.steps[0].number <= begin.steps[-1].number:
        return FirstAndLastSteps(begin, None, len(begin.steps))
    conversations = len(begin.conversations)
    for step in end.steps:
        step.conversation += conversations
    for each in end.conversations:
        each.index += conversations
        each.parent = None if each.parent is None else each.parent + conversations
    trajectory = replace(
        begin,
        outcome=end.outcome,
        error=end.error,
        answer=end.answer,
        steps=[*begin.steps, *end.steps],
        conversations=[*begin.conversations, *end.conversations],
        by_span=begin.by_span | end.by_span,
    )
    unread = (begin.steps[-1].number + 1, end.steps[0].number - 1)
    is_complete = unread[0] > unread[1]
    return FirstAndLastSteps(trajectory, None if is_complete else unread, end.steps[-1].number)
