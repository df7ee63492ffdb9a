"""The two lines of a step in a list: a thought and its result, or an error and the thought."""

from __future__ import annotations

import pytest

from support.programs import load
from vestige.home import Home
from vestige.query.error_text import find_message
from vestige.query.trajectory.headline import (
    make_headline,
    result_line,
    step_result,
    step_title,
)
from vestige.query.trajectory.types import Action, Item, Step
from vestige.recorder import Recorder

CODE_ERROR = (
    "smolagents.utils.AgentExecutionError: Code execution failed at line 'for path in paths' due "
    "to: InterpreterError: The variable `os` is not defined"
)
OVERLOADED = (
    "litellm.exceptions.InternalServerError: litellm.InternalServerError: AnthropicError - "
    '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
)


def text(role: str, words: str) -> Item:
    return Item(
        role=role,
        kind="text",
        text=words,
        size_bytes=len(words),
        span_id="s1",
        side="output",
        message_index=0,
    )


def make_step(answer: str = "", *, actions: list[Action] | None = None, error: str = "") -> Step:
    return Step(
        number=1,
        span=None,
        agent=None,
        conversation=0,
        parent=None,
        depth=0,
        answer=[text("assistant", answer)] if answer else [],
        actions=actions or [],
        error=error or None,
    )


def make_action(error: str) -> Action:
    return Action(
        kind="code",
        name="code",
        arguments=None,
        result=None,
        error=error,
        status="error",
        span_id="s2",
        call_id=None,
        started_ns=None,
        duration_ns=None,
    )


def test_an_interjection_is_not_a_headline() -> None:
    assert step_title(make_step("Thought: Great! I found two files. Next.")) == "I found two files."
    assert step_title(make_step("Great!")) == "Great!"


def test_a_failed_action_is_the_headline_and_the_thought_is_below() -> None:
    step = make_step("Great! Now I search the folder.", actions=[make_action(CODE_ERROR)])

    assert step_title(step) == "InterpreterError: The variable `os` is not defined"
    assert step_result(step) == "Now I search the folder."


def test_a_failed_model_call_has_the_providers_message_as_headline() -> None:
    step = make_step(error=OVERLOADED)

    assert step_title(step) == "Model call failed: Overloaded"
    assert step_result(step) == ""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OVERLOADED, "Overloaded"),
        ('{"message": "no quota"}', "no quota"),
        ('{"error": {"error": {"message": "deep"}}}', "deep"),
        ('{"error": "text"}', None),
        ("KeyError: {", None),
        ("", None),
    ],
)
def test_the_message_of_a_provider_is_found_in_an_error(error: str, message: str | None) -> None:
    assert find_message(error) == message


def test_a_step_without_text_is_titled_by_its_span(home: Home) -> None:
    with Recorder(home, crash_hooks=False) as recorder, recorder.run("suite") as run:
        run.child("case_one", "test").end()
    step = make_step()
    (step.span,) = [span for each in load(home) for span in each.spans if span.type == "test"]

    assert step_title(step) == "case_one"
    assert make_headline(step) == "case_one"


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ("Address: https://a.example/x\nViewport: page 1 of 3", "Viewport: page 1 of 3"),
        ("Address: google: red shoes 2021\n## Results", "## Results"),
        ("Address: https://a.example/x", "Address: https://a.example/x"),
        ("Price: 12 EUR", "Price: 12 EUR"),
        ("", "(empty)"),
    ],
)
def test_a_result_is_shown_by_a_line_that_does_not_repeat_the_arguments(
    result: str, shown: str
) -> None:
    arguments = '{"url": "https://a.example/x", "query": "red shoes 2021"}'
    assert result_line(result, arguments) == shown


def test_code_is_shown_by_a_line_with_words() -> None:
    action = make_action("")
    action.error = None
    action.arguments = text("assistant", 'final_answer("""The price\nis 12 EUR.\n""")\n')
    assert make_headline(make_step(actions=[action])) == "code: is 12 EUR. -> error"
