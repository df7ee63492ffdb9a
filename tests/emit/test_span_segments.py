"""Who put what into a prompt is a child span of it, opened and closed at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vestige.emit.no_op import NULL_SPAN
from vestige.testing import FakeRecorder


def test_segments_become_a_closed_child() -> None:
    recorder = FakeRecorder()
    call = recorder.run("r").child("chat", type="llm", body='{"system":"be kind"}')

    call.segments([("persona", "be kind")], body='{"system":"be kind"}')

    opened = recorder.spans[-1]
    closed = recorder.close_of(opened.span_id)
    assert closed is not None and closed.body is not None
    assert (opened.type, opened.parent_id) == ("prompt.assembly", call.id)
    assert opened.attributes == {"segments": 1, "prompt_bytes": 7, "ranges": "body"}
    assert json.loads(closed.body) == [
        {
            "contributor": "persona",
            "kind": "persona",
            "role": None,
            "length": 7,
            "begin": 11,
            "end": 18,
        }
    ]


class _Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no")

    def __iter__(self) -> Any:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "parts",
    [
        None,
        7,
        [None],
        ["x"],
        [("only",)],
        [{}],
        [{"contributor": _Hostile(), "text": _Hostile(), "length": -1, "begin": "a"}],
        _Hostile(),
        [("\ud800", "\ud800")],
        [("a", b"bytes")],
    ],
)
def test_odd_parts_never_raise(parts: Any) -> None:
    """The program goes on; what could not be read is counted."""
    recorder = FakeRecorder()
    span = recorder.run("r")
    before = len(recorder.spans)

    span.segments(parts)
    span.segments(parts, body="\ud800")

    assert len(recorder.spans) > before or recorder.faults


def test_where_nothing_is_recorded_nothing_happens() -> None:
    NULL_SPAN.segments([("persona", "x")])
    recorder = FakeRecorder(sample=0)
    with recorder.run("r") as run, run.child("chat", type="llm") as call:
        call.segments([("persona", "x")])
        run.segments([("persona", "x")])

    assert [span.type for span in recorder.spans] == ["run"]
