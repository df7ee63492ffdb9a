"""Lists of the newest runs are read in windows of time, and equal those of the SQLite engine."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clickhouse import ClickHouseServer
from support.stored_runs import SECOND_NS, T0, make_run, run_id_of, span_id_of, writer_of
from vestige.record.types import AnyRecord, Link, SpanOpen
from vestige.store.clickhouse.client import Client, Rows
from vestige.store.clickhouse.read import run_list, spans
from vestige.store.open import open_store
from vestige.store.protocol import RunFilter, Store, Term

pytestmark = pytest.mark.slow

RUNS = 40


def make_process_run(number: int, of: int | None = None) -> list[AnyRecord]:
    """Return a run that was opened for a process, or for a part of process `of`."""
    links = [] if of is None else [Link(span_id_of(of, 1), run_id_of(of), "process")]
    root = SpanOpen(
        1,
        writer_of(number),
        1,
        T0 + number * SECOND_NS,
        run_id_of(number),
        span_id_of(number, 1),
        "agent",
        "run",
        "python",
        attributes={"implicit": of is None},
        links=links,
    )
    return [root]


def make_batches() -> Iterator[list[AnyRecord]]:
    """Yield records in an order of their own; roots of some runs arrive last, as the oldest."""
    chance = random.Random(29)
    order = list(range(1, RUNS + 1))
    chance.shuffle(order)
    late: list[AnyRecord] = []
    for number in order:
        if number % 5 == 0:
            yield make_process_run(number, None if number % 10 else max(1, number - 5))
            continue
        status = "error" if number % 7 == 0 else "ok"
        records = make_run(number, started_ns=T0 + number // 3 * SECOND_NS, status=status)
        if number % 4 == 0:
            late.append(records.pop(0))
        yield records
    yield late


@pytest.fixture
def stores(clickhouse_server: ClickHouseServer, tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    address = clickhouse_server.make_store()
    with open_store(tmp_path / "store.db") as expected, open_store(address) as store:
        for batch in make_batches():
            expected.append(batch)
            store.append(batch)
        yield expected, store
    clickhouse_server.release_store(address)


def test_lists_in_windows_are_those_of_the_other_engine(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, store = stores
    monkeypatch.setattr(run_list, "WINDOW_ROWS", 1)
    middle = T0 + RUNS // 6 * SECOND_NS
    filters = [
        RunFilter(failed=failed, with_implicit=everything, limit=limit, **options)
        for failed in (False, True)
        for everything in (False, True)
        for limit in (1, 3, 8)
        for options in ({}, {"before_ns": middle}, {"since_ns": middle}, {"after": "r20"})
    ]
    filters += [RunFilter(limit=2, terms=(Term("is", ":", "failed", negated=True),))]

    assert len(expected.list_runs(RunFilter())) < len(expected.run_ids())  # some are hidden
    for each in filters:
        assert store.list_runs(each) == expected.list_runs(each), each


def test_related_runs_are_those_of_the_other_engine(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, store = stores
    for at, run_id in enumerate(expected.run_ids()):
        monkeypatch.setattr(spans, "_RELATED", (1, 4, 100)[at % 3])
        if at % 2:
            assert store.find_previous_run(run_id) == expected.find_previous_run(run_id), run_id
            assert store.find_last_good_run(run_id) == expected.find_last_good_run(run_id), run_id


def test_facts_of_many_runs_are_those_of_the_other_engine(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = stores
    run_ids = [*reversed(expected.run_ids()), "no such run"]
    monkeypatch.setattr(spans, "_FACTS_PER_QUERY", 7)
    for spans_max in (1, 50):
        facts = [
            [
                (each.run_id, each.type, each.name, each.attributes)
                for each in engine.read_span_facts(run_ids, spans_max)
            ]
            for engine in stores
        ]
        assert facts[0] == facts[1]


def test_a_list_reads_few_runs(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_list, "WINDOW_ROWS", 4)
    statements: list[str] = []
    query = Client.query

    def record_query(client: Client, sql: str, *args: object, **options: object) -> Rows:
        statements.append(sql)
        return query(client, sql, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Client, "query", record_query)
    assert len(stores[1].list_runs(RunFilter(limit=2))) == 2

    sorting = [sql for sql in statements if "LIMIT 1 BY id" in sql]
    assert sorting and all("window_start" in sql or "judged" in sql for sql in sorting)
