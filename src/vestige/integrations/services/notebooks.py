"""Cells of Jupyter notebooks, one run each."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from vestige.emit.pending_run import PendingRun
from vestige.integrations.failure_counts import guarded


def install(module: ModuleType) -> None:
    """Register for the cells of each shell. `module` is IPython.core.interactiveshell."""
    original = module.InteractiveShell.__init__

    @functools.wraps(original)
    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        guarded(_register)(self)

    module.InteractiveShell.__init__ = initialize


def _register(shell: Any) -> None:
    cells = _Cells(shell)
    shell.events.register("pre_run_cell", cells.begin)
    shell.events.register("post_run_cell", cells.end)


class _Cells:
    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._open: list[tuple[PendingRun, Any]] = []

    @guarded
    def begin(self, info: Any = None) -> None:
        source = str(getattr(info, "raw_cell", "") or "")
        pending = PendingRun(lambda: f"cell {_find_number(self._shell)}", {"cell": source[:200]})
        active = pending.active()
        active.__enter__()
        self._open.append((pending, active))

    @guarded
    def end(self, result: Any = None) -> None:
        pending, active = self._open.pop()
        active.__exit__(None, None, None)
        pending.end(
            getattr(result, "error_in_exec", None) or getattr(result, "error_before_exec", None)
        )


def _find_number(shell: Any) -> int:
    """Return the number of the cell that runs.

    Newer releases increase the shell's own counter before a cell runs, and older ones after it.
    """
    return len(shell.history_manager.input_hist_raw) - 1
