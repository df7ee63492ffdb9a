"""Bodies come back byte for byte, take little room, and leave without hurting others."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vestige.errors import NotFoundError, StoreError
from vestige.limits import KIB, MIB
from vestige.store.compression import RAW, ZSTD, compress, decompress
from vestige.store.sqlite import schema
from vestige.store.sqlite.bodies.body_reader import hash_text
from vestige.store.sqlite.bodies.body_store import PIECE_MAX, ROWS, Bodies
from vestige.store.sqlite.bodies.body_writer import HASHES_PER_QUERY
from vestige.store.sqlite.bodies.packed_bodies import TINY_MAX

NOW_NS = 1_763_229_905_123_456_789


def open_store(path: Path | str = ":memory:") -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        schema.migrate(connection, path)
    return connection


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    connection = open_store()
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


@pytest.fixture
def bodies(db: sqlite3.Connection) -> Bodies:
    return Bodies(db)


def short(text: bytes) -> bytes:
    """Return a text too long for a pack (test_packed_bodies.py), too short to be split."""
    return text + b"." * TINY_MAX


def count(db: sqlite3.Connection, table: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def make_prose(rng: random.Random, size_bytes: int) -> str:
    """Words of a vocabulary, few of them frequent: compresses like prose, about 2x at 2 KB."""
    vocabulary = [f"{rng.choice('bdfgklmnprst')}{a}{b}" for a in "aeiou" for b in _ENDINGS]
    ranks = [1 / (n + 3) for n in range(len(vocabulary))]
    return " ".join(rng.choices(vocabulary, ranks, k=size_bytes // 7))


_ENDINGS = [a + b for a in "bcdfghklmnprstvz" for b in ("en", "ing", "ate", "er", "ion", "al", "")]


def make_conversation(turns: int, seed: int = 1) -> list[bytes]:
    """The request of each turn: system prompt, tools, and two messages of 2 KB more each time."""
    rng = random.Random(seed)
    head = {
        "model": "m",
        "system": make_prose(rng, 4000),
        "tools": [{"name": f"t{n}", "description": make_prose(rng, 800)} for n in range(10)],
    }
    messages = []
    requests = []
    for turn in range(turns):
        if turn:
            messages.append({"role": "assistant", "content": make_prose(rng, 2000)})
        messages.append({"role": "user", "content": make_prose(rng, 2000)})
        requests.append(json.dumps({**head, "messages": messages, "stream": True}).encode())
    return requests


# --- in and out ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"\x00\xff" * 3000,
        random.Random(1).randbytes(3 * MIB + 7),
        b"a" * (2 * PIECE_MAX),
        "é\u2028\U0001f600".encode() * 1000,
        *make_conversation(3),
    ],
    ids=lambda data: f"{len(data)}-bytes",
)
def test_a_body_comes_back_byte_for_byte(bodies: Bodies, data: bytes) -> None:
    """Text, binary, empty and long alike."""
    body_id = bodies.put(data, NOW_NS)

    assert bodies.read(body_id) == data
    assert bodies.size(body_id) == len(data)
    assert bodies.state(body_id) == "kept"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=5))
def test_any_bodies_come_back(bodies: Bodies, datas: list[bytes]) -> None:
    """Whatever else is in the store."""
    ids = [bodies.put(data, NOW_NS) for data in datas]

    assert [bodies.read(body_id) for body_id in ids] == datas
    assert [text for _, text in bodies.read_many(ids)] == datas
    longer = [at for at, data in enumerate(datas) if len(data) >= TINY_MAX]
    assert len({ids[at] for at in longer}) == len({datas[at] for at in longer})


def test_a_slice_is_that_slice_of_the_original(bodies: Bodies) -> None:
    """For any range, also beyond the end; a reader never needs the whole."""
    rng = random.Random(3)
    for data in (make_conversation(6)[-1], rng.randbytes(2 * MIB + 5)):
        body_id = bodies.put(data, NOW_NS)
        for _ in range(200):
            start, end = rng.randint(0, len(data) + 9), rng.randint(0, len(data) + 9)

            assert bodies.read(body_id, start, end) == data[start:end]


def test_a_slice_unpacks_only_its_pieces(db: sqlite3.Connection, bodies: Bodies) -> None:
    """Shown by damaging all others: the first bytes are still readable."""
    data = make_conversation(20)[-1]
    body_id = bodies.put(data, NOW_NS)
    first = db.execute("SELECT min(id) FROM pieces").fetchone()[0]
    db.execute("UPDATE pieces SET data = x'00' WHERE id > ?", (first,))

    assert bodies.read(body_id, 0, 10) == data[:10]
    with pytest.raises(StoreError):
        bodies.read(body_id, len(data) - 5_000)


def test_the_same_bytes_are_one_body(db: sqlite3.Connection, bodies: Bodies) -> None:
    """Whether it is remembered from just now or found in the store."""
    data = make_conversation(4)[-1]
    first = bodies.put(data, NOW_NS)
    pieces = count(db, "pieces")

    assert bodies.put(data, NOW_NS + 1) == first
    assert Bodies(db).put(bytes(bytearray(data)), NOW_NS + 2) == first
    assert count(db, "pieces") == pieces
    assert count(db, "bodies") == 1


def test_bodies_that_end_alike_are_told_apart(bodies: Bodies) -> None:
    """The shortcut for identical bodies compares all bytes, not only size and end."""
    one = b"1" + b"x" * 10_000
    two = b"2" + b"x" * 10_000

    assert bodies.read(bodies.put(one, NOW_NS)) == one
    assert bodies.read(bodies.put(two, NOW_NS)) == two


@pytest.mark.slow
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(picks=st.lists(st.integers(0, 11), max_size=30), at=st.integers(0, 30))
def test_many_at_once_are_the_same_rows_as_one_by_one(picks: list[int], at: int) -> None:
    """Which bodies come together is chance (a tick of the collector): it must not show."""
    texts = [*make_conversation(4), *make_conversation(3, seed=2), short(b"a"), short(b"b")]
    texts += [b"x" * 500, b"[" + texts[0] + b"]", b"y" * 9000]
    timed_bodies = [(texts[pick], NOW_NS + pick) for pick in picks]
    one_by_one, together = open_store(), open_store()
    for db in (one_by_one, together):
        db.execute("BEGIN IMMEDIATE")
    first, second = Bodies(one_by_one), Bodies(together)

    ids = [first.put(data, at_ns) for data, at_ns in timed_bodies]

    assert second.put_many(timed_bodies[:at]) + second.put_many(timed_bodies[at:]) == ids
    for table in ("pieces", "nodes", "bodies"):
        query = f"SELECT * FROM {table} ORDER BY id"
        assert together.execute(query).fetchall() == one_by_one.execute(query).fetchall()


def test_pieces_that_are_only_in_the_table_are_found(db: sqlite3.Connection) -> None:
    """More hashes than one statement asks for, none of them remembered: none is stored twice."""
    timed_bodies = [(short(b"number %d" % n), NOW_NS) for n in range(2 * HASHES_PER_QUERY + 3)]
    ids = Bodies(db).put_many(timed_bodies)

    assert Bodies(db).put_many(timed_bodies[::-1]) == ids[::-1]
    assert count(db, "bodies") == len(timed_bodies)
    assert count(db, "pieces") == count(db, "nodes") == 0


def test_a_short_body_that_is_only_in_the_table_keeps_its_id_and_is_referred_to_again(
    db: sqlite3.Connection,
) -> None:
    """Its writer has ended. New ones between known ones get ids of their own; retention goes by
    the last time."""
    known = [(short(b"known %d" % n), NOW_NS) for n in range(3)]
    ids = Bodies(db).put_many(known)
    later = [(data, NOW_NS + 7) for data, _ in known]
    new = (short(b"new"), NOW_NS + 7)
    earlier = (known[0][0], NOW_NS - 1)

    put = Bodies(db).put_many([later[2], new, later[0], new, later[1], earlier])

    assert put == [ids[2], put[1], ids[0], put[1], ids[1], ids[0]]
    assert Bodies(db).read(put[1]) == new[0] and put[1] not in ids
    assert db.execute("SELECT first_ns, last_ns FROM bodies ORDER BY id").fetchall() == [
        *[(NOW_NS, NOW_NS + 7)] * 3,
        (NOW_NS + 7, NOW_NS + 7),
    ]


def test_more_bodies_than_are_remembered_at_once_keep_their_ids(bodies: Bodies) -> None:
    """A body that the cache forgets while its own call goes on still ends at its own node."""
    longs = [(b"%07d" % n * 150_000, NOW_NS) for n in range(10)]
    ids = bodies.put_many(longs[:1])

    assert bodies.put_many([longs[0], *longs[1:], longs[0]])[:: len(longs)] == [ids[0], ids[0]]
    assert bodies.read(ids[0]) == longs[0][0]


def test_a_turn_adds_its_new_messages_and_nothing_else(
    db: sqlite3.Connection, bodies: Bodies
) -> None:
    """Two messages and the end: no state about the turn before, so any order will do."""
    requests = make_conversation(6)
    bodies.put(requests[4], NOW_NS)
    nodes, pieces = count(db, "nodes"), count(db, "pieces")

    bodies.put(requests[5], NOW_NS)

    assert count(db, "nodes") - nodes == 3
    assert count(db, "pieces") - pieces == 2


@pytest.mark.slow
@pytest.mark.parametrize(("turns", "times"), [(10, 5), (50, 15)])
def test_a_growing_conversation_is_much_smaller_than_whole_bodies_gzipped(
    bodies: Bodies, turns: int, times: int
) -> None:
    """The reason for all of this. bench/storage.py measures the file as well."""
    requests = make_conversation(turns)
    ids = [bodies.put(request, NOW_NS) for request in requests]

    assert [bodies.read(body_id) for body_id in ids] == requests
    assert bodies.stored_bytes() * times <= sum(len(gzip.compress(r, 6)) for r in requests)


# --- transactions -------------------------------------------------------------------------


def test_after_a_rollback_and_clear_caches_bodies_are_stored_anew(db: sqlite3.Connection) -> None:
    """Ids that were rolled back are not remembered."""
    bodies = Bodies(db)
    data = make_conversation(3)[-1]
    bodies.put(data, NOW_NS)
    db.execute("ROLLBACK")
    bodies.clear_caches()

    db.execute("BEGIN")
    other = bodies.put(b"other", NOW_NS)
    again = bodies.put(data, NOW_NS)

    assert bodies.read(again) == data
    assert bodies.read(other) == b"other"


def test_ids_are_forgotten_when_another_connection_has_pruned(tmp_path: Path) -> None:
    """Else a new body would refer to pieces that are gone, or that became others."""
    ours, theirs = open_store(tmp_path / "store.db"), open_store(tmp_path / "store.db")
    bodies, pruner = Bodies(ours), Bodies(theirs)
    requests = make_conversation(3)
    ours.execute("BEGIN IMMEDIATE")
    body_id = bodies.put(requests[0], NOW_NS)
    ours.execute("COMMIT")
    theirs.execute("BEGIN IMMEDIATE")
    pruner.delete([body_id])
    pruner.put(b"takes the place of what went", NOW_NS)
    theirs.execute("COMMIT")

    ours.execute("BEGIN IMMEDIATE")
    ids = [bodies.put(request, NOW_NS) for request in requests]
    ours.execute("COMMIT")

    assert [Bodies(theirs).read(i) for i in ids] == requests


# --- letting go ---------------------------------------------------------------------------


def test_eviction_goes_by_the_last_reference_not_the_first(bodies: Bodies) -> None:
    """A body that came first, and came again, outlives one that came once."""
    rng = random.Random(5)
    old, middle = rng.randbytes(2 * KIB), rng.randbytes(2 * KIB)
    old_id = bodies.put(old, NOW_NS)
    middle_id = bodies.put(middle, NOW_NS + 1)
    bodies.put(old, NOW_NS + 2)

    evicted = bodies.evict_oldest(2 * KIB, [], NOW_NS + 3)

    assert (evicted.count, evicted.freed_bytes) == (1, 2 * KIB)
    assert bodies.state(middle_id) == "evicted"
    assert bodies.read(old_id) == old
    assert bodies.stored_bytes() == 2 * KIB


def test_protected_bodies_are_spared(bodies: Bodies) -> None:
    """Pinned runs keep their bodies even when that leaves too much."""
    rng = random.Random(5)
    ids = [bodies.put(rng.randbytes(KIB), NOW_NS + n) for n in range(4)]

    evicted = bodies.evict_oldest(0, ids[:2], NOW_NS)

    assert evicted.count == 2
    assert [bodies.state(i) for i in ids] == ["kept", "kept", "evicted", "evicted"]


def test_below_the_bound_nothing_is_evicted(bodies: Bodies) -> None:
    """The usual case costs one sum."""
    bodies.put(b"x" * 500, NOW_NS)

    assert bodies.evict_oldest(MIB, [], NOW_NS).count == 0


def test_what_a_kept_body_shares_stays(db: sqlite3.Connection, bodies: Bodies) -> None:
    """The turns before the last go, and take only their own ends with them."""
    requests = make_conversation(8)
    ids = [bodies.put(request, NOW_NS + n) for n, request in enumerate(requests)]
    only_last = Bodies(other := open_store())
    other.execute("BEGIN")
    only_last.put(requests[-1], NOW_NS)

    bodies.evict(ids[:-1], NOW_NS)

    assert bodies.read(ids[-1]) == requests[-1]
    for table in ("nodes", "pieces"):
        assert count(db, table) == count(other, table)
    assert bodies.stored_bytes() == only_last.stored_bytes()


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_letting_go_leaves_the_rest_readable_and_no_garbage(seed: int) -> None:
    """Several conversations with shared starts, put, evicted, forgotten and put again."""
    db = open_store()
    db.execute("BEGIN")
    bodies = Bodies(db)
    rng = random.Random(seed)
    texts = [r for s in (1, 2) for r in make_conversation(6, s)]
    stored: dict[int, bytes] = {}
    for step in range(120):
        if stored and rng.random() < 0.5:
            body_id = rng.choice(list(stored))
            del stored[body_id]
            bodies.evict([body_id], step) if rng.random() < 0.5 else bodies.delete([body_id])
        else:
            text = rng.choice(texts)
            stored[bodies.put(text, step)] = text
    assert {i: bodies.read(i) for i in stored} == stored
    assert dict(bodies.read_many([*stored, 10**9])) == stored

    freed = bodies.stored_bytes()
    assert bodies.delete(list(stored)).freed_bytes == freed
    assert (count(db, "nodes"), count(db, "pieces"), bodies.stored_bytes()) == (0, 0, 0)


def test_an_evicted_body_says_so(bodies: Bodies) -> None:
    """A reader learns that it was there, how large, and when it went."""
    body_id = bodies.put(b"x" * 500, NOW_NS)
    bodies.evict([body_id], NOW_NS)

    assert bodies.state(body_id) == "evicted"
    assert bodies.size(body_id) == 500
    with pytest.raises(
        NotFoundError, match=rf"^body {body_id}: evicted by retention on 2025-11-15"
    ):
        bodies.read(body_id)
    assert list(bodies.read_many([body_id])) == []


def test_an_evicted_id_is_never_given_to_another_body(bodies: Bodies) -> None:
    """Records still refer to it, and must not show another's text."""
    evicted = bodies.put(b"gone", NOW_NS)
    bodies.evict([evicted], NOW_NS)

    assert bodies.put(b"new", NOW_NS) != evicted
    assert bodies.state(evicted) == "evicted"


