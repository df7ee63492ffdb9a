"""`outline`: a whole run as columns, and only what is new after a cursor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vestige
from support.refund_desk import record_desk
from vestige.collector.loop import catch_up
from vestige.errors import UsageError
from vestige.home import Home
from vestige.query.debugger import Debugger
from vestige.query.views.outline import format_label, outline_answer
from vestige.query.views.tree_summary import render_tree
from vestige.record.types import Link, SpanClose, SpanOpen
from vestige.recorder import Recorder
from vestige.store.sqlite.read.outline_rows import OPEN_MAX, Cursor, parse_cursor
from vestige.store.sqlite.sqlite_store import SqliteStore

Row = dict[str, Any]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debugger]:
    home = Home(tmp_path_factory.mktemp("outline") / "home")
    record_desk(home)
    with vestige.open(home.root) as opened:
        yield opened


def rows(data: dict[str, Any]) -> dict[int, Row]:
    """The columns as a page reads them: by number, texts in place of their indexes."""
    spans, strings = data["spans"], data["strings"]
    texts = ("type", "name", "component", "status", "model", "label")
    return {
        number: {
            key: strings[column[at]] if key in texts else column[at]
            for key, column in spans.items()
        }
        for at, number in enumerate(spans["number"])
    }


def test_columns_say_of_every_span_what_show_says(desk: Debugger) -> None:
    """Two ways to the same rows: objects and columns."""
    shown = {span["short_id"]: span for span in desk.show("r3").data()["spans"]}
    data = desk.outline("r3").data()
    numbers = {row["id"]: number for number, row in rows(data).items()}

    assert [f"r3.s{number}" for number in data["spans"]["number"]] == list(shown)
    assert len({len(column) for column in data["spans"].values()}) == 1
    for number, row in rows(data).items():
        span = shown[f"r3.s{number}"]
        assert [row[key] for key in ("id", "type", "name", "component", "status")] == [
            span[key] for key in ("id", "type", "name", "component", "status")
        ]
        assert row["parent"] == numbers.get(span["parent_id"], 0)
        assert row["duration_us"] == int(span["duration_ms"] * 1000)
        sizes = [(span[side] or {"size_bytes": -1})["size_bytes"] for side in ("input", "output")]
        assert [row["input_bytes"], row["output_bytes"]] == sizes


def test_labels_say_what_a_span_did_or_how_it_failed(desk: Debugger) -> None:
    found = {row["name"]: row["label"] for row in rows(desk.outline("r3").data()).values()}

    assert found["lookup_order"] == '{"order":"A-18"}'
    assert found["refund"] == "ValueError: no such order: 0"
    assert found["refund desk"] == "RuntimeError: refund failed"


def test_labels_leave_out_what_nearly_all_spans_have() -> None:
    common = {"app": "shop"}

    assert (
        format_label("ok", {"app": "shop", "openinference.span.kind": "CHAIN"}, None, common) == ""
    )
    assert "app=desk" in format_label("ok", {"app": "desk"}, None, common)


def test_log_lines_stand_at_their_spans(desk: Debugger) -> None:
    data = desk.outline("r3").data()
    logs, strings = data["logs"], data["strings"]

    assert logs["message"] == ["request came in", "card refused"]
    assert [strings[level] for level in logs["level"]] == ["info", "error"]
    assert [strings[label] for label in logs["label"]] == ["order=A-18", "order=0"]
    assert logs["span"] == [1, 1]


def test_a_cursor_gives_what_is_new_and_what_has_changed(home: Home) -> None:
    """While a run is under way: merged by number, the answers are the whole."""
    with Recorder(home, last_words=False) as recorder:
        run = recorder.run("agent")
        step = run.child("step", "step")
        run.child("done", "tool").end()
        catch_up(home)
        with vestige.open(home.root) as debugger:
            short = debugger.resolve(None).run.short_id
            first = debugger.outline(short)
            nothing = debugger.outline(short, after=first.data()["next"]).data()
        step.log.warn("said later")
        step.set_attributes(found=3)
        step.end()
        run.child("new", "tool").end()
        run.end()
    catch_up(home)
    with vestige.open(home.root) as debugger:
        later = debugger.outline(short, after=nothing["next"]).data()
        complete = debugger.outline(short).data()

    assert [row["name"] for row in rows(nothing).values()] == ["agent", "step"]  # open, as they are
    assert [row["name"] for row in rows(later).values()] == ["agent", "step", "new"]
    assert later["logs"]["message"] == ["said later"]
    assert {**rows(first.data()), **rows(later)} == rows(complete)
    assert later["run"]["outcome"] == "ok"


@pytest.mark.parametrize("limit", [1, 4])
def test_pages_of_a_long_run_are_the_whole(desk: Debugger, limit: int) -> None:
    """Parents on another page are known by their number."""
    info = desk.resolve("r3").run
    merged: dict[int, Row] = {}
    messages: list[str] = []
    after: str | None = None
    while True:
        page = outline_answer(desk.store, info, after, limit).data()
        merged |= rows(page)
        messages += page["logs"]["message"]
        after = page["next"]
        if not page["more"]:
            break
    complete = desk.outline("r3").data()

    assert merged == rows(complete)
    assert messages == complete["logs"]["message"]


def test_a_run_with_more_open_spans_than_a_cursor_names_is_read_again(home: Home) -> None:
    with Recorder(home, last_words=False) as recorder:
        run = recorder.run("agent")
        spans = [run.child("work", "step") for _ in range(OPEN_MAX + 1)]
        catch_up(home)
        with vestige.open(home.root) as debugger:
            short = debugger.resolve(None).run.short_id
            first = debugger.outline(short).data()
        for span in spans:
            span.end()
        run.end()
    catch_up(home)
    with vestige.open(home.root) as debugger:
        later = debugger.outline(short, after=first["next"]).data()
        complete = debugger.outline(short).data()

    assert len(first["next"]) < 100
    assert {**rows(first), **rows(later)} == rows(complete)
    assert {row["status"] for row in rows(later).values()} == {"ok"}


@pytest.mark.slow
def test_what_is_missing_of_a_run_is_counted(home: Home) -> None:
    """Redactions, and bodies that were cut: a page must not hide them."""
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        run.child("call", "tool", attributes={"password": "hunter2"}).end()
        run.child("big", "tool", body="x" * 40_000_000).end()
    catch_up(home)
    with vestige.open(home.root) as debugger:
        losses = debugger.outline().data()["losses"]

    assert sum(losses["redactions"].values()) == 1
    assert losses["bodies_cut"] == 1
    assert losses["records_missing"] == losses["records_dropped"] == 0


@pytest.mark.parametrize(
    "text", ["", "x", "1.2.3", "1.2.3.4.5", "-1.0.0.", "0.0.0.zz", "f" * 40 + ".0.0.", "1.1.1.-2"]
)
def test_a_bad_cursor_is_refused_in_one_line(desk: Debugger, text: str) -> None:
    if text == "1.1.1.-2":  # an empty place in the list does no harm
        assert parse_cursor(text).open == (2,)
        return
    with pytest.raises(UsageError) as refused:
        desk.outline("r3", after=text)

    assert "\n" not in str(refused.value)
    assert "`next`" in str(refused.value)


def test_a_cursor_is_the_same_after_it_travelled() -> None:
    for cursor in (Cursor(), Cursor(10, 2**60, 3, (1, 20)), Cursor(1, 1, 1, None)):
        assert parse_cursor(str(cursor)) == cursor
    with pytest.raises(ValueError, match="too many"):
        parse_cursor("0.0.0." + "-".join(["1"] * (OPEN_MAX + 1)))


def test_the_shape_adds_equal_siblings_up(desk: Debugger) -> None:
    lines = desk.outline("r3").text().splitlines()

    assert lines[1].startswith("run refund desk ")
    assert any(line.startswith("  llm messages.create ×4 ") for line in lines)
    assert any(line.startswith("  tool refund ") and line.endswith("failed") for line in lines)


def test_the_shape_of_a_run_that_is_its_own_ancestor_ends() -> None:
    """A hostile run: two spans that name each other, and one that names nobody."""
    spans = {
        "number": [1, 2, 3],
        "parent": [2, 1, 9],
        "type": [1, 1, 1],
        "name": [2, 3, 4],
        "status": [5, 0, 5],
        "duration_us": [10, None, 30],
        "input_tokens": [-1] * 3,
        "output_tokens": [-1] * 3,
    }

    lines = render_tree(spans, ["", "step", "a", "b", "c", "ok"])

    assert sorted(line.strip().split()[1] for line in lines) == ["a", "b", "c"]


def test_more_links_than_a_page_holds_are_told_on_the_next(tmp_path: Path) -> None:
    """A run of few spans may have many links: the page says that there are more."""
    links = [Link(f"elsewhere{number}", "another run") for number in range(20)]
    opened = SpanOpen(1, "a" * 16, 1, 10**18, "a run", "root", "agent", "run", "agent", links=links)
    found: list[str] = []
    with SqliteStore.open(tmp_path / "store.db") as store:
        store.append([opened])
        (info,) = store.find_runs("r1")
        after, more = None, True
        while more:
            page = outline_answer(store, info, after, 6).data()
            found += [link["target_span"] for link in page["links"]]
            after, more = page["next"], page["more"]

    assert found == [link.span_id for link in links]


def test_a_cursor_gives_again_what_an_opening_tells_that_came_after_the_end(tmp_path: Path) -> None:
    """Two files of one run are read in any order: the end of a span may be known before its begin,
    and a span before its parent."""
    now, writer = 10**18, "a" * 16
    close = SpanClose(1, writer, 3, now, "a run", "child", "ok", 5)
    opened = SpanOpen(1, writer, 2, now, "a run", "child", "agent", "tool", "look", "root")
    root = SpanOpen(1, "b" * 16, 1, now, "a run", "root", "agent", "run", "agent")
    seen: list[tuple[str, int]] = []
    with SqliteStore.open(tmp_path / "store.db") as store:
        after = None
        for record in (close, opened, root):
            store.append([record])
            (info,) = store.find_runs("r1")
            data = outline_answer(store, info, after).data()
            after = data["next"]
            seen += [
                (row["name"], row["parent"]) for row in rows(data).values() if row["id"] == "child"
            ]
            quiet = outline_answer(store, info, after).data()

    assert seen == [("?", 0), ("look", 0), ("look", 2)]
    assert [row["id"] for row in rows(quiet).values()] == ["root"]  # the others are settled
