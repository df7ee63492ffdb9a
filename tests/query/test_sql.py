"""SQL of the user's own: it reads, it is bounded, and its errors teach."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import vestige
from vestige._runtime.clock import monotonic
from vestige.errors import UsageError, VestigeError
from vestige.home import Home
from vestige.query.debugger import Debugger
from vestige.recorder import Recorder


@pytest.fixture
def debugger(home: Home) -> Iterator[Debugger]:
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        for number in range(300):
            run.child(f"step {number}", type="tool").end()
    with vestige.open(home.root) as opened:
        yield opened


def test_rows_come_as_a_table_and_as_data(debugger: Debugger) -> None:
    """Column names, then values."""
    answer = debugger.sql("SELECT type, count(*) n FROM spans GROUP BY type ORDER BY n DESC")

    assert answer.text().splitlines()[:2] == ["type     n", "tool     300"]
    assert answer.data()["rows"][0] == ["tool", 300]


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM runs",
        "UPDATE runs SET name = 'x'",
        "INSERT INTO facts VALUES ('a', 'b')",
        "DROP TABLE spans",
        "CREATE TABLE x (y)",
        "CREATE TEMP TABLE x (y)",
        "ATTACH DATABASE '/tmp/x.db' AS x",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA user_version",
        "SELECT * FROM pragma_table_info('runs')",
        "VACUUM INTO '/tmp/x.db'",
        "BEGIN",
        "SELECT load_extension('x')",
        "WITH x AS (SELECT 1) DELETE FROM runs",
        "REINDEX",
        "ANALYZE",
    ],
)
def test_whatever_is_not_reading_is_refused(debugger: Debugger, query: str) -> None:
    """And nothing has changed."""
    with pytest.raises(UsageError):
        debugger.sql(query)

    assert debugger.sql("SELECT count(*) FROM spans").data()["rows"][0][0] >= 301
    assert not Path("/tmp/x.db").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n",
        "SELECT count(*) FROM spans a, spans b, spans c, spans d",
        (
            "WITH RECURSIVE n(x) AS (SELECT 'a' UNION ALL SELECT x || x FROM n)"
            " SELECT length(x) FROM n"
        ),
        "SELECT zeroblob(2000000000)",
        "SELECT group_concat(a.name || b.name || c.name) FROM spans a, spans b, spans c",
        "SELECT hex(zeroblob(8000000)) LIKE '%' || hex(zeroblob(20000)) || '1%'",
        (
            "SELECT count(*) FROM spans WHERE "
            "instr(hex(zeroblob(8000000)), hex(zeroblob(2000000)) || id)"
        ),
        "SELECT count(hex(zeroblob(number + 8000000))) FROM spans",
    ],
)
def test_a_bomb_ends_soon(debugger: Debugger, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock, or by the size of a value; with words that say so."""
    monkeypatch.setattr("vestige.store.sqlite.read.sql_sandbox.SECONDS_MAX", 0.3)
    monkeypatch.setattr("vestige.store.sqlite.read.isolated_query.START_S", 2.0)
    started = monotonic()

    with pytest.raises(UsageError, match="sql: "):
        debugger.sql(query)

    assert monotonic() - started < 60  # each of them would take minutes, or for ever


@pytest.mark.slow
def test_functions_of_any_kind_can_be_called(debugger: Debugger) -> None:
    """Whether here, or in a process of its own: values come as they are, and errors teach."""
    answer = debugger.sql(
        "SELECT name, replace(name, 'step', 'ü'), randomblob(2) LIKE 'x', 0.5, NULL, 1 << 62"
        " FROM spans WHERE name LIKE 'step 7_' ORDER BY number LIMIT 1"
    )
    blob = debugger.sql("SELECT x'ff00' AS it WHERE 'a' GLOB '*'").rows.rows
    page = debugger.sql("SELECT number FROM spans WHERE name LIKE 'step%' ORDER BY id", after=200)

    assert answer.data()["rows"] == [["step 70", "ü 70", 0, 0.5, None, 1 << 62]]
    assert list(blob[0]) == [b"\xff\x00"]
    assert len(page.data()["rows"]) == 100
    with pytest.raises(UsageError, match="Nearest: name"):
        debugger.sql("SELECT nme FROM spans WHERE 'a' LIKE 'b'")
    with pytest.raises(UsageError, match="only reading"):
        debugger.sql("SELECT load_extension(replace('x', 'y', 'z'))")


def test_rows_are_capped_and_the_rest_is_one_command_away(debugger: Debugger) -> None:
    """Pages follow each other."""
    seen: list[str] = []
    after: int | None = 0
    while after is not None:
        data = debugger.sql("SELECT name FROM spans ORDER BY id", after=after).data()
        seen += [row[0] for row in data["rows"]]
        after = data["next"]

    assert [name for name in seen if name.startswith("step")] == [f"step {n}" for n in range(300)]
    assert "--after 200" in debugger.sql("SELECT id FROM spans").text(8000)


@pytest.mark.parametrize(
    ("query", "taught"),
    [
        ("SELECT nmae FROM spans", "Nearest: name"),
        ("SELECT * FROM span", "Tables: bodies, closes, facts, findings"),
        ("SELEC 1", "vestige store schema"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("", "not a query"),
        ("SELECT '\x00'", "sql: "),
    ],
)
def test_an_error_teaches(debugger: Debugger, query: str, taught: str) -> None:
    """What was meant, or what there is."""
    with pytest.raises(VestigeError, match=taught):
        debugger.sql(query)


def test_the_examples_of_the_schema_run(debugger: Debugger) -> None:
    """They are the first thing that is tried."""
    for example in debugger.schema().data()["examples"]:
        debugger.sql(example)


def test_the_schema_names_each_table_of_the_store(debugger: Debugger) -> None:
    tables = debugger.sql(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    ).data()

    assert {row[0] for row in tables["rows"]} == {
        each["name"] for each in debugger.schema().data()["tables"]
    }


def test_rows_that_are_long_come_in_smaller_pages(debugger: Debugger) -> None:
    """Hundreds of values, each of the longest that there may be, are never held at once."""
    query = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 7)"
        " SELECT i, zeroblob(10000000) FROM n"
    )
    pages: list[list[object]] = []
    after: int | None = 0
    while after is not None:
        answer = debugger.sql(query, after=after)
        pages.append([row[0] for row in answer.rows.rows])
        after = answer.data()["next"]

    assert pages == [[1, 2, 3], [4, 5, 6], [7]]
