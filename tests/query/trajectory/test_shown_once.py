"""However a history is sent again, each content is shown once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.trajectories import RunBuilder, assistant, reply, result, user
from vestige.query.trajectory.seen_contents import normalize

ENDINGS = st.sampled_from(["", "<end_code>", "\n", "  ", "<|im_end|>", "</s>"])
ROLES = st.sampled_from(["user", "assistant"])
WORDS = "the agent looked at the page and found a table with numbers that it could use "


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_each_content_is_shown_once_however_it_is_sent_again(data: st.DataObject) -> None:
    """Stop tokens, other roles, a shorter history and a new system prompt change nothing."""
    run = RunBuilder()
    history: list[dict[str, Any]] = [user(f"question: {WORDS}")]
    texts = [f"question: {WORDS}"]
    for number in range(data.draw(st.integers(1, 8))):
        answer, found = f"answer {number}: {WORDS}", f"result {number}: {WORDS}"
        run.call(None, _resent(data, history), reply(answer, [(f"c{number}", "look", "{}")]))
        if data.draw(st.booleans()):
            attributes = {"tool_call_id": f"c{number}"}
            run.span("tool", "look", input="{}", output=found, attributes=attributes)
        call = assistant(answer, [(f"c{number}", "look", "{}")])
        history += [call, result(f"c{number}", found)]
        texts += [answer, found]
    run.call(None, _resent(data, history), reply("The end."))

    trajectory = run.trajectory()
    shown = [normalize(item.text) for step in trajectory.steps for item in step.items()]

    for text in texts:
        assert shown.count(normalize(text)) == 1, text


def _resent(data: st.DataObject, history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the history as a framework may send it."""
    sent = []
    for message in history:
        if message["role"] == "assistant":
            message = {**message, "content": message["content"] + data.draw(ENDINGS)}
        sent.append(message)
    if len(sent) > 3 and data.draw(st.booleans()):
        sent = [sent[0], *sent[-2:]]
    return sent


@pytest.mark.parametrize(
    ("recorded", "sent"),
    [
        ('{"paid":129.0,"days_ago":40}', '{"days_ago": 40, "paid": 129.0}'),
        ("Refunds are allowed.", '"Refunds are allowed."'),
        ("[1,2]", "[\n  1,\n  2\n]"),
    ],
)
def test_a_result_that_the_program_sends_as_other_json_is_shown_once(
    recorded: str, sent: str
) -> None:
    run = RunBuilder()
    task, call = user("Look it up."), [("c1", "look", "{}")]
    run.call(None, [task], reply(None, call))
    run.span("tool", "look", input="{}", output=recorded, attributes={"tool_call_id": "c1"})
    run.call(None, [task, assistant(None, call), result("c1", sent)], reply("The end."))

    last = run.trajectory().steps[-1]

    assert last.new_input == []


def test_a_result_that_the_program_changed_is_shown_as_it_was_sent() -> None:
    run = RunBuilder()
    task, call = user("Look it up."), [("c1", "look", "{}")]
    run.call(None, [task], reply(None, call))
    run.span("tool", "look", input="{}", output='{"a":1}', attributes={"tool_call_id": "c1"})
    run.call(None, [task, assistant(None, call), result("c1", '{"a": 2}')], reply("The end."))

    last = run.trajectory().steps[-1]

    assert [item.text for item in last.new_input] == ['{"a": 2}']


def test_an_answer_in_code_is_not_shown_again_as_the_arguments_of_its_tool() -> None:
    """Code agents answer by calling a tool in code; the span of that tool has the text again."""
    text = "\n".join(f"Line {n} of a report that explains the whole result." for n in range(8))
    run = RunBuilder()
    step = run.span("step", "Step 1", output=text)
    code = f'Thought: done.\nCode:\n```py\nfinal_answer("""\n{text}\n""")\n```'
    run.call(step, [user("Write a report.")], reply(code))
    run.span("tool", "final_answer", step, input=text, output=text)

    actions = [action for step in run.trajectory().steps for action in step.actions]

    (arguments,) = [
        action.arguments for action in actions if action.kind != "code" and action.arguments
    ]
    (repeated,) = arguments.repeats
    assert (repeated.begin, repeated.end) == (0, len(text))
