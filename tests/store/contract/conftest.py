"""The engines over which the contract of a store is tested.

A new engine adds its class to ENGINES. Every test of this folder then runs over it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vestige.store.open import open_store
from vestige.store.protocol import Store


class SqliteEngine:
    """A store in a file of the test's folder."""

    def __init__(self, folder: Path) -> None:
        self.location = folder / "store.db"

    def open(self, **options: Any) -> Store:
        return open_store(self.location, **options)


ENGINES = {"sqlite": SqliteEngine}


@pytest.fixture(params=sorted(ENGINES))
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> SqliteEngine:
    return ENGINES[request.param](tmp_path)


@pytest.fixture
def store(engine: SqliteEngine) -> Iterator[Store]:
    """An empty store, open for writing."""
    with engine.open() as opened:
        yield opened
