"""What a program logs, recorded below `vestige run`, and in a test suite that is recorded.

Not by a handler: `logging.basicConfig` does nothing where there is one already, so a program would
behave differently with us. A line that its logger lets through is recorded before its handlers, if
it has any, get it. A program that never imports `logging` pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from vestige._runtime.import_hooks import cancel_hook, when_imported
from vestige.emit.context import Speaker
from vestige.wire.patching import Patch

_active: _Lines | None = None


class _Lines:
    """The lines of this process, on their way to one recorder."""

    def __init__(self, recorder: Speaker | None) -> None:
        self._recorder = recorder
        self._patch = Patch()
        when_imported("logging", self._install)

    def _install(self, module: ModuleType) -> None:
        try:
            from vestige.emit.hooks.logging_capture import telling

            self._patch.wrap(module.Logger, "callHandlers", telling(self._recorder))
        except Exception:  # noqa: BLE001  # a logging of another kind: its lines go unrecorded
            return

    def stop(self) -> None:
        global _active
        if _active is self:
            cancel_hook("logging", self._install)
            self._patch.undo()
            _active = None


def capture_logs(recorder: Speaker | None = None) -> Callable[[], None]:
    """From now on, or once the program imports `logging`. Returns what stops it.

    `recorder`: the process's own by default. Where lines are recorded already, nothing changes: a line
    is recorded once."""
    global _active
    if _active is not None:
        return _nothing
    _active = _Lines(recorder)
    return _active.stop


def _nothing() -> None:
    """Somebody else captures, and goes on."""


def ignore_logs() -> None:
    """Not even as something printed (boot/print_capture.py), which they are by most handlers."""
    when_imported("logging", _ignore)


def _ignore(module: ModuleType) -> None:
    try:
        from vestige.emit.hooks.logging_capture import ignoring

        Patch().wrap(module.Logger, "callHandlers", ignoring)
    except Exception:  # noqa: BLE001  # as above
        return
