"""Bodies of model calls that an exporter sends as log records, apart from the calls.

    attributes[CALL_BODY] = INPUT                       # on such a log record, or OUTPUT
    find_call(calls, at_ns, request_id)                 # the call to which it belongs

A log record names the span around its call, so it belongs to one of the calls there: to the one
that was open at its time, and with the same request id if both have one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

CALL_BODY: Final = "call_body"
"""Attribute of a log record whose body is the input or output of a model call."""
INPUT: Final = "input"
OUTPUT: Final = "output"

LATE_NS: Final = 100_000_000
"""A log record is written shortly after its call; spans have milliseconds at their start."""


class Call(NamedTuple):
    """A model call that has ended."""

    id: Any
    started_ns: int
    ended_ns: int
    request_id: str


def find_call(calls: Iterable[Call], at_ns: int, request_id: str) -> Call | None:
    """Return the latest call that was open at a time, or that ended right before it."""
    found = [
        call
        for call in calls
        if call.started_ns <= at_ns <= call.ended_ns + LATE_NS
        and (not request_id or not call.request_id or call.request_id == request_id)
    ]
    is_open = [call for call in found if at_ns <= call.ended_ns]
    return max(is_open or found, key=lambda call: (call.started_ns, str(call.id)), default=None)
