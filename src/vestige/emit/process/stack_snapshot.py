"""Where a process stands: the stacks of its threads, and of the asyncio tasks that wait in them.

    standing = look()           # from any thread; a few ms, and nothing is stopped for it
    standing.at                 # 'agent.py:12 in search': in the program's own code
    standing.text               # a traceback for each stack, as Python writes them

Equal stacks are told once, with the names of those who have them. Imports nothing: the thread that hangs may hold
the lock of just that import, and the one that looks keeps the journal.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from itertools import groupby
from types import FrameType
from typing import Any, NamedTuple

from vestige.limits import STANDING_FRAMES_MAX, STANDING_STACKS_MAX

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = os.path.dirname(os.__file__) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_NAMES_MAX = 5
_PLACES_MAX = 3


class Frame(NamedTuple):
    """One step of a stack."""

    file: str
    line: int
    function: str

    @property
    def is_own(self) -> bool:
        """Is it the program's, not a library's?"""
        library = self.file.startswith((_OURS, _STANDARD, "<frozen"))
        return not library and not any(folder in self.file for folder in _INSTALLED)

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line} in {self.function}"


Stack = tuple[Frame, ...]
"""Outermost first."""

Stacks = dict[Stack, list[str]]
"""Each once, with the names of the threads or tasks that stand so."""


class StackSnapshot(NamedTuple):
    text: str
    at: str
    """Where it stands in the program's own code; empty: nowhere."""
    threads: int
    tasks: int


def capture_stacks() -> StackSnapshot:
    """Of this process, now. The recorder's own threads are left out."""
    threads: Stacks = {}
    tasks: Stacks = {}
    busy: Stacks = {}
    """Threads, without those that only run an event loop: there its tasks say more."""
    for name, innermost in _threads():
        frames = list(_outwards(innermost))
        stack = _stack(frames)
        threads.setdefault(stack, []).append(name)
        waiting = _tasks_in(frames)
        if not waiting:
            busy[stack] = threads[stack]
        for task in waiting:
            tasks.setdefault(_stack(_awaits(task)), []).append(str(task.get_name()))
    text = "\n".join((*_told("Thread", threads), *_told("Task", tasks)))
    counts = (sum(map(len, threads.values())), sum(map(len, tasks.values())))
    return StackSnapshot(text, _places(tasks, busy), *counts)


# --- stacks -------------------------------------------------------------------------------------


def _threads() -> list[tuple[str, FrameType]]:
    """Each with its innermost frame, in the order in which they began; those that only C began come last."""
    frames = sys._current_frames()
    found = [(thread.name, frames.pop(thread.ident or 0, None)) for thread in threading.enumerate()]
    found += [(f"{ident:#x}", frame) for ident, frame in frames.items()]
    return [
        (name, frame)
        for name, frame in found
        if frame is not None and not (name.startswith("vestige-") or _is_journal_s(frame))
    ]


def _is_journal_s(frame: FrameType) -> bool:
    """Does a thread run what keeps the journal (journal/flush_thread.py), and nothing around it?"""
    *_, outermost = _outwards(frame)
    return outermost.f_code.co_filename.startswith(_OURS)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    for _ in range(STANDING_FRAMES_MAX):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _stack(inwards_last: Iterable[FrameType]) -> Stack:
    frames = [
        Frame(each.f_code.co_filename, each.f_lineno or 0, each.f_code.co_name)
        for each in inwards_last
    ]
    return tuple(reversed(frames))


def _tasks_in(frames: Iterable[FrameType]) -> list[Any]:
    """The tasks of the event loop that one of these frames runs, if one does. Only asyncio's own frames are looked
    into: whatever else a program keeps in `self` may run its code when it is touched."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return []
    for frame in frames:
        module = str(frame.f_globals.get("__name__"))
        if frame.f_code.co_name not in ("run_forever", "run") or not module.startswith("asyncio."):
            continue
        runs = frame.f_locals.get("self")
        loop = getattr(runs, "_loop", runs)  # of a Runner, whose loop may be written in C
        if isinstance(loop, asyncio.AbstractEventLoop):
            tasks = sorted(
                asyncio.all_tasks(loop), key=lambda task: (len(task.get_name()), task.get_name())
            )
            return tasks[:STANDING_STACKS_MAX]
    return []


def _awaits(task: Any) -> list[FrameType]:
    """The frames of a task, the innermost first: what it runs, what that awaits, and so on."""
    frames: list[FrameType] = []
    awaited = task.get_coro()
    while awaited is not None and len(frames) < STANDING_FRAMES_MAX:
        for kind, inner in (("cr", "await"), ("gi", "yieldfrom"), ("ag", "await")):
            frame = getattr(awaited, f"{kind}_frame", None)
            if frame is not None:
                frames.append(frame)
                awaited = getattr(awaited, f"{kind}_{inner}", None)
                break
        else:
            break
    return frames[::-1]


# --- as text ------------------------------------------------------------------------------------


def _told(what: str, stacks: Stacks) -> Iterator[str]:
    for stack, names in list(stacks.items())[:STANDING_STACKS_MAX]:
        yield f"{_heading(what, names)} (most recent call last):"
        for frame, repeated in groupby(stack):
            yield from _told_frame(frame, sum(1 for _ in repeated) - 1)
    left = len(stacks) - STANDING_STACKS_MAX
    if left > 0:
        yield f"… {left} more"


def _told_frame(frame: Frame, again: int) -> Iterator[str]:
    yield f'  File "{frame.file}", line {frame.line}, in {frame.function}'
    linecache: Any = sys.modules.get("linecache")
    code = linecache.getline(frame.file, frame.line).strip() if linecache else ""
    if code:
        yield f"    {code}"
    if again:
        yield f"  [repeated {again} more times]"


def _heading(what: str, names: list[str]) -> str:
    told = ", ".join(names[:_NAMES_MAX])
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return f"{what}{'s' if len(names) > 1 else ''} {told}{more}"


def _places(*groups: Stacks) -> str:
    """The innermost of each stack in the program's own code."""
    places: dict[str, int] = {}
    for stacks in groups:
        for stack, names in stacks.items():
            own = next((frame for frame in reversed(stack) if frame.is_own), None)
            if own is not None:
                places[str(own)] = places.get(str(own), 0) + len(names)
    told = [f"{place} ({n} times)" if n > 1 else place for place, n in places.items()]
    more = f" and {len(told) - _PLACES_MAX} more" if len(told) > _PLACES_MAX else ""
    return ", ".join(told[:_PLACES_MAX]) + more
