"""Snapshot the stacks of all threads and asyncio tasks, except the recorder's own.

    snapshot = capture_stacks()  # from any thread; takes a few ms, and stops nothing
    snapshot.at                  # 'agent.py:12 in search', in the program's own code
    snapshot.text                # a traceback for each stack, formatted as Python does

Equal stacks are rendered once, with the names of their threads or tasks. Nothing is imported here:
a hung thread may hold the import lock, and the caller is the journal's thread.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from itertools import groupby
from types import FrameType
from typing import Any, NamedTuple

from vestige.limits import SNAPSHOT_FRAMES_MAX, SNAPSHOT_STACKS_MAX

_OURS = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")) + os.sep
"""The package `vestige`."""
_STANDARD = os.path.dirname(os.__file__) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_NAMES_MAX = 5
_POSITIONS_MAX = 3


class Frame(NamedTuple):
    """A line of a stack."""

    file: str
    line: int
    function: str

    @property
    def is_own(self) -> bool:
        """Return whether the file is the program's, not a library's."""
        library = self.file.startswith((_OURS, _STANDARD, "<frozen"))
        return not library and not any(folder in self.file for folder in _INSTALLED)

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line} in {self.function}"


Stack = tuple[Frame, ...]
"""Outermost first."""

Stacks = dict[Stack, list[str]]
"""Each distinct stack, with the names of its threads or tasks."""


class StackSnapshot(NamedTuple):
    text: str
    at: str
    """The innermost lines of the program's own code. Empty if there are none."""
    threads: int
    tasks: int


def capture_stacks() -> StackSnapshot:
    threads: Stacks = {}
    tasks: Stacks = {}
    busy: Stacks = {}
    """Threads that do not run an event loop: of a loop, the tasks are more useful."""
    for name, innermost in _threads():
        frames = list(_outwards(innermost))
        stack = _stack(frames)
        threads.setdefault(stack, []).append(name)
        waiting = _tasks_in(frames)
        if not waiting:
            busy[stack] = threads[stack]
        for task in waiting:
            tasks.setdefault(_stack(_awaits(task)), []).append(str(task.get_name()))
    text = "\n".join((*_render("Thread", threads), *_render("Task", tasks)))
    counts = (sum(map(len, threads.values())), sum(map(len, tasks.values())))
    return StackSnapshot(text, _format_positions(tasks, busy), *counts)


# --- stacks -------------------------------------------------------------------------------------


def _threads() -> list[tuple[str, FrameType]]:
    """Return the threads with their innermost frames, oldest first; those not of Python last."""
    frames = sys._current_frames()
    found = [(thread.name, frames.pop(thread.ident or 0, None)) for thread in threading.enumerate()]
    found += [(f"{ident:#x}", frame) for ident, frame in frames.items()]
    return [
        (name, frame)
        for name, frame in found
        if frame is not None and not (name.startswith("vestige-") or _is_flush_thread(frame))
    ]


def _is_flush_thread(frame: FrameType) -> bool:
    """Return whether the thread was started by the recorder (journal/flush_thread.py)."""
    *_, outermost = _outwards(frame)
    return outermost.f_code.co_filename.startswith(_OURS)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    for _ in range(SNAPSHOT_FRAMES_MAX):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _stack(innermost_first: Iterable[FrameType]) -> Stack:
    frames = [
        Frame(frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name)
        for frame in innermost_first
    ]
    return tuple(reversed(frames))


def _tasks_in(frames: Iterable[FrameType]) -> list[Any]:
    """Return the tasks of the event loop that one of these frames runs.

    Only the locals of asyncio's frames are read: reading attributes of other objects may run the
    program's code.
    """
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return []
    for frame in frames:
        module = str(frame.f_globals.get("__name__"))
        if frame.f_code.co_name not in ("run_forever", "run") or not module.startswith("asyncio."):
            continue
        runner = frame.f_locals.get("self")
        loop = getattr(runner, "_loop", runner)  # A Runner's loop may be written in C.
        if isinstance(loop, asyncio.AbstractEventLoop):
            tasks = sorted(
                asyncio.all_tasks(loop), key=lambda task: (len(task.get_name()), task.get_name())
            )
            return tasks[:SNAPSHOT_STACKS_MAX]
    return []


def _awaits(task: Any) -> list[FrameType]:
    """Return the frames of a task, innermost first, following what each awaits."""
    frames: list[FrameType] = []
    awaited = task.get_coro()
    while awaited is not None and len(frames) < SNAPSHOT_FRAMES_MAX:
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


def _render(kind: str, stacks: Stacks) -> Iterator[str]:
    for stack, names in list(stacks.items())[:SNAPSHOT_STACKS_MAX]:
        yield f"{_heading(kind, names)} (most recent call last):"
        for frame, repeated in groupby(stack):
            yield from _render_frame(frame, sum(1 for _ in repeated) - 1)
    left = len(stacks) - SNAPSHOT_STACKS_MAX
    if left > 0:
        yield f"… {left} more"


def _render_frame(frame: Frame, repeats: int) -> Iterator[str]:
    yield f'  File "{frame.file}", line {frame.line}, in {frame.function}'
    linecache: Any = sys.modules.get("linecache")
    code = linecache.getline(frame.file, frame.line).strip() if linecache else ""
    if code:
        yield f"    {code}"
    if repeats:
        yield f"  [repeated {repeats} more times]"


def _heading(kind: str, names: list[str]) -> str:
    listed = ", ".join(names[:_NAMES_MAX])
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return f"{kind}{'s' if len(names) > 1 else ''} {listed}{more}"


def _format_positions(*groups: Stacks) -> str:
    """Format the innermost line of each stack in the program's own code."""
    counts: dict[str, int] = {}
    for stacks in groups:
        for stack, names in stacks.items():
            own = next((frame for frame in reversed(stack) if frame.is_own), None)
            if own is not None:
                counts[str(own)] = counts.get(str(own), 0) + len(names)
    texts = [f"{line} ({n} times)" if n > 1 else line for line, n in counts.items()]
    more = f" and {len(texts) - _POSITIONS_MAX} more" if len(texts) > _POSITIONS_MAX else ""
    return ", ".join(texts[:_POSITIONS_MAX]) + more
