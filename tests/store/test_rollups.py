"""Daily sums: quantiles within a bound, a bounded number of names, and no end to their life."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.store.histogram import bucket, bucket_upper_ns, quantile_ns
from vestige.store.sqlite.ingest import daily_rollups
from vestige.store.sqlite.ingest.daily_rollups import OTHER, Rollups
from vestige.store.sqlite.sqlite_store import SqliteStore

DAY_NS = 86_400 * 10**9


@pytest.fixture
def db(tmp_path: Path) -> sqlite3.Connection:
    SqliteStore.open(tmp_path / "store.db").close()
    return sqlite3.connect(tmp_path / "store.db")


def rows(db: sqlite3.Connection) -> list[tuple[object, ...]]:
    return db.execute(
        "SELECT day, component, type, name, model, count, errors, duration_ns, input_tokens,"
        " output_tokens, cache_read_tokens, cache_write_tokens FROM rollups"
    ).fetchall()


@given(st.integers(0, 2**62))
def test_a_bucket_holds_its_duration_within_a_quarter(duration_ns: int) -> None:
    """A quantile is the upper edge: never below the truth, at most 25 % above."""
    upper_ns = bucket_upper_ns(bucket(duration_ns))

    assert duration_ns <= upper_ns <= duration_ns * 1.25


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200), st.floats(0.01, 1))
def test_a_quantile_is_near_the_true_one(durations_ns: list[int], share: float) -> None:
    """Years later the median and p95 are still known, to within a bucket."""
    histogram: dict[int, int] = {}
    for duration_ns in durations_ns:
        number = bucket(duration_ns)
        histogram[number] = histogram.get(number, 0) + 1
    ordered = sorted(durations_ns)
    rank = next(n for n in range(1, len(ordered) + 1) if n >= share * len(ordered))
    truth_ns = ordered[rank - 1]

    found_ns = quantile_ns(histogram, share)

    assert found_ns is not None
    assert truth_ns <= found_ns <= truth_ns * 1.25


def test_no_durations_have_no_quantile() -> None:
    """Nothing is not zero."""
    assert quantile_ns({}, 0.5) is None


def test_batches_of_one_day_add_up_and_days_stay_apart(db: sqlite3.Connection) -> None:
    """A key has one row a day, whichever batches its spans came in."""
    tokens = {"model": "m1", "input_tokens": 10, "output_tokens": 3, "cache_read_tokens": 7}
    for batch in range(3):
        sums = Rollups()
        sums.add(5 * DAY_NS, "agent", "llm", "chat", "ok", 1000, tokens)
        sums.add(5 * DAY_NS + batch, "agent", "llm", "chat", "error", 2000, tokens)
        sums.add(6 * DAY_NS, "agent", "llm", "chat", "ok", 4000, tokens)
        sums.write(db)

    assert sorted(rows(db)) == [
        ("1970-01-06", "agent", "llm", "chat", "m1", 6, 3, 9000, 60, 18, 42, 0),
        ("1970-01-07", "agent", "llm", "chat", "m1", 3, 0, 12000, 30, 9, 21, 0),
    ]


def test_names_that_hold_ids_do_not_grow_the_table_without_end(
    db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the bound of a day, names fall into one row, and no count is lost."""
    monkeypatch.setattr(daily_rollups, "NAMES_MAX", 10)
    sums = Rollups()
    for number in range(50):
        sums.add(0, "agent", "tool", f"call-{number}", "ok", 5, {})
    sums.write(db)

    found = rows(db)

    assert len(found) == 11
    assert [row[5] for row in found if row[3] == OTHER] == [40]
    assert sum(row[5] for row in found) == 50  # type: ignore[misc]


def test_absurd_durations_are_bounded_and_do_not_stop_the_batch(db: sqlite3.Connection) -> None:
    """A sum beyond what the database can hold is cut, not an error for ever."""
    sums = Rollups()
    for _ in range(5):
        sums.add(0, "agent", "tool", "slow", "ok", 2**62, {})
    sums.write(db)

    assert [row[5:8] for row in rows(db)] == [(5, 0, 2**62)]


def test_token_counts_that_are_none_count_nothing(db: sqlite3.Connection) -> None:
    """Text, negative or absurd numbers stand where a count should: they add 0."""
    sums = Rollups()
    for value in ("12", -5, 2**60, 1.5, None, True, 4):
        sums.add(0, "a", "llm", "chat", "ok", 1, {"input_tokens": value, "output_tokens": value})
    sums.write(db)

    assert [row[8:10] for row in rows(db)] == [(4, 4)]
