"""Artifact bundles for test suites: write one while the suite runs, finish a killed one, run it again.

    from vestige.artifacts import SuiteRecorder

    with SuiteRecorder("tests/artifacts", "checkout") as suite:
        with suite.case("pays by card") as case:
            case.check(2 + 2 == 4, "sums add up")

Elsewhere: the format and its rules in formats/artifacts; pytest in doors/pytest_plugin.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vestige.errors import InvalidSuiteError
from vestige.lazy import names_in

if TYPE_CHECKING:
    from vestige.artifacts.github import write_step_summary
    from vestige.artifacts.recovering import Recovered, recover
    from vestige.artifacts.replaying import Replay
    from vestige.artifacts.suite import Case, SuiteRecorder, SuiteWriter

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
__getattr__ = names_in(
    __name__,
    {
        "Case": "vestige.artifacts.suite",
        "Recovered": "vestige.artifacts.recovering",
        "Replay": "vestige.artifacts.replaying",
        "SuiteRecorder": "vestige.artifacts.suite",
        "SuiteWriter": "vestige.artifacts.suite",
        "recover": "vestige.artifacts.recovering",
        "write_step_summary": "vestige.artifacts.github",
    },
)