def test_an_evicted_body_that_is_sent_again_is_kept_again(bodies: Bodies) -> None:
    """Under its own id or a new one: readable either way."""
    data = make_conversation(2)[-1]
    bodies.evict([bodies.put(data, NOW_NS)], NOW_NS)

    assert bodies.read(bodies.put(data, NOW_NS + 1)) == data


def test_a_body_that_never_was_is_not_found(bodies: Bodies) -> None:
    """Nor can it be let go twice."""
    body_id = bodies.put(b"x", NOW_NS)
    assert bodies.delete([body_id]).count == 1

    assert bodies.delete([body_id]).count == 0
    for ask in (bodies.read, bodies.size, bodies.state):
        with pytest.raises(NotFoundError, match="no such body"):
            ask(body_id)


# --- damage -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE pieces SET data = substr(data, 1, length(data) - 3)",
        "UPDATE pieces SET data = x'28b52ffd' || zeroblob(40)",
        "UPDATE pieces SET data = zeroblob(size_bytes), codec = 0",
        "UPDATE pieces SET data = 'text', codec = 0",
        "UPDATE pieces SET codec = 99",
        "UPDATE pieces SET size_bytes = size_bytes - 1",
        "UPDATE pieces SET hash = zeroblob(16) WHERE id = 3",
        "DELETE FROM pieces WHERE id = 3",
        "DELETE FROM nodes WHERE parent > 0",
        "DELETE FROM nodes WHERE parent = 0",
        "UPDATE nodes SET parent = id",
        "UPDATE nodes SET parent = id + 1",
    ],
)
def test_damage_is_an_error_and_never_other_bytes(
    db: sqlite3.Connection, bodies: Bodies, damage: str
) -> None:
    """A flipped bit, a lost row, a loop: the error names the body."""
    body_id = bodies.put(make_conversation(3)[-1], NOW_NS)
    db.execute(damage)

    with pytest.raises(StoreError, match=rf"^body {body_id}: "):
        bodies.read(body_id)
    assert list(bodies.read_many([body_id])) == []


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE bodies SET data = zeroblob(8)",
        "UPDATE bodies SET data = 'text'",
        "UPDATE bodies SET codec = 99",
        "UPDATE bodies SET size_bytes = size_bytes - 1",
        "UPDATE bodies SET hash = zeroblob(16)",
    ],
)
def test_damage_of_a_short_body_is_an_error_too(
    db: sqlite3.Connection, bodies: Bodies, damage: str
) -> None:
    """It is one row, and verified as every piece is."""
    body_id = bodies.put(short(b"a text"), NOW_NS)
    db.execute(damage)

    with pytest.raises(StoreError, match=rf"^body {body_id}: "):
        bodies.read(body_id)
    assert list(bodies.read_many([body_id])) == []


def test_a_damaged_body_does_not_keep_others_from_being_read(
    db: sqlite3.Connection, bodies: Bodies
) -> None:
    """Of many that are read at once, only the damaged one is missing."""
    first, second, third = (bodies.put(text, NOW_NS) for text in (b"one", b"two" * 5000, b"three"))
    db.execute("UPDATE nodes SET end_bytes = 'many' WHERE id = ?", (second,))

    assert list(bodies.read_many([third, second, first])) == [(third, b"three"), (first, b"one")]


def test_letting_go_of_a_damaged_body_ends(db: sqlite3.Connection, bodies: Bodies) -> None:
    """Retention must get past it."""
    body_id = bodies.put(make_conversation(3)[-1], NOW_NS)
    db.execute("UPDATE nodes SET parent = id + 1")
    db.execute("DELETE FROM pieces WHERE id = 3")

    assert bodies.delete([body_id]).count == 1


# --- compression --------------------------------------------------------------------------


def test_short_and_random_data_stay_as_they_are() -> None:
    """Compressing them would make them longer."""
    noise = random.Random(1).randbytes(5000)

    assert compress(b"]}") == (RAW, b"]}")
    assert compress(noise) == (RAW, noise)
    assert compress(b"word " * 100)[0] == ZSTD


def test_a_bomb_yields_no_more_than_its_row_declares() -> None:
    """A few bytes that unpack to gigabytes are refused at the declared size."""
    codec, bomb = compress(b"\0" * (64 * MIB))

    with pytest.raises(StoreError, match="damaged"):
        decompress(codec, bomb, 1000)


