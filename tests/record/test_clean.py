"""Records that would not encode, or are too long, are made to fit; nothing else is touched."""

from __future__ import annotations

from typing import Any

import pytest

from vestige.limits import BATCH_BYTES, LINE_MAX
from vestige.record.codec import encode, parse_line
from vestige.record.repair_record import clean_record, shrink_record
from vestige.record.types import VERSION, Link, Log, SpanClose, SpanOpen
from vestige.testing import FakeRecorder

OPEN = SpanOpen(
    VERSION,
    "w",
    1,
    1,
    "r",
    "s",
    "component",
    "tool",
    "name",
    None,
    "c-1",
    {"a": 1},
    [Link("x", "y", "why")],
    "body",
)


def test_a_record_without_fault_stays_as_it_is() -> None:
    """Cleaning is for what failed to encode; on the rest it changes nothing."""
    assert clean_record(OPEN) == OPEN


def test_surrogates_go_everywhere_they_can_stand() -> None:
    """Name, type, component, conversation, attributes, links, body, message."""
    bad = "\ud800"
    opened = SpanOpen(
        VERSION,
        "w",
        1,
        1,
        "r",
        "s",
        bad,
        bad,
        bad,
        None,
        bad,
        {bad: bad},
        [Link(bad, bad, bad)],
        bad,
    )
    log = Log(VERSION, "w", 2, 1, "r", bad, "info", bad, None, {bad: bad}, bad)
    closed = SpanClose(VERSION, "w", 3, 1, "r", "s", "ok", 1, {bad: bad}, bad)

    lines = [encode((clean_record(record),)) for record in (opened, log, closed)]

    assert [line.count(b"\\\\ud800") for line in lines] == [10, 5, 3]


def test_a_line_of_the_worst_record_is_one_that_a_reader_takes() -> None:
    """Thousands of long attributes of control characters, which JSON writes six times as long."""
    long = "\x01" * 5_000
    attributes: dict[str, Any] = {f"{n}": long for n in range(400)}
    worst = Log(
        VERSION, "w", 1, 1, "r", "c", "info", "\x01" * 10**6, None, attributes, "\x01" * 250_000
    )

    line = encode((shrink_record(worst),))

    assert len(line) <= LINE_MAX <= BATCH_BYTES
    parsed = parse_line(line)
    assert isinstance(parsed, Log)
    assert parsed.attributes["vestige.attributes_dropped"] == 400 - 256
    assert str(parsed.attributes["0"]).endswith("characters]")
    assert "cut by vestige: 250000 characters" in str(parsed.body)


@pytest.mark.slow
def test_a_recorder_makes_a_record_fit_before_it_writes() -> None:
    """The line that reaches the journal is never one that its reader passes over."""
    recorder = FakeRecorder()

    long = "\x01" * 8_000
    recorder.logger("c").info("long", **{f"k{n}": long for n in range(200)})

    assert len(recorder.journal.lines[-1]) <= LINE_MAX
    assert recorder.logs[-1].message == "long"
