"""What faulthandler left of a process: where each of its threads stood when a signal came.

    say_threads(dump)      # 'agent.py:8 in search; agent.py:30 in wait'
    say_dump(dump)          # a line for each thread

Unlike a traceback (query/failures/traceback_parsing.py) it has the innermost frame first, and no code. Pure.
"""

from __future__ import annotations

import re
from typing import Final

from vestige.query import formatting
from vestige.query.failures.traceback_parsing import FRAMES_SHOWN, Frame

THREADS_SHOWN = 4
DUMP_THREADS_SHOWN = 8
THREADS_READ_MAX = 200

_THREAD: Final = re.compile(r"^(?:Current thread|Thread) 0x", re.MULTILINE)
_DUMPED: Final = re.compile(
    r'^  File "(?P<file>[^"\n]{1,4096})", line (?P<line>\d{1,9}) in (?P<function>[^\n]{1,200})$',
    re.MULTILINE,
)


def read_dump(dump: str) -> list[list[Frame]]:
    """The threads that a faulthandler wrote down, each with its innermost frame first; not the journal's."""
    threads = [
        [
            Frame(found["file"], int(found["line"]), found["function"], "")
            for found in _DUMPED.finditer(thread)
        ]
        for thread in _THREAD.split(dump)[1 : THREADS_READ_MAX + 1]
    ]
    return [
        frames
        for frames in threads
        if not any(frame.is_ours and frame.function == "_keep" for frame in frames)
    ]


def format_dump(dump: str) -> list[str]:
    """A line for each thread: where it stood, and the frames around that."""
    threads = read_dump(dump)
    told = [
        "thread at " + " < ".join(str(frame) for frame in frames[:FRAMES_SHOWN])
        for frames in threads[:DUMP_THREADS_SHOWN]
    ]
    left = len(threads) - len(told)
    return [*told, f"… {formatting.pluralize(left, 'thread')} more"] if left else told


def format_threads(dump: str) -> str:
    """Where each thread of a dump stood in the program's own code, if it was there."""
    first = (next((each for each in frames if each.is_own), None) for frames in read_dump(dump))
    stood = [str(frame) for frame in first if frame is not None]
    more = f" and {len(stood) - THREADS_SHOWN} more" if len(stood) > THREADS_SHOWN else ""
    return "; ".join(stood[:THREADS_SHOWN]) + more
