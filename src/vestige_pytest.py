"""The plugin that pytest loads in every session: options and a fixture, without Vestige.

    pytest --vestige-bundle=tests/artifacts

A module of its own, beside the package: importing anything inside the package imports the recorder.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

import pytest

PLUGIN = "vestige-bundle"
"""The name under which the real plugin is registered when it is on."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("vestige", "artifact bundles")
    group.addoption(
        "--vestige-bundle",
        metavar="DIR",
        help="Write an artifact bundle of this session to DIR/SUITE/TIMESTAMP.",
    )
    group.addoption(
        "--vestige-suite", metavar="NAME", help="The suite's name. Default: the root folder's."
    )
    parser.addini("vestige_bundle", "As --vestige-bundle; relative to the root folder.")
    parser.addini("vestige_suite", "As --vestige-suite.")
    parser.addini(
        "vestige_record",
        "Also record the session as a run in the home of vestige.",
        type="bool",
        default=True,
    )
    parser.addini(
        "vestige_wire",
        "In a session that is recorded, record what tests say to model providers.",
        type="bool",
        default=True,
    )
    parser.addini(
        "vestige_logs",
        "In a session that is recorded, record what tests log.",
        type="bool",
        default=True,
    )
    parser.addini(
        "vestige_repro_env", "More variables that a replay of the bundle needs.", type="args"
    )


def pytest_configure(config: pytest.Config) -> None:
    worker = getattr(config, "workerinput", None)
    on = (
        "vestige" in worker
        if worker is not None
        else config.getoption("vestige_bundle") or config.getini("vestige_bundle")
    )
    if on:
        config.pluginmanager.register(_load_plugin(config), PLUGIN)
        _warn_of_root(config)


def _warn_of_root(config: pytest.Config) -> None:
    """pytest takes an existing DIR of `--vestige-bundle DIR` for a place of tests when it looks for
    its root folder, as the value of any plugin's option that does not follow a `=`."""
    arguments, here = config.invocation_params.args, config.invocation_params.dir
    if "--vestige-bundle" not in arguments:
        return
    target = (here / str(config.getoption("vestige_bundle"))).resolve()
    if target.is_dir() and not target.is_relative_to(here) and here != config.rootpath:
        config.issue_config_time_warning(
            pytest.PytestConfigWarning(
                f"--vestige-bundle {target}: pytest chose {config.rootpath} as its root folder "
                f"because"
                " of it, and may read other settings. Write --vestige-bundle=DIR."
            ),
            stacklevel=2,
        )


def _load_plugin(config: pytest.Config) -> object:
    """All that is made while modules load stays: Python need not look for garbage in it
    (vestige/_runtime/gc_pause.py)."""
    sys.meta_path.insert(0, _AsTheyAre)
    config.add_cleanup(_AsTheyAre.leave)
    was_on = gc.isenabled()
    gc.disable()
    try:
        from vestige.pytest_plugin.plugin import BundlePlugin
    finally:
        if was_on:
            gc.enable()
    return BundlePlugin(config)


class _AsTheyAre:
    """Finds our modules before pytest does. It would rewrite the assertions of all that is
    installed with a plugin, and ask of everything else whether it has tests."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        ours = name.partition(".")[0] == "vestige"
        return PathFinder.find_spec(name, path, target) if ours else None

    @classmethod
    def leave(cls) -> None:
        if cls in sys.meta_path:  # a session inside another session may have removed it
            sys.meta_path.remove(cls)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Bundles are no place to look for tests: in time there are hundreds, and what is attached to
    one may look like a test itself. Also when we are off: those of earlier sessions are there."""
    day, _, time = collection_path.name.partition("_")
    if not (len(day) == 8 and len(time) == 6 and day.isdecimal() and time.isdecimal()):
        return None
    return True if (collection_path / "trace" / "events.jsonl").is_file() else None


@pytest.fixture
def vestige_attach(request: pytest.FixtureRequest) -> Callable[..., str | None]:
    """`vestige_attach(path)` or `vestige_attach(content, "name.txt")`: a file for this case.

    Copied into the bundle; its path there. Without a bundle it does nothing.
    """
    plugin: Any = request.config.pluginmanager.get_plugin(PLUGIN)
    if plugin is None:
        return lambda *_, **__: None
    attach: Callable[..., str | None] = plugin.attach
    return attach
