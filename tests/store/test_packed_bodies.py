"""Tiny bodies share packs: they come back byte for byte, and what repeats is still one id."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vestige.errors import NotFoundError, StoreError
from vestige.record.types import AnyRecord, Log, SpanClose, SpanOpen
from vestige.store.protocol import RetentionPolicy, SearchQuery, SearchResult
from vestige.store.sqlite import schema
from vestige.store.sqlite.bodies.body_store import Bodies
from vestige.store.sqlite.bodies.packed_bodies import PACK_BYTES, TEXTS_MAX, TINY_MAX
from vestige.store.sqlite.sqlite_store import SqliteStore

DAY_NS = 86_400 * 10**9
NOW_NS = 1_000 * DAY_NS
WRITER = "5f0c9a1e77b2c4d0"
OTHER = "a3c5e7f901234567"
RUN, LATER = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.migrate(connection, ":memory:")
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


@pytest.fixture
def bodies(db: sqlite3.Connection) -> Bodies:
    return Bodies(db)


def put(bodies: Bodies, *texts: bytes, at_ns: int = NOW_NS) -> list[int]:
    return bodies.put_many([(text, at_ns) for text in texts])


def rows(db: sqlite3.Connection, query: str) -> list[tuple[int, ...]]:
    return db.execute(query).fetchall()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.lists(st.binary(max_size=600), max_size=8), max_size=4))
def test_any_texts_come_back_among_longer_ones(bodies: Bodies, calls: list[list[bytes]]) -> None:
    """Whole, in slices, and many at once in any order."""
    ids = [put(bodies, *texts) for texts in calls]
    texts_by_id = dict(zip(chain(*ids), chain(*calls), strict=True))

    assert {each: bodies.read(each) for each in texts_by_id} == texts_by_id
    assert {each: bodies.size(each) for each in texts_by_id} == {
        k: len(v) for k, v in texts_by_id.items()
    }
    assert dict(bodies.read_many(sorted(texts_by_id, reverse=True))) == texts_by_id
    for each, text in texts_by_id.items():
        assert bodies.read(each, 1, 3) == text[1:3]


def test_tiny_texts_share_a_row_and_longer_ones_do_not(
    db: sqlite3.Connection, bodies: Bodies
) -> None:
    texts = [b"%d" % number for number in range(100)]
    ids = put(bodies, *texts, b"x" * TINY_MAX)

    assert rows(db, "SELECT id, texts FROM sheets") == [(ids[0], 100)]
    assert ids[:100] == list(range(ids[0], ids[0] + 100))
    assert rows(db, "SELECT count(*) FROM bodies") == [(1,)]


def test_the_same_text_in_one_batch_is_kept_once(db: sqlite3.Connection, bodies: Bodies) -> None:
    first, other, again = put(bodies, b"{}", b"[]", b"{}")

    assert first == again != other
    assert rows(db, "SELECT texts, size_bytes FROM sheets") == [(2, 4)]


def test_a_pack_is_bounded_in_bytes_and_in_texts(db: sqlite3.Connection, bodies: Bodies) -> None:
    """Reading one text unpacks one pack, and an id is found by looking back over one."""
    long = [b"%08d" % number + b"x" * 300 for number in range(1_000)]
    tiny = [b"%d" % number for number in range(TEXTS_MAX + 10)]
    ids = put(bodies, *long, *tiny)

    sizes = rows(db, "SELECT texts, size_bytes FROM sheets ORDER BY id")
    assert max(texts for texts, _ in sizes) <= TEXTS_MAX
    assert max(size for _, size in sizes) < PACK_BYTES + TINY_MAX
    assert [bodies.read(each) for each in ids] == [*long, *tiny]


def test_ids_go_on_after_a_pack(bodies: Bodies, db: sqlite3.Connection) -> None:
    """Also another process that has only the tables."""
    ids = put(bodies, b"a", b"b", b"c")
    more = put(Bodies(db), b"x" * TINY_MAX, b"d")

    assert min(more) > max(ids)
    assert [Bodies(db).read(each) for each in (*ids, *more)] == [
        b"a",
        b"b",
        b"c",
        b"x" * TINY_MAX,
        b"d",
    ]


@pytest.mark.parametrize("between", [1, 5])
def test_an_id_that_is_none_is_not_found(bodies: Bodies, between: int) -> None:
    put(bodies, b"a", b"b")

    with pytest.raises(NotFoundError, match="no such body"):
        bodies.read(2 + between)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE sheets SET data = zeroblob(8)",
        "UPDATE sheets SET data = 'text'",
        "UPDATE sheets SET codec = 99",
        "UPDATE sheets SET size_bytes = size_bytes - 1",
        "UPDATE sheets SET size_bytes = 1 << 40",
        "UPDATE sheets SET hash = zeroblob(16)",
        "UPDATE sheets SET ends = zeroblob(3)",
        "UPDATE sheets SET ends = x'ffffffffffffffff'",
    ],
)
def test_a_damaged_pack_is_an_error_that_names_the_body(
    db: sqlite3.Connection, bodies: Bodies, damage: str
) -> None:
    first, second = put(bodies, b"one text", b"another")
    db.execute(damage)

    with pytest.raises(StoreError, match=rf"^body {second}: damaged|^body {second}: body piece"):
        bodies.read(second)
    assert list(bodies.read_many([first, second])) == []


# --- what goes ------------------------------------------------------------------------------


def test_a_pack_goes_as_a_whole_and_leaves_what_it_was(
    bodies: Bodies, db: sqlite3.Connection
) -> None:
    """The marker says when, and how long each text was."""
    first, second = put(bodies, b"one", b"second")
    (stored,) = put(bodies, b"kept")
    before = bodies.stored_bytes()

    evicted = bodies.evict([second], NOW_NS)

    assert (evicted.count, bodies.stored_bytes()) == (2, before - evicted.freed_bytes)
    assert [bodies.state(each) for each in (first, second, stored)] == [
        "evicted",
        "evicted",
        "kept",
    ]
    with pytest.raises(NotFoundError, match=r"evicted by retention on .* \(6 bytes\)"):
        bodies.read(second)
    assert dict(bodies.read_many([first, second, stored])) == {stored: b"kept"}


def test_eviction_goes_by_the_last_reference_and_spares_a_pack_with_one_protected_text(
    bodies: Bodies,
) -> None:
    oldest = put(bodies, b"a1", b"a2", at_ns=1)
    pinned = put(bodies, b"b1", b"b2", at_ns=2)
    newest = put(bodies, b"c1", b"c2", at_ns=3)

    evicted = bodies.evict_oldest(0, [pinned[1], newest[0]], NOW_NS)

    assert evicted.count == 2
    assert {bodies.state(each) for each in oldest} == {"evicted"}
    assert {bodies.state(each) for each in (*pinned, *newest)} == {"kept"}


def test_a_pack_stays_while_a_run_refers_to_one_text_of_it(store: SqliteStore) -> None:
    """One batch may bring records of several runs."""
    old, new = records(RUN, WRITER, ["{}"], 8), records(LATER, OTHER, ["[]"], 6)
    store.append([*old, *new])

    store.prune(RetentionPolicy(7 * 86_400, None), NOW_NS)
    assert store.sizes().bodies > 0 and decode_chunks(store, LATER) == [b"[]"]

    store.prune(RetentionPolicy(86_400, None), NOW_NS)
    assert store.sizes().bodies == store.sizes().body_bytes == 0


# --- what repeats ---------------------------------------------------------------------------


def records(
    run: str, writer: str, inputs: Sequence[str], days_ago: float = 0, first: int = 1
) -> list[AnyRecord]:
    """A run of tool calls; from `first` on, so that it can come in parts."""
    at_ns = NOW_NS - int(days_ago * DAY_NS)
    found: list[AnyRecord] = []
    if first == 1:
        found.append(SpanOpen(1, writer, 1, at_ns, run, "root", "agent", "run", "job"))
    for number, text in enumerate(inputs, first):
        span = f"{number:016x}"
        found += [
            SpanOpen(
                1, writer, 2 * number, at_ns, run, span, "agent", "tool", "t", "root", body=text
            ),
            SpanClose(1, writer, 2 * number + 1, at_ns, run, span, "ok", 5),
        ]
    end = 2 * (first + len(inputs))
    found.append(SpanClose(1, writer, end, at_ns, run, "root", "ok", 9))
    return found


def inputs_of(store: SqliteStore, run: str) -> list[int]:
    found = [span.input.id for span in store.load_run(run).spans if span.input is not None]
    return [each for each in found if each is not None]


def decode_chunks(store: SqliteStore, run: str) -> list[bytes]:
    return [store.read_body(each) for each in inputs_of(store, run)]


def test_a_text_that_comes_in_many_batches_has_one_id_in_its_run(store: SqliteStore) -> None:
    """Loops and repeats are recognized by ids, whichever tick of the collector brought them."""
    store.append(records(RUN, WRITER, ["same", "a"]))
    store.append(records(RUN, WRITER, ["b", "same"], first=11))
    store.append(records(RUN, WRITER, ["same"], first=21))

    ids = inputs_of(store, RUN)
    assert ids[0] == ids[3] == ids[4] and len(set(ids)) == 3
    assert decode_chunks(store, RUN) == [b"same", b"a", b"b", b"same", b"same"]


def test_what_was_evicted_does_not_stand_for_what_is_kept(store: SqliteStore) -> None:
    store.append(records(RUN, WRITER, ["same"]))
    store.append(records(RUN, WRITER, ["same"], first=11))
    with store._transaction():
        store._bodies.evict([inputs_of(store, RUN)[0]], NOW_NS)

    gone, stored = inputs_of(store, RUN)
    assert gone != stored and store.read_body(stored) == b"same"


def test_a_long_body_from_long_ago_makes_nobody_look_at_all_sheets_since(
    store: SqliteStore,
) -> None:
    """It has the id that it got first; the tiny ones of a run are as new as the run."""
    long = "x" * 5_000
    store.append(records(RUN, WRITER, [long]))
    for number in range(11, 61, 10):
        store.append(records(RUN, WRITER, [f"tiny {number}"], first=number))
    store.append(records(LATER, OTHER, [long, "new"]))
    (old, new) = inputs_of(store, LATER)
    statements: list[str] = []
    store._connection.set_trace_callback(statements.append)
    inputs_of(store, LATER)

    looks = [text for text in statements if "texts FROM sheets" in text]
    assert old < new - 5 and looks == [
        f"SELECT id, texts FROM sheets WHERE id <= {new} AND id > {new - TEXTS_MAX}"
    ]


# --- search ---------------------------------------------------------------------------------


def look(
    store: SqliteStore, text: str, run: str | None = None, after: str | None = None, limit: int = 10
) -> SearchResult:
    query = SearchQuery(re.compile(re.escape(text)), (text,), False, run, ("bodies",))
    return store.search(query, after, limit)


def test_a_tiny_text_is_found_once_wherever_it_is_repeated(store: SqliteStore) -> None:
    store.append(records(RUN, WRITER, ["needle 1", "hay"]))
    store.append(records(RUN, WRITER, ["needle 1", "x" * 500], first=11))
    store.append(records(LATER, OTHER, ["needle 1", "needle 2"]))

    everywhere = look(store, "needle").hits
    assert sorted(hit.before + hit.match + hit.after for hit in everywhere) == [
        "needle 1",
        "needle 2",
    ]
    here = look(store, "needle", RUN).hits
    assert [(hit.span_ref.run_id, hit.part, hit.start_byte) for hit in here] == [(RUN, "input", 0)]


@pytest.mark.parametrize("run", [None, RUN])
def test_a_search_goes_on_in_the_middle_of_a_pack(store: SqliteStore, run: str | None) -> None:
    store.append(records(RUN, WRITER, [f"needle {number:03}" for number in range(200)]))

    found, after = [], None
    while True:
        page = look(store, "needle", run, after, limit=7)
        found += [hit.after for hit in page.hits]
        after = page.cursor
        if after is None:
            break

    assert sorted(found) == [f" {number:03}" for number in range(200)]


def test_a_log_line_has_its_tiny_body(store: SqliteStore) -> None:
    line = Log(1, WRITER, 9, NOW_NS, RUN, "agent", "info", "said", "root", {}, "a tiny body")
    store.append([*records(RUN, WRITER, ["x"]), line])

    (log,) = store.load_run(RUN).logs
    assert log.body is not None and log.body.id is not None
    assert store.read_body(log.body.id) == b"a tiny body"
    assert [hit.part for hit in look(store, "tiny body").hits] == ["log body"]


# --- whose they are -------------------------------------------------------------------------


def test_a_tenant_sees_only_its_own_packs(store: SqliteStore) -> None:
    store.append(records(RUN, WRITER, ["ours"]))
    store.append(records(LATER, OTHER, ["theirs"]), tenant="acme")
    (ours,), (theirs,) = inputs_of(store, RUN), inputs_of(store, LATER)

    with SqliteStore.open(store.path, readonly=True, tenant="acme") as acme:
        assert acme.read_body(theirs) == b"theirs"
        assert dict(acme.read_bodies([ours, theirs])) == {theirs: b"theirs"}
        assert acme.sizes().bodies == 1
        with pytest.raises(NotFoundError, match="no such body"):
            acme.read_body(ours)
