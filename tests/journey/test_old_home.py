"""Homes, journals and bundles that an earlier version wrote (tests/data/old_home)."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from support.commands import vestige, vestige_json

SAMPLE = Path(__file__).parent.parent / "data" / "old_home" / "home.tar.xz"
SECRET = "correct-horse-9"


@pytest.fixture
def old_home(tmp_path: Path) -> Path:
    folder = tmp_path / "old"
    with tarfile.open(SAMPLE) as archive:
        archive.extractall(folder, filter="data")
    # The runs are older every day.
    (folder / "config.toml").write_text('retention_age = "36500d"\n')
    return folder


def test_the_store_and_the_journal_of_an_earlier_version_are_listed(old_home: Path) -> None:
    runs = vestige_json("list", "--home", str(old_home))["runs"]

    assert [run["name"] for run in runs] == [
        "killed agent",
        *("refund agent", "refund agent"),  # from the journal
        *("refund agent", "refund agent"),  # from the store
    ]
    assert [run["outcome"] for run in runs[1:]] == ["ok", "timeout", "ok", "timeout"]


def test_runs_of_an_earlier_version_are_shown_and_checked(old_home: Path) -> None:
    home = ("--home", str(old_home))
    assert vestige("list", *home).exit_code == 0  # reads the journal

    for run in ("r2", "r5"):
        shown = vestige("show", run, *home)
        assert shown.exit_code == 0, shown.output
        assert "lookup_order" in shown.stdout and "120 → 12 tokens" in shown.stdout
        assert SECRET not in shown.stdout
        checked = vestige("check", run, *home)
        assert checked.exit_code == 1, checked.output
        assert "crash/uncaught" in checked.stdout
        question = vestige("body", f"{run}.s2", "--in", *home)
        assert "Where is my refund?" in question.stdout
    for run in ("r3", "r6"):
        assert "a line of a long result" in vestige("body", f"{run}.s3", *home).stdout
    assert "damage" not in vestige("doctor", *home).output


def test_a_bundle_of_an_earlier_version_is_imported(old_home: Path, tmp_path: Path) -> None:
    bundle, home = str(old_home / "failed.wink"), str(tmp_path / "home")

    assert "lookup_order" in vestige("show", bundle).stdout
    imported = vestige("import", bundle, "--home", home)

    assert imported.exit_code == 0, imported.output
    (run,) = vestige_json("list", "--home", home)["runs"]
    assert (run["name"], run["outcome"]) == ("refund agent", "timeout")


def test_runs_are_added_to_a_home_of_an_earlier_version(old_home: Path) -> None:
    home = ("--home", str(old_home))
    again = vestige("import", str(old_home / "failed.wink"), *home)

    assert again.exit_code == 0, again.output
    assert len(vestige_json("list", *home)["runs"]) >= 5
