"""Tasks of VS Code extensions, and logs of older versions, in the shapes that they document."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from support.agent_logs import DATA, body, find_tool, imported, load_runs, of_type
from vestige.formats import get_format
from vestige.formats.cline.request_usage import read_usage
from vestige.formats.cline.xml_calls import find_arguments, split_result
from vestige.query.evidence import open_run
from vestige.query.trajectory import build_trajectory
from vestige.transfer.agent_homes import find_agent_homes
from vestige.transfer.agent_sessions import discover_logs, import_logs
from vestige.transfer.import_runs import find_format

START_MS = 1_780_000_000_000
PROMPT = "Add a subtract function."
DETAILS = "<environment_details>\nVisible files: calc.py\n</environment_details>"


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def request(second: int, **details: Any) -> dict[str, Any]:
    message = {"type": "say", "say": "api_req_started", "ts": START_MS + second * 1000}
    return {**message, "text": json.dumps({"request": "...", **details})}


def write_task(folder: Path, messages: list[dict[str, Any]], shown: list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True)
    (folder / "ui_messages.json").write_text(json.dumps(shown))
    history = folder / "api_conversation_history.json"
    history.write_text(json.dumps(messages))
    return history


def make_xml_task(tasks: Path) -> Path:
    """Write a task of an older version, whose calls are elements in texts."""
    call = "I list it.\n<execute_command>\n<command>cat x</command>\n</execute_command>"
    denied = "<write_to_file>\n<path>a.py</path>\n<content>\n<b>1</b>\n</content>\n</write_to_file>"
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [text(f"<task>\n{PROMPT}\n</task>"), text(DETAILS)]},
        {"role": "assistant", "content": [text(call)]},
        {
            "role": "user",
            "content": [
                text("[execute_command for 'cat x'] Result:"),
                text("Command executed.\nExit code: 1\ncat: x: No such file"),
                text(DETAILS),
            ],
        },
        {"role": "assistant", "content": [text(denied)]},
        {
            "role": "user",
            "content": [
                text("[write_to_file for 'a.py'] Result:\nThe user denied this operation.")
            ],
        },
        {"role": "assistant", "content": [text("I stop. <b>bold</b> is not a call.")]},
        {"role": "user", "content": [text("<feedback>\nGo on.\n</feedback>"), text(DETAILS)]},
        {"role": "assistant", "content": [text("Done.")]},
    ]
    for number, message in enumerate(messages):
        message["ts"] = START_MS + 500 + number * 1000
    usage = {"tokensIn": 10, "tokensOut": 5, "cacheWrites": 20, "cacheReads": 100, "cost": 0.25}
    failed = request(2, cancelReason="streaming_failed")
    shown = [request(0, **usage), failed, *(request(second, **usage) for second in (3, 4, 6))]
    shown.insert(1, {"type": "say", "say": "text", "text": "api_req_started", "ts": START_MS})
    return write_task(tasks / "1780000000000", messages, shown)


def test_a_task_with_calls_in_texts_has_tools_turns_and_tokens(tmp_path: Path) -> None:
    tasks = tmp_path / "Code" / "rooveterinaryinc.roo-cline" / "tasks"
    make_xml_task(tasks)
    found = find_format(tasks)
    assert found is not None and found[0] == "cline"
    with imported(tmp_path, tasks) as store:
        (run,) = load_runs(store)
        assert run.info.outcome == "ok"
        command, write = of_type(run, "tool")
        assert (command.name, command.status) == ("execute_command", "error")
        assert body(store, command.input) == b'{"command":"cat x"}'
        assert command.attributes["exit_code"] == 1
        assert b"No such file" in body(store, command.output)
        assert b"environment" not in body(store, command.output)
        assert write.attributes["error.type"] == "PermissionDenied"
        assert json.loads(body(store, write.input))["content"] == "<b>1</b>"
        turns = [body(store, span.input).decode() for span in of_type(run, "step")]
        assert [turn.strip('"') for turn in turns] == [PROMPT, "Go on."]
        calls = [call.attributes for call in of_type(run, "llm")]
        assert [call["input_tokens"] for call in calls] == [130] * 4
        assert sum(call["cost_usd"] for call in calls) == 1.0
        assert run.info.output_tokens == 20
        assert any("streaming failed" in log.message for log in run.logs)
        steps = build_trajectory(open_run(store, run.info.id)).steps
        assert {step.agent for step in steps} == {"roo-code"}


def test_a_task_with_native_calls_is_read(tmp_path: Path) -> None:
    use = {"type": "tool_use", "id": "t1", "name": "read_file", "input": {"path": "calc.py"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [text("def add")]}
    completion = {"type": "tool_use", "id": "t2", "name": "attempt_completion", "input": {}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [text(f"<task>\n{PROMPT}\n</task>")]},
        {"role": "assistant", "content": [use], "modelInfo": {"modelId": "m", "providerId": "p"}},
        {"role": "user", "content": [result, text(DETAILS)]},
        {"role": "assistant", "content": [text("Done."), completion]},
    ]
    write_task(tmp_path / "tasks" / "5", messages, [])
    with imported(tmp_path, tmp_path / "tasks") as store:
        (run,) = load_runs(store)
        read, _ = of_type(run, "tool")
        assert (read.name, read.status) == ("read_file", "ok")
        assert body(store, read.output) == b'"def add"' or body(store, read.output) == b"def add"
        assert of_type(run, "llm")[0].attributes["model"] == "m"


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({"tokensIn": 10, "cacheReads": 100, "cacheWrites": 5}, 115),  # Cline: without the cache
        ({"tokensIn": 115, "cacheReads": 100, "cacheWrites": 5, "apiProtocol": "anthropic"}, 115),
        ({"tokensIn": 10, "cacheReads": 100, "apiProtocol": "anthropic"}, 110),  # an older Roo
        ({"tokensIn": "x", "cacheReads": -1}, None),
    ],
)
def test_input_tokens_include_the_cache_once(details: dict[str, Any], expected: int | None) -> None:
    assert read_usage(details).get("input_tokens") == expected


def test_an_unclosed_element_is_searched_once() -> None:
    assert split_result("[read_file] Result:\nx") == ("read_file", "x")
    assert split_result("[" + "a" * 100_000) is None
    assert find_arguments("<a>" * 100_000, "a") == {}
    assert find_arguments("no call", "read_file") is None


# --- older versions -------------------------------------------------------------------------------


def test_a_trajectory_of_openhands_version_0_is_read(tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function"}
    function = {"name": "execute_bash", "arguments": '{"command": "cat x"}'}
    message = {"role": "assistant", "tool_calls": [{**call, "function": function}]}
    usage = {"prompt_tokens": 30, "completion_tokens": 4, "cache_read_input_tokens": 20}
    response = {"id": "r1", "model": "m", "choices": [{"message": message}], "usage": usage}
    metadata = {
        "tool_call_metadata": {
            "function_name": "execute_bash",
            "tool_call_id": "c1",
            "model_response": response,
        }
    }
    extras = {"extras": {"metadata": {"exit_code": 1}}}
    run_args = {"command": "cat x", "thought": "I look."}
    final = {"content": "There is none."}
    events: list[dict[str, Any]] = [
        {"source": "environment", "observation": "agent_state_changed", "content": ""},
        {"source": "user", "action": "message", "args": {"content": PROMPT}},
        {"source": "agent", "action": "run", "args": run_args, **metadata},
        {"source": "agent", "observation": "run", "cause": 2, "content": "cat: x: No such file"},
        {"source": "agent", "action": "message", "args": final},
    ]
    events[3] |= {**metadata, **extras}
    for number, event in enumerate(events):
        event |= {"id": number, "timestamp": f"2026-01-20T20:29:1{number}.5"}
    (tmp_path / "trajectory.json").write_text(json.dumps(events))
    found = find_format(tmp_path / "trajectory.json")
    assert found is not None and found[0] == "openhands"
    with imported(tmp_path, tmp_path / "trajectory.json") as store:
        (run,) = load_runs(store)
        assert run.info.outcome == "ok"
        (tool,) = of_type(run, "tool")
        assert (tool.name, tool.status) == ("execute_bash", "error")
        assert run.info.input_tokens == 30 and run.info.output_tokens == 4
        steps = build_trajectory(open_run(store, run.info.id)).steps
        assert [step.answer_text for step in steps] == ["I look.", "There is none."]


def test_a_session_file_of_an_older_goose_is_read(tmp_path: Path) -> None:
    value = {"name": "developer__shell", "arguments": {"command": "ls"}}
    ask = {"type": "toolRequest", "id": "1", "toolCall": {"status": "success", "value": value}}
    result = {"status": "success", "value": [{"type": "text", "text": "calc.py"}]}
    lines: list[dict[str, Any]] = [
        {"working_dir": "/home/dev", "description": "A title", "message_count": 4},
        {"role": "user", "created": 1_780_000_000, "content": [text(PROMPT)]},
        {"role": "assistant", "created": 1_780_000_001, "content": [ask]},
        {
            "role": "user",
            "created": 1_780_000_002,
            "content": [{"type": "toolResponse", "id": "1", "toolResult": result}],
        },
        {"role": "assistant", "created": 1_780_000_003, "content": [text("Done.")]},
    ]
    path = tmp_path / "20260101_120000.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = find_format(path)
    assert found is not None and found[0] == "goose"
    with imported(tmp_path, path) as store:
        (run,) = load_runs(store)
        assert run.info.outcome == "ok"
        assert find_tool(run, "ls", store).status == "ok"


def test_a_database_with_an_index_on_json_is_read(tmp_path: Path) -> None:
    """Kilo Code has one, which SQLite refuses if the schema is not trusted."""
    database = tmp_path / "kilo.db"
    database.write_bytes((DATA / "opencode" / "opencode.db").read_bytes())
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE INDEX role ON message (json_extract(data, '$.role'))")
    connection.close()
    with imported(tmp_path, database) as store:
        assert {span.component for run in load_runs(store) for span in of_type(run, "run")} == {
            "kilo"
        }


# --- discovery ------------------------------------------------------------------------------------


def test_all_agents_are_discovered_and_imported_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    share = home / ".local" / "share"
    for source, target in (
        (DATA / "goose", share / "goose" / "sessions"),
        (DATA / "cline" / "sessions", home / ".cline" / "data" / "sessions"),
        (DATA / "openhands" / "conversations", home / ".openhands" / "conversations"),
    ):
        shutil.copytree(source, target)
    storage = home / ".config" / "Code" / "User" / "globalStorage"
    history = make_xml_task(storage / "saoudrizwan.claude-dev" / "tasks")
    homes = find_agent_homes({"HOME": str(home)})
    with imported(tmp_path) as store:
        found = discover_logs(store, homes)
        counts = [(logs.home.agent, len(logs.new)) for logs in found]
        assert counts == [("Goose", 2), ("Cline", 2), ("OpenHands", 2), ("Cline", 1)]
        for logs in found:
            assert all(result.records for result in import_logs(store, logs.new))
        assert not any(logs.new for logs in discover_logs(store, homes))
        shown = history.with_name("ui_messages.json")
        shown.write_text(shown.read_text() + " ")
        assert len(discover_logs(store, homes)[-1].new) == 1


@pytest.mark.parametrize("name", ["cline", "openhands", "goose"])
def test_hostile_files_are_errors_or_no_sessions(name: str, tmp_path: Path) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    task = tmp_path / "tasks" / "1"
    events = tmp_path / "conversations" / "c" / "events"
    for folder in (task, events):
        folder.mkdir(parents=True)
    event = b'{"source": "user", "timestamp": "x", "kind": "MessageEvent", "llm_message": '
    (task / "api_conversation_history.json").write_bytes(b'[{"role": "user", "content": ' + deep)
    (events / "event-00000-00000000.json").write_bytes(event + deep + b"}")
    (events / "event-00001-00000000.json").write_bytes(event + b'{"content": "\xff"}}')
    (events / "event-00002-00000000.json").symlink_to("/etc/passwd")
    (tmp_path / "sessions.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5_000)
    reader = get_format(name)
    for path in (tmp_path, tmp_path / "tasks", tmp_path / "conversations"):
        for found in reader.find_runs(path):
            assert sum(1 for _ in reader.read_run(found).records) < 10
