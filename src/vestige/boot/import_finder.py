"""Find the recorder for a program in whose environment Vestige is not installed.

    name = find_recorder()          # "vestige", or another name
    import_module(name + ".boot")

A finder serves the package `vestige` from the folder of this file, and nothing else of the
environment that `vestige run` has. It is the last one, so that a package that the program has
itself comes first. If the program has another module named `vestige`, the recorder is loaded under
a name of its own: absolute imports in its modules are renamed as they are compiled.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any

PACKAGE = "vestige"
PRIVATE = "_vestige_recorder"
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_BOOT_PATH = os.path.join(_ROOT, "boot", "path")


def find_recorder() -> str:
    """Make the recorder importable. Return the name of its package."""
    spec = importlib.machinery.PathFinder.find_spec(PACKAGE, _program_paths())
    if spec is not None and _is_recorder(spec):
        return PACKAGE
    if spec is None or spec.origin is None:
        sys.meta_path.append(_Finder(PACKAGE))
        return PACKAGE
    sys.meta_path.insert(0, _Finder(PRIVATE))  # before the one that would not rename imports
    return PRIVATE


def _program_paths() -> list[str]:
    """Return the paths that the program will search, with the folder of its script first."""
    paths = [path for path in sys.path if os.path.abspath(path or os.curdir) != _BOOT_PATH]
    arguments = sys.orig_argv[1:]
    script = None
    for at, word in enumerate(arguments):
        if word in ("-c", "-m"):
            break
        if not word.startswith("-") and (at == 0 or arguments[at - 1] not in ("-W", "-X")):
            script = word
            break
    folder = os.getcwd() if script is None else os.path.dirname(os.path.realpath(script))
    return [folder, *paths]


def _is_recorder(spec: importlib.machinery.ModuleSpec) -> bool:
    """Return whether a package is Vestige, of this or of another version."""
    locations = spec.submodule_search_locations or ()
    return any(
        os.path.isfile(os.path.join(each, "boot", "path", "sitecustomize.py")) for each in locations
    )


class _Finder:
    """Finds the modules of the recorder under a name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name and not name.startswith(self._name + "."):
            return None
        folder = os.path.join(_ROOT, *name.split(".")[1:])
        package = os.path.join(folder, "__init__.py")
        is_package = os.path.isfile(package)
        file = package if is_package else folder + ".py"
        if not os.path.isfile(file):
            return None
        loader_class: Any = _RenamingLoader
        if self._name == PACKAGE:
            loader_class = importlib.machinery.SourceFileLoader
        return importlib.util.spec_from_file_location(
            name,
            file,
            loader=loader_class(name, file),
            submodule_search_locations=[folder] if is_package else None,
        )


class _RenamingLoader(importlib.machinery.SourceFileLoader):
    """Compiles a module with its imports of `vestige` renamed. Nothing is cached on disk."""

    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(self.get_data(self.path))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and _is_own(node.module):
                node.module = _rename(node.module)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if _is_own(alias.name):
                        alias.name = _rename(alias.name)
        code: CodeType = compile(tree, self.path, "exec", dont_inherit=True)
        return code


def _is_own(name: str) -> bool:
    return name == PACKAGE or name.startswith(PACKAGE + ".")


def _rename(name: str) -> str:
    return PRIVATE + name[len(PACKAGE) :]
