"""The command that an answer ends with asks the same question, from where the answer stopped."""

from __future__ import annotations

import re
import shlex
from itertools import groupby
from pathlib import Path

import pytest

import vestige
from support import commands
from support.programs import load
from vestige._runtime import clock
from vestige.home import Home
from vestige.query.debugger import Debugger
from vestige.query.text_layout import CommandAnswer
from vestige.record.types import AnyRecord, SpanOpen
from vestige.recorder import Recorder
from vestige.settings import parse_duration
from vestige.store.sqlite.sqlite_store import SqliteStore

WRITER = "5f0c9a1e77b2c4d0"
RUN = "3d1957bd-0000-4000-8000-000000000001"
T0 = 1_763_229_905_000_000_000
STEPS = 30


@pytest.fixture
def debugger(tmp_path: Path) -> Debugger:
    """Steps a microsecond apart, some seconds after the run began."""
    records: list[AnyRecord] = [SpanOpen(1, WRITER, 1, T0, RUN, "root", "agent", "run", "triage")]
    for number in range(STEPS):
        at_ns = T0 + 12_345_678_901 + number * 1_000
        records.append(
            SpanOpen(
                1,
                WRITER,
                number + 2,
                at_ns,
                RUN,
                f"step{number}",
                "agent",
                "step",
                f"step {number}",
                "root",
            )
        )
    store = SqliteStore.open(tmp_path / "store.db")
    store.append(records)
    return Debugger(store)


def test_the_rest_of_a_text_is_where_it_was_asked(tmp_path: Path) -> None:
    """A command without the home would ask another store."""
    with Recorder(Home(tmp_path / "home"), last_words=False) as recorder:
        recorder.run("triage").child("ask", type="llm", body="x" * 5_000).end()
    load(Home(tmp_path / "home"))

    with vestige.open(tmp_path / "home") as debugger:
        lines = debugger.transcript().text().splitlines()

    (rest,) = [line for line in lines if "in full" in line]
    assert rest.endswith(f"vestige transcript r2 --step 1 --full --home {tmp_path / 'home'}")


def test_several_commands_state_the_home_once(tmp_path: Path) -> None:
    """Each works with the options of the last line; data has them in every command."""
    home = tmp_path / ("home" * 20)
    with Recorder(Home(home), last_words=False) as recorder:
        recorder.run("triage").child("ask", type="llm", body="x").end(status="error")
    load(Home(home))

    result = commands.vestige("overview", "--home", str(home))
    *lines, last = result.stdout.splitlines()
    (line,) = [line for line in lines if line.startswith("next: ")]
    words = shlex.split(line.removeprefix("next: "))
    nexts = [list(words) for is_bar, words in groupby(words, "|".__eq__) if not is_bar]

    assert last == f"add to each command: --home {home}"
    assert result.stdout.count(str(home)) == 1
    assert len(nexts) > 1
    for _, *arguments in nexts:
        assert commands.vestige(*arguments, *shlex.split(last)[-2:]).exit_code in (0, 1)


def test_the_home_is_before_the_end_of_options(tmp_path: Path) -> None:
    """After `--` it would be a run."""
    answer = CommandAnswer()
    answer.at = "--home x"

    assert answer.command("grep", "--", "-a", "r1") == "vestige grep --home x -- -a r1"


def test_pages_of_a_body_as_data_end_between_characters(tmp_path: Path) -> None:
    """In the middle of one, a text would come as base64."""
    text = "xx" + "é请" * 400_000
    with Recorder(Home(tmp_path / "home"), last_words=False) as recorder:
        recorder.run("triage").child("ask", type="llm", body=text).end()
    load(Home(tmp_path / "home"))

    pages = []
    with vestige.open(tmp_path / "home") as debugger:
        at: int | None = 0
        while at is not None:
            pages.append(debugger.body("r2.s2", bytes=f"{at}:").data())
            at = pages[-1]["next"]

    assert [page["encoding"] for page in pages] == ["text", "text"]
    assert "".join(page["text"] for page in pages) == text


