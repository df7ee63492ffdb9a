"""Commit rows to a store: all of them, or none, however many servers write at once.

1. A row in `attempts` announces the attempt to make commit n.
2. If n is still the next commit, the rows are inserted with the numbers of commit and attempt.
3. A row in `commits` makes them visible. Its deduplication token is n, so the server stores one
   such row only: the attempt whose row it is has made the commit.

A process that is killed leaves rows of an attempt without a commit, which are never read: the next
commit lists the attempt as dead. If another server was first, CommitConflictError is raised, and
the caller repeats its work on the new state.

The one hard fact: step 2 needs the second look. An attempt is registered before its commit can
exist, so a reader of a commit and then of its attempts
knows all that failed.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from vestige._runtime import clock
from vestige.errors import StoreError
from vestige.store.clickhouse import schema
from vestige.store.clickhouse.address import Address
from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.read_snapshot import COUNTERS, View

ROWS_PER_INSERT: Final = 100_000
"""Rows of one block, which bounds the memory of an insert."""

Batch = Mapping[str, Sequence[Sequence[Any]]]
"""Rows by table, without the columns of their version."""

_COMMIT_READS: Final = 5
"""The number of attempts to read the result of a commit if the network fails."""


_commits: Final[Counter[Address]] = Counter()
"""The number of commits that this process attempted or noticed, by address."""


def count_commits(address: Address) -> int:
    """Return a number that changes with each commit of this process."""
    return _commits[address]


def notice_commit(address: Address) -> None:
    """Let readers of this process read the state again: another process has committed."""
    _commits[address] += 1


class CommitConflictError(Exception):
    """Another process has made this commit. The caller repeats its work on the new state."""


def make_attempt() -> int:
    """Return the random number of a new attempt."""
    return int.from_bytes(clock.random_bytes(8), "big") >> 1


def commit(
    client: Client,
    view: View,
    batch: Batch,
    counters: Mapping[str, int],
    attempt: int,
    base: int = 0,
) -> None:
    """Commit rows on top of a state. `base`: the rollups that are read from now on."""
    number = view.number + 1
    now = datetime.datetime.fromtimestamp(clock.SYSTEM.now_ns() / 1e9, datetime.UTC)
    attempts = schema.column_types("attempts")
    client.insert("attempts", attempts, [(number, attempt, now)])
    if client.value("SELECT max(number) FROM commits") != view.number:
        raise CommitConflictError
    for table, rows in batch.items():
        columns = schema.column_types(table)
        # Rows have their own value of `deleted`; the version is added here.
        for at in range(0, len(rows), ROWS_PER_INSERT):
            part = [
                (*row[:-1], number, attempt, row[-1]) for row in rows[at : at + ROWS_PER_INSERT]
            ]
            client.insert(table, columns, part)
    values = [counters[name] for name in COUNTERS]
    row = (number, attempt, now, *values, base, list(view.dead))
    try:
        client.insert("commits", schema.column_types("commits"), [row], token=f"commit-{number}")
    except StoreError:
        pass  # the row may have arrived all the same, which is read now
    finally:
        _commits[client.address] += 1
    if _read_winner(client, number) != attempt:
        raise CommitConflictError


def _read_winner(client: Client, number: int) -> int | None:
    """Return the attempt that made a commit, or None if there is no such commit.

    Two rows exist only if one was inserted after the server forgot the token of the other. Then
    the late attempt finds both, and neither is taken for its own.
    """
    for left in reversed(range(_COMMIT_READS)):
        try:
            rows = client.query(
                "SELECT attempt FROM commits WHERE number = {number:UInt64}", number=number
            )
        except StoreError:
            if not left:
                raise
            clock.sleep(0.2)
        else:
            return rows[0][0] if len(rows) == 1 else None
    return None
