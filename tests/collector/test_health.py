"""What `doctor` says about the home's own files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vestige.collector.health import examine
from vestige.home import Home
from vestige.store.sqlite.sqlite_store import SqliteStore


def _problems(home: Home, tenant: str | None = None) -> list[str]:
    with SqliteStore.open(home.store, readonly=True, tenant=tenant) as store:
        return [text for text in examine(home, store).problems if "scanner" not in text]


@pytest.fixture
def made(home: Home) -> Home:
    home.make()
    SqliteStore.open(home.store).close()
    return home


def test_a_home_of_its_owner_is_fine(made: Home) -> None:
    assert _problems(made) == []


def test_a_home_that_others_may_write_is_told(made: Home) -> None:
    made.root.chmod(0o777)
    (problem,) = _problems(made)
    assert "mode 0777" in problem and "chmod go-w" in problem
    assert _problems(made, "other") == []  # not a tenant's business


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_a_home_of_another_user_is_told(made: Home) -> None:
    os.chown(made.root, 65534, 65534)
    (problem,) = _problems(made)
    assert "belongs to user 65534" in problem


def test_a_journal_that_is_a_link_is_told(made: Home, tmp_path: Path) -> None:
    made.journal.rmdir()
    made.journal.symlink_to(tmp_path)
    (problem,) = _problems(made)
    assert "journal is a link to" in problem
