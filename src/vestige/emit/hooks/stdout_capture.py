"""What a program prints, into the record: one line of the log for each print.

    stream.write = Prints("stdout", stream.write)

A print comes in several writes, its text and then its end; a stream of tokens in many. They are told
together, once one of them ends a line. What a progress bar writes over is not told, nor are colours.
A printed traceback is one line, an error, with the exception that is being handled.

The stream does all of its work before ours begins, and nothing here raises. What is not told: what
`logging` writes (boot/log_capture.py tells it) and the traceback of an exception that nobody caught
(emit/process/crash_hooks.py does); both say so with `hushed()`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from types import CodeType, FrameType
from typing import Any

from vestige._runtime.clock import SYSTEM, Now
from vestige.emit import context
from vestige.emit.exceptions import error_attributes
from vestige.emit.hooks.print_suppression import HUSHED, suppress_prints
from vestige.limits import PRINT_MAX, PRINTS_AT_ONCE, PRINTS_PER_S

# As terminals have it: colours and movements of the cursor; links and titles.
_STYLE = re.compile(r"\x1b\[[0-9:;<=>?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_WRITTEN_OVER = re.compile(r"[^\n]*\r(?=[^\n])")


class Prints:
    """Stands in for the `write` of one stream."""

    def __init__(
        self, name: str, write: Callable[..., Any], now_ns: Now = SYSTEM.monotonic_ns
    ) -> None:
        self.name = name
        self.write = write
        self._unfinished: dict[int, _Unfinished] = {}
        self._allowance = _Allowance(now_ns)

    def __call__(self, *arguments: Any) -> Any:
        written = self.write(*arguments)
        thread = get_ident()
        if thread not in HUSHED:
            HUSHED.add(thread)  # a listener may print what it is told
            try:
                text = arguments[0]
                if not self._allowance.is_spent:
                    self._take(text, thread, sys._getframe(1))
                elif text.endswith("\n"):
                    self._allowance.leave_out()
            except Exception:  # noqa: BLE001  # the program goes on
                pass
            finally:
                HUSHED.discard(thread)
        return written

    def _take(self, text: str, thread: int, frame: FrameType) -> None:
        line = self._unfinished.get(thread)
        if line is None:
            line = self._unfinished[thread] = _Unfinished()
        line.add(text, frame)
        if not text.endswith("\n"):
            return
        by_traceback = frame.f_globals.get("__name__") == "traceback"
        if by_traceback and (text[:1].isspace() or text.startswith("Traceback ")):
            return  # its last line is yet to come
        del self._unfinished[thread]
        self._tell(line, sys.exc_info()[1] if by_traceback else None)

    def _tell(self, line: _Unfinished, error: BaseException | None = None) -> None:
        text = _plain("".join(line.parts))
        if not text.strip() or not self._allowance.take():
            return
        attributes: dict[str, Any] = {}
        if line.place is not None:
            code, number = line.place
            attributes["code.file"] = f"{code.co_filename}:{number}"
        if line.size > PRINT_MAX:
            attributes["printed_chars"] = line.size
        left_out = self._allowance.take_left_out()
        if left_out:
            attributes["left_out"] = left_out
        if error is None:
            self._say("info", text, attributes)
        else:
            last = text.rpartition("\n")[2]
            self._say("error", last, attributes | error_attributes(error))

    def _say(self, level: str, message: str, attributes: dict[str, Any]) -> None:
        context.default().logger(self.name).say(level, message, attributes)

    def finish(self) -> None:
        """At the end: what was begun and never ended, and what there was too much of."""
        with suppress_prints(), suppress(Exception):
            unfinished, self._unfinished = self._unfinished, {}
            for line in unfinished.values():
                self._tell(line)
            left_out = self._allowance.take_left_out()
            if left_out:
                said = f"{left_out} prints left out: more than {PRINTS_PER_S} a second"
                self._say("warn", said, {"left_out": left_out})

    def forget(self) -> None:
        """In a forked child: what the parent has begun is the parent's, and so are its other threads,
        whose numbers may be given again."""
        self._unfinished = {}
        HUSHED.intersection_update((get_ident(),))


class _Unfinished:
    """What a thread has printed of a line so far."""

    __slots__ = ("parts", "place", "size")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.size = 0
        self.place: tuple[CodeType, int] | None = None
        """Where in the code it was written last."""

    def add(self, text: str, frame: FrameType) -> None:
        self.place = frame.f_code, frame.f_lineno
        if "\r" in text and "\n" not in text:
            self.parts, self.size = [], 0  # a progress bar, over what it wrote before
        room = PRINT_MAX - self.size
        if room > 0:
            self.parts.append(text[:room])
        self.size += len(text)


class _Allowance:
    """So many at once, then so many a second: a program may print as fast as it can."""

    def __init__(self, now_ns: Now) -> None:
        self._now_ns = now_ns
        self._left = float(PRINTS_AT_ONCE)
        self._at_ns = now_ns()
        self._left_out = 0
        self.is_spent = False

    def take(self) -> bool:
        """Of one print: may it be told?"""
        self._refill()
        if self.is_spent:
            self._left_out += 1
            return False
        self._left -= 1
        return True

    def leave_out(self) -> None:
        """One that nobody has looked at; the next may be told again."""
        self._left_out += 1
        self._refill()

    def _refill(self) -> None:
        now_ns = self._now_ns()
        more = (now_ns - self._at_ns) * PRINTS_PER_S / 1e9
        self._left, self._at_ns = min(self._left + more, PRINTS_AT_ONCE), now_ns
        self.is_spent = self._left < 1

    def take_left_out(self) -> int:
        left_out, self._left_out = self._left_out, 0
        return left_out


def _plain(text: str) -> str:
    """As it stands on a screen, without its colours."""
    text = _STYLE.sub("", text).replace("\r\n", "\n")
    return _WRITTEN_OVER.sub("", text).strip("\n")
