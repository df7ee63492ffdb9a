"""What a program logs, recorded below `vestige run`.

Not by a handler: `logging.basicConfig` does nothing where there is one already, so a program would
behave differently with us. A line that its logger lets through is recorded before its handlers, if
it has any, get it. A program that never imports `logging` pays nothing.
"""

from __future__ import annotations

from types import ModuleType

from vestige.wire.lazy import when_imported
from vestige.wire.patch import Patch


def capture_logs() -> None:
    """From now on, or once the program imports `logging`."""
    when_imported("logging", lambda module: _install(module, "telling"))


def ignore_logs() -> None:
    """Not even as something printed (boot/prints.py), which they are by most handlers."""
    when_imported("logging", lambda module: _install(module, "ignoring"))


def _install(module: ModuleType, how: str) -> None:
    try:
        from vestige.emit import logging_bridge

        Patch().wrap(module.Logger, "callHandlers", getattr(logging_bridge, how))
    except Exception:  # noqa: BLE001  # a logging of another kind: its lines go unrecorded
        return
