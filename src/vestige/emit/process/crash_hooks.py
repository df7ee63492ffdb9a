"""Record how a process dies: uncaught exceptions, fatal signals, `os._exit`.

The hooks for uncaught exceptions (main thread, other threads, asyncio) call `on_crash(how, error)`
and then the previous hook. SIGTERM and fatal signals write the stacks of all threads to a file.
That is done in C: no Python runs, and the signal still kills at once with the same status.

`os._exit` skips all exit handlers. It is replaced by a function that calls `on_exit(status)` first.

No hook runs on SIGKILL, which the OOM killer sends. Then the collector closes the run
(collector/crash_detection.py).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from vestige._runtime.long_lived_files import OPEN_FLAGS, OwnFile
from vestige._runtime.syscalls import system
from vestige.emit.hooks.skip_recorded_prints import suppress_prints

if TYPE_CHECKING:
    from pathlib import Path

OnCrash = Callable[[str, BaseException | None], None]

_RECORDED = "__vestige_told__"
"""Set in the `__dict__` of a recorded exception: asyncio passes the same one to several hooks.

Its `id()` would not do: the next exception often has the same.
"""


_sigterm_is_ours = False
"""Only one recorder per process, the first, writes stacks on SIGTERM."""


class CrashHooks:
    """The hooks of one recorder. `install` in the main thread, `uninstall` at its close."""

    def __init__(
        self,
        on_crash: OnCrash,
        fault_file: Path | None,
        on_exit: Callable[[int], None] = lambda status: None,
    ) -> None:
        self._on_crash = on_crash
        self._on_exit = on_exit
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
        self._hook_asyncio()
        self._watch_signals()
        self._hook_exit()

    def uninstall(self) -> None:
        """Restore the previous hooks, except where other code has replaced ours."""
        # `==`, not `is`: each access creates a new bound method.
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

    def restart_after_fork(self, fault_file: Path) -> None:
        """Use a new fault file in a forked child: the old one is the parent's."""
        self._pid = system.getpid()
        previous, self._fault_file, self._fault_path = self._fault_file, None, fault_file
        self._watch_signals()
        if self._fault_file is None:
            self._unwatch_signals()  # The parent's descriptor number may become another file's.
        if previous is not None:
            previous.close()

    # --- exceptions -----------------------------------------------------------------------

    def _uncaught(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        try:
            self._record("uncaught exception", error)
        finally:
            with suppress_prints():
                self._previous_excepthook(kind, error, trace)

    def _uncaught_in_thread(self, args: threading.ExceptHookArgs) -> None:
        try:
            name = args.thread.name if args.thread else "?"
            self._record(f"uncaught exception in thread {name}", args.exc_value)
        finally:
            with suppress_prints():
                self._previous_threadhook(args)

    def _hook_asyncio(self) -> None:
        """Record exceptions that asyncio logs because no task awaited them.

        This uses a filter, because a handler would change what is printed.
        """
        import logging

        def record_error(line: logging.LogRecord) -> bool:
            if line.levelno >= logging.ERROR and line.exc_info and line.exc_info[1]:
                self._record("uncaught exception in asyncio", line.exc_info[1])
            return True

        self._asyncio_filter = record_error
        logging.getLogger("asyncio").addFilter(record_error)

    def _record(self, how: str, error: BaseException | None) -> None:
        if error is not None:
            if _RECORDED in error.__dict__:
                return
            error.__dict__[_RECORDED] = True
        try:
            self._on_crash(how, error)
        except Exception:  # noqa: BLE001  # the program must end as it would without us
            pass

    # --- os._exit -------------------------------------------------------------------------

    def _hook_exit(self) -> None:
        self._pid = system.getpid()
        self._previous_exit = exit_process = os._exit

        def _exit(status: int) -> NoReturn:
            try:
                self._record_exit(status)
            finally:
                exit_process(status)

        self._exit = os._exit = _exit

    def _record_exit(self, status: object) -> None:
        """Call `on_exit` once, unless this is a fork without hooks, where locks may be held."""
        if system.getpid() != self._pid or not isinstance(status, int):
            return
        self._pid = 0
        try:
            self._on_exit(status)
            if status == 0 and self._fault_path is not None:
                system.unlink(str(self._fault_path))
        except Exception:  # noqa: BLE001  # The process must end now.
            pass

    # --- signals --------------------------------------------------------------------------

    def _watch_signals(self) -> None:
        """Write the stacks of all threads to a file on SIGTERM and fatal signals (SIGSEGV, ...).

        The collector turns the file into a record. A faulthandler of the program is left alone.
        """
        import faulthandler

        if self._fault_path is None:
            return
        try:
            # Not marked, because faulthandler writes to it.
            file = OwnFile(system.open(str(self._fault_path), OPEN_FLAGS, 0o600), marked=False)
            self._fault_file = file
            if self._has_faults or not faulthandler.is_enabled():
                faulthandler.enable(file.fd, all_threads=True)
                self._has_faults = True
            self._watch_sigterm(self._fault_file)
        except (OSError, RuntimeError):
            pass  # The file cannot be opened: no stacks are recorded.

    def check(self) -> None:
        """Open the file again if the program has closed its descriptor, or the file is deleted."""
        file = self._fault_file
        if file is None or (file.is_ours() and system.fstat(file.fd).st_nlink > 0):
            return
        file.close()
        self._fault_file = None
        self._watch_signals()
        if self._fault_file is None:
            self._unwatch_signals()  # The program may reuse the number: faulthandler must not.

    def _watch_sigterm(self, file: OwnFile) -> None:
        """Write stacks on SIGTERM, unless the program handles the signal.

        A handler in Python would wait for the main thread, which may run C code for ever. Then the
        program could not be stopped any more.
        """
        global _sigterm_is_ours
        import faulthandler
        import signal

        def register_stacks() -> None:
            faulthandler.register(signal.SIGTERM, file.fd, all_threads=True, chain=True)

        if self._has_sigterm:
            register_stacks()  # A forked child continues in a file of its own.
        elif not _sigterm_is_ours and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            _sigterm_is_ours = self._has_sigterm = True
            register_stacks()
            try:
                signal.signal(signal.SIGTERM, self._terminated)
            except ValueError:
                return  # Not the main thread, which alone may set handlers.
            # Python now reports our handler as the previous one to a program that sets its own. The
            # kernel gets the default action again, with the stacks written before it.
            faulthandler.unregister(signal.SIGTERM)
            register_stacks()

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        """Record the signal and die of it.

        This runs in programs that set a handler, restore the previous one when they are done, and
        raise the signal again. Servers end like this.
        """
        import signal

        self._record("terminated by SIGTERM", None)
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
            # This process lives: stacks in the file come from a forked child before its exec.
            system.unlink(str(self._fault_path))
        except OSError:
            pass

    def _unwatch_sigterm(self) -> None:
        """Restore the default action, unless the program has set a handler since."""
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
