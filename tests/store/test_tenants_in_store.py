"""Tenants as the store keeps them: whose a run is, what is refused, what an older store becomes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from vestige.errors import ForeignRunError, NotFoundError, UsageError
from vestige.record.types import AnyRecord, Log, SpanClose, SpanOpen, Unknown
from vestige.store.protocol import Position, RetentionPolicy, RunFilter
from vestige.store.sqlite import schema
from vestige.store.sqlite.sqlite_store import SqliteStore

T0 = 1_763_229_905_000_000_000
DAY_NS = 86_400 * 10**9


def run_id(number: int) -> str:
    return f"3d1957bd-0000-4000-8000-{number:012x}"


def records(number: int, *, writer: int | None = None, body: str = "same text") -> list[AnyRecord]:
    """A small run of a writer of its own."""
    name = f"{writer if writer is not None else number:016x}"
    run, root, tool = run_id(number), f"{number:08x}00000001", f"{number:08x}00000002"
    return [
        SpanOpen(1, name, 1, T0, run, root, "agent", "run", "triage"),
        SpanOpen(1, name, 2, T0 + 1, run, tool, "agent", "tool", "t", root, body=body * 600),
        Log(1, name, 3, T0 + 2, run, "agent", "info", "hello", tool),
        SpanClose(1, name, 4, T0 + 3, run, tool, "ok", 5),
        SpanClose(1, name, 5, T0 + 4, run, root, "ok", 9),
    ]


def as_tenant(store: SqliteStore, tenant: str) -> SqliteStore:
    return SqliteStore.open(store.path, readonly=True, tenant=tenant)


def test_a_run_belongs_to_whoever_brought_it(store: SqliteStore) -> None:
    """Without a word about it, to the default tenant."""
    store.append(records(1))
    store.append(records(2), tenant="acme")
    seen = {}
    for tenant in ("default", "acme", "nobody"):
        with as_tenant(store, tenant) as reader:
            seen[tenant] = list(reader.run_ids())

    assert seen == {"default": [run_id(1)], "acme": [run_id(2)], "nobody": []}


@pytest.mark.parametrize("tenant", ["default", "other"])
def test_a_record_for_anothers_run_is_refused_and_nothing_of_its_batch_is_kept(
    store: SqliteStore, tenant: str
) -> None:
    """By name; also where good records stand before it, and the offset stays too."""
    store.append(records(1), tenant="acme")
    before = list(store._connection.iterdump())
    batch = [*records(2), *records(1, writer=7)]

    with pytest.raises(ForeignRunError, match=run_id(1)) as problem:
        store.append(batch, Position("w", 1, 10), tenant=tenant)

    assert problem.value.run_id == run_id(1)
    assert list(store._connection.iterdump()) == before


def test_nobody_can_use_up_the_numbers_of_anothers_writer(store: SqliteStore) -> None:
    """Else its own records would pass for known, and be lost."""
    store.append(records(1)[:2], tenant="acme")

    with pytest.raises(ForeignRunError):
        store.append(records(3, writer=1), tenant="other")
    with pytest.raises(ForeignRunError):
        store.append([Unknown("new", f"{1:016x}", 4, run_id(1), {})], tenant="other")
    store.append(records(1), tenant="acme")
    with as_tenant(store, "acme") as reader:
        (run,) = reader.list_runs(RunFilter())

    assert (run.outcome, run.span_count, run.log_count) == ("ok", 2, 1)


def test_a_tenants_name_is_plain(store: SqliteStore) -> None:
    """The name occurs in views and log lines."""
    for name in ("", "A", "a b", "a'", "../x", "x" * 65, "-a"):
        with pytest.raises(UsageError):
            store.append(records(1), tenant=name)
        with pytest.raises(UsageError):
            as_tenant(store, name)

    assert list(store.run_ids()) == []


def test_equal_bodies_of_two_tenants_are_two_bodies_and_one_text(store: SqliteStore) -> None:
    """Stored once, and known by different ids; also where one is the beginning of another."""
    for number, tenant in enumerate(("default", "a", "b"), 1):
        store.append(records(number), tenant=tenant)
    execute = store._connection.execute
    bodies = execute("SELECT id, tenant FROM bodies ORDER BY id").fetchall()
    (pieces,) = execute("SELECT count(*) FROM pieces").fetchone()

    assert [tenant for _, tenant in bodies] == [0, 1, 2]
    assert pieces == 1


def test_equal_short_bodies_of_two_tenants_have_ids_of_their_own(store: SqliteStore) -> None:
    """One row each, found again by its own tenant alone."""
    with store._transaction():
        text = b"a short text, and no tiny one" * 20
        ids = [store._bodies.put(text, 1, tenant=tenant) for tenant in (0, 2, 0, 2)]
    rows = store._connection.execute("SELECT tenant, id FROM bodies ORDER BY id").fetchall()

    assert ids == [rows[0][1], rows[1][1]] * 2
    assert [tenant for tenant, _ in rows] == [0, 2]


def test_a_body_that_is_the_beginning_of_another_is_its_tenants_too(store: SqliteStore) -> None:
    """Its node was there before it was a body."""
    message = '{"role":"user","content":"%s"}'
    one, two = (message % (letter * 300) for letter in "xy")
    long = f'{{"model":"m","messages":[{one},{two}]}}'
    with store._transaction():
        store._bodies.put(long.encode(), 1, tenant=2)
        first = store._connection.execute("SELECT min(id) FROM nodes").fetchone()[0]
        text = store._connection.execute(
            "SELECT end_bytes FROM nodes WHERE id = ?", (first,)
        ).fetchone()[0]
        again = store._bodies.put(long.encode()[:text], 2, tenant=2)
    rows = store._connection.execute("SELECT DISTINCT tenant FROM bodies").fetchall()

    assert rows == [(2,)]
    assert store.read_body(again) == long.encode()[:text]


def test_pruning_takes_a_tenants_bodies_and_leaves_anothers(store: SqliteStore) -> None:
    """The text goes with the last body that has it; sums stay, each with its tenant."""
    store.append(records(1), tenant="a")
    later = []
    for record in records(2):
        record.time_ns += 20 * DAY_NS  # type: ignore[union-attr]  # none of these is Unknown
        later.append(record)
    store.append(later, tenant="b")

    pruned = store.prune(RetentionPolicy(7 * 86_400, None), T0 + 21 * DAY_NS)
    with as_tenant(store, "b") as reader:
        (run,) = reader.list_runs(RunFilter())
        body = reader.load_run(run.id).spans[1].input
        assert body is not None and body.id is not None
        text = reader.read_body(body.id)
    sums = store._connection.execute("SELECT tenant, sum(count) FROM rollups GROUP BY 1").fetchall()

    assert (pruned.runs, pruned.bodies, pruned.freed_bytes) == (1, 1, 0)
    assert text == b"same text" * 600
    assert sums == [("a", 2), ("b", 2)]


def test_an_older_store_is_the_default_tenants(tmp_path: Path) -> None:
    """Runs, sums and bodies of before there were tenants."""
    path = tmp_path / "store.db"
    before = schema.STEPS.index(schema._TENANTS)
    connection = sqlite3.connect(path)
    for number in range(before):
        connection.executescript(f"{schema.STEPS[number]}\nPRAGMA user_version = {number + 1};")
    connection.execute(
        "INSERT INTO runs(run_id, name, started_ns, last_ns) VALUES (?, 'old', ?, ?)",
        (run_id(1), T0, T0),
    )
    connection.execute(
        "INSERT INTO rollups"
        " VALUES ('2025-11-15', 'agent', 'tool', 't', '', 3, 1, 9, '{\"4\":3}', 0, 0, 0, 0)"
    )
    connection.execute("INSERT INTO pieces VALUES (1, x'00', 1, 1, 0, 'x')")
    connection.execute("INSERT INTO nodes VALUES (1, 0, 1, 1)")
    connection.execute("INSERT INTO bodies VALUES (1, 1, 1, 1, NULL)")
    connection.commit()
    connection.close()

    with SqliteStore.open(path) as store:
        store.append(records(2))
        with as_tenant(store, "default") as reader:
            ids = set(reader.run_ids())
            sums = reader.query(
                "SELECT tenant, name, count FROM rollups WHERE name = 't'", 0, 9
            ).rows
            bodies = reader.query("SELECT count(*) FROM bodies", 0, 9).rows
        with as_tenant(store, "acme") as reader:
            nothing = [
                reader.query(f"SELECT count(*) FROM {table}", 0, 9).rows[0][0]
                for table in ("runs", "rollups", "bodies", "writers")
            ]

    assert ids == {run_id(1), run_id(2)}
    assert list(sums) == [("default", "t", 4)]  # three of before, and one of the same day
    assert bodies[0][0] == 2
    assert nothing == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("SELECT * FROM spans WHERE run = 1", "spans_run"),
        ("SELECT s.* FROM spans s JOIN runs r ON r.id = s.run WHERE r.run_id = 'x'", "spans_run"),
        ("SELECT * FROM spans WHERE run = 1 AND span_id = 'x'", "spans_id"),
        ("SELECT * FROM logs WHERE run = 1", "logs_run"),
        ("SELECT * FROM links WHERE target_span = 'x'", "links_target"),
        ("SELECT * FROM runs WHERE run_id = 'x'", "sqlite_autoindex_runs_1"),
        (
            "SELECT * FROM spans s JOIN runs r ON r.id = s.run"
            " WHERE r.run_id = 'x' AND s.span_id >= 'x' AND s.span_id < 'y'",
            "spans_id",
        ),
        (
            "SELECT * FROM runs WHERE tenant = 'acme' AND tenant <> 'default'"
            " ORDER BY started_ns DESC LIMIT 20",
            "runs_tenant",
        ),
    ],
)
def test_no_index_is_lost_behind_the_views(store: SqliteStore, query: str, index: str) -> None:
    """What concerns one run stays as quick as without tenants."""
    store.append(records(1), tenant="acme")
    with as_tenant(store, "acme") as reader:
        plan = reader._connection.execute(f"EXPLAIN QUERY PLAN {query}").fetchall()

    steps = " ".join(row[3] for row in plan)
    assert index in steps
    assert "SCAN" not in steps and "TEMP B-TREE" not in steps


def test_a_tenants_reader_leaves_no_file_and_writes_nothing(store: SqliteStore) -> None:
    """Its views are its connection's alone."""
    store.append(records(1), tenant="acme")
    before = list(store._connection.iterdump())
    files_before = {path.name for path in store.path.parent.iterdir()}
    with as_tenant(store, "acme") as reader:
        reader.query("SELECT * FROM spans", 0, 9)
        with pytest.raises(NotFoundError) as problem:
            reader.load_run(run_id(9))
        files = {path.name for path in store.path.parent.iterdir()}

    assert list(store._connection.iterdump()) == before
    assert files <= files_before | {"store.db-wal", "store.db-shm"}
    assert str(store.path) not in str(problem.value)
