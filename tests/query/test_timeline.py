"""The easy view is a pure function of a run, whatever the run holds."""

from __future__ import annotations

import unicodedata
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vestige.query.run_as_data import list_data, show_data
from vestige.query.views.show import header, stamps
from vestige.query.views.timeline import Line, timeline
from vestige.record.run import BodyRef, LogInfo, Run, RunInfo, SpanInfo

MS = 10**6


def span(id: str, parent: str | None = None, seq: int = 0, **more: Any) -> SpanInfo:
    fields: dict[str, Any] = {
        "id": id,
        "short_id": f"r1.{id}",
        "parent_id": parent,
        "writer": "w",
        "seq": seq,
        "started_ns": seq * MS,
        "type": "step",
        "name": id,
        "component": "c",
        "status": "ok",
        "duration_ns": MS,
        "attributes": {},
        "redacted": {},
        "input": None,
        "output": None,
    }
    return SpanInfo(**(fields | more))


def log(message: str, within: str | None = None, seq: int = 0, **more: Any) -> LogInfo:
    fields: dict[str, Any] = {
        "span_id": within,
        "writer": "w",
        "seq": seq,
        "time_ns": seq * MS,
        "level": "info",
        "component": "c",
        "message": message,
        "attributes": {},
        "redacted": {},
        "body": None,
    }
    return LogInfo(**(fields | more))


def run(*nodes: SpanInfo | LogInfo, **more: Any) -> Run:
    fields: dict[str, Any] = {
        "id": "3d1957bd",
        "short_id": "r1",
        "name": "r",
        "outcome": "ok",
        "started_ns": 0,
        "ended_ns": None,
        "duration_ns": None,
        "last_ns": 5 * MS,
        "span_count": 1,
        "log_count": 0,
        "error_count": 0,
        "conversation_id": None,
        "component": "c",
        "input_tokens": 0,
        "output_tokens": 0,
        "pinned": False,
        "implicit": False,
    }
    return Run(
        info=RunInfo(**(fields | more)),
        spans=[node for node in nodes if isinstance(node, SpanInfo)],
        logs=[node for node in nodes if isinstance(node, LogInfo)],
        links=[],
    )


def texts_of(lines: list[Line]) -> list[str]:
    return ["  " * line.depth + line.text for line in lines]


def test_spans_and_lines_are_nested_in_the_order_they_happened() -> None:
    """One line each; order is by seq, whatever the clock says."""
    lines = timeline(
        run(
            span("root", seq=1, type="run", started_ns=9 * MS),
            span("a", "root", 2, type="tool"),
            log("said in a", "a", 3, time_ns=0),
            span("b", "root", 4),
        )
    )

    assert texts_of(lines) == [
        "run root 1.0ms → ok",
        "  tool a 1.0ms → ok",
        "    info said in a",
        "  step b 1.0ms → ok",
    ]
    assert [line.id for line in lines] == ["r1.root", "r1.a", "", "r1.b"]


def test_everything_worth_knowing_stands_in_the_line() -> None:
    """Model, sizes, tokens, attributes; the rest is one command away."""
    call = span(
        "call",
        type="llm",
        input=BodyRef(1, 2_000),
        output=BodyRef(2, 14, "truncated from 99 bytes"),
        attributes={
            "model": "m-1",
            "input_tokens": 7,
            "attempt": 1,
            "a": 1,
            "b": True,
            "c": None,
            "d": 2,
        },
    )

    (text,) = texts_of(timeline(run(call)))

    assert text == (
        "llm call [m-1] 1.0ms → ok (output 14B truncated from 99 bytes) 7 → ? tokens"
        " attempt=1 a=1 b=true c=null +1 more"
    )


def test_what_is_open_and_what_failed_says_so() -> None:
    """With the error's own words."""
    lines = timeline(
        run(
            span("open", seq=1, status=None, duration_ns=None),
            span(
                "bad",
                seq=2,
                status="error",
                attributes={"error.type": "ValueError", "error.message": "x\ny"},
            ),
            span("late", seq=3, status="timeout"),
            log(
                "oops",
                seq=4,
                level="error",
                attributes={"error.type": "KeyError", "error.message": "k"},
            ),
            log("died", seq=5, component="vestige", level="error", attributes={"crash": True}),
        )
    )

    assert texts_of(lines) == [
        "step open (open)",
        "step bad 1.0ms → error ValueError: x⏎y",
        "step late 1.0ms → timeout",
        "error oops → KeyError: k",
        "!! died",
    ]
    assert [line.style for line in lines] == ["open", "error", "error", "error", "stamp"]


def test_repeats_fold_into_one_with_a_count() -> None:
    """The same call with the same input; not one that has children, and not with the option."""
    body = BodyRef(1, 5)
    same = [span(f"s{n}", "root", n, name="poll", input=body) for n in range(2, 6)]
    other = span("x", "root", 6, name="poll", input=BodyRef(2, 5))
    lines = [log("again", "root", n) for n in (7, 8)]
    complete = run(span("root", seq=1), *same, other, *lines)

    assert [line.count for line in timeline(complete)] == [1, 4, 1, 2]
    assert texts_of(timeline(complete))[1].endswith("×4")
    assert texts_of(timeline(complete))[3].endswith("×2")
    assert len(timeline(complete, fold=False)) == 8


