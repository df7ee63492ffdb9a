"""The commands and the server of a home whose store is on ClickHouse."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from support.clickhouse import ClickHouseServer
from support.stored_runs import make_run, run_id_of
from vestige.cli.main import cli
from vestige.fleet.segments.segment_storage import DirectoryStorage, make_key
from vestige.fleet.server.receive import Receiver
from vestige.home import Home
from vestige.server.routes import metrics
from vestige.server.server_state import Server
from vestige.store.clickhouse.address import parse_address
from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.row_policies import render_grants
from vestige.store.open import open_store, read_change_marker
from vestige.store.protocol import SearchQuery

pytestmark = pytest.mark.full


@pytest.fixture
def address(
    clickhouse_server: ClickHouseServer, home: Home, monkeypatch: pytest.MonkeyPatch
) -> Any:
    home.make()
    made = clickhouse_server.make_store()
    monkeypatch.setenv("VESTIGE_STORE", made)
    yield made
    clickhouse_server.release_store(made)


def call(*arguments: str) -> Any:
    return CliRunner().invoke(cli, list(arguments), catch_exceptions=False)


def test_commands_read_the_runs_of_the_server(address: str, home: Home) -> None:
    with open_store(address) as store:
        store.append(make_run(1))
        store.append(make_run(2, status="error", answer="no order 7 here"))

    listed = json.loads(call("list", "--json").output)
    assert [run["id"] for run in listed["runs"]] == [run_id_of(2), run_id_of(1)]
    expected = {
        ("show", "r2"): "triage: error",
        ("transcript", "r2"): "no order 7 here",
        ("stats", "--by", "tool"): "search",
        ("grep", "no order"): "r2",
        ("sql", "SELECT count() AS n FROM spans"): "6",
        ("schema", "spans"): "LowCardinality",
        ("doctor",): address,
        ("note", "r2", "look here"): "r2",
        ("pin", "r2"): "pinned",
        ("check", "r2"): "r2",
        ("diff", "r1", "r2"): "r2",
        ("store", "status", "--store", address): "26.",
    }
    for arguments, text in expected.items():
        assert text in call(*arguments).output, arguments
    assert not home.store.exists()


def test_a_server_receives_records_and_ends_of_writers(address: str, home: Home) -> None:
    before = read_change_marker(address)
    with Receiver(home) as receiver, receiver.transaction():
        pass  # nothing arrives: no commit
    with open_store(address) as store:
        assert store.append_remote(make_run(1, ended=False)) == (6, 0)

    assert before == b"0"
    with open_store(address, readonly=True, tenant="default") as reader:
        assert reader.run_ids() == [run_id_of(1)]


def test_the_text_of_a_streamed_answer_is_found(address: str) -> None:
    """The words of an answer are spread over the events of its stream."""
    events = [
        {"choices": [{"index": 0, "delta": {"content": text}}]} for text in ("It is on", " its way")
    ]
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    with open_store(address) as store:
        store.append(make_run(1, answer=stream))
        query = SearchQuery(re.compile("on its way"), ("on its way",), False, None, ("bodies",))
        hits = store.search(query).hits

    assert [(hit.part, hit.match, hit.start_byte) for hit in hits] == [
        ("output", "on its way", None)
    ]


def test_the_marker_of_a_store_changes_with_its_commits(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vestige.store.clickhouse.change_detector._INTERVAL_S", 0.0)
    with open_store(address) as store:
        store.append(make_run(1))
        first, again = read_change_marker(address), read_change_marker(address)
        store.append(make_run(2))

    assert first == again == b"1" and read_change_marker(address) == b"2"
    assert read_change_marker("clickhouse://127.0.0.1:1/team") == b"none"


def test_prices_of_the_home_apply_to_runs_on_the_server(address: str, home: Home) -> None:
    with open_store(address) as store:
        store.append(make_run(1))  # 120 input and 30 output tokens of the model m-1
    before = json.loads(call("stats", "--by", "model", "--json").output)
    home.config.write_text('[prices."m-1"]\ninput = 1000.0\noutput = 10000.0\n')
    after = json.loads(call("stats", "--by", "model", "--json").output)
    listed = json.loads(call("list", "cost>0.4", "--json").output)

    assert "0.42" not in json.dumps(before)
    assert "0.42" in json.dumps(after)
    assert [run["id"] for run in listed["runs"]] == [run_id_of(1)]


def test_metrics_show_the_state_of_the_engine_and_of_the_segments(
    address: str, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VESTIGE_SEGMENTS", str(tmp_path / "segments"))
    storage = DirectoryStorage(tmp_path / "segments")
    storage.put(make_key("0" * 16, 1), b"12345")
    with open_store(address) as store:
        store.append(make_run(1))
    server = Server(home)
    gauges = {name: value for name, (value, _) in metrics._read_gauges(server).items()}

    assert gauges["vestige_engine_commits"] == 1
    assert 0 <= gauges["vestige_engine_commit_age_seconds"] < 3600
    assert gauges["vestige_engine_parts"] >= 5 and gauges["vestige_engine_problems"] == 0
    assert gauges["vestige_engine_bytes"] > 0 and gauges["vestige_engine_disk_free_bytes"] > 0
    assert gauges["vestige_segments_waiting"] == 1
    assert gauges["vestige_segments_waiting_bytes"] == 5
    assert gauges["vestige_segments_rejected"] == 0
    assert gauges["vestige_segments_lag_seconds"] >= 0
    assert gauges["vestige_store_runs"] == 1


def test_the_server_parses_the_statements_of_row_policies(address: str) -> None:
    client = Client.connect(parse_address(address))
    for statement in render_grants(client.address, "acme", "grafana"):
        assert client.value("SELECT formatQuery({text:String})", text=statement)
    client.close()
    result = CliRunner().invoke(cli, ["store", "grant", "acme", "grafana"])
    # This engine has no users: the statement arrives, and the answer is an error with its reason.
    assert result.exit_code == 3 and "Not enough privileges" in result.output
