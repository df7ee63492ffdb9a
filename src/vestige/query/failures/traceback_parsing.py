"""Parse Python tracebacks, and find the frame of the program's own code.

    frames = parse_frames(attributes["error.stack"])
    format_location(attributes["error.stack"])        # 'agent.py:8 in search'

In a chain of exceptions the last traceback counts: it was not caught. If it came from a worker
of a process pool, the frames of the worker are the innermost. Pure functions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from vestige.query import formatting

FRAMES_SHOWN = 5
"""Innermost frames to show. Outer ones are rarely the cause."""

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
"""A frame as pytest prints it, long (`test_it.py:7: AssertionError`) or short."""
_START: Final = "Traceback (most recent call last):"
_IN_WORKER: Final = 'RemoteTraceback: \n"""\n'
_END_OF_WORKER: Final = '\n"""\n'
_FOREIGN: Final = re.compile(
    r"[\\/](?:site-packages|dist-packages|lib[\\/]python3[^\\/]*)[\\/]|^<frozen"
)
_VESTIGE: Final = re.compile(
    r"[\\/]vestige[\\/](?:(?:boot|emit|integrations|journal|wire)[\\/]"
    r"|(?:instrument|recorder|writer|process_recorder|process_writer)\.py$)"
)
"""Modules of Vestige that are on the stack between a recorded program and its libraries."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of a stack."""

    file: str
    line: int
    function: str
    code: str

    @property
    def is_own(self) -> bool:
        """True if the frame is in the program, not in a library or in Vestige."""
        return _FOREIGN.search(self.file) is None and not self.is_vestige

    @property
    def is_vestige(self) -> bool:
        return _VESTIGE.search(self.file) is not None

    def __str__(self) -> str:
        """Format as `agent.py:8 in search`."""
        function = f" in {formatting.single_line(self.function, 60)}" if self.function else ""
        return f"{formatting.single_line(_shorten(self.file), 80)}:{self.line}{function}"


def parse_frames(stack: object) -> list[Frame]:
    """Return the frames of the last traceback in a text, outermost first."""
    if not isinstance(stack, str):
        return []
    last = max(0, stack.rfind(_START))
    begin = stack.rfind(_IN_WORKER, 0, last)
    end = stack.find(_END_OF_WORKER, begin + len(_IN_WORKER), last) if begin >= 0 else -1
    if end >= 0 and stack.find(_START, end) == last:  # The worker's error is the direct cause.
        return _find_frames(stack[last:]) + _find_frames(stack[begin:end])
    return _find_frames(stack[last:])


def _find_frames(text: str) -> list[Frame]:
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
    """Format the innermost frame, and the caller in the program if that is in a library."""
    frames = parse_frames(stack)
    if not frames:
        return ""
    own = next((frame for frame in reversed(frames) if frame.is_own), None)
    if own is None or own is frames[-1]:
        return str(frames[-1])
    return f"{frames[-1]}, called from {own}"


def find_own_frame(stack: object) -> Frame | None:
    """Find the innermost frame of the program, in a traceback of Python or pytest."""
    frames = parse_frames(stack)
    if not frames and isinstance(stack, str):
        frames = [
            Frame(found["file"], int(found["line"]), found["function"] or "", "")
            for found in _PYTEST.finditer(stack)
        ]
    return next((frame for frame in reversed(frames) if frame.is_own), None)


def format_frames(stack: object) -> list[str]:
    """Format the innermost frames with their code, one per line."""
    frames = parse_frames(stack)
    lines = []
    if len(frames) > FRAMES_SHOWN:
        lines.append(f"… {formatting.pluralize(len(frames) - FRAMES_SHOWN, 'outer frame')}")
    for frame in frames[-FRAMES_SHOWN:]:
        code = f": {formatting.single_line(frame.code, 100)}" if frame.code else ""
        lines.append(f"{frame}{code}")
    return lines


def _shorten(path: str) -> str:
    """Return the path of a library from its package on, and the name of any other file."""
    parts = re.split(r"[\\/]", path)
    for mark in ("site-packages", "dist-packages"):
        if mark in parts:
            return "/".join(parts[parts.index(mark) + 1 :])
    return "/".join(parts[-2:]) if len(parts) > 2 and parts[-1] == "__init__.py" else parts[-1]
