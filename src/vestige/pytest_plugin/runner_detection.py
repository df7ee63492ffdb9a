"""Detect which plugins run the tests of a session: pytest alone, or others too.

Nearly always it is pytest alone: a test runs once, and only code of pytest runs between two tests.
The end of a test can then be written together with the start of the next one.
"""

from __future__ import annotations

from typing import Any

import pytest

_LOOP = "_pytest.main"
_RUNNER = "_pytest.runner"
_AFTER = (
    "pytest_runtest_logreport", "pytest_report_teststatus", "pytest_runtest_teardown",
    "pytest_fixture_post_finalizer", "pytest_runtest_makereport", "pytest_warning_recorded",
    "pytest_runtest_logfinish",
)  # fmt: skip
"""Hooks from a test's report to its end."""
_PARAMETERS = frozenset(("get_direct_param_fixture_func",))
"""The fixture behind a test's parameter. It only returns the value."""


def is_alone(config: pytest.Config) -> bool:
    """Return whether pytest itself runs the tests, without help from plugins.

    Not in a worker of xdist, which may wait long for its next test, nor with a plugin that reruns
    tests."""
    hook = config.hook
    return _only(hook.pytest_runtestloop, _LOOP) and runs_once(config)


def runs_once(config: pytest.Config) -> bool:
    """Return whether pytest itself runs the tests, so that each runs once."""
    return _only(config.hook.pytest_runtest_protocol, _RUNNER)


def is_outermost(config: pytest.Config, plugin: object) -> bool:
    """Return whether a plugin's wrapper is outside all others registered so far."""
    return bool(config.hook.pytest_runtest_protocol.get_hookimpls()[-1].plugin is plugin)


def is_unwatched(config: pytest.Config) -> bool:
    """Return whether only pytest and this plugin have hooks that run after the code of a test."""
    return all(
        impl.function.__module__.startswith(("_pytest.", "vestige.", "vestige_pytest"))
        for name in _AFTER
        for impl in getattr(config.hook, name).get_hookimpls()
    )


def leaves_nothing(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Check that a test has nothing to tear down, nor its class or module."""
    if nextitem is None or nextitem.parent is not item.parent or type(item) is not pytest.Function:
        return False
    try:
        finalizers, _ = item.session._setupstate.stack[item]
        others = finalizers[1:]  # the first is its own `teardown`
        fixtures = (each.func.__self__ for each in others)  # type: ignore[attr-defined]
        return {fixture.func.__name__ for fixture in fixtures} <= _PARAMETERS
    except (AttributeError, KeyError, TypeError, ValueError):
        return False  # another plugin's, or a pytest that stores them elsewhere


def _only(caller: Any, module: str) -> bool:
    does = [impl for impl in caller.get_hookimpls() if not (impl.wrapper or impl.hookwrapper)]
    # One of ours looks on, and does nothing.
    others = [impl for impl in does if not impl.function.__module__.startswith("vestige.")]
    return [impl.function.__module__ for impl in others] == [module]
