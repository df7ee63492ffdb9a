"""Artifact bundles: the evidence that a test suite leaves, as a directory that a machine can trust.

A bundle is `<root>/<suite>/<timestamp>/` with a `bundle.json` that lists every file and its hash.
A suite is a run here, a case a span of type `test` in it; what a killed suite left reads as
an interrupted run.

Elsewhere: the rules in rules.py; the layout in layout.py; the typed files in types.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.formats.artifacts import places
from vestige.formats.artifacts.rules import PROFILES, Profile

if TYPE_CHECKING:
    from vestige.formats.base import Checked, Problem

__all__ = ["PROFILES", "check", "check_profile", "sniff"]


def sniff(path: Path) -> bool:
    """A bundle, a folder of them, a zip with one in it. Never raises."""
    try:
        return places.sniff_directory(path) if path.is_dir() else places.sniff_file(path)
    except (OSError, ValueError):
        return False


def check(path: Path) -> Sequence[Problem]:
    """All that is wrong, by the profile `seed`."""
    return [problem for checked in check_profile(path, "seed") for problem in checked.problems]


def check_profile(path: Path, profile: Profile) -> Iterator[Checked]:
    """Bundle by bundle, by the rules of a profile."""
    from vestige.formats.artifacts.validate import check_path

    return check_path(path, profile)
