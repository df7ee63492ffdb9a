"""A run as steps: each content once, each action with its model call."""

from __future__ import annotations

from support.trajectories import RunBuilder, assistant, reply, result, user


def test_each_request_shows_only_what_is_new() -> None:
    run = RunBuilder()
    first = [user("What is the rate?")]
    run.call(None, first, reply("Let me look.", [("c1", "rate", '{"of": "EUR"}')]))
    run.span("tool", "rate", input='{"of": "EUR"}', output="0.92")
    second = [*first, assistant("Let me look.", [("c1", "rate", '{"of": "EUR"}')])]
    run.call(None, [*second, result("c1", "0.92")], reply("It is 0.92."))

    trajectory = run.trajectory()

    assert [item.text for item in trajectory.steps[0].new_input] == ["What is the rate?"]
    assert trajectory.steps[1].new_input == []
    assert trajectory.steps[1].repeated == 3
    [action] = trajectory.steps[0].actions
    assert (action.name, action.call_id) == ("rate", "c1")
    assert action.result is not None and action.result.text == "0.92"
    assert trajectory.answer is not None and trajectory.answer.text == "It is 0.92."


def test_the_steps_of_a_sub_agent_follow_its_caller() -> None:
    run = RunBuilder()
    manager = run.span("agent", "manager", input='{"task": "Who won?"}')
    run.call(manager, [user("Who won?")], reply("I ask.", [("c1", "searcher", "{}")]))
    searcher = run.span("agent", "searcher", manager, input='{"task": "Search: who won"}')
    run.call(searcher, [user("Search: who won")], reply("Ada won."))
    run.call(
        manager,
        [
            user("Who won?"),
            assistant("I ask.", [("c1", "searcher", "{}")]),
            result("c1", "Ada won."),
        ],
        reply("Ada."),
    )

    trajectory = run.trajectory()

    assert [(step.number, step.agent, step.depth) for step in trajectory.steps] == [
        (1, "manager", 0),
        (2, "searcher", 1),
        (3, "manager", 0),
    ]
    [action] = trajectory.steps[0].actions
    assert (action.kind, action.steps) == ("agent", [2])
    assert trajectory.steps[2].new_input == []
    assert trajectory.title == "Who won?"


def test_conversations_of_one_process_are_separated_by_their_messages() -> None:
    run = RunBuilder()
    system = {"role": "system", "content": "You compute refunds."}
    for order in ("5001", "5002"):
        run.call(None, [system, user(f"Refund {order}")], reply(f"Which way, {order}?"))
    for order in ("5001", "5002"):
        opening = [system, user(f"Refund {order}"), assistant(f"Which way, {order}?")]
        run.call(None, [*opening, user(f"Card, {order}")], reply("Done."))

    trajectory = run.trajectory()

    assert [conversation.opening for conversation in trajectory.conversations] == [
        "Refund 5001",
        "Refund 5002",
    ]
    assert [conversation.steps for conversation in trajectory.conversations] == [[1, 2], [3, 4]]
    assert [item.text for item in trajectory.steps[1].new_input] == ["Card, 5001"]


def test_a_test_case_with_files_is_a_step() -> None:
    """The failed case has the files; it must not be the one that is left out."""
    run = RunBuilder()
    run.span("test", "case_ok")
    failed = run.span("test", "case_bad")
    run.span("file", "response.json", failed)

    assert [step.span.name for step in run.trajectory().steps if step.span] == [
        "case_ok",
        "case_bad",
    ]
