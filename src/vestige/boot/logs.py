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
    when_imported("logging", _install)


def _install(module: ModuleType) -> None:
    try:
        from vestige.emit.logging_bridge import telling

        Patch().wrap(module.Logger, "callHandlers", telling)
    except Exception:  # noqa: BLE001  # a logging of another kind: its lines go unrecorded
        return
