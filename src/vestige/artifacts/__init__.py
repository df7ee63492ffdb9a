"""Artifact bundles for test suites: write one while the suite runs, finish a killed one, run it
again.

    from vestige.artifacts import SuiteRecorder

    with SuiteRecorder("tests/artifacts", "checkout") as suite:
        with suite.case("pays by card") as case:
            case.check(2 + 2 == 4, "sums add up")

Elsewhere: the format and its rules in formats/artifacts; pytest in pytest_plugin/plugin.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vestige._runtime.import_hooks import lazy_exports
from vestige.errors import InvalidSuiteError

if TYPE_CHECKING:
    from vestige.artifacts.github_summary import write_step_summary
    from vestige.artifacts.recover_suite import Recovered, recover
    from vestige.artifacts.replay_command import Replay
    from vestige.artifacts.suite_recorder import Case, SuiteRecorder, SuiteWriter

__all__ = [
    "Case",
    "InvalidSuiteError",
    "Recovered",
    "Replay",
    "SuiteRecorder",
    "SuiteWriter",
    "recover",
    "write_step_summary",
]

# A test session needs the half of it, and all of it in a few milliseconds.
__getattr__ = lazy_exports(
    __name__,
    {
        "Case": "vestige.artifacts.suite_recorder",
        "Recovered": "vestige.artifacts.recover_suite",
        "Replay": "vestige.artifacts.replay_command",
        "SuiteRecorder": "vestige.artifacts.suite_recorder",
        "SuiteWriter": "vestige.artifacts.suite_recorder",
        "recover": "vestige.artifacts.recover_suite",
        "write_step_summary": "vestige.artifacts.github_summary",
    },
)
