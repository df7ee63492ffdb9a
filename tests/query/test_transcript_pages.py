"""What a transcript page shows in full, folds, and does not repeat."""

from __future__ import annotations

from support.trajectories import RunBuilder, assistant, reply, result, user
from vestige.query.views.transcript import TranscriptOptions, transcript_answer

TASK = "Convert the symbols to a decimal number."
REASONING = "\n".join(
    f"Reason {number}: the sign has the value {number * 7}." for number in range(40)
)
PARSER = "ParsingError: the answer has no code block. Here is the answer:"


def page(run: RunBuilder, budget: int | None = None) -> str:
    return transcript_answer(run.evidence(), TranscriptOptions()).text(budget)


def test_a_parser_error_does_not_repeat_the_answer_that_it_rejected() -> None:
    run = RunBuilder()
    error = f"{PARSER}\n{REASONING}\nWrite a code block and try again, with the final answer in it."
    step = run.span("step", "Step 1", status="error", attributes={"error.message": error})
    run.call(step, [user(TASK)], reply(REASONING))
    step = run.span("step", "Step 2")
    history = [user(TASK), assistant(REASONING), user(f"Error:\n{error}\nNow retry.")]
    run.call(step, history, reply("The number is 607."))

    text = page(run, 8_000)

    assert text.count("Reason 20:") == 1
    assert text.count("Write a code block and try again") == 1
    assert "the answer above]" in text


def test_the_answers_that_end_a_run_are_folded_less_than_others() -> None:
    run = RunBuilder()
    history = [user(TASK)]
    for number in range(12):
        thought = REASONING.replace("Reason", f"Thought {number}")
        run.call(None, history, reply(thought))
        history = [*history, assistant(thought), user(f"Go on, {number}.")]

    text = page(run)

    assert "… continue" not in text
    assert "Thought 11 20:" in text
    assert "Thought 2 20:" not in text


def test_a_run_that_fits_at_some_level_is_one_page() -> None:
    run = RunBuilder()
    history = [user(TASK)]
    for number in range(24):
        thought = REASONING.replace("Reason", f"Thought {number}")
        run.call(None, history, reply(thought))
        history = [*history, assistant(thought), user(f"Go on, {number}.")]

    assert "… continue" not in page(run)


def test_a_result_that_a_request_repeats_in_part_is_marked() -> None:
    run = RunBuilder()
    history = [user(TASK)]
    for number in range(2):
        call = [(f"c{number}", "read_file", f'{{"part": {number}}}')]
        run.call(None, history, reply(None, call))
        found = f"{REASONING}\nPart {number} ends here."
        history = [*history, assistant(None, call), result(f"c{number}", found)]
    run.call(None, history, reply("Done."))

    trajectory = run.trajectory()

    first, second = (step.actions[0].result for step in trajectory.steps[:2])
    assert first is not None
    assert first.repeats == []
    assert second is not None
    assert [each.step for each in second.repeats] == [1]


def test_the_task_of_an_agent_is_shown_once() -> None:
    """Prompts that contain it refer to it, so the page has to show it before them."""
    task = f"{TASK}\nThe symbols are Babylonian.\nAnswer with the number only."
    run = RunBuilder()
    agent = run.span("agent", "Solver", input=task)
    run.call(agent, [user(f"Plan how to do this.\n{task}\nNow begin.")], reply("I look them up."))

    text = page(run)

    assert text.count("The symbols are Babylonian.") == 1


def test_a_task_in_the_first_prompt_is_shown_by_its_step() -> None:
    run = RunBuilder()
    run.call(None, [user(f"{TASK}\nThe symbols are Babylonian.")], reply("607"))

    assert page(run).count("The symbols are Babylonian.") == 1