def test_pages_from_a_moment_hold_every_line_once(debugger: Debugger) -> None:
    """The time is printed to the nanosecond: else the first line would be outside the next page,
    and what it counts from there would pass over one.
    """
    found: list[str] = []
    start, after = "r1.s2", 0
    while True:
        text = debugger.show("r1", from_=start, after=after, limit=7).text()
        found += re.findall(r"step (\d+)", text)
        more = re.search(r"--from (\S+) --after (\d+)", text)
        if more is None:
            break
        start, after = more[1], int(more[2])

    assert found == [str(number) for number in range(STEPS)]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(STEPS))
def test_a_span_is_the_first_and_the_last_of_what_it_bounds(
    debugger: Debugger, number: int
) -> None:
    """A moment in seconds is the span's own again, whatever a float makes of it."""
    span = f"r1.s{number + 2}"

    data = debugger.show("r1", from_=span, to=span).data()

    assert [each["name"] for each in data["spans"]] == [f"step {number}"]


@pytest.mark.parametrize("since", ["30d", "12d", "90m", "0.5s", "100000w"])
def test_an_age_is_told_as_it_can_be_asked_with(tmp_path: Path, since: str) -> None:
    now_ns = clock.SYSTEM.now_ns() + 3_600 * 10**9  # still young when they are asked for
    with SqliteStore.open(tmp_path / "store.db") as store:
        for number in range(3):
            store.append(
                [
                    SpanOpen(
                        1, WRITER, number + 1, now_ns, f"run-{number}", "root", "agent", "run", "x"
                    )
                ]
            )
        text = Debugger(store).list(since=since, limit=1).text()

    age = re.search(r"--since (\S+) ", text)
    assert age is not None
    assert parse_duration(age[1]) == min(parse_duration(since), 1e9)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [50, 60, 75, 100, 110])
@pytest.mark.parametrize("verb", ["list", "sql", "grep"])
def test_pages_of_any_size_hold_every_row_once(tmp_path: Path, verb: str, budget: int) -> None:
    """However small a page is: it has a row, and its command continues after that row."""
    with SqliteStore.open(tmp_path / "store.db") as store:
        for number in range(25):
            store.append(
                [
                    SpanOpen(
                        1,
                        WRITER,
                        number + 1,
                        T0 + number,
                        f"run-{number}",
                        "root",
                        "agent",
                        "run",
                        f"agent {number}",
                    )
                ]
            )
        debugger = Debugger(store, at="--home /srv/agents/of/the/night/shift")
        calls = {
            "list": lambda after: debugger.list(limit=10, after=after),
            "sql": lambda after: debugger.sql(
                "SELECT 'r' || id, name FROM runs", after=int(after or 0)
            ),
            "grep": lambda after: debugger.grep("agent", after=after),
        }
        found: list[str] = []
        after: str | None = None
        for _ in range(30):
            text = calls[verb](after).text(budget)
            found += re.findall(r"(?m)^(r\d+)\b", text)
            more = re.findall(r"--after (\S+)", text)
            if not more:
                break
            (after,) = more

    assert sorted(found) == sorted(f"r{number + 1}" for number in range(25))


@pytest.mark.parametrize("budget", [60, 80, 150, 300])
@pytest.mark.parametrize("verb", ["show", "transcript"])
def test_a_line_longer_than_a_page_is_told_in_part(tmp_path: Path, verb: str, budget: int) -> None:
    """Passed over, nobody would know of it: the page's command goes on after it."""
    with SqliteStore.open(tmp_path / "store.db") as store:
        store.append([SpanOpen(1, WRITER, 1, T0, RUN, "root", "agent", "run", "triage")])
        for number in range(6):
            name = f"step {number} {'退款' * 20 * (number % 3)}"
            store.append(
                [
                    SpanOpen(
                        1,
                        WRITER,
                        number + 2,
                        T0 + number,
                        RUN,
                        f"step{number}",
                        "agent",
                        "step",
                        name,
                        "root",
                    )
                ]
            )
        debugger = Debugger(store)
        found: list[str] = []
        after: str | None = None
        for _ in range(8):
            calls = (
                debugger.show("r1", after=int(after or 0))
                if verb == "show"
                else debugger.transcript("r1", after=after)
            )
            text = calls.text(budget)
            found += re.findall(r"(?<!--)step (\d)", text)
            more = re.findall(r"--after (\S+)", text)
            if not more:
                break
            (after,) = more

    assert found == [str(number) for number in range(6)]
