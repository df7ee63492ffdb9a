"""Any object becomes JSON text: in bounded steps, exactly where it can be, marked where it was
cut.
"""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.limits import BODY_CHUNK, MIB
from vestige.record.inline_or_chunked_body import LongBody, body_form
from vestige.record.json_render import iter_json, json_text

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=20), inner),
    max_leaves=40,
)


@pytest.mark.slow
@given(JSON)
@settings(max_examples=100, deadline=None)
def test_what_json_can_hold_comes_back_equal(value: Any) -> None:
    """The text is the value, no more and no less."""
    assert json.loads(json_text(value)) == value


@pytest.mark.slow
@given(JSON)
@settings(max_examples=100, deadline=None)
def test_the_slow_way_says_the_same_as_the_fast_one(value: Any) -> None:
    """A set in it takes the way step by step; the rest of the text must not change by that."""
    assert json.loads(json_text([value, {7}])) == [value, [7]]


def test_odd_leaves_have_their_forms_inside_objects_too() -> None:
    """As attributes have them: never null where there was something."""
    text = json_text({"n": float("nan"), "i": 2**70, "b": b"\xff", "s": "\ud800", 5: {1}})

    assert json.loads(text) == {
        "n": "NaN",
        "i": str(2**70),
        "b": "base64:/w==",
        "s": "\\ud800",
        "5": [1],
    }


def test_a_dataclass_is_its_fields() -> None:
    """What a program passes around most is not worth a repr."""

    @dataclass
    class Order:
        id: str
        lines: list[int]

    assert json_text({"order": Order("A", [1, 2])}) == '{"order":{"id":"A","lines":[1,2]}}'


@pytest.mark.slow
def test_an_object_that_expands_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty lists, each twice in the next, are a billion values: it stops at the bound."""
    monkeypatch.setattr("vestige.record.json_render.BODY_NODES_MAX", 100_000)
    value: list[Any] = []
    for _ in range(30):
        value = [value, value]
    length = sum(len(step) for step in iter_json(value))

    assert 100_000 < length < 1_000_000


def test_a_huge_object_is_never_in_memory_as_text() -> None:
    """Steps, not a copy: the text of 30 MB of strings costs a few steps at a time."""
    value = {str(n): "x" * MIB for n in range(30)}
    tracemalloc.start()
    total = longest = 0
    for step in iter_json(value):
        total += len(step)
        longest = max(longest, len(step))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert total > 30 * MIB
    assert longest <= 3 * BODY_CHUNK
    assert peak < 4 * MIB


def test_a_body_is_exact() -> None:
    """Text and bytes stay what they are; other values become JSON, or what they say of
    themselves.
    """
    assert body_form("ex\u2028act\n") == "ex\u2028act\n"
    assert body_form(b"\x00\xff") == b"\x00\xff"
    assert body_form({"a": [1, None]}) == '{"a":[1,null]}'
    assert body_form(7) == "7"
    assert body_form(ValueError("x")) == "x"


def test_a_long_body_comes_in_steps_that_are_the_whole() -> None:
    """Of text, of bytes, of objects."""
    text = "añ" * MIB
    raw = bytes(range(256)) * 4096
    long_text, long_raw, long_object = body_form(text), body_form(raw), body_form([text])

    assert isinstance(long_text, LongBody)
    assert "".join(long_text.texts) == text
    assert isinstance(long_raw, LongBody)
    assert "".join(long_raw.texts).encode(errors=long_raw.errors) == raw
    assert isinstance(long_object, LongBody)
    assert json.loads("".join(long_object.texts)) == [text]
