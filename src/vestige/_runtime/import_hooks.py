"""Nothing is loaded before it is needed: not by us, and not for us.

    when_imported("httpx", install)                     # do something to a module once the program imports it
    __getattr__ = names_in(__name__, {"Case": "vestige.artifacts.suite"})  # names loaded on first use

A program that never imports `httpx` pays for one more entry in `sys.meta_path` and nothing
else. The module's loader, spec and name stay its own: only the end of its execution is seen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

Do = Callable[[ModuleType], None]


class _Finder:
    """First in `sys.meta_path`: finds nothing itself, and asks the others."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Do]] = {}

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
                self._watch(name, spec)
                return spec
        return None

    def _watch(self, name: str, spec: ModuleSpec) -> None:
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
                return  # a zip's loader is one for all its modules, and ours was only looked for
            for do in self.waiting.pop(name, ()):
                do(module)

        try:
            loader.exec_module = exec_module
        except (AttributeError, TypeError):
            pass  # a loader that cannot be changed: its module goes unrecorded


_finder = _Finder()


def names_in(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package `__getattr__` that imports each name's module on first use."""

    def find(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(where[name]), name)

    return find


def when_imported(name: str, do: Do) -> None:
    """Call `do(module)` now if it is imported, else right after it is. `do` must not raise."""
    module = sys.modules.get(name)
    if module is not None and not _is_loading(module):
        do(module)
        return
    _finder.waiting.setdefault(name, []).append(do)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def forget(name: str, do: Do) -> None:
    """No longer wait for it."""
    waiting = _finder.waiting.get(name)
    if waiting and do in waiting:
        waiting.remove(do)
        if not waiting:
            del _finder.waiting[name]
    if not _finder.waiting and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


def _is_loading(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
