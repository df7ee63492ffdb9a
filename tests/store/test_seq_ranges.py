"""A writer's numbers are kept as ranges, and behave as the set that they stand for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vestige.store.sqlite.ingest.seq_ranges import SeqRanges

NUMBERS = st.lists(st.integers(1, 60), max_size=120)


@given(NUMBERS)
def test_ranges_behave_as_a_plain_set(numbers: list[int]) -> None:
    """`add` says whether a number is new; `last`, `missing` and `in` agree with a set."""
    seen, plain = SeqRanges(), set[int]()

    for number in numbers:
        assert seen.add(number) == (number not in plain)
        plain.add(number)

    assert [number for number in range(62) if number in seen] == sorted(plain)
    assert seen.last == max(plain, default=0)
    assert seen.missing == max(plain, default=0) - len(plain)


@given(NUMBERS)
def test_a_set_survives_being_written_and_read(numbers: list[int]) -> None:
    """What one batch has seen, the next one knows."""
    seen = SeqRanges()
    for number in numbers:
        seen.add(number)

    again = SeqRanges.parse(seen.render())

    assert not any(again.add(number) for number in numbers)
    assert again.render() == seen.render()


def test_a_healthy_writer_takes_one_range_however_much_it_wrote() -> None:
    """The row of a writer must not grow with its records."""
    seen = SeqRanges()
    for number in range(1, 100_001):
        seen.add(number)

    assert seen.render() == "[[1,100000]]"
