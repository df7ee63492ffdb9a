"""Lists of chat messages: every shape becomes a run with model calls, tools and agents."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.agent_logs import imported, of_type
from support.agent_logs import load_runs as load_imported
from vestige.errors import UnreadableError
from vestige.formats import messages
from vestige.query.evidence import open_run
from vestige.record.run import Run, SpanInfo
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer.agent_homes import find_agent_homes
from vestige.transfer.import_runs import find_format, import_path
from vestige.transfer.temp_store import load_runs

DATA = Path(__file__).parent.parent / "data/messages"
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": 7}'}}
OPENAI: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Where is order 7?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "shipped"},
    {"role": "assistant", "content": "It was shipped."},
]
ANTHROPIC: list[dict[str, Any]] = [
    {"role": "user", "content": "Where is order 7?"},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": 7}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no", "is_error": True}
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "I do not know."}]},
]
GROUP = {
    "question": "How many orders are late?",
    "question_ID": "q-17",
    "system_prompt": {"Planner": "You plan.", "Coder": "You write code."},
    "history": [
        {"role": "assistant", "name": "Planner", "content": "Count the late orders."},
        {"role": "user", "name": "Coder", "content": "I count.\n```python\nlate()\n```"},
        {
            "role": "user",
            "name": "Computer_terminal",
            "content": "exitcode: 1 (execution failed)\nCode output: Traceback\nNameError: late",
        },
        {"role": "user", "name": "Coder", "content": "There are 3."},
    ],
}


def _write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def _load(path: Path) -> list[Run]:
    temporary = load_runs(path)
    try:
        store = temporary.store
        runs = [store.load_run(info.id) for info in store.list_runs(RunFilter())]
        return sorted(runs, key=lambda run: run.info.name)
    finally:
        temporary.close()


def _shape(run: Run) -> list[tuple[str, str, Any]]:
    return [(span.type, span.name, span.attributes.get("message_index")) for span in run.spans]


def _span(run: Run, index: int) -> SpanInfo:
    return next(span for span in run.spans if span.attributes.get("message_index") == index)


def test_a_list_of_openai_messages_is_a_run_with_calls_and_tools(tmp_path: Path) -> None:
    (run,) = _load(_write(tmp_path / "chat.json", OPENAI))
    assert run.info.name == "chat"
    assert _shape(run) == [
        ("run", "chat", None),
        ("llm", "assistant", 2),
        ("tool", "look", 3),
        ("llm", "assistant", 4),
    ]


def test_requests_and_answers_are_parsed_as_those_of_a_provider(tmp_path: Path) -> None:
    temporary = load_runs(_write(tmp_path / "chat.json", OPENAI))
    (info,) = temporary.store.list_runs(RunFilter())
    evidence = open_run(temporary.store, info.id)
    first, last = evidence.model_calls
    request, answer = evidence.request(first), evidence.response(first)
    assert request is not None
    assert answer is not None
    assert [message.role for message in request.messages] == ["system", "user"]
    assert [(call.id, call.name) for call in answer.calls] == [("call_1", "look")]
    later = evidence.request(last)
    assert later is not None
    assert [result.text for message in later.messages for result in message.results] == ["shipped"]
    tool = evidence.of_type("tool")[0]
    assert (evidence.input(tool), evidence.output(tool)) == ('{"at": 7}', "shipped")
    temporary.close()


def test_messages_without_times_have_no_durations(tmp_path: Path) -> None:
    path = _write(tmp_path / "chat.json", OPENAI)
    show = [sys.executable, "-m", "vestige", "show", "--tree", str(path)]
    shown = subprocess.run(show, capture_output=True, text=True, check=True).stdout
    assert re.search(r"\d(µs|ms|s)\b", shown) is None

    # Nor does it state how the conversation ended.
    assert "chat: unknown\n" in shown
    timed = [{**each, "timestamp": f"2026-01-01T00:00:{n:02}Z"} for n, each in enumerate(OPENAI)]
    (run,) = _load(_write(path, timed))
    assert run.info.duration_ns == (len(timed) - 1) * 10**9


def test_anthropic_blocks_are_calls_and_failed_results(tmp_path: Path) -> None:
    (run,) = _load(_write(tmp_path / "chat.json", ANTHROPIC))
    assert _shape(run)[1:] == [
        ("llm", "assistant", 1),
        ("tool", "look", 2),
        ("llm", "assistant", 3),
    ]
    assert _span(run, 2).status == "error"


def test_names_of_a_group_chat_are_agents_and_an_executor_is_a_tool(tmp_path: Path) -> None:
    temporary = load_runs(_write(tmp_path / "group.json", GROUP))
    (info,) = temporary.store.list_runs(RunFilter())
    evidence = open_run(temporary.store, info.id)
    run = evidence.run
    assert [(span.type, span.component) for span in run.spans[1:]] == [
        ("llm", "Planner"),
        ("llm", "Coder"),
        ("tool", "Computer_terminal"),
        ("llm", "Coder"),
    ]
    terminal = run.spans[3]
    assert terminal.status == "error"
    assert terminal.attributes["exit_code"] == 1
    assert evidence.input(terminal) == "late()"
    assert evidence.input(run.spans[0]) == "How many orders are late?"
    assert run.spans[0].attributes["question_ID"] == "q-17"
    prompt = evidence.request(run.spans[2])
    assert prompt is not None
    assert [message.text for message in prompt.messages] == ["You write code."]
    temporary.close()


def test_a_role_with_a_remark_is_an_agent(tmp_path: Path) -> None:
    history = [
        {"role": "human", "content": "Find it."},
        {"role": "Orchestrator (thought)", "content": "A plan."},
        {"role": "Orchestrator (-> Surfer)", "content": "Search."},
        {"role": "Surfer", "content": "I searched."},
    ]
    (run,) = _load(_write(tmp_path / "log.json", {"history": history, "question": "Find it."}))
    assert [(span.component, span.attributes.get("message.remark")) for span in run.spans[1:]] == [
        ("Orchestrator", "thought"),
        ("Orchestrator", "-> Surfer"),
        ("Surfer", None),
    ]
    assert [span.attributes["message_index"] for span in run.spans[1:]] == [1, 2, 3]


def test_a_message_per_line_is_one_run_and_a_conversation_per_line_is_several(
    tmp_path: Path,
) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(json.dumps(message) + "\n" for message in OPENAI))
    (run,) = _load(lines)
    assert len(run.spans) == 4
    tuning = tmp_path / "tuning.jsonl"
    tuning.write_text(
        f"{json.dumps({'messages': OPENAI})}\n{json.dumps({'messages': ANTHROPIC})}\n"
    )
    assert [run.info.name for run in _load(tuning)] == ["tuning#1", "tuning#2"]


def test_envelopes_of_benchmarks_are_read(tmp_path: Path) -> None:
    tau = [
        {
            "task_id": 2,
            "reward": 0.0,
            "info": {"task": {"instruction": "Return it"}},
            "traj": OPENAI,
        }
    ]
    (run,) = _load(_write(tmp_path / "tau.json", tau))
    assert (run.spans[0].attributes["task_id"], run.spans[0].attributes["reward"]) == (2, 0.0)
    mini = {"info": {"exit_status": "LimitsExceeded", "submission": ""}, "messages": OPENAI}
    (run,) = _load(_write(tmp_path / "fix.traj.json", mini))
    assert (run.info.name, run.info.outcome) == ("fix", "error")
    steps = [
        {"action": "ls -la", "observation": "a.py", "response": "I list.", "thought": "I list."},
        {"action": "submit", "observation": "done", "response": "I submit.", "thought": ""},
    ]
    swe = {
        "trajectory": steps,
        "history": [
            {"role": "system", "content": "You fix bugs."},
            {"role": "user", "content": "A demonstration.", "is_demo": True},
            {"role": "user", "content": "Fix the bug."},
            {"role": "assistant", "content": "I list."},
        ],
        "info": {"exit_status": "submitted"},
    }
    (run,) = _load(_write(tmp_path / "swe.traj", swe))
    assert _shape(run)[1:] == [
        ("llm", "assistant", 0),
        ("tool", "ls", 0),
        ("llm", "assistant", 1),
        ("tool", "submit", 1),
    ]


def test_a_real_run_of_mini_swe_agent_has_its_times_costs_and_submission() -> None:
    _check_mini_swe_agent(DATA / "mini-swe-agent.traj.json")


def _check_mini_swe_agent(path: Path) -> None:
    temporary = load_runs(path)
    (info,) = temporary.store.list_runs(RunFilter())
    evidence = open_run(temporary.store, info.id)
    run = evidence.run
    assert (run.info.outcome, run.info.input_tokens, run.info.output_tokens) == ("ok", 303, 30)
    assert [span.type for span in run.spans] == ["run", *(["llm", "tool"] * 3)]
    tools = evidence.of_type("tool")
    assert [tool.name for tool in tools] == ["bash"] * 3
    assert [tool.attributes.get("exit_code") for tool in tools] == [0, 1, None]
    assert evidence.output(tools[2]) == "fixed\n"
    calls = evidence.model_calls
    assert all(call.attributes["cache_read_tokens"] == 60 for call in calls)
    assert sum(float(str(call.attributes["cost_usd"])) for call in calls) > 0
    assert calls[0].started_ns < calls[1].started_ns < path.stat().st_mtime_ns
    temporary.close()


@pytest.mark.full
def test_the_newest_mini_swe_agent_writes_what_is_read(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env/bin/python"
    packages = ["mini-swe-agent", "mcp"]  # its LiteLLM imports mcp
    subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    subprocess.run([python, DATA / "make.py", tmp_path], check=True, cwd=tmp_path)
    _check_mini_swe_agent(tmp_path / "mini-swe-agent.traj.json")


def test_importing_again_adds_nothing_and_a_longer_file_adds_the_rest(tmp_path: Path) -> None:
    path = _write(tmp_path / "chat.json", OPENAI[:4])
    with SqliteStore.open(tmp_path / "store.db") as store:
        (first,) = import_path(store, path)
        (again,) = import_path(store, path)
        assert (again.run_id, again.records) == (first.run_id, 0)
        _write(path, [*OPENAI, {"role": "user", "content": "Thanks."}])
        (grown,) = import_path(store, path)
        assert grown.run_id == first.run_id
        assert grown.records > 0
        run = store.load_run(first.run_id or "")
        answers = [span for span in run.spans if span.type == "llm"]
        assert [span.attributes["message_index"] for span in answers] == [2, 4]
        assert run.info.outcome == "unknown"


def test_a_message_without_an_answer_is_not_dropped(tmp_path: Path) -> None:
    temporary = load_runs(_write(tmp_path / "chat.json", OPENAI[:2]))
    (info,) = temporary.store.list_runs(RunFilter())
    evidence = open_run(temporary.store, info.id)
    assert "Where is order 7?" in (evidence.input(evidence.of_type("step")[0]) or "")
    temporary.close()


def test_a_long_conversation_is_stored_in_linear_space(tmp_path: Path) -> None:
    turns = 400
    talk = [
        {"role": role, "content": f"{role} {number} " + "x" * 1000}
        for number in range(turns)
        for role in ("user", "assistant")
    ]
    temporary = load_runs(_write(tmp_path / "long.json", talk))
    (info,) = temporary.store.list_runs(RunFilter())
    run = temporary.store.load_run(info.id)
    stored = sum(
        ref.size_bytes for span in run.spans for ref in (span.input, span.output) if ref is not None
    )
    assert stored < 3 * (tmp_path / "long.json").stat().st_size
    temporary.close()


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        "[1, 2, 3]",
        '{"messages": []}',
        '{"messages": "none"}',
        '{"name": "package", "version": "1"}',
        '[{"role": "admin", "user": "x"}]',
        "[" * 5_000,
        '{"role": "user", "content": ',
    ],
)
def test_other_json_is_not_taken_for_messages(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    assert not messages.is_readable(path)
    with pytest.raises(UnreadableError):
        messages.read_run(path)


def test_damaged_messages_are_problems_and_the_others_are_read(tmp_path: Path) -> None:
    odd = [
        None,
        7,
        {"role": 3},
        {"role": "user", "content": {"deep": [1]}},
        *OPENAI,
        {"x": "\ud800"},
    ]
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(odd))
    found = find_format(path)
    assert found is not None
    assert found[0] == "messages"
    source = messages.read_run(path)
    assert len(list(source.records)) == 8
    assert {problem.place for problem in source.problems} >= {"message 0", "message 1", "message 2"}
    torn = tmp_path / "torn.jsonl"
    torn.write_text("".join(json.dumps(message) + "\n" for message in OPENAI) + '{"role": "us')
    assert len(_load(torn)[0].spans) == 4


def test_a_folder_of_files_is_read_file_by_file(tmp_path: Path) -> None:
    _write(tmp_path / "a.json", OPENAI)
    _write(tmp_path / "b.json", GROUP)
    _write(tmp_path / "package.json", {"name": "x"})
    assert [run.info.name for run in _load(tmp_path)] == ["a", "b"]


def test_a_session_of_clines_command_line_has_its_model_times_and_tokens(tmp_path: Path) -> None:
    """The shape is that of Cline 3.0, which was run against a loopback provider."""
    folder = tmp_path / ".cline" / "data" / "sessions" / "1795001805138_e97ve"
    folder.mkdir(parents=True)
    prompt = [{"type": "text", "text": '<user_input mode="act">list the files</user_input>'}]
    metrics = {"inputTokens": 1200, "outputTokens": 25, "cacheReadTokens": 1000}
    answer = {
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "text", "text": "All done."}],
        "ts": 1795001805682,
        "modelInfo": {"id": "gpt-4o", "provider": "openai-compatible"},
        "metrics": {**metrics, "cacheWriteTokens": 0},
    }
    session = {
        "version": 1,
        "agent": "lead",
        "sessionId": folder.name,
        "messages": [{"role": "user", "content": prompt, "ts": 1795001805278}, answer],
        "system_prompt": "You are Cline.",
    }
    path = folder / f"{folder.name}.messages.json"
    path.write_text(json.dumps(session))

    (home,) = find_agent_homes({"HOME": str(tmp_path)})
    assert (home.agent, list(home.find_sessions())) == ("Cline", [path])
    with imported(tmp_path, path) as store:
        (run,) = load_imported(store)
        (call,) = of_type(run, "llm")
    assert call.attributes["model"] == "gpt-4o"
    assert (run.info.input_tokens, run.info.output_tokens) == (1200, 25)
    assert call.attributes["cache_read_tokens"] == 1000
    assert run.info.started_ns // 1_000_000 == 1795001805278


def test_a_document_of_too_many_messages_is_refused_and_lines_of_them_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vestige.formats.messages.detect.DOCUMENT_MESSAGES_MAX", 50)
    messages = [
        {"role": ("user", "assistant")[number % 2], "content": 'a text with "role" in it'}
        for number in range(51)
    ]
    listed = _write(tmp_path / "listed.json", messages)
    enveloped = _write(tmp_path / "enveloped.json", {"messages": messages})
    for path in (listed, enveloped):
        with pytest.raises(UnreadableError, match=r"more than 50 messages in one document\. Store"):
            _load(path)
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(json.dumps(each) + "\n" for each in messages))
    assert len(_load(lines)) == 1
    assert len(_load(_write(tmp_path / "fewer.json", messages[:50]))) == 1
