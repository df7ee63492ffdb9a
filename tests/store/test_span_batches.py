"""Whole spans, told at once: nothing that the records say is lost on the way, or said twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.record.types import BodyInfo, KnownRecord, Link, Log, SpanClose, SpanOpen
from vestige.store.span_batches import CompleteSpan, SpanBatchBuilder, decode_spans, iter_batches
from vestige.store.sqlite.bodies.packed_bodies import TINY_MAX

RUN, OTHER_RUN = "3d1957bd-0000-4000-8000-000000000001", "3d1957bd-0000-4000-8000-000000000002"
WRITER = "5f0c9a1e77b2c4d0"


def pair(seq: int, span_id: str = "", **changes: Any) -> list[KnownRecord]:
    """A span from its beginning to its end, 5 ns later; `opening`, `close`: what is otherwise."""
    span_id = span_id or f"span-{seq}"
    opening = SpanOpen(1, WRITER, seq, 100 + seq, RUN, span_id, "agent", "tool", "search", "root")
    close = SpanClose(1, WRITER, seq + 1, 105 + seq, RUN, span_id, "ok", 5)
    for record, values in ((opening, changes.get("opening")), (close, changes.get("close"))):
        for name, value in (values or {}).items():
            setattr(record, name, value)
    return [opening, close]


def line(seq: int) -> Log:
    return Log(1, WRITER, seq, seq, RUN, "agent", "info", "said")


def only(records: list[KnownRecord]) -> SpanBatchBuilder:
    ((some, found),) = iter_batches(records)
    assert found is not None and list(some) == records
    return found


def test_spans_that_follow_each_other_are_one_block() -> None:
    records = [line(1), *pair(2), *pair(4), line(6), line(7), *pair(8), *pair(10)[:1]]

    parts = list(iter_batches(records))

    assert [(len(some), found is not None) for some, found in parts] == [
        (1, False),
        (4, True),
        (2, False),
        (2, True),
        (1, False),
    ]
    assert [record for some, _ in parts for record in some] == records


def test_a_span_has_what_both_of_its_records_say() -> None:
    found = only(
        pair(
            7,
            "a",
            opening={"attributes": {"n": 1, "who": "opening"}},
            close={"attributes": {"who": "close"}, "status": "error"},
        )
    )

    assert (found.writer, found.run_id) == (WRITER, RUN)
    assert found.spans == [
        CompleteSpan(
            7,
            107,
            "a",
            "root",
            "agent",
            "tool",
            "search",
            {"n": 1, "who": "close"},
            "error",
            5,
            None,
            None,
        )
    ]


def test_tiny_bodies_are_packed_each_once_and_longer_ones_where_they_were() -> None:
    long = "x" * TINY_MAX
    wide = "\N{SNOWMAN}" * (TINY_MAX // 3 + 1)  # fewer characters than bytes
    found = only(
        [
            *pair(1, opening={"body": "twice"}, close={"body": long}),
            *pair(3, opening={"body": "\N{SNOWMAN}"}, close={"body": "twice"}),
            *pair(5, opening={"body": wide}, close={"body": ""}),
        ]
    )

    assert [(span.input, span.output) for span in found.spans] == [
        ((0, 5), long),
        ((1, 3), (0, 5)),
        (wide, (2, 0)),
    ]
    ((texts, size, *_),) = found.pack_bodies()
    assert (texts, size) == (3, 8)


@given(st.lists(st.text(max_size=500), max_size=8))
def test_what_is_encoded_comes_back(texts: list[str]) -> None:
    records: list[KnownRecord] = []
    for number, text in enumerate(texts):
        records += pair(2 * number + 1, opening={"body": text, "attributes": {"text": text}})

    for some, found in iter_batches(records):
        assert found is not None and len(some) == len(records)
        spans, left_out = found.encode()
        assert decode_spans(spans) == found.spans
        # Who looks for secrets sees every text in one of them.
        assert len(spans) + len(left_out) > sum(len(text) for text in set(texts))


@pytest.mark.parametrize(
    ("opening", "close"),
    [
        pytest.param({"links": [Link("other")]}, {}, id="links"),
        pytest.param({"conversation_id": "c-1"}, {}, id="a conversation"),
        pytest.param({"type": "run"}, {}, id="the run itself"),
        pytest.param({"type": "process"}, {}, id="a process"),
        pytest.param({"body_info": BodyInfo(spilled_bytes=9)}, {}, id="a spilled input"),
        pytest.param({}, {"body_info": BodyInfo(encoding="base64")}, id="an output of bytes"),
        pytest.param({"redacted": {"jwt": 1}}, {}, id="a secret that was masked"),
        pytest.param({}, {"redacted": {"jwt": 1}}, id="a secret at its end"),
        pytest.param({"extra": {"new": 1}}, {}, id="a field of tomorrow"),
        pytest.param({}, {"extra": {"new": 1}}, id="a field of tomorrow at its end"),
        pytest.param({}, {"span_id": "another"}, id="two spans"),
        pytest.param({}, {"seq": 9}, id="a hole between them"),
        pytest.param({}, {"writer": "a" * 16}, id="two writers"),
        pytest.param({}, {"run_id": OTHER_RUN}, id="two runs"),
        pytest.param({}, {"duration_ns": 4}, id="clocks that disagree"),
    ],
)
def test_what_only_records_can_say_is_no_whole_span(
    opening: dict[str, Any], close: dict[str, Any]
) -> None:
    records = pair(1, opening=opening, close=close)

    assert list(iter_batches(records)) == [(records, None)]


@pytest.mark.parametrize("changes", [{"seq": 4}, {"writer": "a" * 16}, {"run_id": OTHER_RUN}])
def test_a_block_is_of_one_run_and_one_writer_and_has_no_gap(changes: dict[str, Any]) -> None:
    first, second = pair(1), pair(3)
    for record in second:
        for name, value in changes.items():
            setattr(record, name, value + (record is second[1] if name == "seq" else type(value)()))

    assert [len(found.spans) if found else 0 for _, found in iter_batches(first + second)] == [1, 1]
