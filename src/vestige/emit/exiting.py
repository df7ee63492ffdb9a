"""Does the program leave by `sys.exit("gave up")`? Python itself tells nobody.

`SystemExit` goes past every hook, and a program may catch it and go on. So `sys.exit` is wrapped, and
leaves a mark in its frame, which lives exactly as long as the exception does. When the mark dies and
no Python code is running beneath, the exception has left the program: that is its end. When it dies
in the midst of one, somebody caught it, and nothing happened. An exception that is part of a cycle
(asyncio makes them) is still there when the process says how it ended: then the program's bottom
frame tells whether it was left by a return.

Nothing is kept alive that would not be, and `raise SystemExit` is not seen.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, NoReturn

EXIT: Final = "exit"
"""How the program ended, for last words; the error has what was given to `sys.exit`."""


class _Mark:
    """Lives in the frame of a call of `sys.exit`."""

    __slots__ = ("__weakref__", "bottom")

    def __init__(self, bottom: FrameType) -> None:
        self.bottom = bottom


class ExitWatch:
    """Of one process; `tell(EXIT, error)` is called once, for an exit that is no success."""

    def __init__(self, tell: Callable[[str, BaseException | None], None]) -> None:
        self._tell = tell
        self._previous: Callable[[Any], NoReturn] = sys.exit
        self._mark: weakref.ref[_Mark] | None = None
        self._code: object = None

    def install(self) -> None:
        self._previous = sys.exit
        sys.exit = self.exit

    def uninstall(self) -> None:
        """Unless somebody has put something on top of it."""
        if sys.exit == self.exit:
            sys.exit = self._previous  # type: ignore[assignment]  # the very one that was there

    def exit(self, status: Any = None, /) -> NoReturn:
        """Named as the real one: a thread that is to call it is called after it."""
        _mark = self._leave_mark(status)  # it lives in this frame, as the exception will
        self._previous(status)

    def _leave_mark(self, status: object) -> _Mark | None:
        code = status.code if isinstance(status, SystemExit) else status
        if code is None or (isinstance(code, int) and code == 0) or not _in_main_thread():
            return None
        mark = _Mark(_bottom())
        self._code = code
        self._mark = weakref.ref(mark, self._mark_died)
        return mark

    def _mark_died(self, mark: weakref.ref[_Mark]) -> None:
        left = sys._getframe().f_back is None and _in_main_thread()
        if left and mark is self._mark:
            self._say()
        if mark is self._mark:
            self._mark = None

    def look(self) -> None:
        """The mark may still be there: part of a cycle, or kept by whoever caught the exception."""
        mark = self._mark() if self._mark is not None else None
        if mark is None or not _in_main_thread() or mark.bottom is _bottom():
            return
        code, at = mark.bottom.f_code, mark.bottom.f_lasti
        from opcode import opname  # 100 microseconds, at the very end of few programs

        if 0 <= at < len(code.co_code) and not opname[code.co_code[at]].startswith("RETURN"):
            self._say()

    def _say(self) -> None:
        self._mark = None
        self._tell(EXIT, SystemExit(self._code))


def _bottom() -> FrameType:
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


def _in_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident
