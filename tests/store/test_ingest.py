"""Records become rows: once, and the same rows whatever order they come in."""

from __future__ import annotations

import gc
import itertools
import json
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from vestige.record.codec import parse_line
from vestige.record.types import AnyRecord, Link, Log, SpanClose, SpanOpen, SpanUpdate, Unknown
from vestige.store.protocol import CheckResult
from vestige.store.sqlite.ingest.batch_ingest import Ingest
from vestige.store.sqlite.sqlite_store import SqliteStore

T0 = 1_763_229_905_000_000_000
RUN = "3d1957bd-0000-4000-8000-000000000001"
WRITER = "5f0c9a1e77b2c4d0"


def opening(seq: int, span_id: str, **more: Any) -> SpanOpen:
    fields = {"component": "agent", "type": "step", "name": f"name of {span_id}", **more}
    writer = fields.pop("writer", WRITER)
    return SpanOpen(1, writer, seq, T0 + seq * 1000, RUN, span_id, **fields)


def closing(seq: int, span_id: str, opened_seq: int, **more: Any) -> SpanClose:
    status, writer = more.pop("status", "ok"), more.pop("writer", WRITER)
    duration_ns = (seq - opened_seq) * 1000
    return SpanClose(1, writer, seq, T0 + seq * 1000, RUN, span_id, status, duration_ns, **more)


def make_records() -> list[AnyRecord]:
    """Two writers and one run: nested spans, tokens, links, bodies, a failure, an unknown kind."""
    other = "aaaaaaaaaaaaaaaa"
    return [
        opening(1, "root", type="run", conversation_id="c-1", redacted={"key": 1}),
        opening(2, "proc", type="process", parent_id="root", attributes={"pid": 77}),
        opening(3, "chat", type="llm", parent_id="root", attributes={"model": "m1"}, body="ask"),
        SpanUpdate(
            1, WRITER, 4, T0 + 4000, RUN, "chat", {"attempt": 2}, [Link("tool")], {"key": 2}
        ),
        closing(
            5,
            "chat",
            3,
            body="answer",
            attributes={"input_tokens": 100, "output_tokens": 20},
            redacted={"jwt": 1},
        ),
        opening(6, "tool", type="tool", parent_id="root", redacted={"pem": 1}),
        Log(1, WRITER, 7, T0 + 7000, RUN, "agent", "error", "card refused", "tool", {"n": 1}),
        Unknown("mood", WRITER, 8, RUN, {"kind": "mood", "writer": WRITER, "seq": 8, "m": "good"}),
        closing(9, "tool", 6, status="error", attributes={"error.type": "ValueError"}),
        opening(1, "sub", parent_id="tool", links=[Link("root", None, "why")], writer=other),
        SpanUpdate(1, other, 2, T0 + 2000, RUN, "root", {"seen_by": "child"}),
        closing(3, "sub", 1, writer=other),
        closing(10, "proc", 2),
        closing(11, "root", 1, attributes={"result": "done"}),
    ]


def contents(store: SqliteStore) -> dict[str, Any]:
    """All rows, without what depends on arrival: row ids, short numbers, the first look."""
    db = store._connection
    db.row_factory = sqlite3.Row
    writers = {row["id"]: row["writer"] for row in db.execute("SELECT * FROM writers")}
    found: dict[str, Any] = {}
    for table in ("runs", "writers", "spans", "logs", "links", "rollups", "unknown"):
        rows = []
        for row in db.execute(f"SELECT * FROM {table}"):
            values = dict(row)
            for name in ("id", "number", "first_ns"):
                values.pop(name, None)
            if table in ("spans", "logs"):
                values["writer"] = writers[row["writer"]]
            for name in ("attributes", "redacted"):
                values[name] = json.loads(values[name]) if values.get(name) else None
            for name in ("input_body", "output_body", "body"):
                if values.get(name) is not None:
                    values[name] = store.read_body(values[name])
            rows.append(values)
        found[table] = sorted(rows, key=repr)
    db.row_factory = None
    return found


def take(batches: Sequence[Sequence[AnyRecord]]) -> tuple[dict[str, Any], list[int]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        SqliteStore.open(Path(folder) / "store.db") as store,
    ):
        store._connection.execute("PRAGMA synchronous = OFF")
        for batch in batches:
            store.append(batch)
        numbers = store._connection.execute("SELECT number FROM spans ORDER BY number")
        return contents(store), [row[0] for row in numbers]


IN_ORDER, _ = take([make_records()])


def test_the_sums_are_what_was_emitted() -> None:
    """The reference of the test above is itself right."""
    (run,) = IN_ORDER["runs"]

    assert (run["outcome"], run["name"], run["conversation_id"]) == ("ok", "name of root", "c-1")
    assert (run["span_count"], run["log_count"], run["error_count"]) == (5, 1, 2)
    assert (run["input_tokens"], run["output_tokens"]) == (100, 20)
    assert run["ended_ns"] == T0 + 11_000
    assert sum(row["count"] for row in IN_ORDER["rollups"]) == 5
    assert {row["ended"] for row in IN_ORDER["writers"]} == {"exited", None}
    assert sorted(row["reason"] or "" for row in IN_ORDER["links"]) == ["", "why"]


def test_appending_the_same_records_again_takes_nothing_in(store: SqliteStore) -> None:
    """Identity is (writer, seq): reading a journal twice is harmless, and says so."""
    first = store.append(make_records())

    assert first == len(make_records())
    assert store.append(make_records()) == 0


def test_two_identical_lines_are_two_facts(store: SqliteStore) -> None:
    """The message that was shown twice must stay visible: no identity by content."""
    store.append(
        [Log(1, WRITER, seq, T0, RUN, "agent", "info", "your order has shipped") for seq in (1, 2)]
    )

    assert [log.seq for log in store.load_run(RUN).logs] == [1, 2]


def test_a_record_of_an_unknown_kind_is_kept_as_it_came(store: SqliteStore) -> None:
    """A newer writer's records wait in the store for a newer reader."""
    line = b'{"v":7,"kind":"mood","writer":"w","seq":3,"run_id":"x","feels":{"deep":[1,2]}}'
    store.append([parse_line(line)])

    ((stored,),) = store._connection.execute("SELECT line FROM unknown")

    assert json.loads(stored) == json.loads(line)


def test_a_close_whose_opening_is_lost_is_shown_and_not_summed(store: SqliteStore) -> None:
    """A hole in the journal leaves a span without a name; it must not fill a rollup called `?`."""
    store.append([closing(9, "lost", 4, status="error", body="what it said")])

    (span,) = store.load_run(RUN).spans

    assert (span.name, span.status, span.seq) == ("?", "error", None)
    assert span.output is not None
    assert store.read_body(span.output.id or 0) == b"what it said"
    assert store._connection.execute("SELECT count(*) FROM rollups").fetchone() == (0,)


@pytest.mark.parametrize("batches", [1, 3])
def test_a_later_opening_adds_the_type_and_the_input(store: SqliteStore, batches: int) -> None:
    """A framework may report the arguments of a tool after its start."""
    records: list[AnyRecord] = [
        opening(1, "root", type="run"),
        opening(2, "late", name="call"),
        opening(3, "late", name="search", type="tool", body='{"q": "x"}', links=[Link("root")]),
        opening(4, "late", name="other", type="tool", body="not this one"),
        closing(5, "late", 2, body="found"),
        opening(6, "next"),
    ]
    size = len(records) // batches
    for at in range(0, len(records), size):
        store.append(records[at : at + size])

    run = store.load_run(RUN)
    (span,) = [span for span in run.spans if span.id == "late"]
    assert (span.type, span.name, span.status) == ("tool", "search", "ok")
    assert span.input is not None and span.output is not None
    assert store.read_body(span.input.id or 0) == b'{"q": "x"}'
    assert [span.id for span in run.spans] == ["root", "late", "next"]
    assert store._connection.execute("SELECT count(*) FROM links").fetchone() == (1,)


@pytest.mark.parametrize("batches", [1, 2, 4])
def test_of_two_spans_with_one_id_the_first_one_stands(store: SqliteStore, batches: int) -> None:
    """A hostile or broken writer reuses an id: one row, the first name, and no error."""
    records: list[AnyRecord] = [
        opening(1, "same", name="first"),
        opening(2, "same", name="second"),
        opening(3, "other"),
        closing(4, "same", 1, status="timeout"),
    ]
    size = len(records) // batches
    for at in range(0, len(records), size):
        store.append(records[at : at + size])

    spans = store.load_run(RUN).spans

    assert [(span.name, span.status) for span in spans] == [
        ("first", "timeout"),
        ("name of other", None),
    ]
    assert [span.short_id for span in spans] == ["r1.s1", "r1.s2"]


@pytest.mark.parametrize("cuts", [(), (2,), (1, 2), (3,), (1,), (1, 3), (1, 2, 3)])
@pytest.mark.parametrize("order", ["open first", "close first", "opened twice"])
def test_a_span_that_is_closed_twice_counts_once(
    store: SqliteStore, cuts: tuple[int, ...], order: str
) -> None:
    """The last end is valid, and the sums contain only that one: in one batch, and over several."""
    tokens = {"input_tokens": 100, "output_tokens": 20}
    more = {"input_tokens": 130, "model": "m2"}
    opened = opening(1, "chat", type="llm", attributes={"model": "m1"})
    failed = closing(2, "chat", 1, status="error", attributes=tokens)
    ended = closing(3, "chat", 1, attributes=more)
    records: list[AnyRecord] = {
        "open first": [opened, failed, ended],
        "close first": [failed, opened, ended],
        "opened twice": [opened, failed, opening(4, "chat", type="llm"), ended],
    }[order]
    edges = [0, *(cut for cut in cuts if cut < len(records)), len(records)]
    for start, end in itertools.pairwise(edges):
        store.append(records[start:end])

    found = contents(store)

    (run,) = found["runs"]
    assert (run["error_count"], run["input_tokens"], run["output_tokens"]) == (0, 130, 20)
    (sums,) = found["rollups"]
    assert (sums["model"], sums["count"], sums["errors"]) == ("m2", 1, 0)
    assert (sums["input_tokens"], sums["output_tokens"]) == (130, 20)
    assert (sums["duration_ns"], sum(json.loads(sums["histogram"]).values())) == (2000, 1)


def test_what_is_learned_later_wins_over_what_was_said_first(store: SqliteStore) -> None:
    """An update and the end of a span overwrite its opening's attributes."""
    store.append(
        [
            opening(1, "s", attributes={"a": "open", "b": "open", "c": "open"}),
            SpanUpdate(1, WRITER, 2, T0, RUN, "s", {"b": "update", "c": "update"}),
            closing(3, "s", 1, attributes={"c": "close"}),
        ]
    )

    (span,) = store.load_run(RUN).spans

    assert span.attributes == {"a": "open", "b": "update", "c": "close"}


def test_dropped_and_missing_records_are_counted(store: SqliteStore) -> None:
    """A hole in the numbers is a loss, and a gap record says what the writer dropped itself."""
    gap = Log(
        1,
        WRITER,
        5,
        T0,
        RUN,
        "vestige",
        "warn",
        "records dropped (3)",
        None,
        {"gap": "x", "count": 3},
    )
    store.append([opening(1, "s"), gap])

    (writer,) = store.writers()

    assert (writer.last_seq, writer.missing, writer.dropped) == (5, 3, 3)


def test_a_failed_batch_leaves_nothing_behind(store: SqliteStore) -> None:
    """Rows and offset are one transaction: an error in the middle takes all of it back."""

    def breaks_in_the_middle() -> Any:
        yield opening(1, "s", body="text")
        raise OSError("the disk")

    with pytest.raises(OSError, match="the disk"):
        store.append(breaks_in_the_middle())
    store.append([opening(1, "s", body="text")])

    (span,) = store.load_run(RUN).spans

    assert span.input is not None
    assert store.read_body(span.input.id or 0) == b"text"


def test_what_is_not_there_is_null_and_what_is_empty_is_not(store: SqliteStore) -> None:
    """An empty body is a body, also for a query with `IS NULL`."""
    store.append(
        [
            opening(1, "bare"),
            closing(2, "bare", 1),
            opening(3, "empty", body=""),
            Log(1, WRITER, 4, T0, RUN, "agent", "info", "", None),
            closing(5, "empty", 3, body=""),
        ]
    )
    columns = "attributes, redacted, input_body, input_bytes, input_info, output_body, output_bytes"
    rows = store._connection.execute(f"SELECT {columns}, output_info FROM spans ORDER BY id")
    logs = store._connection.execute(
        "SELECT message, attributes, redacted, body, body_bytes, body_info FROM logs"
    )

    assert rows.fetchall() == [(None,) * 8, (None, None, 1, 0, None, 1, 0, None)]
    assert logs.fetchall() == [("", None, None, None, None, None)]


def test_absurd_numbers_keep_no_batch_out(store: SqliteStore) -> None:
    """Each is within its bounds, and their sum is more than a database can hold: one record would
    keep its whole journal out for ever."""
    most = 2**53 - 1
    tokens = {"input_tokens": most, "output_tokens": most, "cache_read_tokens": most}
    records: list[AnyRecord] = [
        SpanClose(1, WRITER, 1, 2**62, RUN, "root", "ok", 2**62),  # and its opening comes later
        SpanOpen(1, WRITER, 2, 2**62, RUN, "root", "agent", "run", "triage"),
    ]
    for seq in range(3, 6_000, 3):
        records.append(opening(seq, f"chat{seq}", type="llm", name="chat", parent_id="root"))
        records.append(closing(seq + 1, f"chat{seq}", seq, attributes=tokens))
        gap = {"gap": "full", "count": most}
        records.append(Log(1, WRITER, seq + 2, T0, RUN, "vestige", "warn", "gap", None, gap))

    last = opening(6_000, "chat", type="llm", name="chat")
    more = [last, closing(6_001, "chat", 6_000, attributes=tokens)]
    taken = [store.append(records), store.append(more)]

    assert taken == [len(records), 2]
    row = store._connection.execute(
        "SELECT r.ended_ns, r.input_tokens, r.output_tokens, w.dropped, max(u.input_tokens)"
        " FROM runs r, writers w, rollups u"
    ).fetchone()
    assert row == (2**62,) * 5


def test_what_comes_late_takes_back_what_checks_said(store: SqliteStore) -> None:
    """A span that ended before the run and arrives after it changes no time of the run."""
    late = [closing(3, "tool", 2), SpanUpdate(1, WRITER, 4, T0 + 4000, RUN, "tool", {"seen": True})]
    store.append(
        [opening(1, "root", type="run"), opening(2, "tool", type="tool", parent_id="root")]
    )
    store.append([closing(9, "root", 1)])
    results = []
    for record in late:
        (run,) = store.find_runs(RUN)
        store.store_findings(run, [CheckResult("in-flight-end", 1, [])])
        results.append(len(store.check_results([RUN])))
        store.append([record])
        results.append(len(store.check_results([RUN])))

    assert results == [1, 0, 1, 0]


@pytest.mark.slow
def test_a_batch_is_gone_as_soon_as_it_is_stored(store: SqliteStore) -> None:
    """Without the garbage collector, which an import turns off; else all of it would stay."""
    gc.collect()
    gc.disable()
    try:
        store.append(make_records())
        left = [each for each in gc.get_objects() if isinstance(each, Ingest)]
    finally:
        gc.enable()

    assert not left
