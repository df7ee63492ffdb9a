"""Last words: what a process still says when it is about to die.

Hooks for uncaught exceptions (main thread, other threads, asyncio), SIGTERM and the
fatal signals. Each one first tells `say(how, error)`, then lets happen what would have
happened: the hook that was there before runs, the signal kills with the same status.

Where the runtime gives no chance (SIGKILL, the OOM killer, os._exit), the collector
stamps the run instead (collector/crash.py).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from vestige.emit.prints import hushed

if TYPE_CHECKING:
    from pathlib import Path

Say = Callable[[str, BaseException | None], None]

_TOLD = "__vestige_told__"
"""In the dictionary of an exception that was told: asyncio hands the same one to several hooks. Not
by its id: the next exception is often made where the last one was."""


class LastWords:
    """The hooks of one recorder. `install` in the main thread, `uninstall` at its close."""

    def __init__(self, say: Say, fault_file: Path | None) -> None:
        self._say = say
        self._fault_path = fault_file
        self._fault_file: TextIO | None = None
        self._previous_excepthook: Any = None
        self._previous_threadhook: Any = None
        self._previous_sigterm: Any = None
        self._asyncio_filter: Callable[[Any], bool] | None = None

    def install(self) -> None:
        self._previous_excepthook = sys.excepthook
        sys.excepthook = self._uncaught
        self._previous_threadhook = threading.excepthook
        threading.excepthook = self._uncaught_in_thread
        self._watch_asyncio()
        self._watch_sigterm()
        self._watch_faults()

    def uninstall(self) -> None:
        """Restore what was there, wherever nobody has put something on top of it."""
        # `==`, not `is`: a bound method is a new object every time it is looked at.
        if sys.excepthook == self._uncaught:
            sys.excepthook = self._previous_excepthook
        if threading.excepthook == self._uncaught_in_thread:
            threading.excepthook = self._previous_threadhook
        if self._asyncio_filter is not None:
            import logging

            logging.getLogger("asyncio").removeFilter(self._asyncio_filter)
        self._unwatch_sigterm()
        self._unwatch_faults()

    def forked(self, fault_file: Path) -> None:
        """In a forked child: the file for faults is the parent's. Use one of our own."""
        if self._fault_file is None:
            return
        import faulthandler

        faulthandler.disable()
        self._fault_file.close()
        self._fault_file = None
        self._fault_path = fault_file
        self._watch_faults()

    # --- exceptions -----------------------------------------------------------------------

    def _uncaught(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        try:
            self._tell("uncaught exception", error)
        finally:
            with hushed():
                self._previous_excepthook(kind, error, trace)

    def _uncaught_in_thread(self, args: threading.ExceptHookArgs) -> None:
        try:
            name = args.thread.name if args.thread else "?"
            self._tell(f"uncaught exception in thread {name}", args.exc_value)
        finally:
            with hushed():
                self._previous_threadhook(args)

    def _watch_asyncio(self) -> None:
        """asyncio reports an exception that nobody awaited to its own logger. A filter sees
        that line without being a handler, so what is printed where does not change."""
        import logging

        def heard(line: logging.LogRecord) -> bool:
            if line.levelno >= logging.ERROR and line.exc_info and line.exc_info[1]:
                self._tell("uncaught exception in asyncio", line.exc_info[1])
            return True

        self._asyncio_filter = heard
        logging.getLogger("asyncio").addFilter(heard)

    def _tell(self, how: str, error: BaseException | None) -> None:
        if error is not None:
            if _TOLD in error.__dict__:
                return
            error.__dict__[_TOLD] = True
        try:
            self._say(how, error)
        except Exception:  # noqa: BLE001  # the program's own end matters more than our account of it
            pass

    # --- signals --------------------------------------------------------------------------

    def _watch_sigterm(self) -> None:
        """Only where SIGTERM would simply kill: a program that handles it has its own last words."""
        import signal

        try:
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                self._previous_sigterm = signal.signal(signal.SIGTERM, self._terminated)
        except ValueError:
            pass  # not the main thread: signals are not ours to touch

    def _unwatch_sigterm(self) -> None:
        import signal

        try:
            if signal.getsignal(signal.SIGTERM) == self._terminated:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
        except ValueError:
            pass

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        import signal

        self._tell("terminated by SIGTERM", None)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _watch_faults(self) -> None:
        """A fatal signal (SIGSEGV, SIGABRT, ...) leaves the stacks of all threads in a file,
        which the collector turns into a record. A faulthandler of the program's own stays."""
        import faulthandler

        if self._fault_path is None or faulthandler.is_enabled():
            return
        try:
            fd = os.open(self._fault_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._fault_file = os.fdopen(fd, "w")
            faulthandler.enable(self._fault_file, all_threads=True)
        except (OSError, RuntimeError):
            self._fault_file = None

    def _unwatch_faults(self) -> None:
        if self._fault_file is None or self._fault_path is None:
            return
        import faulthandler

        faulthandler.disable()
        self._fault_file.close()
        self._fault_file = None
        try:
            if self._fault_path.stat().st_size == 0:
                self._fault_path.unlink()
        except OSError:
            pass
