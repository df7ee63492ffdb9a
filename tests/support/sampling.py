"""Parameters of which `make test` runs a sample, and `make test-full` all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def every_third(values: Sequence[Any]) -> list[Any]:
    """Mark two of three values `full`."""
    return [
        pytest.param(value, marks=pytest.mark.full) if index % 3 else value
        for index, value in enumerate(values)
    ]
