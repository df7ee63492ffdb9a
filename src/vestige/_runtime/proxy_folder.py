"""The folder of a run's recording proxy, by which processes of the run find it."""

from __future__ import annotations

import os
from collections.abc import Mapping

FOLDER_VARIABLE = "VESTIGE_PROXY_FOLDER"
"""The folder of the proxy, or MISSING."""
MISSING = "missing"
VARIABLES = "variables.json"
"""The file of the variables that lead a program to the proxy. It exists while the proxy runs."""


def is_running(env: Mapping[str, str]) -> bool:
    """Return whether programs that are not Python are recorded by a proxy."""
    folder = env.get(FOLDER_VARIABLE)
    if not folder or folder == MISSING:
        return False
    return os.path.exists(os.path.join(folder, VARIABLES))
