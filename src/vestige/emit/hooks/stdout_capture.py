"""Record what a program prints: one log record per print.

    stream.write = Prints("stdout", stream.write)

A print is several writes: its text, then its end. They become one record once a write ends a line.
Text that a progress bar overwrites is left out, and so are colours. A printed traceback is one
record of level error, with the exception that is being handled.

The original `write` runs first, and nothing here raises. Output that is recorded elsewhere is left
out with `suppress_prints()`: log lines (boot/log_capture.py) and the traceback of an uncaught
exception (emit/process/crash_hooks.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from types import CodeType, FrameType
from typing import Any

from vestige._runtime.clock import SYSTEM, Now
from vestige.emit import context
from vestige.emit.exception_attributes import error_attributes
from vestige.emit.hooks.print_cleanup import PrintAllowance, to_plain_text
from vestige.emit.hooks.skip_recorded_prints import SUPPRESSED, suppress_prints
from vestige.limits import PRINT_MAX, PRINTS_PER_S


class Prints:
    """Replacement for the `write` of one stream."""

    def __init__(
        self, name: str, write: Callable[..., Any], now_ns: Now = SYSTEM.monotonic_ns
    ) -> None:
        self.name = name
        self.write = write
        self._unfinished: dict[int, _Unfinished] = {}
        self._allowance = PrintAllowance(now_ns)

    def __call__(self, *arguments: Any) -> Any:
        written = self.write(*arguments)
        thread = get_ident()
        if thread not in SUPPRESSED:
            SUPPRESSED.add(thread)  # A listener may print the record.
            try:
                text = arguments[0]
                if not self._allowance.is_spent:
                    self._add(text, thread, _find_caller())
                elif text.endswith("\n"):
                    self._allowance.count_skipped()
            except Exception:  # noqa: BLE001  # the program continues
                pass
            finally:
                SUPPRESSED.discard(thread)
        return written

    def _add(self, text: str, thread: int, frame: FrameType | None) -> None:
        line = self._unfinished.get(thread)
        if line is None:
            line = self._unfinished[thread] = _Unfinished()
        line.add(text, frame)
        if not text.endswith("\n"):
            return
        by_traceback = frame is not None and frame.f_globals.get("__name__") == "traceback"
        if by_traceback and (text[:1].isspace() or text.startswith("Traceback ")):
            return  # The last line of the traceback follows.
        del self._unfinished[thread]
        self._record_line(line, sys.exc_info()[1] if by_traceback else None)

    def _record_line(self, line: _Unfinished, error: BaseException | None = None) -> None:
        text = to_plain_text("".join(line.parts))
        if not text.strip() or not self._allowance.take():
            return
        attributes: dict[str, Any] = {}
        if line.origin is not None:
            code, number = line.origin
            attributes["code.file"] = f"{code.co_filename}:{number}"
        if line.size > PRINT_MAX:
            attributes["printed_chars"] = line.size
        left_out = self._allowance.pop_left_out()
        if left_out:
            attributes["left_out"] = left_out
        if error is None:
            self._log("info", text, attributes)
        else:
            last = text.rpartition("\n")[2]
            self._log("error", last, attributes | error_attributes(error))

    def _log(self, level: str, message: str, attributes: dict[str, Any]) -> None:
        context.default().logger(self.name).record(level, message, attributes)

    def finish(self) -> None:
        """Record unfinished lines and the number of omitted prints, when the program ends."""
        with suppress_prints(), suppress(Exception):
            unfinished, self._unfinished = self._unfinished, {}
            for line in unfinished.values():
                self._record_line(line)
            left_out = self._allowance.pop_left_out()
            if left_out:
                message = f"{left_out} prints left out: more than {PRINTS_PER_S} a second"
                self._log("warn", message, {"left_out": left_out})

    def reset_after_fork(self) -> None:
        """Drop the parent's unfinished lines, and its threads, whose ids may be reused."""
        self._unfinished = {}
        SUPPRESSED.intersection_update((get_ident(),))


def _find_caller() -> FrameType | None:
    """Return the frame that prints; None if the interpreter prints the argument of `sys.exit`."""
    try:
        return sys._getframe(2)
    except ValueError:
        return None


class _Unfinished:
    """The part of a line that a thread has printed so far."""

    __slots__ = ("origin", "parts", "size")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.size = 0
        self.origin: tuple[CodeType, int] | None = None
        """The code and line number of the last write."""

    def add(self, text: str, frame: FrameType | None) -> None:
        if frame is not None:
            self.origin = frame.f_code, frame.f_lineno
        if "\r" in text and "\n" not in text:
            self.parts, self.size = [], 0  # A progress bar overwrites its line.
        room = PRINT_MAX - self.size
        if room > 0:
            self.parts.append(text[:room])
        self.size += len(text)
