"""Record `logging` without a handler, under `vestige run` and in recorded test suites.

A handler would change the program: `logging.basicConfig` does nothing if there already is one. So
`Logger.callHandlers` is wrapped, and a line that its logger lets through is recorded before its
handlers run. A program that never imports `logging` pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from vestige._runtime.import_hooks import cancel_hook, when_imported
from vestige.emit.context import LoggerSource
from vestige.wire.patching import Patch

_active: _LogCapture | None = None


class _LogCapture:
    """The capture of all log lines of this process with one recorder."""

    def __init__(self, recorder: LoggerSource | None) -> None:
        self._recorder = recorder
        self._patch = Patch()
        when_imported("logging", self._install)

    def _install(self, module: ModuleType) -> None:
        try:
            from vestige.emit.hooks.logging_capture import record_before_handlers

            wrapper = record_before_handlers(self._recorder)
            self._patch.wrap(module.Logger, "callHandlers", wrapper)
        except Exception:  # noqa: BLE001  # a replaced `logging` is not recorded
            return

    def stop(self) -> None:
        global _active
        if _active is self:
            cancel_hook("logging", self._install)
            self._patch.undo()
            _active = None


def capture_logs(recorder: LoggerSource | None = None) -> Callable[[], None]:
    """Record log lines once the program imports `logging`. Return a function that stops this.

    `recorder` is the process's by default. If lines are recorded already, nothing changes.
    """
    global _active
    if _active is not None:
        return _do_nothing
    _active = _LogCapture(recorder)
    return _active.stop


def _do_nothing() -> None:
    """Leave the capture to its first caller."""


def ignore_logs() -> None:
    """Do not record what log handlers print (boot/print_capture.py)."""
    when_imported("logging", _ignore)


def _ignore(module: ModuleType) -> None:
    try:
        from vestige.emit.hooks.logging_capture import suppress_handler_prints

        Patch().wrap(module.Logger, "callHandlers", suppress_handler_prints)
    except Exception:  # noqa: BLE001  # a replaced `logging` is left alone
        return
