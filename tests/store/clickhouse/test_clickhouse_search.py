"""Text search with the index of the server finds what a search of all texts finds."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator

import pytest

from support.clickhouse import ClickHouseServer
from support.stored_runs import make_run
from vestige.store.clickhouse import schema
from vestige.store.clickhouse.address import parse_address
from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.read import search
from vestige.store.open import make_server_store, open_store
from vestige.store.protocol import SearchQuery

pytestmark = pytest.mark.slow

WORDS = [
    "Order",
    "re-order",
    "preorder_7",
    "lost",
    "naïve",
    "Größe",
    "日本語",
    "x",
    "7",
    '{"q":',
    "id=42",
]


def make_texts() -> list[str]:
    chance = random.Random(7)
    return [" ".join(chance.choices(WORDS, k=6)) + f" {number}" for number in range(60)]


@pytest.fixture
def address(clickhouse_server: ClickHouseServer) -> Iterator[str]:
    made = clickhouse_server.make_store()
    yield made
    clickhouse_server.release_store(made)


LITERALS = [
    ("order",),
    ("Order re",),
    ("preorder_7 lost",),
    ("ïve",),
    ("naïve Größe",),
    ("日本語",),
    ("x",),
    ("7 x 7",),
    ('{"q": lost',),
    ("id=42",),
    ("d=4",),
    ("lost lost",),
    ("rder", "ost x"),
    (" lost ",),
    ("-",),
    ("er id=42 nai",),
    ("answer 1",),
]


def test_the_index_omits_no_text(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_BODIES_FIRST", 1)  # all other steps use the index
    texts = make_texts()
    with open_store(address) as store:
        with store.transaction():
            for number, text in enumerate(texts, 1):
                store.append(make_run(number, request=text, answer=f"answer {number}"))
        texts += [f"answer {number}" for number in range(1, len(texts) + 1)]
        for at, literals in enumerate(LITERALS):
            ignore_case = at % 2 == 0
            flags = re.IGNORECASE if ignore_case else re.NOFLAG
            pattern = re.compile("|".join(map(re.escape, literals)), flags)
            query = SearchQuery(pattern, literals, ignore_case, None, ("bodies",))
            found = store.search(query, None, 1_000)

            expected = [text for text in texts if pattern.search(text)]
            assert len(found.hits) == len(expected), literals
            assert found.cursor is None


def test_words_of_a_literal_are_complete_but_for_the_ends() -> None:
    condition = search.build_index_condition(["er Id=42 nai", "lost"])

    assert condition is not None
    assert condition.values == {"words0": ["id", "42"], "part1": "%lost%"}
    assert search.build_index_condition(["lost", "x y"]) is None


def test_a_store_of_version_1_is_upgraded_and_its_streams_are_found(address: str) -> None:
    """Rows of that version lack the text that a stream assembles to."""
    events = [
        {"choices": [{"index": 0, "delta": {"content": text}}]} for text in ("It is on", " its way")
    ]
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    with open_store(address) as store:
        store.append(make_run(1, answer=stream))
    client = Client.connect(parse_address(address))
    for change in (
        "DROP INDEX stream_words",
        "DROP COLUMN stream_text",
        "DROP COLUMN is_unread_stream",
        "MODIFY COLUMN data CODEC(ZSTD(6))",
    ):
        client.command(f"ALTER TABLE bodies {change} SETTINGS mutations_sync = 2")
    client.command("TRUNCATE TABLE schema_versions")
    client.insert("schema_versions", {"version": "UInt32"}, [(1,)])

    assert make_server_store(address) == (1, schema.VERSION)
    query = SearchQuery(re.compile("on its way"), ("on its way",), False, None, ("bodies",))
    with open_store(address) as store:
        assert [hit.match for hit in store.search(query).hits] == ["on its way"]
        store.append(make_run(2, answer=stream.replace("on", "in")))
        again = SearchQuery(re.compile("in its way"), ("in its way",), False, None, ("bodies",))
        assert [hit.span_ref.short_id for hit in store.search(again).hits] == ["r2.s2"]
    rows = client.query("SELECT stream_text, is_unread_stream FROM bodies WHERE data LIKE 'data:%'")
    assert sorted(map(tuple, rows)) == [("", 1), ("It is in its way", 0)]
    client.close()
