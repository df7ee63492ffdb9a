"""Logs of coding agents: sessions that the real programs wrote become runs with true figures."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.agent_logs import (
    DATA,
    body,
    find_session,
    find_tool,
    imported,
    load_runs,
    of_type,
    read_records,
    read_truth,
)
from vestige.errors import UnreadableError
from vestige.formats import get_format
from vestige.query.evidence import open_run
from vestige.query.trajectory import build_trajectory
from vestige.query.trajectory.file_edits import find_edits
from vestige.record.types import SpanClose, SpanOpen
from vestige.store.open import open_store
from vestige.transfer import import_path
from vestige.transfer.import_runs import find_format

CLAUDE = DATA / "claude_code" / "projects" / "-home-dev-calc"
SESSION = CLAUDE / "5a3a2b1c-0000-4000-8000-000000000001.jsonl"
CODEX = DATA / "codex" / "sessions"
ROLLOUT = next(CODEX.rglob("*-17-*.jsonl"))
GEMINI = DATA / "gemini_cli"
CHAT = next(GEMINI.rglob("session-*.jsonl"))
OPENCODE = DATA / "opencode"
DATABASE = OPENCODE / "opencode.db"

SAMPLES = {
    "claude_code": DATA / "claude_code",
    "codex": CODEX,
    "gemini_cli": GEMINI,
    "opencode": OPENCODE,
    "goose": DATA / "goose",
    "cline": DATA / "cline",
    "openhands": DATA / "openhands" / "conversations",
}
UNLOGGED = {
    "claude_code": {"msg_0013"},  # the summary of a compaction
    "codex": set[str](),
    "gemini_cli": set[str](),
    "opencode": {"msg_0001", "msg_0013", "msg_0014"},  # titles
    "goose": {"msg_0001", "msg_0012"},  # titles
    "cline": set[str](),
    "openhands": set[str](),
}
EDITS = {"claude_code": "Edit", "codex": "apply_patch", "gemini_cli": "replace", "opencode": "edit"}
AGENTS = {
    "claude_code": "general-purpose",
    "codex": "Ohm",
    "opencode": "general",
    "goose": "sub-agent",
    "cline": "sub-agent",
    "openhands": "helper",
}
LINES = {"claude_code": SESSION, "codex": ROLLOUT, "gemini_cli": CHAT}


@pytest.mark.parametrize("format", SAMPLES)
def test_tokens_are_those_that_the_provider_counted_each_once(format: str, tmp_path: Path) -> None:
    with imported(tmp_path, SAMPLES[format]) as store:
        runs = load_runs(store)
        calls = [span for run in runs for span in of_type(run, "llm")]
        counted = [call.attributes for call in calls if "output_tokens" in call.attributes]
        expected = [each for each in read_truth(format) if each["id"] not in UNLOGGED[format]]
        assert sorted(
            (
                each["input_tokens"],
                each["output_tokens"],
                each["cache_read_tokens"],
                each.get("cache_write_tokens") or 0,
            )
            for each in counted
            if each["output_tokens"]
        ) == sorted(
            (
                each["input"] + each["cache_read"] + each["cache_write"],
                each["output"],
                each["cache_read"],
                each["cache_write"],
            )
            for each in expected
        )
        assert sum(run.info.output_tokens for run in runs) == sum(
            each["output"] for each in expected
        )


@pytest.mark.parametrize("format", SAMPLES)
def test_a_folder_of_sessions_is_recognised(format: str) -> None:
    found = find_format(SAMPLES[format])
    assert found is not None and found[0] == format


@pytest.mark.parametrize("format", SAMPLES)
def test_importing_again_adds_nothing(format: str, tmp_path: Path) -> None:
    with imported(tmp_path, SAMPLES[format]) as store:
        before = [(run.info.id, len(run.spans), run.info.output_tokens) for run in load_runs(store)]
        assert [result.records for result in import_path(store, SAMPLES[format])] == [0] * len(
            before
        )
        after = [(run.info.id, len(run.spans), run.info.output_tokens) for run in load_runs(store)]
    assert before == after


@pytest.mark.parametrize("format", SAMPLES)
def test_tools_have_arguments_results_and_failures(format: str, tmp_path: Path) -> None:
    with imported(tmp_path, SAMPLES[format]) as store:
        run = find_session(store)
        failed = find_tool(run, "missing.txt", store)
        assert failed.status == "error"
        assert b"No such file" in body(store, failed.output)
        assert "No such file" in str(failed.attributes["error.message"])
        passed = find_tool(run, "python3 -m unittest", store)
        assert passed.status == "ok"
        assert b"Ran 1 test" in body(store, passed.output)
        if format in EDITS:
            edit = next(span for span in of_type(run, "tool") if span.name == EDITS[format])
            assert "+def subtract(a, b):" in str(edit.attributes["file_diff"])
        steps = build_trajectory(open_run(store, run.info.id)).steps
        actions = [action for step in steps for action in step.actions]
        edits = [
            each
            for action in actions
            if action.arguments is not None
            for each in find_edits(action.name, action.arguments.text, action.file_diff)
        ]
        assert any("+def subtract(a, b):" in edit.diff for edit in edits)
        assert {Path(edit.path).name for edit in edits} == {"calc.py", "test_calc.py"}


@pytest.mark.parametrize("format", AGENTS)
def test_a_sub_agent_is_below_the_call_that_started_it(format: str, tmp_path: Path) -> None:
    with imported(tmp_path, SAMPLES[format]) as store:
        run = find_session(store)
        spans = {span.id: span for span in run.spans}
        (agent,) = of_type(run, "agent")
        assert agent.attributes["agent_name"] == AGENTS[format]
        caller = spans[str(agent.parent_id)]
        assert caller.type == "tool" and b"Count the functions" in body(store, caller.input)
        steps = build_trajectory(open_run(store, run.info.id)).steps
        inner = [step for step in steps if step.depth == 1]
        assert [step.agent for step in inner] == [AGENTS[format]] * 2
        assert inner[-1].answer_text == "calc.py has two functions."


@pytest.mark.parametrize("format", SAMPLES)
def test_prompts_open_turns_and_the_first_one_is_the_title(format: str, tmp_path: Path) -> None:
    with imported(tmp_path, SAMPLES[format]) as store:
        run = find_session(store)
        (root,) = of_type(run, "run")
        turns = [
            body(store, span.input).decode().strip('"')
            for span in of_type(run, "step")
            if span.parent_id == root.id
        ]
        resumed = ["Which files did you change?"] if format != "cline" else []
        assert turns[:2] == ["Add a subtract function to calc.py, and a test.", *resumed]
        assert run.info.outcome == "ok"
        trajectory = build_trajectory(open_run(store, run.info.id))
        assert trajectory.steps[0].answer_text.startswith("I read the file and")
        thoughts = [item.text for item in trajectory.steps[0].answer if item.kind == "thinking"]
        assert any("The file comes first." in thought for thought in thoughts)


@pytest.mark.parametrize("format", ["claude_code", "codex", "opencode", "cline", "openhands"])
def test_a_failed_request_is_a_failed_model_call(format: str, tmp_path: Path) -> None:
    with imported(tmp_path, SAMPLES[format]) as store:
        run = find_session(store, "Translate the file")
        (call,) = of_type(run, "llm")
        assert call.status == "error" and run.info.outcome == "error"
        assert "The request is not valid." in str(call.attributes["error.message"])


# --- growing, torn and newer files ----------------------------------------------------------------


@pytest.mark.parametrize("format", LINES)
def test_a_file_that_grows_line_by_line_gives_the_same_run(format: str, tmp_path: Path) -> None:
    source = LINES[format]
    lines = source.read_bytes().splitlines(keepends=True)
    live = tmp_path / "live" / source.name
    live.parent.mkdir()
    with open_store(tmp_path / "store.db") as store:
        for count in range(5, len(lines) + 1):
            live.write_bytes(b"".join(lines[:count]))
            if get_format(format).is_readable(live):
                list(import_path(store, live, format))
        list(import_path(store, live, format))
        grown = load_runs(store)
    (tmp_path / "again").mkdir()
    with imported(tmp_path / "again", live) as store:
        (once,) = load_runs(store)
        (run,) = grown
    assert [(span.id, span.status, span.attributes) for span in run.spans] == [
        (span.id, span.status, span.attributes) for span in once.spans
    ]
    assert run.info.output_tokens == once.info.output_tokens
    assert run.info.outcome == "ok"


@pytest.mark.parametrize("format", LINES)
def test_a_torn_last_line_and_unknown_entries_lose_nothing_else(
    format: str, tmp_path: Path
) -> None:
    source = LINES[format]
    lines = source.read_bytes().splitlines(keepends=True)
    odd = [
        b'{"type":"hologram","timestamp":"2031-01-01T00:00:00Z","payload":{"type":"x"},"id":"n"}\n',
        b'{"type":["user"],"message":7,"payload":[],"uuid":{},"timestamp":12,"id":{}}\n',
        b"not json\n",
        b"[1, 2]\n",
        b'{"type":"user","message":{"content":"\xff\xfe"},"payload":{}}\n',
        b"\n",
    ]
    damaged = tmp_path / source.name
    damaged.write_bytes(b"".join([lines[0], *odd, *lines[1:]]) + lines[5][:40])
    complete = {
        record.span_id for record in read_records(format, source) if isinstance(record, SpanOpen)
    }
    read = get_format(format).read_run(damaged)
    found = {record.span_id for record in read.records if isinstance(record, SpanOpen)}
    agents = {"claude_code": 5, "codex": 5, "gemini_cli": 0}  # spans of sub-agents' files
    assert len(complete - found) <= agents[format]
    rules = {problem.rule for problem in read.problems}
    assert {"line-torn", "line-invalid"} <= rules
    assert {problem.severity for problem in read.problems} == {"warning"}


def test_a_compressed_rollout_is_the_same_run(tmp_path: Path) -> None:
    from vestige._runtime.zstd import zstd

    packed = tmp_path / f"{ROLLOUT.name}.zst"
    compressor = zstd.ZstdCompressor()
    blocks = [
        compressor.compress(line, zstd.ZstdCompressor.FLUSH_BLOCK)
        for line in ROLLOUT.read_bytes().splitlines(keepends=True)
    ]
    packed.write_bytes(b"".join(blocks) + compressor.flush())
    plain = tmp_path / ROLLOUT.name
    plain.write_bytes(ROLLOUT.read_bytes())
    assert read_records("codex", packed) == read_records("codex", plain)
    packed.write_bytes(packed.read_bytes()[:-200])  # the file ends within a frame
    assert len(read_records("codex", packed)) > 30
    packed.write_bytes(b"\x28\xb5\x2f\xfd" + b"\xff" * 100)
    with pytest.raises(UnreadableError):
        get_format("codex").read_run(packed)


# --- what only one of them has --------------------------------------------------------------------


def test_a_fork_shows_what_it_copied_without_counting_it(tmp_path: Path) -> None:
    fork = next(path for path in CLAUDE.glob("a78e*.jsonl"))
    with imported(tmp_path, fork) as store:
        (run,) = load_runs(store)
        copied = [span for span in of_type(run, "llm") if span.attributes.get("copied")]
        own = [span for span in of_type(run, "llm") if not span.attributes.get("copied")]
        assert len(copied) == 9 and len(own) == 1
        assert run.info.output_tokens == own[0].attributes["output_tokens"] == 13


def test_compaction_hooks_denials_and_images_of_claude_code_are_shown(tmp_path: Path) -> None:
    with imported(tmp_path, SESSION) as store:
        (run,) = load_runs(store)
        (compaction,) = of_type(run, "compaction")
        assert compaction.attributes["tokens_before"] == 1356
        assert {span.name for span in of_type(run, "hook")} == {"PostToolUse:Write", "Stop"}
        denied = find_tool(run, "/etc/denied", store)
        assert denied.attributes["error.type"] == "PermissionDenied"
        trajectory = build_trajectory(open_run(store, run.info.id))
        items = [item.text for step in trajectory.steps for item in step.items()]
        assert any(text.startswith("[image 2x2 png") for text in items)
        names = {action.name for step in trajectory.steps for action in step.actions}
        assert "Stop" not in names  # a hook is not a tool of the agent


def test_an_answer_whose_parts_are_interleaved_with_results_is_one_model_call(
    tmp_path: Path,
) -> None:
    def line(kind: str, at: int, **message: Any) -> str:
        stamp = f"2026-01-01T00:00:{at:02}Z"
        entry = {"type": kind, "uuid": f"u{at}", "timestamp": stamp, "message": message}
        return json.dumps({**entry, "sessionId": "s"}) + "\n"

    def part(at: int, number: int, tokens: int) -> str:
        block = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {}}
        usage = {"input_tokens": 10, "output_tokens": tokens}
        return line("assistant", at, id="m1", model="x", content=[block], usage=usage)

    def result(at: int, number: int) -> str:
        block = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "done"}
        return line("user", at, content=[block])

    path = tmp_path / "s.jsonl"
    path.write_text(
        line("user", 1, content="go")
        + part(2, 1, 5)
        + result(3, 1)
        + part(4, 2, 9)
        + result(5, 2)
        + line("assistant", 6, id="m2", model="x", content=[], stop_reason="end_turn")
    )
    with imported(tmp_path, path) as store:
        (run,) = load_runs(store)
        assert [call.attributes.get("output_tokens") for call in of_type(run, "llm")] == [9, None]
        assert run.info.output_tokens == 9
        assert [tool.status for tool in of_type(run, "tool")] == ["ok", "ok"]


def test_older_rollouts_count_each_repeated_token_count_once(tmp_path: Path) -> None:
    def line(kind: str, **payload: Any) -> str:
        entry = {"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload}
        return json.dumps(entry) + "\n"

    def count(total: int, last: int) -> str:
        info = {
            "total_token_usage": {"input_tokens": total, "output_tokens": total},
            "last_token_usage": {"input_tokens": last, "output_tokens": last},
        }
        return line("event_msg", type="token_count", info=info)

    text = [{"type": "output_text", "text": "hi"}]
    answer = line("response_item", type="message", role="assistant", content=text)
    prompt = line("response_item", type="message", role="user", content=text)
    path = tmp_path / "rollout-2026-01-01T00-00-00-00000000-0000-4000-8000-000000000000.jsonl"
    meta = line("session_meta", id="x")
    path.write_text(
        meta + prompt + answer + count(5, 5) + count(5, 5) + prompt + answer + count(12, 7)
    )
    with imported(tmp_path, path) as store:
        (run,) = load_runs(store)
        assert [call.attributes["output_tokens"] for call in of_type(run, "llm")] == [5, 7]


def test_a_trace_bundle_has_the_exact_requests(tmp_path: Path) -> None:
    traces = DATA / "codex" / "traces"
    with imported(tmp_path, traces) as store:
        run = find_session(store)
        calls = of_type(run, "llm")
        request = json.loads(body(store, calls[-1].input))
        assert request["model"] == "gpt-5.5" and len(request["input"]) > 10
        (agent,) = of_type(run, "agent")
        spans = {span.id: span for span in run.spans}
        assert spans[str(agent.parent_id)].name == "spawn_agent"
        assert find_tool(run, "missing.txt", store).status == "error"


def test_a_live_database_is_read_without_a_lock_or_a_change(tmp_path: Path) -> None:
    live = tmp_path / "opencode.db"
    shutil.copy(DATABASE, live)
    writer = sqlite3.connect(live, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("BEGIN IMMEDIATE")
    (message_id,) = writer.execute(
        "SELECT id FROM message WHERE data LIKE '%tool-calls%' ORDER BY id DESC"
    ).fetchone()
    path = "$.time.completed"
    writer.execute(
        "UPDATE message SET data = json_remove(data, ?) WHERE id = ?", (path, message_id)
    )
    with imported(tmp_path, live) as store:  # the writer holds its lock meanwhile
        run = find_session(store)
        before = {span.id: span.status for span in run.spans}
        writer.execute("COMMIT")
        list(import_path(store, live))
        shutil.copy(DATABASE, tmp_path / "after.db")
        writer.execute(
            "UPDATE message SET data = json_set(data, ?, 1794985214970) WHERE id = ?",
            (path, message_id),
        )
        list(import_path(store, live))
        run = find_session(store)
        assert {span.id: span.status for span in run.spans} == before
        assert run.info.output_tokens == 218
    assert sorted(path.name for path in tmp_path.glob("opencode.db*")) == [
        "opencode.db",
        "opencode.db-shm",
        "opencode.db-wal",
    ]
    writer.close()


@pytest.mark.parametrize(
    ("format", "database", "table", "messages"),
    [
        ("opencode", "opencode.db", "session", "message"),
        ("goose", "sessions.db", "sessions", "messages"),
    ],
)
def test_a_session_whose_sub_agent_was_deleted_is_read(
    format: str, database: str, table: str, messages: str, tmp_path: Path
) -> None:
    copy = tmp_path / database
    shutil.copy(SAMPLES[format] / database, copy)
    for name in ("all", "rest"):
        (tmp_path / name).mkdir()
    with imported(tmp_path / "all", copy) as store:
        (agent,) = of_type(find_session(store), "agent")
    inner = str(agent.attributes["agent_id"])
    with sqlite3.connect(copy) as connection:
        connection.execute(f"DELETE FROM {messages} WHERE session_id = ?", (inner,))
        connection.execute(f"DELETE FROM {table} WHERE id = ?", (inner,))

    with imported(tmp_path / "rest", copy) as store:
        run = find_session(store)

    assert run.info.outcome == "ok" and of_type(run, "llm")


# --- hostile files --------------------------------------------------------------------------------


@pytest.mark.parametrize("format", LINES)
def test_deep_json_and_long_lines_are_skipped(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = LINES[format]
    first, *rest = source.read_bytes().splitlines(keepends=True)
    hostile = tmp_path / source.name
    deep = b'{"type":"user","message":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    long = b'{"type":"user","x":"' + b"a" * (17 * 1024 * 1024) + b'"}\n'
    hostile.write_bytes(b"".join([first, deep, long, *rest]))
    read = get_format(format).read_run(hostile)
    assert sum(1 for _ in read.records) > 30
    assert {"line-invalid", "line-too-long"} <= {problem.rule for problem in read.problems}


@pytest.mark.parametrize("format", SAMPLES)
def test_links_are_not_followed(format: str, tmp_path: Path) -> None:
    for path in SAMPLES[format].rglob("*"):
        if path.is_file():
            link = tmp_path / path.relative_to(SAMPLES[format])
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
    assert not get_format(format).is_readable(tmp_path)
    assert list(get_format(format).find_runs(tmp_path)) == []


@pytest.mark.slow
@settings(max_examples=25)
@given(st.data())
def test_any_value_in_any_field_is_read_without_an_error(data: st.DataObject) -> None:
    import tempfile

    agent = data.draw(st.sampled_from(sorted(LINES)))
    lines = LINES[agent].read_text().splitlines()
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
        max_leaves=5,
    )
    for _ in range(5):
        number = data.draw(st.integers(1, len(lines) - 1))
        value = json.loads(lines[number])
        place = value
        while isinstance(place, (dict, list)) and place:
            keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
            key = data.draw(st.sampled_from(keys))
            if not isinstance(place[key], (dict, list)) or data.draw(st.booleans()):
                place[key] = data.draw(values)
                break
            place = place[key]
        lines[number] = json.dumps(value)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / LINES[agent].name
        path.write_text("\n".join(lines) + "\n")
        records = read_records(agent, path)
    opened = {record.span_id for record in records if isinstance(record, SpanOpen)}
    assert {record.span_id for record in records if isinstance(record, SpanClose)} <= opened
    numbers: dict[str, list[int]] = {}
    for record in records:
        numbers.setdefault(record.writer, []).append(record.seq)
    assert all(seqs == sorted(set(seqs)) for seqs in numbers.values())


def test_a_long_result_is_read_from_the_file_beside_the_session(tmp_path: Path) -> None:
    session = "5a3a2b1c-0000-4000-8000-000000000009"
    secret = tmp_path / "tool-results" / "outside.txt"
    beside = tmp_path / session / "tool-results"
    for folder in (secret.parent, beside):
        folder.mkdir(parents=True)
    secret.write_text("not of this session")
    (beside / "long.txt").write_text("\n".join(map(str, range(5_000))))
    (beside / "link.txt").symlink_to(secret)
    lines: list[dict[str, Any]] = [{"type": "user", "message": {"content": "Count."}}]
    for name in ("long.txt", "link.txt", "outside.txt", "../../tool-results/outside.txt"):
        call = {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": name}}
        answer = {"id": f"m {name}", "model": "claude-sonnet-4-5", "content": [call]}
        lines.append({"type": "assistant", "message": answer})
        text = (
            "<persisted-output>\nOutput too large (23.8KB). Full output saved to:"
            f" /home/dev/.claude/projects/-calc/{session}/tool-results/{name}\n\n"
            "Preview (first 2KB):\n0\n1\n...\n</persisted-output>"
        )
        result = {"type": "tool_result", "tool_use_id": name, "content": text}
        lines.append({"type": "user", "message": {"content": [result]}})
    path = tmp_path / f"{session}.jsonl"
    path.write_text("".join(json.dumps({"sessionId": session, **one}) + "\n" for one in lines))

    with imported(tmp_path, path) as store:
        (run,) = load_runs(store)
        tools = of_type(run, "tool")
        outputs = [body(store, tool.output).decode() for tool in tools]
        assert outputs[0].endswith("\n4999")
        assert tools[0].attributes["result_shortened"] is True
        assert all(text.startswith("<persisted-output>") for text in outputs[1:])
        # The model got the preview, not the file.
        request = body(store, of_type(run, "llm")[1].input).decode()
        assert "Preview (first 2KB)" in request and "4999" not in request


def test_a_fork_of_an_older_codex_shows_its_copy_without_counting_it(tmp_path: Path) -> None:
    """The entries are those of Codex 0.110: a copy is written at once, with the time of the fork.

    Newer versions copy nothing.
    """
    parent, fork = "01a1ee6b-25f9-7752-9ab0-efe8b7f721a8", "01a1ee6b-3130-7ea3-8406-cef58f3c1609"
    old_turn, new_turn = "01a1ee6b-26cd-78b0-8f67-08402facc592", f"01a1ee6b-3187{fork[13:]}"

    def turn(turn_id: str, prompt: str, total: int, second: str) -> list[dict[str, Any]]:
        tokens = {"input_tokens": 1200, "output_tokens": 25}
        usage = {"total_token_usage": {"input_tokens": total}, "last_token_usage": tokens}
        ask = [{"type": "input_text", "text": prompt}]
        done = [{"type": "output_text", "text": "All done."}]
        entries = [
            ("event_msg", {"type": "task_started", "turn_id": turn_id}),
            ("turn_context", {"turn_id": turn_id, "model": "gpt-5.5"}),
            ("response_item", {"type": "message", "role": "user", "content": ask}),
            ("response_item", {"type": "message", "role": "assistant", "content": done}),
            ("event_msg", {"type": "token_count", "info": usage}),
            ("event_msg", {"type": "task_complete", "turn_id": turn_id}),
        ]
        time = f"2026-11-18T11:29:{second}Z"
        return [{"timestamp": time, "type": kind, "payload": value} for kind, value in entries]

    def meta(second: str, **payload: str) -> dict[str, Any]:
        time = f"2026-11-18T11:29:{second}Z"
        return {"timestamp": time, "type": "session_meta", "payload": payload}

    lines = [
        meta("24.791", id=fork, forked_from_id=parent),
        meta("24.797", id=parent),
        *turn(old_turn, "list the files", 1200, "24.797"),
        *turn(new_turn, "and now explain them", 2400, "24.872"),
    ]
    path = tmp_path / f"rollout-2026-11-18T11-29-24-{fork}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    with imported(tmp_path, path) as store:
        (run,) = load_runs(store)
        assert run.info.input_tokens == 1200
        copied = [span.attributes.get("copied", False) for span in of_type(run, "llm")]
        assert copied == [True, False]
        assert run.spans[0].attributes["forked_from"] == parent
