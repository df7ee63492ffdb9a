"""Post-import hooks, and lazy package exports (PEP 562).

    when_imported("httpx", install)       # calls install(httpx) once the program imports it
    __getattr__ = lazy_exports(__name__, {"Case": "vestige.artifacts.suite_recorder"})

A program that never imports `httpx` pays for one more entry in `sys.meta_path` and nothing else.
The module's loader, spec and name are unchanged: only the end of its execution is intercepted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

Hook = Callable[[ModuleType], None]


class _Finder:
    """The first entry of `sys.meta_path`. It delegates to the others, and wraps their loaders."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Hook]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self.waiting:
            return None
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                self._wrap_loader(name, spec)
                return spec
        return None

    def _wrap_loader(self, name: str, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            try:
                del loader.exec_module
            except AttributeError:
                pass
            execute(module)
            if module.__name__ != name:
                return  # A zip's modules share one loader: this is a different module of it.
            for hook in self.waiting.pop(name, ()):
                hook(module)

        try:
            loader.exec_module = exec_module
        except (AttributeError, TypeError):
            pass  # The loader does not allow new attributes: its module is not instrumented.


_finder = _Finder()


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package `__getattr__` that imports each name's module on first use."""

    def get_export(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(modules[name]), name)

    return get_export


def when_imported(name: str, hook: Hook) -> None:
    """Call `hook(module)` now, or right after the import of the module. It must not raise."""
    module = sys.modules.get(name)
    if module is not None and not _is_loading(module):
        hook(module)
        return
    _finder.waiting.setdefault(name, []).append(hook)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def cancel_hook(name: str, hook: Hook) -> None:
    """Undo `when_imported` for a module that has not been imported yet."""
    waiting = _finder.waiting.get(name)
    if waiting and hook in waiting:
        waiting.remove(hook)
        if not waiting:
            del _finder.waiting[name]
    if not _finder.waiting and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


def _is_loading(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