# --- stores of before -----------------------------------------------------------------------


def test_bodies_of_before_short_ones_were_rows_stay_and_can_go(tmp_path: Path) -> None:
    """An older store keeps its nodes: read, evicted and distinguished from new ones."""
    db = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    before = schema.STEPS.index(ROWS)
    for step in schema.STEPS[:before]:
        db.executescript(step)
    texts = {1: b"kept", 2: b"to be evicted", 3: b"evicted before"}
    for number, text in texts.items():
        digest = hash_text(text)
        db.execute(
            "INSERT INTO pieces VALUES (?, ?, ?, ?, 0, ?)",
            (number, digest, len(text), len(text), text),
        )
        db.execute("INSERT INTO nodes VALUES (?, 0, ?, ?)", (number, number, len(text)))
        db.execute(
            "INSERT INTO bodies (id, size_bytes, first_ns, last_ns) VALUES (?, ?, 5, 5)",
            (number, len(text)),
        )
    db.execute("UPDATE bodies SET evicted_ns = 7 WHERE id = 3")
    for step in schema.STEPS[before:]:
        db.executescript(step)
    bodies = Bodies(db)
    db.execute("BEGIN")

    new = bodies.put(b"new", NOW_NS)
    freed = bodies.evict([2], NOW_NS).freed_bytes

    assert bodies.read(1) == b"kept"
    assert dict(bodies.read_many([1, 2, new])) == {1: b"kept", new: b"new"}
    assert [bodies.state(number) for number in (1, 2, 3)] == ["kept", "evicted", "evicted"]
    assert (new, freed) == (4, len(texts[2]))
    assert bodies.stored_bytes() == len(b"kept" + texts[3] + b"new")
