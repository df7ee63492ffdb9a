"""How times, sizes and foreign text are written; a terminal never obeys what a trace holds."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.query import formatting
from vestige.query.text_layout import columns
from vestige.record.types import Scalar

MS, S = 10**6, 10**9


@pytest.mark.parametrize(
    ("ns", "shown"),
    [
        (None, ""),
        (0, ""),
        (12_345, "12µs"),
        (3_400_000, "3.4ms"),
        (1_800 * MS, "1.8s"),
        (59 * S, "59.0s"),
        (125 * S, "2m05s"),
        (11_400 * S, "3h10m"),
        (7 * 86_400 * S, "7d"),
    ],
)
def test_durations_are_short(ns: int | None, shown: str) -> None:
    """Two or three digits and a unit."""
    assert formatting.duration(ns) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0B"),
        (999, "999B"),
        (1_000, "1.0k"),
        (999_949, "999.9k"),
        (999_950, "1.0M"),
        (10**9, "1.0G"),
        (10**13, "10000.0G"),
    ],
)
def test_sizes_are_short(count: int, shown: str) -> None:
    """Without a jump at the units' borders."""
    assert formatting.size(count) == shown


def test_times_are_iso_utc_with_milliseconds() -> None:
    """Exact: no float on the way."""
    assert formatting.timestamp(1_763_229_905_123_999_999) == "2025-11-15T18:05:05.123Z"
    assert formatting.timestamp(0) == "1970-01-01T00:00:00.000Z"
    assert formatting.timestamp(None) is None


def test_ages_are_told_in_their_largest_unit() -> None:
    """And never negative: clocks differ."""
    now = 10**18

    assert formatting.relative_time(now - 12 * S, now) == "12s ago"
    assert formatting.relative_time(now - 3 * 86_400 * S, now) == "3d ago"
    assert formatting.relative_time(now + S, now) == "0s ago"


@given(st.text(), st.integers(1, 80))
def test_any_text_stays_on_one_line_and_commands_no_terminal(text: str, length_max: int) -> None:
    """No control, escape, bidi or line-breaking character comes through, and the length is
    bounded.
    """
    shown = formatting.single_line(text, length_max)

    assert len(shown.splitlines()) <= 1
    assert not [char for char in shown if unicodedata.category(char) == "Cc"]
    assert not set(shown) & set(
        "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u2028\u2029"
    )
    assert len(shown) <= length_max + 1


def test_newlines_are_shown_and_long_text_is_cut() -> None:
    """One sees that there was more."""
    assert formatting.single_line("a\nb", 10) == "a⏎b"
    assert formatting.single_line("\x1b[31mred\x1b[0m", 20) == "[31mred [0m"
    assert formatting.single_line("x" * 50, 10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (1, "1"),
        (0, "0"),
        (1.0, "1.0"),
        (-3, "-3"),
        ("word", "word"),
        ("two words", '"two words"'),
        ("", '""'),
        ("a\x1bb", '"a b"'),
    ],
)
def test_values_are_what_they_are(value: Scalar, shown: str) -> None:
    """1 is not true, and 0 is not false."""
    assert formatting.value(value, 20) == shown


def test_columns_stand_under_each_other_whatever_the_script() -> None:
    """A wide character takes two columns of a terminal, a combining one none."""
    table = [["name", "n"], ["日本語", "1"], ["cafe\u0301", "22"]]

    assert columns(table, right=[1]) == ["name     n", "日本語   1", "cafe\u0301    22"]
