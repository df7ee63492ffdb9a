"""Model and tool calls that a bundle's events and transcript tell of are spans of its run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.commands import vestige
from support.wink_samples import make_bundle, members_of, read_lines
from vestige.debug import (
    AgentInfo,
    DebugBundle,
    DebugBundleBuilder,
    PromptExecuted,
    PromptRendered,
    Session,
    ToolInvoked,
)
from vestige.formats.wink import read_run
from vestige.record.run import Run, SpanInfo
from vestige.recorder import Recorder
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import export_run, import_path

FAILED = {"path": "tests/test_main.py"}


def taken_in(tmp_path: Path, path: Path, name: str = "a.db") -> tuple[Run, dict[str, bytes]]:
    """The run of a bundle, and the bodies of its calls by span and side."""
    with SqliteStore.open(tmp_path / name) as store:
        (imported,) = import_path(store, path)
        assert imported.run_id is not None and not imported.problems
        run = store.load_run(imported.run_id)
        bodies = {
            f"{span.id} {side}": store.read_body(ref.id)
            for span in run.spans
            for side, ref in (("in", span.input), ("out", span.output))
            if span.type in ("llm", "tool") and ref is not None and ref.id is not None
        }
    return run, bodies


def of_type(run: Run, kind: str) -> list[SpanInfo]:
    return [span for span in run.spans if span.type == kind]


def test_the_real_events_and_transcript_are_calls(tmp_path: Path) -> None:
    run, bodies = taken_in(tmp_path, make_bundle().export(tmp_path / "x.wink"))
    tools, calls = of_type(run, "tool"), of_type(run, "llm")

    assert [span.name for span in tools] == ["read_file", "read_file", "read_file", "write_file"]
    assert [span.status for span in tools] == ["ok", "error", "ok", "ok"]
    failed = tools[1]
    assert json.loads(bodies[f"{failed.id} in"]) == FAILED
    assert failed.attributes["error.message"] == "no such file: tests/test_main.py"
    assert failed.attributes["tool_call_id"] == "call_001"
    assert failed.duration_ns == 24_511_000, "from tool_use to ToolInvoked"
    assert len(calls) == 5
    first, last = (json.loads(bodies[f"{calls[at].id} out"])["choices"][0] for at in (0, -1))
    assert first["finish_reason"] == "tool_calls"
    assert first["message"]["reasoning_content"] == "I should look at the code first."
    assert last["message"]["content"] == "Two findings."
    messages = json.loads(bodies[f"{calls[-1].id} in"])["messages"]
    roles = ["user", *["assistant", "tool"] * 4]
    assert [message["role"] for message in messages] == roles
    assert [span.attributes.get("input_tokens") for span in calls] == [None] * 4 + [1834]
    assert calls[-1].attributes["output_tokens"] == 221
    assert calls[-1].attributes["cache_read_tokens"] == 1024
    assert run.info.input_tokens == 1834


def test_without_a_transcript_an_evaluation_is_one_call(tmp_path: Path) -> None:
    run, bodies = taken_in(tmp_path, make_bundle(_logs=[]).export(tmp_path / "x.wink"))
    tools, (call,) = of_type(run, "tool"), of_type(run, "llm")

    answer = json.loads(bodies[f"{call.id} out"])["choices"][0]["message"]
    assert [one["id"] for one in answer["tool_calls"]] == [
        span.attributes["tool_call_id"] for span in tools
    ]
    assert answer["content"] == "Two findings."
    assert [span.status for span in tools] == ["ok", "error", "ok", "ok"]
    assert (call.attributes["input_tokens"], call.duration_ns) == (1834, 85_578_000)


def test_a_single_final_snapshot_tells_the_same_calls(tmp_path: Path) -> None:
    """As a file of `dump_session` has it."""
    last = read_lines("snapshots.jsonl")
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(last) + "\n")
    run, _ = taken_in(tmp_path, path)

    assert [span.status for span in of_type(run, "tool")] == ["ok", "error", "ok", "ok"]
    assert [span.status for span in of_type(run, "llm")] == ["ok"]


def test_only_a_transcript_is_enough(tmp_path: Path) -> None:
    run, _ = taken_in(tmp_path, make_bundle(_snapshots=[]).export(tmp_path / "x.wink"))

    assert [span.status for span in of_type(run, "tool")] == ["ok", "error", "ok", "ok"]
    assert len(of_type(run, "llm")) == 5
    assert run.info.output_tokens == 221


def test_check_names_the_failed_tool_call_and_cost_the_tokens(tmp_path: Path) -> None:
    agent = AgentInfo("reviewer", "openai", "gpt-4o-mini")
    path = make_bundle(agent=agent, _logs=[]).export(tmp_path / "x.wink")

    checked = vestige("check", path)
    talk = vestige("transcript", path)
    shown = vestige("overview", path)

    assert "no such file: tests/test_main.py" in checked.output
    assert "tool/bad-arguments" in checked.output
    assert "Two findings." in talk.output and "read_file" in talk.output
    assert "$" in shown.output


def test_calls_survive_import_export_and_import_and_are_there_once(tmp_path: Path) -> None:
    first = make_bundle().export(tmp_path / "x.wink")
    with SqliteStore.open(tmp_path / "a.db") as store:
        (imported,) = import_path(store, first)
        (again,) = import_path(store, first)
        assert imported.run_id is not None
        exported = export_run(store, imported.run_id, "wink", tmp_path / "y.wink")

    run, _ = taken_in(tmp_path, exported, "b.db")

    assert again.records == 0
    assert (len(of_type(run, "tool")), len(of_type(run, "llm"))) == (4, 5)
    assert members_of(exported)["snapshots.jsonl"] == members_of(first)["snapshots.jsonl"]
    logs = [DebugBundle.load(path).logs for path in (first, exported)]
    assert list(logs[0]) == list(logs[1])


def test_recorded_calls_are_not_told_a_second_time(tmp_path: Path) -> None:
    session = Session()
    with Recorder(tmp_path / "home") as recorder:
        builder = DebugBundleBuilder(
            session=session, agent=AgentInfo("a", "b", "c"), recorder=recorder, spool=tmp_path / "s"
        )
        with builder.capture():
            span = builder._run.span("t", type="tool")  # type: ignore[union-attr]
            session.dispatcher.dispatch(ToolInvoked(name="t", result="r"))
            span.end(body="r")
        path = builder.finalize().export(tmp_path / "x.wink")

    types = [record.type for record in read_run(path).records if hasattr(record, "type")]

    assert types.count("tool") == 1


def test_a_capture_of_our_own_session_has_its_calls(tmp_path: Path) -> None:
    session = Session()
    builder = DebugBundleBuilder(session=session, agent=AgentInfo("a", "b", "c"), spool=tmp_path)
    metadata: dict[str, Any] = {"prompt_name": "p", "session_id": session.session_id}
    with builder.capture():
        session.dispatcher.dispatch(PromptRendered(rendered_prompt="Do it.", **metadata))
        for number in (1, 2):
            result = {"success": number == 1, "message": f"m{number}"}
            session.dispatcher.dispatch(
                ToolInvoked(name="t", params={"n": 1}, result=result, **metadata)
            )
        session.dispatcher.dispatch(PromptExecuted(result="Done.", **metadata))
    run, _ = taken_in(tmp_path, builder.finalize().export(tmp_path / "x.wink"))

    assert [span.status for span in of_type(run, "tool")] == ["ok", "error"]
    assert [span.status for span in of_type(run, "llm")] == ["ok"]


def test_a_prompt_without_a_result_failed_with_the_run(tmp_path: Path) -> None:
    session = Session()
    builder = DebugBundleBuilder(session=session, agent=AgentInfo("a", "b", "c"), spool=tmp_path)
    try:
        with builder.capture():
            session.dispatcher.dispatch(PromptRendered(prompt_name="p", rendered_prompt="Do it."))
            raise TimeoutError("no answer")
    except TimeoutError:
        pass
    run, _ = taken_in(tmp_path, builder.finalize().export(tmp_path / "x.wink"))

    (call,) = of_type(run, "llm")
    assert (call.status, call.attributes["error.message"]) == ("error", "no answer")


def entry(number: int, kind: str, detail: dict[str, Any], session: str = "s1") -> str:
    context = {
        "prompt_name": "p",
        "entry_type": kind,
        "sequence_number": number,
        "session_id": session,
        "timestamp": f"2026-11-15T18:12:26.{number:06}+00:00",
        "detail": detail,
    }
    return json.dumps(
        {
            "timestamp": f"2026-11-15T18:12:26.{number:06}+00:00",
            "level": "DEBUG",
            "logger": "t",
            "event": "transcript.entry",
            "message": "m",
            "context": context,
        }
    )


def test_transcripts_of_other_adapters_are_read(tmp_path: Path) -> None:
    """The Claude SDK's entries as they are, and Codex' notifications."""
    lines = [
        entry(1, "user_message", {"text": "hi"}),
        entry(
            2,
            "assistant_message",
            {"sdk_entry": {"message": {"content": [{"type": "text", "text": "I look."}]}}},
        ),
        entry(
            3,
            "tool_use",
            {"sdk_entry": {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"p": "."}}},
        ),
        entry(
            4,
            "tool_result",
            {
                "sdk_entry": {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": "denied",
                    "is_error": True,
                }
            },
        ),
        entry(
            5,
            "token_usage",
            {"notification": {"tokenUsage": {"last": {"inputTokens": 7, "outputTokens": 3}}}},
        ),
        entry(6, "assistant_message", {"notification": {"item": {"text": "Sorry."}}}),
        entry(7, "assistant_message", {"text": "Another session."}, "s2"),
    ]
    path = make_bundle(_snapshots=[], _logs=lines).export(tmp_path / "x.wink")
    run, bodies = taken_in(tmp_path, path)

    (tool,) = of_type(run, "tool")
    assert (tool.name, tool.status) == ("ls", "error")
    assert tool.attributes["tool_call_id"] == "toolu_1"
    calls = of_type(run, "llm")
    texts = [
        json.loads(bodies[f"{call.id} out"])["choices"][0]["message"]["content"] for call in calls
    ]
    assert sorted(texts) == ["Another session.", "I look.", "Sorry."]
    assert (run.info.input_tokens, run.info.output_tokens) == (7, 3)


def test_odd_events_are_passed_over(tmp_path: Path) -> None:
    items = [1, None, [], {}, {"name": 5, "params": [[]], "result": {"success": False}}]
    slices = [
        {"slice_type": f"m:{kind}", "item_type": f"m:{kind}", "items": items}
        for kind in ("ToolInvoked", "PromptRendered", "PromptExecuted")
    ]
    snapshot = {"version": "1", "created_at": "2026-11-15T18:12:26+00:00", "slices": slices}
    odd = [
        entry(number, kind, detail)
        for number, kind in enumerate(("tool_use", "tool_result", "token_usage", "error", "x"))
        for detail in ({}, {"sdk_entry": 5}, {"text": 5, "input_tokens": -1, "input": {}})
    ]
    path = make_bundle(_snapshots=[json.dumps(snapshot)], _logs=odd).export(tmp_path / "x.wink")

    with SqliteStore.open(tmp_path / "a.db") as store:
        (imported,) = import_path(store, path)

    assert imported.run_id is not None
