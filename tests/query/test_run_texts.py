"""Runs in a list have a title from their task, and show their result."""

from __future__ import annotations

import pytest

from vestige.home import Home
from vestige.query.search.run_list import ListAnswer
from vestige.query.search.run_titles_and_results import BODY_MAX, TEXT_MAX, is_generic
from vestige.recorder import Recorder
from vestige.transfer import open_ids

REQUEST = (
    '{"model": "m", "messages": [{"role": "system", "content": "Be kind."},'
    ' {"role": "user", "content": "%s"}]}'
)
ANSWER = '{"choices": [{"message": {"role": "assistant", "content": "%s"}}]}'


def listed(home: Home) -> ListAnswer:
    with open_ids(home, None) as (debugger, _):
        return debugger.list()


def record_conversation(
    home: Home, name: str, *, task: str = "", request: str = "", answer: str = ""
) -> None:
    with (
        Recorder(home, crash_hooks=False) as recorder,
        recorder.run(name, body=task or None) as run,
    ):
        for text in (request, "and then?"):
            call = run.span("ask", type="llm", body=REQUEST % text)
            call.end(body=ANSWER % answer)


def test_a_generic_name_is_replaced_by_the_task(home: Home) -> None:
    record_conversation(home, "main", task='{"task": "Refund order 7"}', answer="Refunded.")

    answer = listed(home)
    (run,) = answer.data()["runs"]

    assert (run["name"], run["title"]) == ("main", "Refund order 7")
    assert (run["task"], run["result"]) == ("Refund order 7", "Refunded.")
    assert "Refund order 7" in answer.text()


def test_a_name_that_the_program_gave_stays_the_title(home: Home) -> None:
    record_conversation(home, "refunds", task="Refund order 7")

    (run,) = listed(home).data()["runs"]

    assert (run["title"], run["task"]) == ("refunds", "Refund order 7")


def test_without_an_input_the_task_is_the_first_text_of_the_user(home: Home) -> None:
    record_conversation(home, "agent.py", request="Find the bug", answer="Line 3.")

    (run,) = listed(home).data()["runs"]

    assert (run["title"], run["task"]) == ("Find the bug", "Find the bug")
    assert run["result"] == "Line 3."


def test_the_result_is_a_column_on_a_terminal(home: Home) -> None:
    record_conversation(home, "main", task="Refund order 7", answer="Refunded.")
    answer = listed(home)
    answer.columns = 160

    head, row = answer.lines(10_000)[:2]

    assert head.endswith("RESULT")
    assert row.endswith("Refunded.")


def test_texts_are_short_and_large_bodies_are_not_read(home: Home) -> None:
    record_conversation(home, "main", task="word " * 1_000, answer="ok")
    record_conversation(home, "main", task="x" * (BODY_MAX + 1))

    large, long = listed(home).data()["runs"]

    assert len(long["task"]) == TEXT_MAX
    assert (large["title"], large["task"]) == ("main", None)


def test_a_run_without_texts_has_its_name(home: Home) -> None:
    with Recorder(home, crash_hooks=False) as recorder, recorder.run("main") as run:
        run.span("a").end()

    (shown,) = listed(home).data()["runs"]

    assert (shown["title"], shown["task"], shown["result"]) == ("main", None, None)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("main", True),
        ("process_item", True),
        ("batch.py", True),
        ("python3.11", True),
        ("triage", False),
        ("mainframe", False),
    ],
)
def test_generic_names(name: str, expected: bool) -> None:
    assert is_generic(name) is expected


def test_a_run_is_found_by_what_the_list_shows_of_it_and_by_text_in_its_bodies(home: Home) -> None:
    record_conversation(home, "main", task='{"task": "Refund order 7"}', answer="Sent a lamp.")
    record_conversation(home, "main", task='{"task": "Refund order 7"}', answer="Sent nothing.")
    record_conversation(home, "other", request="Write a poem", answer="Roses.")

    def found(filter: str) -> int:
        with open_ids(home, None) as (debugger, _):
            return len(debugger.list(filter).runs)

    assert found("refund") == 2
    assert found('"refund order" lamp') == 1
    assert found("poem") == 1
    assert found("-poem") == 2
    assert found("absent") == 0


@pytest.mark.parametrize("nothing", ["{}", "[]", "null"])
def test_an_input_that_says_nothing_is_not_the_task(home: Home, nothing: str) -> None:
    """As of a traced function without arguments: the first message of the user is the task."""
    record_conversation(home, "main", task=nothing, request="Sum up the invoices")

    (run,) = listed(home).data()["runs"]
    with open_ids(home, None) as (debugger, _):
        overview = debugger.overview(run["short_id"]).data()

    assert (run["title"], overview["title"]) == ("Sum up the invoices", "Sum up the invoices")
