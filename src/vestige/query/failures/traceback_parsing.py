"""A Python traceback as its frames: where an exception was raised, and where in the program's own code.

    frames = read_frames(attributes["error.stack"])
    say_place(attributes["error.stack"])        # 'agent.py:8 in search'

Of exceptions that were chained, the last traceback counts: it is the one that was not caught. One that
came from a worker of a process pool was raised there: the worker's frames are the innermost. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from vestige.query import formatting

FRAMES_SHOWN = 5
"""Of a stack, the innermost: what is outside of them is rarely the cause."""

_FRAME: Final = re.compile(
    r'^ {2,10}(?:[|+] {1,10})?File "(?P<file>[^"\n]{1,4096})", line (?P<line>\d{1,9})'
    r"(?:, in (?P<function>[^\n]{1,200}))?$"
    r"(?:\n {4,14}(?:[|+] {1,10})?(?P<code>[^\n]{1,2000})$)?",
    re.MULTILINE,
)
_PYTEST: Final = re.compile(
    r"^(?P<file>[^\s:][^:\n]{0,4096}):(?P<line>\d{1,9}): (?:in (?P<function>\S{1,200})|\S{0,200})$",
    re.MULTILINE,
)
"""How pytest tells of a frame, in its long form (`test_it.py:7: AssertionError`) and in its short one."""
_START: Final = "Traceback (most recent call last):"
_IN_WORKER: Final = 'RemoteTraceback: \n"""\n'
_END_OF_WORKER: Final = '\n"""\n'
_FOREIGN: Final = re.compile(
    r"[\\/](?:site-packages|dist-packages|lib[\\/]python3[^\\/]*)[\\/]|^<frozen"
)
_OURS: Final = re.compile(
    r"[\\/]vestige[\\/](?:(?:boot|emit|journal|wire)[\\/]|(?:instrument|recorder|writer)\.py$)"
)
"""What stands between a program and its libraries while it is recorded, wherever it is installed."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One step of a stack."""

    file: str
    line: int
    function: str
    code: str

    @property
    def is_own(self) -> bool:
        """Is it the program's, not a library's?"""
        return _FOREIGN.search(self.file) is None and not self.is_ours

    @property
    def is_ours(self) -> bool:
        return _OURS.search(self.file) is not None

    def __str__(self) -> str:
        """`agent.py:8 in search`."""
        function = f" in {formatting.single_line(self.function, 60)}" if self.function else ""
        return f"{formatting.single_line(_short(self.file), 80)}:{self.line}{function}"


def read_frames(stack: object) -> list[Frame]:
    """The frames of the last traceback in a text, outermost first; none if it has none."""
    if not isinstance(stack, str):
        return []
    last = max(0, stack.rfind(_START))
    begin = stack.rfind(_IN_WORKER, 0, last)
    end = stack.find(_END_OF_WORKER, begin + len(_IN_WORKER), last) if begin >= 0 else -1
    if end >= 0 and stack.find(_START, end) == last:  # it is what the last one was raised from
        return _frames(stack[last:]) + _frames(stack[begin:end])
    return _frames(stack[last:])


def _frames(text: str) -> list[Frame]:
    return [
        Frame(
            found["file"],
            int(found["line"]),
            found["function"] or "",
            (found["code"] or "").strip(" ^~"),
        )
        for found in _FRAME.finditer(text)
    ]


def format_location(stack: object) -> str:
    """Where it was raised; and if that is in a library, from where in the program. Or nothing."""
    frames = read_frames(stack)
    if not frames:
        return ""
    own = next((frame for frame in reversed(frames) if frame.is_own), None)
    if own is None or own is frames[-1]:
        return str(frames[-1])
    return f"{frames[-1]}, called from {own}"


def own_frame(stack: object) -> Frame | None:
    """The innermost frame of the program's own code, in a traceback of Python or of pytest."""
    frames = read_frames(stack)
    if not frames and isinstance(stack, str):
        found = _PYTEST.finditer(stack)
        frames = [
            Frame(each["file"], int(each["line"]), each["function"] or "", "") for each in found
        ]
    return next((frame for frame in reversed(frames) if frame.is_own), None)


def format_frames(stack: object) -> list[str]:
    """The innermost frames, a line each, with their code."""
    frames = read_frames(stack)
    told = []
    if len(frames) > FRAMES_SHOWN:
        told.append(f"… {formatting.pluralize(len(frames) - FRAMES_SHOWN, 'frame')} outside")
    for frame in frames[-FRAMES_SHOWN:]:
        code = f": {formatting.single_line(frame.code, 100)}" if frame.code else ""
        told.append(f"{frame}{code}")
    return told


def _short(path: str) -> str:
    """A library's file from its package on; another's last two parts."""
    parts = re.split(r"[\\/]", path)
    for mark in ("site-packages", "dist-packages"):
        if mark in parts:
            return "/".join(parts[parts.index(mark) + 1 :])
    return "/".join(parts[-2:]) if len(parts) > 2 and parts[-1] == "__init__.py" else parts[-1]
