"""Whatever a caller hands over has one defined form: never a loss, never an exception."""

from __future__ import annotations

import enum
import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vestige.limits import ATTRIBUTE_VALUE_MAX, ATTRIBUTES_MAX, NAME_MAX
from vestige.record.coercion import clean_attributes, clean_text, flat, safe_str
from vestige.record.json_render import json_text
from vestige.record.types import SpanOpen
from vestige.testing import FakeRecorder


class Raising:
    def __str__(self) -> str:
        raise RuntimeError("no text of me")

    __repr__ = __str__


class Lying:
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


class Word(str):
    """As markupsafe and numpy have them."""


class Colour(enum.Enum):
    RED = 1


def cycle() -> list[Any]:
    around: list[Any] = [1]
    around.append({"again": around})
    return around


odd = (
    st.floats(allow_nan=True, allow_infinity=True)
    | st.integers()
    | st.integers(2**62, 2**70)
    | st.builds(lambda: 10**5000)
    | st.binary(max_size=20)
    | st.text(st.characters(categories=None), max_size=20)
    | st.sampled_from(
        ["\ud800", "a\udfffb", "\x00", "\u2028", Word("word"), Colour.RED, None, True]
    )
    | st.builds(Raising)
    | st.builds(Lying)
    | st.builds(cycle)
    | st.builds(object)
    | st.sets(st.integers(), max_size=3)
)
nested = st.recursive(
    odd,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(
            st.text(max_size=5) | st.integers() | st.none() | st.binary(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)
keys = (
    st.text(st.characters(categories=None), max_size=8)
    | st.integers()
    | st.none()
    | st.builds(Raising)
)


@pytest.fixture(scope="module")
def recorder() -> FakeRecorder:
    return FakeRecorder()


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(attributes=st.dictionaries(keys, nested, max_size=6), body=nested)
def test_any_attributes_and_body_become_a_line(
    recorder: FakeRecorder, attributes: dict[Any, Any], body: Any
) -> None:
    """Nothing raises, every attribute is there, and the line is UTF-8, JSON and a record."""
    recorder.journal.lines.clear()

    span = recorder.run("odd", attributes=attributes, body=body)
    span.set_attributes(attributes)
    span.log.info("odd", **{str(n): value for n, value in enumerate(attributes.values())})
    span.end(attributes=attributes, body=body)

    assert [json.loads(line.decode())["kind"] for line in recorder.journal.lines] == [
        "span-open",
        "span-update",
        "log",
        "span-close",
    ]
    opened = recorder.records[0]
    assert isinstance(opened, SpanOpen)
    assert len(opened.attributes) == len({clean_key(key) for key in attributes})
    assert recorder.faults == {}


def clean_key(key: Any) -> str:
    return clean_text(safe_str(key))


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (1.5, 1.5),
        (b"text", "text"),
        (b"\xff\x00", "base64:/wA="),
        (bytearray(b"abc"), "abc"),
        ({"a": [1, math.nan]}, '{"a":[1,"NaN"]}'),
        ((1, "x"), '[1,"x"]'),
        (Colour.RED, "Colour.RED"),
        (Word("word"), "word"),
        (Raising(), "<unprintable Raising>"),
        (Lying(), "<unprintable Lying>"),
        (None, None),
        (True, True),
    ],
)
def test_each_odd_value_has_its_form(value: Any, form: Any) -> None:
    """The table in record/coercion.py."""
    assert flat(value) == form
    assert type(flat(value)) is type(form)


def test_an_int_that_json_readers_cannot_hold_keeps_its_digits() -> None:
    """Beyond 64 bits: text; beyond what the interpreter writes: hexadecimal."""
    cleaned = clean_attributes({"big": 2**70, "huge": 10**5000})

    assert cleaned["big"] == str(2**70)
    assert cleaned["huge"] == hex(10**5000)


def test_a_cycle_is_cut_where_it_closes() -> None:
    """What comes before it is kept."""
    assert json_text(cycle()) == '[1,{"again":"<cycle>"}]'


def test_a_value_that_stands_twice_is_no_cycle() -> None:
    """Only an ancestor is."""
    shared = {"x": 1}

    assert json_text([shared, shared]) == '[{"x":1},{"x":1}]'


def test_depth_is_cut_with_a_marker() -> None:
    """A nested value as deep as it likes."""
    deep: Any = "end"
    for _ in range(5_000):
        deep = [deep]

    assert "<too deep>" in json_text(deep)
    assert json_text(["near", deep]).startswith('["near",')


def test_lone_surrogates_are_written_out() -> None:
    """UTF-8 cannot hold them; the text says which ones they were."""
    assert clean_text("a\ud800b") == "a\\ud800b"
    assert clean_text("whole 🦊") == "whole 🦊"


def test_what_is_too_long_is_cut_and_says_how_much_went() -> None:
    """The thorough form bounds values, keys and their number."""
    cleaned = clean_attributes({"k" * (NAME_MAX + 5): "v" * (ATTRIBUTE_VALUE_MAX + 7)})
    many = clean_attributes({str(n): n for n in range(ATTRIBUTES_MAX + 9)})

    ((key, value),) = cleaned.items()
    assert key == "k" * NAME_MAX + "…[+5 characters]"
    assert value == "v" * ATTRIBUTE_VALUE_MAX + "…[+7 characters]"
    assert len(many) == ATTRIBUTES_MAX + 1
    assert many["vestige.attributes_dropped"] == 9
