"""Loops as they happen: record/loop_detector.py."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.record.loop_detector import Loop, LoopDetector


def reports(detector: LoopDetector, steps: str) -> list[tuple[int, str, int]]:
    """Feed steps (a letter is a tool, the digits after it its arguments); the news, by position."""
    found = []
    for place, step in enumerate(steps.split()):
        loop = detector.add(step[0], arguments=step[1:], evidence=str(place))
        if loop is not None and detector.is_new(loop):
            found.append((place, loop.pattern, loop.repetitions))
    return found


def test_the_same_call_three_times_is_a_loop_told_once() -> None:
    """Deduplicated per pattern: the fourth and fifth time are no news."""
    assert reports(LoopDetector(12, 3), "a1 a1 a1 a1 a1") == [(2, "a", 3)]


def test_other_arguments_are_progress() -> None:
    """Three different searches do not loop."""
    assert reports(LoopDetector(12, 3), "a1 a2 a3 a4 a5 a6") == []


@pytest.mark.parametrize("period", range(1, 13))
def test_every_period_up_to_the_window_is_found_after_its_third_round(period: int) -> None:
    """A window of 12 calls is one round of 12; a loop is reported once, wherever it begins."""
    detector = LoopDetector(12, 3)
    letters = "abcdefghijkl"[:period]

    assert reports(detector, " ".join(letters * 5)) == [(3 * period - 1, " -> ".join(letters), 3)]


def test_a_longer_period_than_the_window_is_none() -> None:
    assert reports(LoopDetector(12, 3), " ".join("abcdefghijklm" * 5)) == []


def test_a_growing_prompt_does_not_hide_a_loop_of_tools() -> None:
    """A model's prompt grows with every turn; that the tool's arguments do not is what counts."""
    detector = LoopDetector(12, 3)
    loops: list[Loop | None] = []
    for turn in range(3):
        loops.append(detector.add("LLM", detail=f"turn {turn}", evidence=""))
        loops.append(detector.add("TOOL", arguments="same", evidence=""))

    assert [loop and loop.pattern for loop in loops] == [None] * 5 + ["LLM -> TOOL"]


def test_calls_of_a_model_alone_loop_only_if_their_prompts_do() -> None:
    """A conversation is not a loop; the same prompt three times is."""
    detector = LoopDetector(12, 3)

    assert not any(detector.add("LLM", detail=turn, evidence="") for turn in range(6))
    assert [bool(detector.add("LLM", detail="x", evidence="")) for _ in range(3)] == [
        False,
        False,
        True,
    ]


def test_repetitions_and_evidence_grow_as_far_as_they_are_kept() -> None:
    """`stop_on_loop_min_repetitions` may be larger than what makes a loop."""
    detector = LoopDetector(2, 3, rounds_stored=5)
    loops = [detector.add("a", arguments=1, evidence=str(place)) for place in range(40)]

    assert [loop.repetitions for loop in loops[2:6] if loop] == [3, 4, 5, 6]
    assert max(loop.repetitions for loop in loops if loop) <= 10
    assert loops[4] is not None and loops[4].evidence == ("0", "1", "2", "3", "4")


def test_memory_stays_bounded() -> None:
    """A run may last for days."""
    detector = LoopDetector(12, 3)
    for number in range(10_000):
        detector.add("a", arguments=number, evidence=str(number))

    assert len(list(islice(detector._keys, 1_000))) <= 2 * 36


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.integers(0, 1)), max_size=24))
@settings(max_examples=100, deadline=None)
def test_a_loop_is_found_exactly_where_looking_at_all_steps_finds_one(
    steps: list[tuple[str, bool, int]],
) -> None:
    """What is left out because it cannot be a loop is none. A step: label, has arguments, which."""
    window, repetitions = 4, 2
    detector = LoopDetector(window, repetitions, rounds_stored=12)
    for place, (label, says, which) in enumerate(steps):
        given_to_it = {"arguments" if says else "detail": which}
        loop = detector.add(label, evidence=str(place), **given_to_it)

        so_far = steps[: place + 1]
        assert (loop and len(loop.labels)) == _period(so_far, window, repetitions)


def _period(steps: list[tuple[str, bool, int]], window: int, repetitions: int) -> int | None:
    """The shortest that the steps end with often enough; a detail counts where nothing else is
    said.
    """
    for period in range(1, min(window, len(steps) // repetitions) + 1):
        last = steps[-period:]
        alone = not any(says for _, says, _ in last)
        rounds = [steps[-(n + 1) * period : len(steps) - n * period] for n in range(repetitions)]
        reports = [
            [(label, says, which if says or alone else 0) for label, says, which in each]
            for each in rounds
        ]
        if all(each == reports[0] for each in reports):
            return period
    return None
