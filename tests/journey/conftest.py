"""The engines on which a journey ends: a file, and a database of a ClickHouse server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.clickhouse import ClickHouseServer


@pytest.fixture(params=["sqlite", pytest.param("clickhouse", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of an engine, which the settings choose."""
    if request.param == "sqlite":
        yield "sqlite"
        return
    server: ClickHouseServer = request.getfixturevalue("clickhouse_server")
    address = server.make_store()
    monkeypatch.setenv("VESTIGE_STORE", address)
    yield "clickhouse"
    server.release_store(address)
