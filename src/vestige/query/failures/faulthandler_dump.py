"""Parse dumps of faulthandler: the stack of each thread when a signal arrived.

    format_threads(dump)      # 'agent.py:8 in search; agent.py:30 in wait'
    format_dump(dump)         # one line per thread

Unlike a traceback (query/failures/traceback_parsing.py), a dump has the innermost frame first,
and no code. Pure functions.
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
_FRAME: Final = re.compile(
    r'^  File "(?P<file>[^"\n]{1,4096})", line (?P<line>\d{1,9}) in (?P<function>[^\n]{1,200})$',
    re.MULTILINE,
)


def parse_dump(dump: str) -> list[list[Frame]]:
    """Return the frames of each thread, innermost first, without Vestige's flush thread."""
    threads = [
        [
            Frame(found["file"], int(found["line"]), found["function"], "")
            for found in _FRAME.finditer(thread)
        ]
        for thread in _THREAD.split(dump)[1 : THREADS_READ_MAX + 1]
    ]
    return [frames for frames in threads if not any(map(_is_flush_thread, frames))]


def _is_flush_thread(frame: Frame) -> bool:
    return frame.is_vestige and (
        frame.function == "_keep" or frame.file.endswith("flush_thread.py")
    )


def format_dump(dump: str) -> list[str]:
    """Format one line per thread, the innermost frame first."""
    threads = parse_dump(dump)
    lines = [
        "thread at " + " < ".join(map(str, frames[:FRAMES_SHOWN]))
        for frames in threads[:DUMP_THREADS_SHOWN]
    ]
    more = len(threads) - len(lines)
    return [*lines, f"… {formatting.pluralize(more, 'more thread')}"] if more else lines


def format_threads(dump: str) -> str:
    """Format the innermost frame of the program in each thread that has one."""
    own = (next((frame for frame in frames if frame.is_own), None) for frames in parse_dump(dump))
    locations = [str(frame) for frame in own if frame is not None]
    more = f" and {len(locations) - THREADS_SHOWN} more" if len(locations) > THREADS_SHOWN else ""
    return "; ".join(locations[:THREADS_SHOWN]) + more
