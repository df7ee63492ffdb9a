"""Lines of `show` and `span` say each fact once, and fit."""

from __future__ import annotations

import pytest

from support.programs import load
from vestige.home import Home
from vestige.query import formatting
from vestige.query.views.lines.common_attributes import (
    find_common,
    find_repeated_attributes,
    is_redundant,
    render_common,
)
from vestige.query.views.show import PIPE_COLUMNS
from vestige.record.run import Run
from vestige.recorder import Recorder
from vestige.transfer import open_ids

REQUEST = '{"model": "m", "messages": [{"role": "user", "content": "Refund order 7"}]}'
ANSWER = '{"choices": [{"message": {"role": "assistant", "content": "Done."}}]}'


@pytest.fixture
def shop(home: Home) -> Home:
    """A run with an attribute on every span, a tool with arguments, and long texts."""
    with (
        Recorder(home, crash_hooks=False) as recorder,
        recorder.run("shop", attributes={"app": "shop"}) as run,
    ):
        for number in range(4):
            call = run.span("ask", type="llm", body=REQUEST, attributes={"app": "shop"})
            call.end(body=ANSWER)
            tool = run.span(
                "refund",
                type="tool",
                body=f'{{"order": {number}, "reason": "{"late " * 60}"}}',
                attributes={"app": "shop", "tool_name": "refund", "queue": "q" * 100},
            )
            tool.end(body="{}")
    return home


def load_shop(home: Home) -> Run:
    (run,) = [run for run in load(home) if run.info.name == "shop"]
    return run


def show(home: Home, **options: bool) -> list[str]:
    with open_ids(home, None) as (debugger, _):
        return debugger.show("r2", **options).text(50_000).splitlines()


def test_an_attribute_of_all_spans_is_shown_once(shop: Home) -> None:
    lines = show(shop)

    assert "all spans: app=shop" in lines
    assert sum("app=shop" in line for line in lines) == 1


def test_a_tool_shows_its_arguments_and_not_its_name_twice(shop: Home) -> None:
    (first, *_) = [line for line in show(shop) if " tool " in line]

    assert "refund(order=0, reason=late late" in first
    assert "tool_name" not in first


def test_lines_in_a_pipe_fit(shop: Home) -> None:
    assert max(map(formatting.width, show(shop))) <= PIPE_COLUMNS


def test_full_ids_are_shown_on_request(shop: Home) -> None:
    with open_ids(shop, None) as (debugger, _):
        run = debugger.resolve("r2").run.id
        span = debugger.resolve("r2.s2").span_id
        assert run not in debugger.show("r2").text()
        assert run in debugger.show("r2", ids=True).text()
        assert span is not None
        assert span not in debugger.span("r2.s2").text()
        assert span in debugger.span("r2.s2", ids=True).text()


def test_a_terminal_shows_steps_and_the_tree_on_request(shop: Home) -> None:
    with open_ids(shop, None) as (debugger, _):
        answer = debugger.show("r2")
        answer.columns = 80
        steps = answer.lines(50_000)
        tree = debugger.show("r2", tree=True)
        tree.columns = 80
        assert any(line.startswith("r2.s2 ") for line in tree.lines(50_000))

    assert [line for line in steps if line.startswith("s2 ") and "Done. | refund(order=0" in line]
    assert "Task    Refund order 7" in steps
    assert steps[-1].startswith("… next: ")
    assert max(map(formatting.width, steps[:-1])) <= 80


def test_an_answer_can_be_printed_after_its_store_is_closed(shop: Home) -> None:
    with open_ids(shop, None) as (debugger, _):
        answer = debugger.show("r2")

    assert "tool refund" in answer.text()


def test_a_span_names_the_attributes_that_all_spans_share_in_one_line(shop: Home) -> None:
    with open_ids(shop, None) as (debugger, _):
        lines = debugger.span("r2.s3").text().splitlines()

    assert "  all spans: app=shop" in lines
    assert not any(line.startswith("  app =") for line in lines)


def test_a_different_value_is_shown_in_its_line(home: Home) -> None:
    with (
        Recorder(home, crash_hooks=False) as recorder,
        recorder.run("shop", attributes={"app": "shop"}) as run,
    ):
        for number in range(19):
            run.span("a", attributes={"app": "shop", "n": number}).end()
        run.span("b", attributes={"app": "other"}).end()
    loaded = load_shop(home)

    assert find_common(loaded.spans) == {"app": "shop"}
    assert render_common({}) == ""
    assert [line for line in show(home) if "app=other" in line]


def test_an_id_that_was_not_matched_is_not_redundant(shop: Home) -> None:
    loaded = load_shop(shop)
    tool = next(span for span in loaded.spans if span.type == "tool")

    assert not is_redundant(tool, "tool_call_id", "call_7")
    assert is_redundant(tool, "tool_name", "refund")
    assert not is_redundant(tool, "tool_name", "charge")


def test_an_attribute_with_one_value_on_half_of_the_spans_is_repeated() -> None:
    spans = [{"app": "shop", "n": number} for number in range(3)] + [{"n": 1}, {"n": 1, "k": 1}]

    assert find_repeated_attributes(spans) == {"app": "shop"}


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("uncaught exception: ValueError", "Uncaught exception: ValueError"),
        ("case_bad (1 of 3) failed", "case_bad (1 of 3) failed"),
        ("llm chat (s7) called book", "llm chat (s7) called book"),
        ("", ""),
    ],
)
def test_a_sentence_that_begins_with_a_name_is_not_capitalized(
    sentence: str, expected: str
) -> None:
    assert formatting.capitalize(sentence) == expected
