"""Last words: what a process still says when it is about to die.

Hooks for uncaught exceptions (main thread, other threads, asyncio): each one first tells
`say(how, error)`, then lets happen what would have happened: the hook that was there before
runs. SIGTERM and the fatal signals leave the stacks of all threads in a file, written in C:
no Python runs then, and the signal kills at once, with the same status.

`os._exit` leaves past everything that runs at exit: it is replaced by a function that first tells
`leave(status)`, and then does what it always did.

Where the runtime gives no chance (SIGKILL, the OOM killer), the collector stamps the run instead
(collector/crash_detection.py).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from vestige._runtime.owned_file import OPEN_FLAGS, OwnFile
from vestige._runtime.syscalls import system
from vestige.emit.hooks.print_suppression import suppress_prints

if TYPE_CHECKING:
    from pathlib import Path

Say = Callable[[str, BaseException | None], None]

_TOLD = "__vestige_told__"
"""In the dictionary of an exception that was told: asyncio hands the same one to several hooks. Not
by its id: the next exception is often made where the last one was."""


_sigterm_is_ours = False
"""A process has one file for the stacks at a SIGTERM; the first that asks has it."""


class CrashHooks:
    """The hooks of one recorder. `install` in the main thread, `uninstall` at its close."""

    def __init__(
        self, say: Say, fault_file: Path | None, leave: Callable[[int], None] = lambda status: None
    ) -> None:
        self._say = say
        self._leave = leave
        self._previous_exit: Any = None
        self._exit: Any = None
        self._pid = 0
        self._fault_path = fault_file
        self._fault_file: OwnFile | None = None
        self._previous_excepthook: Any = None
        self._previous_threadhook: Any = None
        self._has_faults = self._has_sigterm = False
        self._asyncio_filter: Callable[[Any], bool] | None = None

    def install(self) -> None:
        self._previous_excepthook = sys.excepthook
        sys.excepthook = self._uncaught
        self._previous_threadhook = threading.excepthook
        threading.excepthook = self._uncaught_in_thread
        self._watch_asyncio()
        self._watch_signals()
        self._watch_exit()

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
        self._unwatch_signals()
        if self._exit is not None and os._exit is self._exit:
            os._exit = self._previous_exit
        self._pid = 0

    def forked(self, fault_file: Path) -> None:
        """In a forked child: the file for faults is the parent's. Use one of our own."""
        self._pid = system.getpid()
        previous, self._fault_file, self._fault_path = self._fault_file, None, fault_file
        self._watch_signals()
        if self._fault_file is None:
            self._unwatch_signals()  # or it would write to a number that may become another file's
        if previous is not None:
            previous.close()

    # --- exceptions -----------------------------------------------------------------------

    def _uncaught(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        try:
            self._tell("uncaught exception", error)
        finally:
            with suppress_prints():
                self._previous_excepthook(kind, error, trace)

    def _uncaught_in_thread(self, args: threading.ExceptHookArgs) -> None:
        try:
            name = args.thread.name if args.thread else "?"
            self._tell(f"uncaught exception in thread {name}", args.exc_value)
        finally:
            with suppress_prints():
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

    # --- os._exit -------------------------------------------------------------------------

    def _watch_exit(self) -> None:
        self._pid = system.getpid()
        self._previous_exit = leave_process = os._exit

        def _exit(status: int) -> NoReturn:
            try:
                self._exiting(status)
            finally:
                leave_process(status)

        self._exit = os._exit = _exit

    def _exiting(self, status: object) -> None:
        """Tell once, and only in a process that knows of its fork: locks may be held in others."""
        if system.getpid() != self._pid or not isinstance(status, int):
            return
        self._pid = 0
        try:
            self._leave(status)
            if status == 0 and self._fault_path is not None:
                system.unlink(str(self._fault_path))
        except Exception:  # noqa: BLE001  # The process ends now, whatever this is.
            pass

    # --- signals --------------------------------------------------------------------------

    def _watch_signals(self) -> None:
        """A fatal signal (SIGSEGV, SIGABRT, ...) and SIGTERM leave the stacks of all threads in a file,
        which the collector turns into a record. A faulthandler of the program's own stays."""
        import faulthandler

        if self._fault_path is None:
            return
        try:
            # Not marked: what writes to it is faulthandler.
            file = OwnFile(system.open(str(self._fault_path), OPEN_FLAGS, 0o600), marked=False)
            self._fault_file = file
            if self._has_faults or not faulthandler.is_enabled():
                faulthandler.enable(file.fd, all_threads=True)
                self._has_faults = True
            self._watch_sigterm(self._fault_file)
        except (OSError, RuntimeError):
            pass  # nowhere to write: then nothing is told

    def check(self) -> None:
        """Open the file again if the program has closed its descriptor, and may use its number."""
        file = self._fault_file
        if file is None or file.is_ours():
            return
        file.close()
        self._fault_file = None
        self._watch_signals()
        if self._fault_file is None:
            self._unwatch_signals()  # There is nowhere to write: faulthandler must not try.

    def _watch_sigterm(self, file: OwnFile) -> None:
        """Only where SIGTERM would simply kill: a program that handles it has its own last words. Not by
        a handler in Python: that waits for the main thread, which may be in C for ever, and what cannot
        be stopped any more is another program."""
        global _sigterm_is_ours
        import faulthandler
        import signal

        def leave_stacks() -> None:
            faulthandler.register(signal.SIGTERM, file.fd, all_threads=True, chain=True)

        if self._has_sigterm:
            leave_stacks()  # in a forked child: from now on in its own file
        elif not _sigterm_is_ours and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            _sigterm_is_ours = self._has_sigterm = True
            leave_stacks()
            try:
                signal.signal(signal.SIGTERM, self._terminated)
            except ValueError:
                return  # not the main thread: then without what follows
            # Python now believes that the handler is ours, and gives it to who asks for the one before
            # him. What the system calls is the default again, and the stacks before it.
            faulthandler.unregister(signal.SIGTERM)
            leave_stacks()

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        """Only of a program that had a handler of its own, and put back what it had found: servers end
        so, and raise the signal again when they are done."""
        import signal

        self._tell("terminated by SIGTERM", None)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _unwatch_signals(self) -> None:
        import faulthandler

        self._unwatch_sigterm()
        if self._has_faults:
            faulthandler.disable()
            self._has_faults = False
        if self._fault_file is None or self._fault_path is None:
            return
        self._fault_file.close()
        self._fault_file = None
        try:
            # We live: what it may hold is of a child that was to become another.
            system.unlink(str(self._fault_path))
        except OSError:
            pass

    def _unwatch_sigterm(self) -> None:
        """Where the program has put a handler of its own on top, that one stays."""
        global _sigterm_is_ours
        import faulthandler
        import signal

        if self._has_sigterm:
            self._has_sigterm = _sigterm_is_ours = False
            handler = signal.getsignal(signal.SIGTERM)
            if handler is signal.SIG_DFL or handler == self._terminated:
                faulthandler.unregister(signal.SIGTERM)
            try:
                if handler == self._terminated:
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)
            except ValueError:
                pass  # not the main thread
