"""What goes when a store is full or old, what stays, and that the space really comes back."""

from __future__ import annotations

import random
from typing import Any

import pytest

from vestige.errors import NotFoundError
from vestige.record.types import AnyRecord, Log, SpanClose, SpanOpen, Unknown
from vestige.store.protocol import PruneResult, RetentionPolicy, RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore

DAY_NS = 86_400 * 10**9
NOW_NS = 1_000 * DAY_NS
WEEK = RetentionPolicy(7 * 86_400, None)
WRITER = "5f0c9a1e77b2c4d0"


def noise(seed: int, size_bytes: int = 20_000) -> str:
    """Text that compresses little, so that sizes mean something."""
    return random.Random(seed).randbytes(size_bytes // 2).hex()


def run_id(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def add_run(
    store: SqliteStore, number: int, *, days_ago: float, body: str = "", ended: bool = True
) -> None:
    """One run with a root, an llm span that carries `body`, and a log line."""
    at_ns, seq = NOW_NS - int(days_ago * DAY_NS), number * 10
    run, root, chat = run_id(number), f"root{number}", f"chat{number}"
    records: list[AnyRecord] = [
        SpanOpen(1, WRITER, seq, at_ns, run, root, "agent", "run", f"run {number}"),
        SpanOpen(1, WRITER, seq + 1, at_ns, run, chat, "agent", "llm", "chat", root, body=body),
        Log(1, WRITER, seq + 2, at_ns, run, "agent", "info", "said", chat),
        SpanClose(1, WRITER, seq + 3, at_ns, run, chat, "ok", 10, {"input_tokens": 7}),
    ]
    if ended:
        records.append(SpanClose(1, WRITER, seq + 4, at_ns, run, root, "ok", 20))
    store.append(records)


def kept_runs(store: SqliteStore) -> set[str]:
    return {run.name for run in store.list_runs(RunFilter(with_implicit=True))}


def input_of(store: SqliteStore, number: int) -> bytes:
    (body,) = [span.input for span in store.load_run(run_id(number)).spans if span.input]
    assert body.id is not None
    return store.read_body(body.id)


def everything(store: SqliteStore) -> dict[str, list[Any]]:
    tables = store._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {
        name: store._connection.execute(f"SELECT * FROM {name}").fetchall() for (name,) in tables
    }


def test_runs_older_than_the_bound_go_with_all_their_rows(store: SqliteStore) -> None:
    """By age, a run goes as a whole: spans, lines, bodies. A younger one is untouched."""
    add_run(store, 1, days_ago=8, body=noise(1))
    add_run(store, 2, days_ago=6, body=noise(2))

    pruned = store.prune(WEEK, NOW_NS)

    assert (pruned.runs, pruned.spans, pruned.bodies) == (1, 2, 1)
    assert kept_runs(store) == {"run 2"}
    assert input_of(store, 2) == noise(2).encode()
    assert {name: getattr(store.sizes(), name) for name in ("runs", "spans", "logs", "bodies")} == {
        "runs": 1,
        "spans": 2,
        "logs": 1,
        "bodies": 1,
    }


def test_age_counts_from_the_last_record_not_the_first(store: SqliteStore) -> None:
    """A run that began long ago and spoke yesterday is not old."""
    add_run(store, 1, days_ago=30)
    store.append([Log(1, WRITER, 99, NOW_NS - DAY_NS, run_id(1), "agent", "info", "still here")])

    assert store.prune(WEEK, NOW_NS).runs == 0


def test_pinned_and_running_runs_stay_whatever_their_age(store: SqliteStore) -> None:
    """Pinned runs and running runs are not pruned."""
    add_run(store, 1, days_ago=100, body=noise(1))
    add_run(store, 2, days_ago=100, body=noise(2), ended=False)
    add_run(store, 3, days_ago=100, body=noise(3))
    store.pin(run_id(1))

    store.prune(RetentionPolicy(7 * 86_400, 0), NOW_NS)

    assert kept_runs(store) == {"run 1", "run 2"}
    assert input_of(store, 1) == noise(1).encode()
    assert input_of(store, 2) == noise(2).encode()


def test_an_unpinned_run_can_go_again(store: SqliteStore) -> None:
    """A pin can be removed."""
    add_run(store, 1, days_ago=100)
    store.pin(run_id(1))
    store.pin(run_id(1), False)

    assert store.prune(WEEK, NOW_NS).runs == 1


def test_bodies_go_by_their_last_reference(store: SqliteStore) -> None:
    """The prompt that every run resends was first seen long ago: it is the hottest, and stays."""
    hot, cold = noise(1), noise(2)
    add_run(store, 1, days_ago=5, body=hot)
    add_run(store, 2, days_ago=4, body=cold)
    add_run(store, 3, days_ago=1, body=hot)

    pruned = store.prune(RetentionPolicy(None, 15_000), NOW_NS)

    assert (pruned.runs, pruned.bodies) == (0, 1)
    assert input_of(store, 1) == input_of(store, 3) == hot.encode()
    with pytest.raises(NotFoundError, match="evicted by retention"):
        input_of(store, 2)


def test_a_body_that_a_pinned_run_shares_is_kept(store: SqliteStore) -> None:
    """A pin covers all that the run refers to, though others refer to it as well."""
    add_run(store, 1, days_ago=5, body=noise(1))
    add_run(store, 2, days_ago=4, body=noise(2))
    store.pin(run_id(1))

    store.prune(RetentionPolicy(None, 0), NOW_NS)

    assert input_of(store, 1) == noise(1).encode()
    with pytest.raises(NotFoundError):
        input_of(store, 2)


def test_an_evicted_body_says_so_and_leaves_the_size_in_the_skeleton(store: SqliteStore) -> None:
    """Nobody mistakes a body that retention took for one that never was."""
    add_run(store, 1, days_ago=1, body=noise(1))
    store.prune(RetentionPolicy(None, 0), NOW_NS)

    (body,) = [span.input for span in store.load_run(run_id(1)).spans if span.input]

    assert body.size_bytes == len(noise(1))
    with pytest.raises(NotFoundError, match=rf"{len(noise(1))} bytes.*Pin a run"):
        store.read_body(body.id or 0)


@pytest.mark.parametrize(
    "policy", [WEEK, RetentionPolicy(None, 25_000), RetentionPolicy(86_400, 0)]
)
def test_a_dry_run_changes_nothing_and_predicts_exactly(
    store: SqliteStore, policy: RetentionPolicy
) -> None:
    """Its numbers are those of the real pass that follows."""
    for number in range(1, 9):
        add_run(store, number, days_ago=number * 2, body=noise(number % 5))
    store.pin(run_id(6))
    before = everything(store)

    predicted = store.prune(policy, NOW_NS, dry_run=True)

    assert predicted != PruneResult(0, 0, 0, 0)
    assert everything(store) == before
    assert store.prune(policy, NOW_NS) == predicted
    assert store.prune(policy, NOW_NS) == PruneResult(0, 0, 0, 0)


def test_daily_sums_outlive_what_they_were_made_of(store: SqliteStore) -> None:
    """Pruning takes evidence, not history."""
    for number in range(1, 4):
        add_run(store, number, days_ago=50 + number)
    before = everything(store)["rollups"]

    store.prune(WEEK, NOW_NS)

    assert kept_runs(store) == set()
    assert everything(store)["rollups"] == before
    assert sum(row[6] for row in before) == 6


def test_pruned_space_is_given_back_to_the_disk(store: SqliteStore) -> None:
    """The file itself shrinks; free pages inside it would help nobody."""
    for number in range(1, 31):
        add_run(store, number, days_ago=20, body=noise(number, 100_000))
    add_run(store, 31, days_ago=1, body=noise(31, 100_000))
    store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    before = store.path.stat().st_size

    pruned = store.prune(WEEK, NOW_NS)
    after = store.path.stat().st_size

    assert pruned.runs == 30
    assert after < before / 5
    assert before - after > pruned.freed_bytes * 0.8
    assert input_of(store, 31) == noise(31, 100_000).encode()


def test_a_writer_whose_runs_are_gone_is_forgotten_once_it_ended(store: SqliteStore) -> None:
    """The list of writers does not grow for ever; one that may still speak is kept."""
    add_run(store, 1, days_ago=50)
    store.prune(WEEK, NOW_NS)
    alive = [writer.writer for writer in store.writers()]
    add_run(store, 2, days_ago=50)
    store.end_writer(WRITER, "exited")

    store.prune(WEEK, NOW_NS)

    assert alive == [WRITER]
    assert store.writers() == []


def test_a_run_of_which_nobody_can_say_that_it_ended_goes_when_it_is_old(
    store: SqliteStore,
) -> None:
    """Its root span never arrived, or its writer has ended, so it is not running.

    It is pruned by age, and its bodies by size.
    """
    at_ns, elsewhere, source = NOW_NS - 8 * DAY_NS, "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"
    store.append(
        [
            Log(1, elsewhere, 1, at_ns, run_id(1), "agent", "info", "said", body=noise(1)),
            SpanOpen(
                1, source, 1, at_ns, run_id(2), "root2", "agent", "run", "run 2", body=noise(2)
            ),
        ]
    )
    store.end_writer(source, "imported")
    add_run(store, 3, days_ago=8, body=noise(3), ended=False)

    evicted = store.prune(RetentionPolicy(None, 0), NOW_NS, dry_run=True)
    pruned = store.prune(WEEK, NOW_NS)

    assert (evicted.bodies, pruned.runs) == (2, 2)
    assert kept_runs(store) == {"run 3"}


def test_what_was_not_understood_goes_with_its_run(store: SqliteStore) -> None:
    """Records of unknown kinds and rows of remote writers are deleted, too."""
    add_run(store, 1, days_ago=8)
    add_run(store, 2, days_ago=6)
    kinds = [(1, run_id(1), WRITER), (2, run_id(2), WRITER), (1, None, "aaaaaaaaaaaaaaaa")]
    for seq, run, writer in kinds:
        fields = {"kind": "mood", "writer": writer, "seq": seq, "run_id": run}
        store.append_remote([Unknown("mood", writer, seq, run, fields)], [(writer, "it fell")])
    store.end_writer("aaaaaaaaaaaaaaaa", "interrupted")

    store.prune(WEEK, NOW_NS)

    rows = everything(store)
    assert [row[:3] for row in rows["unknown"]] == [(WRITER, 2, run_id(2))]
    assert rows["remote_writers"] == []


@pytest.mark.parametrize("age_s", [10.0**10, 10.0**15])
def test_an_age_as_good_as_for_ever_keeps_all(store: SqliteStore, age_s: float) -> None:
    """More than a number of the database: else a collector would end at its first pass."""
    add_run(store, 1, days_ago=900)

    assert store.prune(RetentionPolicy(age_s, None), NOW_NS).runs == 0
    assert len(store.list_runs(RunFilter(limit=10**30))) == 1


def test_a_live_view_misses_nothing_when_the_newest_rows_were_pruned(store: SqliteStore) -> None:
    """Ids are places for who follows the store: those of pruned rows are not given again."""
    add_run(store, 1, days_ago=6)
    add_run(store, 2, days_ago=8)
    cursor = store.cursor()
    store.prune(WEEK, NOW_NS)
    quiet = store.changes(cursor)
    add_run(store, 3, days_ago=1)
    seen = store.changes(quiet.cursor)

    assert (quiet.lost, list(quiet.spans), list(quiet.logs)) == (False, [], [])
    assert not seen.lost
    assert [(span.run_id, span.type) for span in seen.spans] == [
        (run_id(3), "run"),
        (run_id(3), "llm"),
    ]
    assert [log.run_id for log in seen.logs] == [run_id(3)]


def test_a_store_that_was_pruned_empty_goes_on_counting(store: SqliteStore) -> None:
    """Nor are they when a prune left no row at all, and the next one found none."""
    add_run(store, 1, days_ago=8)
    cursor = store.cursor()
    store.prune(WEEK, NOW_NS)
    store.prune(WEEK, NOW_NS)
    add_run(store, 2, days_ago=1)

    seen = store.changes(cursor)

    assert (seen.lost, len(seen.spans), len(seen.logs)) == (False, 2, 1)
