"""The engines over which the contract of a store is tested.

A new engine adds its class to ENGINES and its name to the parameters of `engine`. Every test of
this folder then runs over it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.clickhouse import ClickHouseServer
from vestige.store.open import open_store
from vestige.store.protocol import Store


class SqliteEngine:
    """A store in a file of the test's folder."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.location = request.getfixturevalue("tmp_path") / "store.db"

    def open(self, **options: Any) -> Store:
        return open_store(self.location, **options)

    def close(self) -> None:
        pass


class ClickHouseEngine:
    """A store in a database of its own, on a server that all tests of this process share."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server: ClickHouseServer = request.getfixturevalue("clickhouse_server")
        self.location = self.server.make_store()

    def open(self, **options: Any) -> Store:
        return open_store(self.location, **options)

    def close(self) -> None:
        self.server.release_store(self.location)


ENGINES = {"clickhouse": ClickHouseEngine, "sqlite": SqliteEngine}


@pytest.fixture(params=[pytest.param("clickhouse", marks=pytest.mark.slow), "sqlite"])
def engine(request: pytest.FixtureRequest) -> Iterator[SqliteEngine | ClickHouseEngine]:
    made = ENGINES[request.param](request)
    yield made
    made.close()


@pytest.fixture
def store(engine: SqliteEngine | ClickHouseEngine) -> Iterator[Store]:
    """An empty store, open for writing."""
    with engine.open() as opened:
        yield opened
