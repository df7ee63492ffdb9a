"""Tests that start processes, servers or a browser: they are slow, with or without the mark.

`make test-fast` runs what needs none of its own. Nobody has to remember a mark for that: the
code of a test shows which functions and fixtures it uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

_STARTERS = frozenset(
    ["subprocess", "Popen", "fork", "create_subprocess_exec", "spawn", "make_server"]
)
"""Names that a function uses to start a process or a server."""

_TESTS = str(Path(__file__).parent.parent)


def starts_process(item: pytest.Item) -> bool:
    """Return whether a test, its fixtures or the helpers that they call start a process."""
    definitions = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009  # not public
    functions = [getattr(item, "function", None)]
    functions += [each.func for found in definitions.values() for each in found]
    seen: set[Any] = set()
    return any(_uses_starter(each, seen) for each in functions)


def _uses_starter(function: Any, seen: set[Any]) -> bool:
    function = getattr(function, "__wrapped__", function)
    if isinstance(function, type) and function.__module__.startswith("support."):
        return any(_uses_starter(each, seen) for each in vars(function).values())
    if not isinstance(function, FunctionType) or function in seen:
        return False
    seen.add(function)
    code = function.__code__
    if not code.co_filename.startswith(_TESTS):
        return False
    names = set(_names_of(code))
    if names & _STARTERS:
        return True
    used = (function.__globals__.get(name) for name in names)
    return any(_uses_starter(each, seen) for each in used)


def _names_of(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_of(constant)
