"""The command that an answer ends with asks the same question, from where the answer stopped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vestige import clock
from vestige.query.debugger import Debugger
from vestige.record.types import AnyRecord, SpanOpen
from vestige.settings import parse_duration
from vestige.store.sqlite import SqliteStore

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
            SpanOpen(1, WRITER, number + 2, at_ns, RUN, f"step{number}", "agent", "step", f"step {number}", "root")
        )  # fmt: skip
    store = SqliteStore.open(tmp_path / "store.db")
    store.append(records)
    return Debugger(store)


def test_pages_from_a_moment_hold_every_line_once(debugger: Debugger) -> None:
    """The moment is told to the nanosecond: else the first line would be outside the next page, and
    what it counts from there would pass over one."""
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
            store.append([SpanOpen(1, WRITER, number + 1, now_ns, f"run-{number}", "root", "agent", "run", "x")])  # fmt: skip
        text = Debugger(store).list(since=since, limit=1).text()

    told = re.search(r"--since (\S+) ", text)
    assert told is not None
    assert parse_duration(told[1]) == min(parse_duration(since), 1e9)
