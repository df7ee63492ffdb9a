"""One entry of the bug catalogue: how it is planted, and what must be found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vestige.home import Home


@dataclass(frozen=True)
class Planted:
    """Where it is: the span to blame, and others that the evidence must name."""

    cause: str
    others: Sequence[str] = ()


@dataclass(frozen=True)
class Bug:
    """A program that runs for real, with its bug or without, and records into a home."""

    name: str
    """As the catalogue of bugs calls it."""
    how: str
    kind: str
    """Of the finding."""
    plant: Callable[[Home, bool], Planted]
    run: str = "agent"
    """The name of the run that it records."""
    evidence_min: int = 1
    severities: Sequence[str] = ("error",)
    basis: str = "measured"
