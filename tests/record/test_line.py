"""A record becomes one line and comes back; what a newer version wrote is not lost on the way."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.limits import LINE_MAX
from vestige.record.codec import BadLineError, encode, parse_line, parse_lines, render_line
from vestige.record.types import (
    VERSION,
    BodyInfo,
    KnownRecord,
    Link,
    Log,
    SpanClose,
    SpanOpen,
    SpanUpdate,
    Unknown,
)

WRITER, RUN, SPAN = "5f0c9a1e77b2c4d0", "3d1957bd-0000-4000-8000-000000000001", "9f86d081884c7d65"

EVERY_KIND: list[KnownRecord] = [
    SpanOpen(
        VERSION,
        WRITER,
        1,
        10,
        RUN,
        SPAN,
        "triage",
        "tool",
        "search",
        "0a1b2c3d4e5f6071",
        "c-9",
        {"n": 1, "x": 1.5, "s": "é", "t": True, "none": None},
        [Link("aa", "bb", "because"), Link("cc")],
        '{"q":"…"}',
        None,
        {"api_key": 2},
    ),
    SpanUpdate(VERSION, WRITER, 2, 11, RUN, SPAN, {"tokens": 7}, [Link("dd")]),
    SpanClose(
        VERSION,
        WRITER,
        3,
        12,
        RUN,
        SPAN,
        "error",
        99,
        {"error.type": "ValueError"},
        None,
        BodyInfo(spilled_bytes=300_000, sha256="ab", original_bytes=9, original_sha256="cd"),
    ),
    Log(
        VERSION,
        WRITER,
        4,
        13,
        RUN,
        "triage",
        "warn",
        "line\nbreak",
        SPAN,
        {},
        "AAE=",
        BodyInfo("base64"),
    ),
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("record", EVERY_KIND, ids=lambda record: type(record).__name__)
def test_every_kind_comes_back_as_it_was(record: KnownRecord) -> None:
    """A line holds the whole record, and only one line."""
    line = render_line(record)

    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert parse_line(line) == record
    assert line == encode((record,))


def test_many_lines_are_read_at_once_in_their_order() -> None:
    """The fast path gives the same records as reading line by line."""
    data = b"".join(map(render_line, EVERY_KIND))

    assert parse_lines(data) == (EVERY_KIND, 0)


@pytest.mark.slow
@given(extra=st.dictionaries(st.text(min_size=1).map("new_".__add__), json_values, min_size=1))
def test_fields_of_a_newer_version_survive(extra: dict[str, object]) -> None:
    """Forward compatible: what we do not know is written back where it was."""
    fields = {**json.loads(render_line(EVERY_KIND[0])), "v": VERSION + 1, **extra}

    written = json.loads(render_line(parse_line(json.dumps(fields).encode())))

    assert written == fields


@pytest.mark.slow
@given(fields=st.dictionaries(st.text(), json_values))
def test_a_kind_of_a_newer_version_survives(fields: dict[str, object]) -> None:
    """An unknown kind is kept whole, with the identity that makes re-reading idempotent."""
    fields |= {"kind": "heartbeat", "writer": WRITER, "seq": 5, "run_id": RUN}

    record = parse_line(json.dumps(fields).encode())

    assert isinstance(record, Unknown)
    assert (record.kind, record.writer, record.seq, record.run_id) == ("heartbeat", WRITER, 5, RUN)
    assert json.loads(render_line(record)) == fields


def test_a_status_and_a_level_of_a_newer_version_are_kept() -> None:
    """They are text, not an enumeration that a new word would break."""
    close = SpanClose(VERSION, WRITER, 1, 1, RUN, SPAN, "suspended", 1)
    log = Log(VERSION, WRITER, 2, 1, RUN, "c", "notice", "m")

    assert parse_line(render_line(close)) == close
    assert parse_line(render_line(log)) == log


@given(cut=st.integers(min_value=1, max_value=10_000), which=st.sampled_from(EVERY_KIND))
def test_a_record_behind_a_torn_one_is_salvaged(cut: int, which: KnownRecord) -> None:
    """A short write on a full disk leaves half a line in front of a whole one."""
    torn = render_line(EVERY_KIND[0])[:-1]
    torn = torn[: cut % len(torn)]

    assert parse_line(torn + render_line(which)) == which


def test_a_record_that_quotes_a_record_is_not_taken_for_two() -> None:
    """A quote inside a JSON string is escaped, so no opening can stand inside a body."""
    inner = render_line(EVERY_KIND[3]).decode()
    outer = Log(VERSION, WRITER, 9, 1, RUN, "c", "info", "quoted", None, {}, inner)

    assert parse_line(render_line(outer)) == outer


def test_bad_lines_among_good_ones_are_counted_and_passed_over() -> None:
    """One damaged line costs one line."""
    good = render_line(EVERY_KIND[0])
    data = good + b'{"kind":"span-open","writer":1}\n\n  \nnot json\n\xff\xfe\n' + good

    records, malformed = parse_lines(data)

    assert records == [EVERY_KIND[0], EVERY_KIND[0]]
    assert malformed == 3


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"kind":"log"}',
        b'{"kind":"new","writer":"w","seq":true}',
        b'{"kind":"new","writer":"w","seq":1,"run_id":7}',
        (
            b'{"kind":"log","v":1,"writer":"w","seq":-1,"time_ns":1,"run_id":"r",'
            b'"component":"c","level":"info","message":"m"}'
        ),
        (
            b'{"kind":"log","v":2,"writer":"w","seq":1,"time_ns":1,"run_id":"r",'
            b'"component":"c","level":"info","message":"m","new":1e999}'
        ),
        (
            b'{"kind":"log","v":2,"writer":"w","seq":1,"time_ns":1,"run_id":"r",'
            b'"component":"c","level":"info","message":"m","new":"\xff"}'
        ),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xff",
        b'"' + b"x" * LINE_MAX + b'"',
    ],
    ids=lambda line: repr(line[:24]),
)
def test_what_is_no_record_is_a_bad_line_and_nothing_else(line: bytes) -> None:
    """Bytes from outside never meet a raw decode error."""
    with pytest.raises(BadLineError):
        parse_line(line)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_a_bad_line(data: bytes) -> None:
    """Nothing else is ever raised."""
    records, malformed = parse_lines(data)

    assert len(records) + malformed <= data.count(b"\n") + 1
