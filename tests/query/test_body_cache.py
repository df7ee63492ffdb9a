"""A run's bodies are read ahead within bounds, and are what reading them one by one gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.query import body_cache
from vestige.query.evidence import Evidence
from vestige.recorder import Recorder
from vestige.store.sqlite.sqlite_store import SqliteStore


@contextmanager
def _recorded(home: Home, outputs: Sequence[str]) -> Iterator[tuple[SqliteStore, str]]:
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        for number, output in enumerate(outputs):
            run.child("look", "tool", body=f"in {number}").end(body=output)
    catch_up(home)
    with SqliteStore.open(home.store) as store:
        yield store, run.run_id


def _texts(evidence: Evidence) -> list[tuple[str | None, str | None]]:
    tools = evidence.of_type("tool")
    return [(evidence.input(span), evidence.output(span)) for span in tools]


def test_what_is_read_ahead_is_what_is_read_one_by_one(home: Home) -> None:
    """Repeated, empty and long bodies too; one that was evicted is missing in both."""
    outputs = [f"out {number % 50} " * number for number in range(200)] + ["x" * 5_000_000]
    with _recorded(home, outputs) as (store, run_id):
        run = store.load_run(run_id)
        evicted = [span.output.id for span in run.spans[3:90:5] if span.output]
        with store._transaction():
            store._bodies.evict(evicted, 1)

        many = Evidence(run, store.read_body, read_bodies=store.read_bodies)
        single = Evidence(run, store.read_body)

        assert _texts(many) == _texts(single) == _texts(many)
        assert sum(output is None for _, output in _texts(many)) >= len(evicted)
        assert _texts(many)[-1][1] == outputs[-1]


def test_few_statements_read_many_bodies_and_none_reads_too_much(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How much is read at once is bounded in number and in bytes; a body that is gone is asked
    for once."""
    monkeypatch.setattr(body_cache, "AHEAD_BYTES_MAX", 20_000)
    monkeypatch.setattr(body_cache, "AHEAD_MAX", 64)
    with _recorded(home, [f"{number} " * 100 for number in range(1000)]) as (store, run_id):
        reads: list[Sequence[int]] = []

        def read_bodies(ids: Sequence[int]) -> Iterable[tuple[int, bytes]]:
            reads.append(ids)
            return [each for each in store.read_bodies(ids) if each[0] % 7]

        evidence = Evidence(store.load_run(run_id), store.read_body, read_bodies=read_bodies)
        _texts(evidence)
        statements = len(reads)
        _texts(evidence)

        sizes = {span.output.id: span.output.size_bytes for span in evidence.of_type("tool")}
        assert statements == len(reads) < 400
        assert len(reads[0]) == 1 and max(map(len, reads)) <= 64
        assert max(sum(sizes.get(each, 0) for each in ids) for ids in reads) <= 20_000


def test_texts_that_are_held_are_bounded(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older ones are let go and read again: the answer is the same."""
    monkeypatch.setattr(body_cache, "CACHED_BYTES_MAX", 5_000)
    monkeypatch.setattr(body_cache, "AHEAD_BYTES_MAX", 3_000)
    with _recorded(home, [f"{number} " * 200 for number in range(40)]) as (store, run_id):
        evidence = Evidence(store.load_run(run_id), store.read_body, read_bodies=store.read_bodies)

        assert _texts(evidence) == [(f"in {n}", f"{n} " * 200) for n in range(40)]
        assert evidence._bodies._cached_bytes <= 5_000
