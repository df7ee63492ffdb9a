"""Who runs the tests of a session, as its hooks tell: pytest alone, or plugins too.

Nearly always pytest alone does: a test runs once, and from its end to the next one's beginning no code of
anybody else's. What is written there can then be written at once with the next, and need not wait for reruns.
"""

from __future__ import annotations

from typing import Any

import pytest

_LOOP = "_pytest.main"
_RUNNER = "_pytest.runner"


def is_alone(config: pytest.Config) -> bool:
    """Does pytest itself, and nobody else, go through the tests and run each? Not in a worker of xdist,
    where a test may wait for long until the next one comes, nor with a plugin that runs tests again."""
    hook = config.hook
    return _only(hook.pytest_runtestloop, _LOOP) and runs_once(config)


def runs_once(config: pytest.Config) -> bool:
    """Is a test run by pytest itself, so that it runs once?"""
    return _only(config.hook.pytest_runtest_protocol, _RUNNER)


def is_outermost(config: pytest.Config, plugin: object) -> bool:
    """Is a plugin's wrapper around those of all others? As long as none is registered after it."""
    return bool(config.hook.pytest_runtest_protocol.get_hookimpls()[-1].plugin is plugin)


def _only(caller: Any, module: str) -> bool:
    does = [impl for impl in caller.get_hookimpls() if not (impl.wrapper or impl.hookwrapper)]
    # One of ours looks on, and does nothing.
    others = [impl for impl in does if not impl.function.__module__.startswith("vestige.")]
    return [impl.function.__module__ for impl in others] == [module]
