"""What a process wrote down about where it stood, read back.

    last_standing(run, writer)      # the line, if nothing of the program came after it
    standing_in(evidence, span)     # 'agent.py:12 in search', while this span was the one in work
    say_stacks(text)                # a line for each thread and task

Pure. Elsewhere: when a process does so in emit/process/stall_watch.py, how in emit/process/stack_snapshot.py.
"""

from __future__ import annotations

import re
from typing import Final

from vestige.query import formatting
from vestige.query.evidence import Evidence
from vestige.query.failures.traceback_parsing import FRAMES_SHOWN, read_frames
from vestige.record.run import LogInfo, Run, SpanInfo
from vestige.record.types import OWN_COMPONENT

_LENGTH_MAX = 200
_STACKS_SHOWN = 8
_STACK: Final = re.compile(
    r"^((?:Thread|Task)s? [^\n]{1,400}) \(most recent call last\):\n", re.MULTILINE
)


def is_stall(log: LogInfo) -> bool:
    return log.component == OWN_COMPONENT and log.attributes.get("standing") is True


def last_stall(run: Run, writer: str) -> LogInfo | None:
    found = [log for log in run.logs if log.writer == writer and is_stall(log)]
    if not found:
        return None
    heard = [log.seq for log in run.logs if log.writer == writer and log.component != OWN_COMPONENT]
    for span in run.spans:
        if span.writer == writer:
            # What was interrupted the collector has ended.
            end = span.end_seq if span.status != "interrupted" else None
            heard += (span.seq or 0, end or 0)
    return found[-1] if found[-1].seq > max(heard, default=0) else None


def format_stall(log: LogInfo) -> str:
    """`nothing was recorded for 30 s; stood at agent.py:12 in search`."""
    return formatting.single_line(
        log.message.replace("; stands at ", "; stood at ", 1), _LENGTH_MAX
    )


def stall_in(evidence: Evidence, span: SpanInfo) -> str:
    """Where it stood when a span lasted; the last time that it was told, or nothing."""
    found = [log for log in evidence.logs_of.get(span.id, ()) if is_stall(log)]
    place = found[-1].message.partition("; stands at ")[2] if found else ""
    return formatting.single_line(place, _LENGTH_MAX)


def format_stacks(text: str) -> list[str]:
    """Who stands where, and the frames around that, the innermost first."""
    _, *parts = _STACK.split(text)
    stacks = list(zip(parts[::2], parts[1::2], strict=True))
    told = []
    for who, stack in stacks[:_STACKS_SHOWN]:
        frames = read_frames(stack)[-FRAMES_SHOWN:]
        told.append(
            f"{formatting.single_line(who, 80)} at " + " < ".join(map(str, reversed(frames)))
        )
    left = len(stacks) - len(told)
    return [*told, f"… {left} more"] if left else told
