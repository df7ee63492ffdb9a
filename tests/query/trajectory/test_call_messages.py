"""A model call as a chat: roles, parts, pictures, and what earlier calls sent."""

from __future__ import annotations

import base64
import json
import struct

import pytest

from support.trajectories import RunBuilder, assistant, reply, result, user
from vestige.errors import NotFoundError
from vestige.query.trajectory.call_messages import messages_answer

PNG = base64.b64encode(
    b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", 2, 2) + bytes(40)
).decode()
LOOKUP = [("c1", "lookup", '{"id": 7}')]


def test_messages_of_earlier_calls_are_not_new() -> None:
    """Also if the framework appends a stop token to its own history."""
    run = RunBuilder()
    history = [user("Find order 7.")]
    run.call(run.root, [*history], reply("I look it up.", LOOKUP))
    history += [assistant("I look it up.<end_code>", LOOKUP), result("c1", "shipped")]
    second = run.call(run.root, [*history], reply("It was shipped."))

    data = messages_answer(run.evidence(), second.id).data()

    assert [(each["role"], each["new"]) for each in data["messages"]] == [
        ("user", False),
        ("assistant", True),
        ("tool", True),
    ]
    assert data["has_sizes"]
    assert data["messages"][1]["parts"][1]["name"] == "lookup"
    assert data["answer"]["parts"][0]["text"] == "It was shipped."
    assert data["previous"] is not None


def test_a_picture_is_a_data_url_and_svg_is_not_one() -> None:
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    ]
    drawing = base64.b64encode(b"<svg onload='alert(1)'></svg>" * 4).decode()
    hostile = [{"type": "image_url", "image_url": {"url": f"data:image/svg+xml;base64,{drawing}"}}]
    run = RunBuilder()
    messages = [{"role": "user", "content": parts}, {"role": "user", "content": hostile}]
    call = run.call(run.root, messages, reply("A square."))

    first, second = messages_answer(run.evidence(), call.id).data()["messages"]

    assert first["parts"][1]["image"] == f"data:image/png;base64,{PNG}"
    assert [part["image"] for part in second["parts"]] == [None]


def test_an_input_of_an_unknown_format_is_one_message() -> None:
    run = RunBuilder()
    output = json.dumps({"odd": 1})
    call = run.span("llm", "chat", run.root, input="just a prompt", output=output)

    data = messages_answer(run.evidence(), call.id).data()

    assert [part["text"] for part in data["messages"][0]["parts"]] == ["just a prompt"]
    assert not data["has_sizes"]
    assert data["answer"]["parts"][0]["text"] == '{"odd": 1}'


def test_a_span_without_bodies_has_no_messages() -> None:
    run = RunBuilder()

    with pytest.raises(NotFoundError, match="has no messages"):
        messages_answer(run.evidence(), run.root.id)


def test_new_messages_are_those_since_the_previous_call_of_the_same_agent() -> None:
    run = RunBuilder()
    manager = run.span("agent", "manager", run.root)
    history = [user("Find the rate.")]
    first = run.call(manager, [*history], reply("I ask.", LOOKUP))
    helper = run.span("agent", "searcher", manager)
    run.call(helper, [user("Search the rate.")], reply("It is 4 %."))
    history += [assistant("I ask.", LOOKUP), result("c1", "4 %")]
    second = run.call(manager, [*history], reply("4 %."))

    data = messages_answer(run.evidence(), second.id).data()

    assert data["previous"] == first.short_id
    assert [each["new"] for each in data["messages"]] == [False, True, True]


def test_a_request_without_its_beginning_names_the_call_that_has_it() -> None:
    """Exporters that limit the attributes of a span drop the oldest messages first."""
    run = RunBuilder()
    complete = [{"role": "system", "content": "You are exact."}, user("Find order 7.")]
    complete += [assistant(f"Look {n}.") for n in range(6)]
    run.call(run.root, complete[:6], reply("Look 4."))
    last_whole = run.call(run.root, complete[:7], reply("Look 5."))
    run.call(run.root, complete[1:], reply("Look 6."))
    later = [user("Look 1."), *complete[4:], assistant("Look 6.")]  # its first role was dropped
    beheaded = run.call(run.root, later, reply("Done."))
    evidence = run.evidence()

    answer = messages_answer(evidence, beheaded.id)

    assert answer.data()["lost_head"] == {"messages": 3, "span": last_whole.short_id}
    first = answer.data()["messages"][0]
    assert (first["role"], first["new"]) == ("assistant", False)
    assert "the first 3 messages" in "\n".join(answer.lines(2_000))
    assert messages_answer(evidence, last_whole.id).data()["lost_head"] is None
