"""A program's own model call with the wire's inside it is one call: its tokens count once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_ingest import closing, opening

import vestige
from vestige.home import Home
from vestige.record.otlp_sequence_numbers import external_seq, external_writer
from vestige.record.types import MODEL_CALL_TYPES, AnyRecord, SpanClose, SpanOpen
from vestige.recorder import Recorder
from vestige.store.sqlite.sqlite_store import SqliteStore

TOKENS = {"input_tokens": 100, "output_tokens": 20, "cache_read_tokens": 30}
OUTER = {"input_tokens": 101, "output_tokens": 21}


def nested(outer: dict[str, Any]) -> list[AnyRecord]:
    return [
        opening(1, "root", type="run"),
        opening(2, "outer", type="llm", parent_id="root"),
        opening(3, "inner", type="llm", parent_id="outer", attributes={"model": "m"}),
        closing(4, "inner", 3, attributes=TOKENS),
        closing(5, "outer", 2, attributes=outer),
        opening(6, "tool", type="tool", parent_id="root"),
        opening(7, "alone", type="llm", parent_id="tool"),
        closing(8, "alone", 7, attributes={"input_tokens": 7, "output_tokens": 1}),
        closing(9, "tool", 6),
        closing(10, "root", 1),
    ]


def sums(
    path: Path, batches: Sequence[Sequence[AnyRecord]]
) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """A run's tokens; and of each name's rollup: calls, then tokens."""
    with SqliteStore.open(path / "store.db") as store:
        store._connection.execute("PRAGMA synchronous = OFF")
        for batch in batches:
            store.append(batch)
        db = store._connection
        run = db.execute("SELECT input_tokens, output_tokens FROM runs").fetchone()
        rows = db.execute(
            "SELECT name, count, input_tokens, output_tokens, cache_read_tokens FROM rollups"
            " WHERE type = 'llm'"
        )
        return run, {row[0].removeprefix("name of "): row[1:] for row in rows}


ALONE = (1, 7, 1, 0)


@pytest.mark.parametrize("cut", range(1, 10))
@pytest.mark.parametrize(
    ("outer", "run", "outer_sum", "inner_sum"),
    [
        (OUTER, (108, 22), (1, 101, 21, 0), (1, 0, 0, 0)),
        ({"cost_usd": 0.5}, (107, 21), (1, 0, 0, 0), (1, 100, 20, 30)),
        ({}, (107, 21), (1, 0, 0, 0), (1, 100, 20, 30)),
    ],
)
def test_a_call_inside_a_call_counts_once_wherever_a_batch_ends(
    tmp_path: Path, cut: int, outer: dict[str, Any], run: Any, outer_sum: Any, inner_sum: Any
) -> None:
    """The outer one, if it has tokens; else the inner one. Both are counted as spans."""
    records = nested(outer)

    found, rollups = sums(tmp_path, [records[:cut], records[cut:]])

    assert found == run
    assert rollups == {"outer": outer_sum, "inner": inner_sum, "alone": ALONE}


@pytest.mark.slow
def test_one_batch_gives_the_same_sums_in_any_order(tmp_path: Path) -> None:
    """And so does a batch for each record, in the order in which they were written."""
    records = nested(OUTER)
    rest = [records[0], *records[5:]]
    found = []
    for number, order in enumerate(itertools.permutations(records[1:5])):
        folder = tmp_path / str(number)
        folder.mkdir()
        found.append(sums(folder, [[*order, *rest]]))
    alone = tmp_path / "alone"
    alone.mkdir()
    found.append(sums(alone, [[record] for record in records]))

    assert {repr(each[0]) for each in found} == {"(108, 22)"}
    assert all(
        each[1] == {"outer": (1, 101, 21, 0), "inner": (1, 0, 0, 0), "alone": ALONE}
        for each in found
    )


@pytest.mark.parametrize("batches", [1, 2])
def test_an_end_that_is_taken_back_gives_the_inner_call_back(tmp_path: Path, batches: int) -> None:
    """If it is closed twice, the last end is valid, with its tokens."""
    records = [*nested(OUTER), closing(11, "inner", 3, attributes={"input_tokens": 50})]
    records += [closing(12, "outer", 2, attributes={"input_tokens": 200})]
    parts = [records] if batches == 1 else [records[:8], records[8:11], records[11:]]

    found, rollups = sums(tmp_path, parts)

    assert found == (207, 22)
    assert rollups["inner"] == (1, 0, 0, 0) and rollups["outer"] == (1, 200, 21, 0)


def test_a_call_that_ends_after_the_one_it_stands_in_is_not_added(tmp_path: Path) -> None:
    """Another process reads the rest of the stream."""
    records = nested(OUTER)
    late = closing(11, "inner", 3, attributes=TOKENS)
    others = [record for record in records if record.seq != 4]

    one, _ = sums(tmp_path, [[*others, late]])
    (tmp_path / "two").mkdir()
    two, _ = sums(tmp_path / "two", [others, [late]])

    assert one == two == (108, 22)


def test_lists_shows_stats_and_trends_count_a_nested_call_once(home: Home) -> None:
    """The newcomer's case: an own span around the client's call."""
    usage = {"input_tokens": 1000, "output_tokens": 200}
    with Recorder(home, crash_hooks=False) as recorder, recorder.run("agent") as run:
        outer = run.child("ask", type="llm", attributes={"model": "gpt-4o"})
        outer.child("POST /v1/chat", type="llm", attributes={"model": "gpt-4o"}).end(
            attributes=usage
        )
        outer.end(attributes=usage)
    with vestige.open(home.root) as debugger:
        listed = debugger.list().runs[0]
        shown = debugger.show(listed.short_id).data()
        stats = debugger.stats(by="model").data()["rows"]
        costs = {
            by: debugger.trends(since="1d", by=by).data()["buckets"][-1]["cost_usd"]
            for by in ("day", "hour")
        }
        cost = debugger.overview(listed.short_id).cost_usd

    assert listed.tokens == 1200
    assert shown["run"]["tokens"] == 1200
    assert [(row["input_tokens"], row["output_tokens"]) for row in stats] == [(1000, 200)]
    assert cost is not None and costs["day"] == pytest.approx(cost.dollars)
    assert costs["hour"] == pytest.approx(cost.dollars)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in MODEL_CALL_TYPES if kind != "llm"])
def test_calls_of_every_kind_of_model_count_and_their_wrappers_do_not(
    home: Home, kind: str
) -> None:
    """An embedding inside a chat call is another call; inside an embedding it is the same one."""
    usage = {"input_tokens": 1000, "output_tokens": 0}
    model = {"model": "text-embedding-3-small"}
    with Recorder(home, crash_hooks=False) as recorder, recorder.run("agent") as run:
        chat = run.child("ask", type="llm", attributes={"model": "gpt-4o"})
        outer = chat.child("embed", type=kind, attributes=model)
        outer.child("POST /v1/embeddings", type=kind, attributes=model).end(attributes=usage)
        outer.end(attributes=usage)
        chat.end(attributes={"input_tokens": 10, "output_tokens": 5})
    with vestige.open(home.root) as debugger:
        listed = debugger.list().runs[0]
        stats = {row["key"]: row for row in debugger.stats(by="model").data()["rows"]}
        cost = debugger.overview(listed.short_id).cost_usd
        days, hours = (
            debugger.trends(since="1d", by=by).data()["buckets"][-1] for by in ("day", "hour")
        )
        diff = debugger.diff(listed.short_id, listed.short_id).data()
        deltas = {each["name"]: each["a"] for each in diff["deltas"]}

    assert (listed.input_tokens, listed.output_tokens) == (1010, 5)
    assert stats["text-embedding-3-small"]["input_tokens"] == 1000
    assert stats["gpt-4o"]["input_tokens"] == 10
    assert cost is not None and cost.dollars is not None
    assert cost.dollars == pytest.approx(0.02 / 1000 + 10 * 2.5e-6 + 5 * 10e-6)
    assert deltas["cost_usd"] == pytest.approx(cost.dollars)
    for bucket in (days, hours):
        assert bucket["input_tokens"] == 1010
        assert bucket["cost_usd"] == pytest.approx(cost.dollars)


@pytest.mark.parametrize("first", ["inner", "outer"])
def test_embeddings_of_external_exporters_count_once_in_any_order(
    tmp_path: Path, first: str
) -> None:
    """They may send an inner span before the span that contains it, in another request."""
    spans: dict[str, list[AnyRecord]] = {}
    for record in nested(OUTER):
        assert isinstance(record, SpanOpen | SpanClose)
        is_open = isinstance(record, SpanOpen)
        changes: dict[str, Any] = {"seq": external_seq(1, 1 if is_open else 2)}
        if isinstance(record, SpanOpen) and record.type == "llm":
            changes["type"] = "embedding"
        record = msgspec.structs.replace(record, writer=external_writer("x"), **changes)
        spans.setdefault(record.span_id, []).append(record)
    names = sorted(spans, key=lambda name: name != first)

    found, _ = sums(tmp_path, [spans[name] for name in names])

    assert found == (108, 22)
