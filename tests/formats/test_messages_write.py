"""Runs as fine-tuning examples: what a model saw and answered, in two shapes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vestige
from vestige.errors import UsageError
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import open_path
from vestige.transfer.export import export_run
from vestige.transfer.import_runs import import_path

CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": 7}'}}
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Where is order 7?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "shipped"},
    {"role": "assistant", "content": "It was shipped."},
]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SqliteStore, Path]]:
    """A store and a folder that the tests share, because creating a store is slow."""
    folder = tmp_path_factory.mktemp("messages")
    with SqliteStore.open(folder / "store.db") as store:
        yield store, folder


def _round_trip(
    scratch: tuple[SqliteStore, Path], talk: Any, shape: str | None = None
) -> list[dict[str, Any]]:
    store, folder = scratch
    number = len(list(folder.iterdir()))
    path, target = folder / f"{number}.json", folder / f"{number}-out.jsonl"
    path.write_text(json.dumps(talk))
    (result,) = import_path(store, path)
    export_run(store, result.run_id or "", "messages", target, shape=shape)
    return [json.loads(line) for line in target.read_bytes().splitlines()]


def test_a_list_of_messages_comes_out_as_it_went_in(scratch: tuple[SqliteStore, Path]) -> None:
    assert _round_trip(scratch, TALK) == [{"messages": TALK}]


def test_anthropic_examples_have_blocks_and_a_system_prompt(
    scratch: tuple[SqliteStore, Path],
) -> None:
    (example,) = _round_trip(scratch, TALK, "anthropic")
    assert example["system"] == "Be brief."
    assert [message["role"] for message in example["messages"]] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    used, result = (example["messages"][place]["content"][0] for place in (1, 2))
    assert used == {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": 7}}
    assert result == {"type": "tool_result", "tool_use_id": "call_1", "content": "shipped"}
    assert _round_trip(scratch, example, "anthropic") == [example]


def test_a_result_that_was_never_sent_comes_from_its_tool(
    scratch: tuple[SqliteStore, Path],
) -> None:
    assert _round_trip(scratch, TALK[:4]) == [{"messages": TALK[:4]}]


def test_agents_of_a_group_chat_have_names(scratch: tuple[SqliteStore, Path]) -> None:
    talk = [
        {"role": "user", "content": "Count."},
        {"role": "assistant", "name": "Planner", "content": "Count the orders."},
        {"role": "assistant", "name": "Coder", "content": "There are 3."},
    ]
    assert _round_trip(scratch, talk) == [{"messages": talk}]


def _record(home: Path, *calls: tuple[list[dict[str, Any]], dict[str, Any]]) -> None:
    recorder = vestige.Recorder(home=home)
    with recorder.run("chat") as run:
        for messages, answer in calls:
            request = {"model": "gpt-4o-mini", "messages": messages, "tools": [TOOL]}
            span = run.span("chat", type="llm", body=json.dumps(request))
            choice = {"index": 0, "message": answer, "finish_reason": "stop"}
            span.end(body=json.dumps({"model": "gpt-4o-mini", "choices": [choice]}))
    recorder.close()


def _export(home: Path, target: Path) -> list[dict[str, Any]]:
    with open_path(home) as debugger:
        (info,) = debugger.store.list_runs(RunFilter())
        export_run(debugger.store, info.id, "messages", target)
    return [json.loads(line) for line in target.read_bytes().splitlines()]


def test_recorded_requests_that_repeat_the_history_are_one_conversation(tmp_path: Path) -> None:
    _record(tmp_path / "home", (TALK[:2], TALK[2]), (TALK[:4], TALK[4]))
    assert _export(tmp_path / "home", tmp_path / "out.jsonl") == [
        {"messages": TALK, "tools": [TOOL]}
    ]


def test_a_request_with_another_history_is_another_conversation(tmp_path: Path) -> None:
    other = [{"role": "user", "content": "Write a title."}]
    title = {"role": "assistant", "content": "Order 7"}
    _record(tmp_path / "home", (TALK[:2], TALK[2]), (other, title), (TALK[:4], TALK[4]))
    found = _export(tmp_path / "home", tmp_path / "out.jsonl")
    assert [example["messages"] for example in found] == [TALK, [*other, title]]


def test_a_run_without_an_answer_cannot_be_an_example(tmp_path: Path) -> None:
    _record(tmp_path / "home")
    with pytest.raises(UsageError, match="no model call with an answer"):
        _export(tmp_path / "home", tmp_path / "out.jsonl")


def test_secrets_do_not_leave(tmp_path: Path) -> None:
    secret = "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5q" * 2
    talk = [{"role": "user", "content": f"My key is {secret}, is it ok?"}]
    _record(tmp_path / "home", (talk, {"role": "assistant", "content": f"{secret} is ok."}))
    _export(tmp_path / "home", tmp_path / "out.jsonl")
    assert secret not in (tmp_path / "out.jsonl").read_text()


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
LINES = WORDS.filter(str.strip).filter(lambda text: not text.lstrip().startswith("exitcode"))

NAMES = st.sampled_from(
    ["id", "at", "été"]
)  # a name such as `PIN` would be redacted with its value


@st.composite
def talks(draw: st.DrawFn) -> list[dict[str, Any]]:
    talk = [{"role": "system", "content": draw(LINES)}] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 5))):
        talk.append({"role": "user", "content": draw(LINES)})
        calls = [
            {
                "id": f"call_{turn}_{number}",
                "type": "function",
                "function": {
                    "name": draw(st.sampled_from(["look", "buy"])),
                    "arguments": json.dumps(draw(st.dictionaries(NAMES, WORDS, max_size=2))),
                },
            }
            for number in range(draw(st.integers(0, 2)))
        ]
        if calls:
            talk.append(
                {"role": "assistant", "content": draw(LINES | st.none()), "tool_calls": calls}
            )
            talk += [
                {"role": "tool", "tool_call_id": call["id"], "content": draw(WORDS)}
                for call in calls
            ]
        talk.append({"role": "assistant", "content": draw(LINES)})
    return talk


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(talks())
def test_any_conversation_comes_out_as_it_went_in(
    scratch: tuple[SqliteStore, Path], talk: list[dict[str, Any]]
) -> None:
    assert _round_trip(scratch, talk) == [{"messages": talk}]
    (example,) = _round_trip(scratch, talk, "anthropic")
    assert _round_trip(scratch, example, "anthropic") == [example]
