"""The earlier model calls of a call's conversation, and the beginning that a request has lost.

    calls = earlier_calls(evidence, span)       # the latest first
    find_lost_head(keys, calls, keys_of)        # LostHead, or None if the request is complete

An exporter that keeps a limited number of attributes for a span drops the first messages of a long
request; a program may cut its history, too. Either way an earlier request still has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from vestige.query.evidence import Evidence
from vestige.query.trajectory.build import build_trajectory
from vestige.record.run import SpanInfo

Key = tuple[str, str]
"""Role and normalized text of a message."""

HEAD_CALLS_MAX: Final = 64
"""Earlier requests that are searched for a lost beginning."""
UNRELATED_MAX: Final = 4
"""Calls in a row that have another beginning, such as planning calls, or the same one."""


@dataclass(frozen=True, slots=True)
class LostHead:
    """First messages of an earlier request that a request does not have."""

    messages: int
    span: SpanInfo
    """The latest call whose request has them."""


def earlier_calls(evidence: Evidence, span: SpanInfo) -> list[SpanInfo]:
    """Return the model calls of the same conversation before a call, the latest first."""
    trajectory = evidence.once(build_trajectory)
    numbers = {step.span.id: step.conversation for step in trajectory.steps if step.span}
    conversation = numbers.get(span.id)
    before: list[SpanInfo] = []
    for other in evidence.of_type(span.type):
        if other.id == span.id:
            break
        if other.name == span.name and numbers.get(other.id) == conversation:
            before.append(other)
    return before[::-1]


def find_lost_head(
    keys: Sequence[Key], calls: Sequence[SpanInfo], keys_of: Callable[[SpanInfo], Sequence[Key]]
) -> LostHead | None:
    """Follow the first messages back to the request that still has what came before them."""
    total, unrelated = 0, 0
    complete: SpanInfo | None = None
    for call in calls[:HEAD_CALLS_MAX]:
        if len(keys) < 2 or keys[0][0] == "system" or unrelated >= UNRELATED_MAX:
            break
        earlier = keys_of(call)
        dropped = _find_beginning(keys, earlier)
        if dropped:
            total, complete, keys, unrelated = total + dropped, call, earlier, 0
        else:
            unrelated += 1
    return LostHead(total, complete) if complete is not None else None


def _find_beginning(keys: Sequence[Key], earlier: Sequence[Key]) -> int | None:
    """Return where the first two messages are in an earlier request.

    Roles are not compared: the role of the first message may be lost with those before it.
    """
    first, second = keys[0][1], keys[1][1]
    for at in range(len(earlier) - 1):
        if earlier[at][1] == first and earlier[at + 1][1] == second and first:
            return at
    return None
