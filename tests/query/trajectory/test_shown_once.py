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
