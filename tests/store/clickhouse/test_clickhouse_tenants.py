"""A tenant as an attacker: hostile SQL and hostile keys show no row of another tenant."""

from __future__ import annotations

import re
from typing import Any

import pytest

from support.clickhouse import ClickHouseServer
from support.sampling import every_third
from support.stored_runs import make_run, run_id_of, span_id_of
from vestige.errors import NotFoundError, UsageError
from vestige.store.open import open_store
from vestige.store.protocol import RunFilter, SearchQuery, Store, Term

HOSTILE = [
    "' OR 1=1 --",
    "'} OR 1 {",
    "{tenant:String}",
    "\\' UNION ALL SELECT 1 --",
    "%",
    "é\0\n\t",
]


@pytest.fixture(scope="module")
def address(clickhouse_server: ClickHouseServer) -> Any:
    made = clickhouse_server.make_store()
    with open_store(made) as store:
        store.append(make_run(1, request='{"q": "secret of acme"}', name="secret"), tenant="acme")
        store.append(make_run(2))
    yield made
    clickhouse_server.release_store(made)


@pytest.fixture(scope="module")
def other(address: str) -> Any:
    """A store as another tenant sees it. It only reads, so all tests share it."""
    with open_store(address, readonly=True, tenant="default") as store:
        yield store


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM system.tables",
        "SELECT * FROM {db}.runs",
        "SELECT * FROM `{db}`.`runs`",
        "SELECT * FROM commits",
        "SELECT * FROM writers",
        "SELECT * FROM body_keys",
        "SELECT 1 WHERE 'a' IN {db}.facts",
        "SELECT 1 WHERE 'a' IN facts",
        "SELECT * FROM url('http://127.0.0.1:1/', 'CSV', 'a String')",
        "SELECT * FROM file('/etc/passwd', 'CSV', 'a String')",
        "SELECT * FROM merge('{db}', '.*')",
        "SELECT * FROM remote('127.0.0.1', '{db}', 'runs')",
        "SELECT file('/etc/passwd')",
        "SELECT dictGet('a', 'b', 1)",
        "SELECT joinGet('{db}.runs', 'run_id', 1)",
        "SELECT getSetting('max_threads')",
        "SELECT sleep(3)",
        "SELECT 1 SETTINGS readonly = 0",
        "SELECT 1 INTO OUTFILE '/tmp/x'",
        "SELECT 1 FORMAT JSON",
        "SELECT 1; DROP TABLE runs",
        "SELECT 1) UNION ALL SELECT * FROM ({db}.runs",
        "INSERT INTO runs VALUES (1)",
        "ALTER TABLE runs DELETE WHERE 1",
        "SHOW TABLES",
        "EXPLAIN SELECT 1",
        "SYSTEM SHUTDOWN",
        "WITH runs AS (SELECT * FROM {db}.runs) SELECT * FROM runs",
    ],
)
def test_sql_that_leaves_the_tables_of_the_tenant_is_refused(
    other: Store, address: str, sql: str
) -> None:
    database = address.rpartition("/")[2]

    with pytest.raises(UsageError, match=r"^sql: "):
        other.query(sql.replace("{db}", database), 0, 10)


@pytest.mark.parametrize("table", ["runs", "spans", "logs", "links", "notes", "findings", "bodies"])
def test_each_table_has_the_rows_of_the_tenant_only(other: Store, address: str, table: str) -> None:
    own = other.query(f"SELECT * FROM {table}", 0, 100)
    with open_store(address, readonly=True) as everything:
        every = everything.query(f"SELECT * FROM {table}", 0, 100)

    assert not any("secret" in str(row) or "acme" in str(row) for row in own.rows)
    assert len(own.rows) in (len(every.rows) // 2, 0)
    assert own.columns == every.columns


def test_a_query_can_join_and_shadow_the_tables(other: Store) -> None:
    sql = (
        "WITH tools AS (SELECT run, name FROM spans WHERE type = 'tool')"
        " SELECT r.run_id, t.name FROM runs r JOIN tools t ON t.run = r.id"
        " WHERE r.id IN (SELECT run FROM logs) ORDER BY r.id"
    )

    assert [list(row) for row in other.query(sql, 0, 9).rows] == [[run_id_of(2), "search"]]


@pytest.mark.parametrize("text", every_third([*HOSTILE, "secret", run_id_of(1), "r1", "acme"]))
def test_hostile_keys_find_no_row_of_another_tenant(other: Store, text: str) -> None:
    pattern = SearchQuery(re.compile(re.escape(text)), (text,), True, None, ("attrs", "bodies"))
    filters = [
        RunFilter(name=text),
        RunFilter(name_is=text),
        RunFilter(conversation_id=text),
        RunFilter(like=text),
        RunFilter(tenant_of=text),
        RunFilter(of_process=text),
        RunFilter(outcome=text),
        RunFilter(terms=(Term("tool", ":", text), Term("model", ":", text))),
        RunFilter(terms=(Term("text", ":", text, also=(run_id_of(1), text)),)),
        RunFilter(terms=(Term("note", ":", text), Term("check", ":", text))),
    ]
    for run_filter in filters:
        assert run_id_of(1) not in [run.id for run in other.list_runs(run_filter)]
    assert run_id_of(1) not in [run.id for run in other.find_runs(text)]
    assert run_id_of(1) not in [ref.run_id for ref in other.find_spans(text)]
    assert run_id_of(1) not in [ref.run_id for ref in other.find_attribute(text)]
    assert run_id_of(1) not in [hit.span_ref.run_id for hit in other.search(pattern).hits]
    assert not other.links_to(text, text) and not other.notes(text) and not other.has_seen(text, 1)
    assert run_id_of(1) not in other.conversations([text])
    assert other.find_previous_span(text, text, text) is None
    assert other.get_fact(text) is None  # type: ignore[attr-defined]
    if text != run_id_of(2):
        with pytest.raises(NotFoundError):
            other.load_run(text)


def test_ids_of_another_tenant_give_nothing(other: Store, address: str) -> None:
    with open_store(address, readonly=True) as everything:
        run = everything.load_run(run_id_of(1))
    bodies = [span.input.id for span in run.spans if span.input is not None]

    assert dict(other.read_bodies([each for each in bodies if each])) == {}
    assert other.read_run_inputs_outputs([run.info.id]) == {}
    assert list(other.read_span_facts([run.info.id], 10)) == []
    assert other.sum_model_calls([run.info.id]) == [] and other.sum_body_bytes(run.info.id) == 0
    assert other.count_tool_calls([run.info.id]) == {}
    assert not other.changes("0-0-0").spans or all(
        change.run_id != run.info.id for change in other.changes("0-0-0").spans
    )
    assert other.find_runs(span_id_of(1, 1)) == []
    assert {writer.tenant for writer in other.writers()} == {"default"}
