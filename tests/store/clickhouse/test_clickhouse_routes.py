"""Every GET route of a server whose store is on ClickHouse, about runs of two tenants."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from support.clickhouse import ClickHouseServer
from support.ship_server import Serving
from support.stored_runs import SECOND_NS, make_run, run_id_of
from vestige.store.open import open_store

pytestmark = pytest.mark.full

VALUES = {
    "id": "r2",
    "a": "r1",
    "b": "r2",
    "run": "r2",
    "component": "agent",
    "pattern": "order",
    "query": "SELECT * FROM spans",
}
"""Values of parameters. The others are optional."""
OF_RUNS = ("id", "a", "b", "run")
SECRET = "secret of beta"


@pytest.fixture
def server(
    clickhouse_server: ClickHouseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Serving]:
    address = clickhouse_server.make_store()
    monkeypatch.setenv("VESTIGE_STORE", address)
    recent = time.time_ns() - 60 * SECOND_NS
    with open_store(address) as store:
        for number, status in ((1, "ok"), (2, "error")):
            records = make_run(number, status=status, conversation_id="c", started_ns=recent)
            store.append(records, tenant="acme")
        records = make_run(3, name=SECRET, request=SECRET, answer=SECRET, started_ns=recent)
        store.append(records, tenant="beta")
    serving = Serving(tmp_path / "server")
    serving.start()
    yield serving
    serving.stop()
    clickhouse_server.release_store(address)


def get(server: Serving, key: str, path: str) -> tuple[int, str]:
    request = Request(server.url + path, headers={"Authorization": f"Bearer {key}"})
    try:
        with urlopen(request, timeout=60) as reply:
            return reply.status, reply.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_every_route_answers_and_shows_no_run_of_another_tenant(server: Serving) -> None:
    key = server.key("acme")
    document = json.loads(get(server, key, "/v1/openapi.json")[1])
    refused, found = 0, set()
    for path, operations in document["paths"].items():
        if not path.startswith("/api/v1/") or "get" not in operations or path.endswith("/live"):
            continue
        parameters = [each["name"] for each in operations["get"].get("parameters", [])]
        values = {name: VALUES[name] for name in parameters if name in VALUES}
        code, text = get(server, key, f"{path}?{urlencode(values)}")
        assert code in (200, 400, 404), (path, text)
        assert SECRET not in text and run_id_of(3) not in text, path
        if code == 200:
            found.add(path.removeprefix("/api/v1/"))
        for name in set(OF_RUNS) & values.keys():
            for run in ("r3", run_id_of(3)):
                code, text = get(server, key, f"{path}?{urlencode(values | {name: run})}")
                assert (code, SECRET in text) == (404, False), (path, text)
                refused += 1

    assert refused > 30
    assert found >= {"list", "show", "transcript", "why", "check", "diff", "grep", "sql", "trends"}
