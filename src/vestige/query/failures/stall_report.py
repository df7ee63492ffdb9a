"""Read stall reports: the stacks of a process that recorded nothing for a while.

    find_last_stall(run, writer)           # the report, if the program recorded nothing after it
    find_stall_location(evidence, span)    # 'agent.py:12 in search', during this span
    format_stacks(text)                    # one line per thread and task

Pure functions. Elsewhere: reports are triggered in emit/process/stall_watch.py, and written
in emit/process/stack_snapshot.py.
"""

from __future__ import annotations

import re
from typing import Final

from vestige.query import formatting
from vestige.query.evidence import Evidence
from vestige.query.failures.traceback_parsing import FRAMES_SHOWN, parse_frames
from vestige.record.run import LogInfo, Run, SpanInfo
from vestige.record.types import OWN_COMPONENT

_REQUESTED: Final = "stacks requested"
_LENGTH_MAX = 200
_STACKS_SHOWN = 8
_LOCATION: Final = re.compile(r"; (?:\w+ )?at ")
"""The text before a location. Reports of Vestige 0.1 have a verb in it."""
_STACK: Final = re.compile(
    r"^((?:Thread|Task)s? [^\n]{1,400}) \(most recent call last\):\n", re.MULTILINE
)


def is_stall(log: LogInfo) -> bool:
    return log.component == OWN_COMPONENT and log.attributes.get("standing") is True


def find_last_stall(run: Run, writer: str) -> LogInfo | None:
    """Return the last stall report of a process, if the program recorded nothing after it.

    What `vestige stacks` requested says nothing: the process may be healthy."""
    reports = [
        log
        for log in run.logs
        if log.writer == writer and is_stall(log) and not log.message.startswith(_REQUESTED)
    ]
    if not reports:
        return None
    seqs = [log.seq for log in run.logs if log.writer == writer and log.component != OWN_COMPONENT]
    for span in run.spans:
        if span.writer == writer:
            # The collector, not the program, wrote the end of an interrupted span.
            end = span.end_seq if span.status != "interrupted" else None
            seqs += (span.seq or 0, end or 0)
    return reports[-1] if reports[-1].seq > max(seqs, default=0) else None


def format_stall(log: LogInfo) -> str:
    """Format as `nothing was recorded for 30 s; at agent.py:12 in search`."""
    return formatting.single_line(_LOCATION.sub("; at ", log.message, count=1), _LENGTH_MAX)


def find_stall_location(evidence: Evidence, span: SpanInfo) -> str:
    """Return the location in the last stall report during a span, or an empty string."""
    reports = [log for log in evidence.logs_of.get(span.id, ()) if is_stall(log)]
    _, *location = _LOCATION.split(reports[-1].message, maxsplit=1) if reports else [""]
    return formatting.single_line("".join(location), _LENGTH_MAX)


def format_stacks(text: str) -> list[str]:
    """Format one line per thread and task, the innermost frame first."""
    _, *parts = _STACK.split(text)
    stacks = list(zip(parts[::2], parts[1::2], strict=True))
    lines = []
    for name, stack in stacks[:_STACKS_SHOWN]:
        frames = parse_frames(stack)[-FRAMES_SHOWN:]
        locations = " < ".join(map(str, reversed(frames)))
        lines.append(f"{formatting.single_line(name, 80)} at {locations}")
    more = len(stacks) - len(lines)
    return [*lines, f"… {more} more"] if more else lines