def test_errors_only_keeps_what_failed_and_what_it_stood_in() -> None:
    """What is still open counts: it never ended well."""
    complete = run(
        span("root", seq=1),
        span("fine", "root", 2),
        span("way", "root", 3),
        span("bad", "way", 4, status="error"),
        log("fine too", "way", 5),
        log("bad too", "fine", 6, level="error"),
        span("open", "root", 7, status=None),
    )

    names = [text.split()[1] for text in texts_of(timeline(complete, errors_only=True))]
    assert names == ["root", "fine", "bad", "way", "bad", "open"]


def test_an_orphan_stands_at_the_top() -> None:
    """Its parent is of another run, or was lost."""
    assert [line.depth for line in timeline(run(span("a", "gone"), log("x", "gone")))] == [0, 0]


def test_a_run_may_be_as_deep_as_it_likes() -> None:
    """No recursion; and the bad news at the bottom is found."""
    deep = [span("s0", None, 1)]
    deep += [span(f"s{n}", f"s{n - 1}", n + 1) for n in range(1, 5_000)]
    deep[-1] = span("s4999", "s4998", 5_000, status="error")

    assert len(timeline(run(*deep))) == 5_000
    assert len(timeline(run(*deep), errors_only=True)) == 5_000


def test_spans_that_are_each_others_parents_do_not_hide() -> None:
    """A hostile run must neither hang the reader nor keep anything from it."""
    lines = timeline(
        run(span("self", "self", 1), span("a", "b", 2), span("b", "a", 3), log("in b", "b", 4))
    )

    assert sorted(line.id for line in lines) == ["", "r1.a", "r1.b", "r1.self"]
    assert texts_of(
        timeline(run(span("a", "b", 1, status="error"), span("b", "a", 2)), errors_only=True)
    )


hostile = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    ["\x1b]0;owned\x07", "\x9b2J", "a\r\nb", "\u202etxt", "\x00"]
)


@given(hostile, hostile, hostile)
def test_hostile_text_reaches_no_terminal(one: str, two: str, three: str) -> None:
    """In any field of a span or line that came from outside."""
    complete = run(
        span(
            "a",
            seq=1,
            type=one,
            name=two,
            status=three,
            component=one,
            output=BodyRef(None, 1),
            attributes={
                "error.type": two,
                "error.message": three,
                "model": one,
                "input_tokens": two,
                three: one,
            },
        ),
        log(one, "a", 2, level=two, attributes={"error.type": three, "error.message": one}),
        log(two, "a", 3, component="vestige", attributes={"crash": True, "fault": one}),
        name=one,
        conversation_id=two,
    )

    texts = [*texts_of(timeline(complete)), *header(complete), *stamps(complete)]
    assert len(texts) == 7
    for text in texts:
        assert not [char for char in text if unicodedata.category(char) == "Cc"], text
        assert "\u202e" not in text


parents = st.none() | st.sampled_from([f"s{n}" for n in range(8)])


@given(st.lists(parents, max_size=8), st.booleans())
def test_every_span_is_told_once_whatever_the_parents(
    chosen: list[str | None], errors_only: bool
) -> None:
    """Also in circles."""
    spans = [
        span(f"s{n}", parent, n, status="error" if errors_only else "ok")
        for n, parent in enumerate(chosen)
    ]

    lines = timeline(run(*spans), errors_only=errors_only, fold=False)

    assert sorted(line.id for line in lines) == [f"r1.s{n}" for n in range(len(chosen))]


def test_the_same_as_data_keeps_everything() -> None:
    """`--json`: the keys that a program may count on."""
    complete = run(
        span("a", seq=1, input=BodyRef(3, 10), attributes={"k": "v\x1b"}), log("m", "a", 2)
    )

    data = show_data(complete)

    assert set(data) == {"version", "run", "spans", "logs"}
    promised = (
        "id short_id name outcome started_at ended_at duration_ms span_count conversation_id tokens"
    )
    assert set(promised.split()) <= set(data["run"])
    assert data["spans"][0]["attributes"] == {"k": "v\x1b"}
    assert data["spans"][0]["input"] == {"id": 3, "size_bytes": 10, "cut": None}
    assert data["logs"][0]["message"] == "m"
    assert list_data([complete.info]) == {"version": 1, "runs": [data["run"]]}


def test_repeats_within_a_stretch_of_time_are_counted_there() -> None:
    """Folded before, those that began earlier would take the others out with them."""
    many = run(*(span(f"s{seq}", name="search", seq=seq) for seq in range(6)))

    (line,) = timeline(many, between=(2 * MS, 4 * MS))

    assert (line.id, line.at_ns, line.count) == ("r1.s2", 2 * MS, 3)
