"""Bodies of model calls that an exporter sends as log records, apart from the calls.

    attributes[CALL_BODY] = INPUT                       # on such a log record, or OUTPUT
    find_call(calls, at_ns, request_id)                 # the call to which it belongs

A log record names the span around its call, so it belongs to one of the calls there: to the one
that was open at its time, and with the same request id if both have one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

CALL_BODY: Final = "call_body"
"""Attribute of a log record whose body is the input or output of a model call."""
INPUT: Final = "input"
OUTPUT: Final = "output"

LATE_NS: Final = 100_000_000
"""A log record is written shortly after its call; spans have milliseconds at their start."""
_OVERLAP_MAX: Final = 64
"""Calls before a time that are considered."""


class Call(NamedTuple):
    """A model call that has ended."""

    id: Any
    started_ns: int
    ended_ns: int
    request_id: str


def find_call(calls: Sequence[Call], at_ns: int, request_id: str) -> Call | None:
    """Return the latest call that was open at a time, or that ended right before it.

    `calls` are in the order of their starts. Of many that overlap, the latest are considered.
    """
    found: Call | None = None
    end = bisect_right(calls, at_ns, key=lambda call: call.started_ns)
    call: Call
    for call in reversed(calls[max(0, end - _OVERLAP_MAX) : end]):
        if request_id and call.request_id and call.request_id != request_id:
            continue
        if at_ns <= call.ended_ns:
            return call
        if found is None and at_ns <= call.ended_ns + LATE_NS:
            found = call
    return found
