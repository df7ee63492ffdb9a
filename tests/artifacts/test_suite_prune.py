"""`vestige store prune --bundles` over a tree of suites."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from support.pytest_suites import vestige
from vestige.artifacts import SuiteRecorder

DAY = 86400


def _suite(root: Path, name: str, age_days: float) -> Path:
    with SuiteRecorder(root, name, environment={}) as suite, suite.case("ok") as case:
        case.passed()
    then = time.time() - age_days * DAY
    os.utime(suite.path / "bundle.json", (then, then))
    return suite.path


@pytest.fixture
def tree(tmp_path: Path) -> dict[str, Path]:
    """Two suites with bundles of several ages, and a folder that is none of ours."""
    root = tmp_path / "artifacts"
    paths = {
        "new": _suite(root, "unit", 1),
        "old": _suite(root, "unit", 20),
        "lonely": _suite(root, "e2e", 30),
        "root": root,
    }
    mine = root / "20250101_000000"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    return paths


def _left(tree: dict[str, Path]) -> set[str]:
    return {name for name, path in tree.items() if path.exists()} - {"root"}


@pytest.mark.slow
def test_bundles_of_suites_go_by_their_age(tree: dict[str, Path]) -> None:
    """As old as the end of the suite; an emptied suite's folder goes too, what is not a bundle
    stays.
    """
    root = tree["root"]
    dry = vestige(root.parent, "prune", "--bundles", str(root), "--max-age", "14d", "--dry-run")
    before = _left(tree)
    done = vestige(root.parent, "prune", "--bundles", str(root), "--max-age", "14d")
    (root / "20250101_000000/notes.txt").unlink()
    (root / "20250101_000000").rmdir()
    valid = vestige(root.parent, "validate", str(root))

    assert done.returncode == 0, done.stderr
    assert before == {"new", "old", "lonely"}
    assert _left(tree) == {"new"}
    assert dry.stdout.replace("would delete", "deleted") == done.stdout
    assert sorted(path.name for path in root.iterdir()) == ["unit"]
    assert valid.returncode == 0, valid.stdout


@pytest.mark.slow
def test_the_newest_stay_and_a_suite_that_runs_is_left_alone(tree: dict[str, Path]) -> None:
    """Its trace is locked: it is not a bundle yet, however many may stay."""
    root = tree["root"]
    with SuiteRecorder(root, "running", environment={}) as suite, suite.case("ok") as case:
        pruned = vestige(root.parent, "prune", "--bundles", str(root), "--keep", "2")
        left = _left(tree)
        none = vestige(root.parent, "prune", "--bundles", str(root), "--keep", "0")
        case.passed()

    assert (pruned.returncode, none.returncode) == (0, 0)
    assert left == {"new", "old"}
    assert _left(tree) == set()
    assert (suite.path / "bundle.json").is_file()
    assert (root / "20250101_000000/notes.txt").is_file()
