"""Record `logging` without a handler, under `vestige run` and in recorded test suites.

A handler would change the program: `logging.basicConfig` does nothing if there already is one. So
a line that its logger and the level of a handler let through is recorded before its handlers run
(emit/hooks/logging_hook.py). A program that never imports `logging` pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from vestige._runtime.import_hooks import cancel_hook, when_imported
from vestige.emit.context import LoggerSource

_active: _LogCapture | None = None


class _LogCapture:
    """The capture of all log lines of this process with one recorder."""

    def __init__(self, recorder: LoggerSource | None, all_levels: bool) -> None:
        self._recorder = recorder
        self._all_levels = all_levels
        self._unsubscribe = _do_nothing
        when_imported("logging", self._install)

    def _install(self, _module: ModuleType) -> None:
        try:
            from vestige.emit.hooks.logging_capture import record_all_lines

            self._unsubscribe = record_all_lines(self._recorder, self._all_levels)
        except Exception:  # noqa: BLE001  # a replaced `logging` is not recorded
            return

    def stop(self) -> None:
        global _active
        if _active is self:
            cancel_hook("logging", self._install)
            self._unsubscribe()
            _active = None


def capture_logs(
    recorder: LoggerSource | None = None, *, all_levels: bool = False
) -> Callable[[], None]:
    """Record log lines once the program imports `logging`. Return a function that stops this.

    `recorder` is the process's by default. `all_levels` includes lines that the levels of all
    handlers drop. If lines are recorded already, nothing changes.
    """
    global _active
    if _active is not None:
        return _do_nothing
    _active = _LogCapture(recorder, all_levels)
    return _active.stop


def _do_nothing() -> None:
    """Leave the capture to its first caller."""


def ignore_logs() -> None:
    """Do not record what log handlers print (boot/print_capture.py)."""
    when_imported("logging", _ignore)


def _ignore(_module: ModuleType) -> None:
    try:
        from vestige.emit.hooks.logging_capture import suppress_handler_prints

        suppress_handler_prints()
    except Exception:  # noqa: BLE001  # a replaced `logging` is left alone
        return
