"""Names of the Agent Trajectory Interchange Format, versions 1.0 to 1.8."""

from __future__ import annotations

from typing import Final

FORMAT: Final = "atif"
SUFFIX: Final = ".atif.json"
VERSION_PREFIX: Final = "ATIF-v"
VERSIONS: Final = tuple(f"{VERSION_PREFIX}1.{minor}" for minor in range(9))
WRITTEN_VERSION: Final = "ATIF-v1.7"
"""The first version with embedded sub-agents. Later ones add audio."""

DEPTH_MAX: Final = 16
"""Sub-agents within sub-agents that are read."""

EXTRA: Final = "vestige"
"""Member of `extra` in exported trajectories."""
