"""Claude Code's spans and log events (tests/data/otlp/claude_code) become full calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vestige.fleet.server.otlp_ingest import open_spans, store_spans
from vestige.providers.parsing import parse_request, parse_response
from vestige.providers.truncated_json import close_json
from vestige.query.debugger import Debugger
from vestige.record.redaction.redactor import Redactor
from vestige.record.run import Run, SpanInfo
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer.open_any_path import open_path

RECORDED = Path(__file__).parents[1] / "data" / "otlp" / "claude_code"
SUBAGENT, FAILED_TOOL = RECORDED / "subagent.jsonl", RECORDED / "failed_tool.jsonl"


def only_run(debugger: Debugger) -> Run:
    (info,) = debugger.store.list_runs(RunFilter())
    return debugger.store.load_run(info.id)


def body(debugger: Debugger, span: SpanInfo, side: str) -> str:
    ref = getattr(span, side)
    assert ref is not None and ref.id is not None
    return debugger.store.read_body(ref.id).decode()


def test_calls_of_agent_and_subagent_have_their_own_requests_and_answers() -> None:
    with open_path(SUBAGENT) as debugger:
        run = only_run(debugger)
        calls = sorted(
            (span for span in run.spans if span.type == "llm"), key=lambda span: span.started_ns
        )
        requests = [parse_request(body(debugger, call, "input")) for call in calls]
        answers = [parse_response(body(debugger, call, "output")) for call in calls]
        logs = [log.message for log in run.logs]

    tasks = [request.messages[1].text for request in requests if request is not None]
    assert tasks == [
        "spawn a helper to list the files",
        "child job: list the files",
        "child job: list the files",
        "spawn a helper to list the files",
    ]
    assert [
        [call.name for call in answer.calls] or answer.text
        for answer in answers
        if answer is not None
    ] == [["Agent"], ["Bash"], "All done.", "All done."]
    assert {call.attributes["request_body_truncated"] for call in calls} == {True}
    assert calls[0].attributes["request_body_length"] == 115_272
    assert not any("_body" in message for message in logs)
    assert "claude_code.tool_result" in logs


def test_tools_are_named_and_counted_once_with_arguments_and_results() -> None:
    with open_path(SUBAGENT) as debugger:
        run = only_run(debugger)
        tools = {span.name: span for span in run.spans if span.type == "tool"}
        arguments = {
            name: json.loads(body(debugger, tool, "input")) for name, tool in tools.items()
        }
        result = body(debugger, tools["Bash"], "output")

    assert arguments == {
        "Agent": {
            "description": "look",
            "prompt": "child job: list the files",
            "subagent_type": "general-purpose",
        },
        "Bash": {"command": "echo hello-from-tool && ls", "description": "list"},
    }
    assert result == "hello-from-tool\na.txt"


def test_usage_includes_the_cache_and_is_counted_once() -> None:
    with open_path(SUBAGENT) as debugger:
        (info,) = debugger.store.list_runs(RunFilter())
        run = debugger.store.load_run(info.id)
        call = next(span for span in run.spans if span.type == "llm")

    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    assert [call.attributes[name] for name in names] == [2312, 25, 2000, 300]
    assert (info.input_tokens, info.output_tokens) == (4 * 2312, 4 * 25)


def test_a_failed_tool_is_named_by_check() -> None:
    with open_path(FAILED_TOOL) as debugger:
        run = only_run(debugger)
        failed = [(span.type, span.name) for span in run.spans if span.status == "error"]
        checked = debugger.check(None).text(8_000)

    assert failed == [("tool", "Bash")]
    assert checked.count("tool/failed") == 1
    assert "Bash failed: Shell command failed" in checked


def test_the_server_names_tools_without_the_log_events(tmp_path: Path) -> None:
    """Requests of spans and of log records are stored separately, in any order."""
    traces, logs = sorted(
        FAILED_TOOL.read_bytes().splitlines(), key=lambda line: b"resourceLogs" in line
    )
    with SqliteStore.open(tmp_path / "store.db") as store:
        for data, kind in ((logs, "otlp-logs-json"), (traces, "otlp-traces-json")):
            store_spans(store, open_spans(data, kind, Redactor()), "default")
        (info,) = store.list_runs(RunFilter())
        run = store.load_run(info.id)
        (tool,) = [span for span in run.spans if span.type == "tool"]
        assert tool.input is not None and tool.input.id is not None
        arguments = store.read_body(tool.input.id)
        bodies = [
            store.read_body(log.body.id)
            for log in run.logs
            if log.body is not None and log.body.id is not None
        ]

    assert len(bodies) == 4
    assert bodies[0].startswith(b'{"model":"claude-sonnet-4-5","messages":')
    assert (tool.name, tool.status) == ("Bash", "error")
    assert json.loads(arguments) == {"command": "cat missing.txt; exit 3"}
    assert (info.input_tokens, info.output_tokens) == (2 * 2312, 2 * 25)


def test_a_path_instead_of_a_body_is_never_opened(tmp_path: Path) -> None:
    secret = tmp_path / "private.json"
    secret.write_text('{"model":"m","messages":[{"role":"user","content":"private text"}]}')

    def replace(value: Any) -> Any:
        if isinstance(value, list):
            return [replace(each) for each in value]
        if not isinstance(value, dict):
            return value
        if value.get("key") == "body":
            return {"key": "body_ref", "value": {"stringValue": str(secret)}}
        return {key: replace(each) for key, each in value.items()}

    path = tmp_path / "trace.jsonl"
    lines = map(json.loads, FAILED_TOOL.read_text().splitlines())
    path.write_text("\n".join(json.dumps(replace(line)) for line in lines))
    with open_path(path) as debugger:
        run = only_run(debugger)
        calls = [span for span in run.spans if span.type == "llm"]
        refs = [log for log in run.logs if log.attributes.get("body_ref") == str(secret)]

    assert [(call.input, call.output) for call in calls] == [(None, None)] * 2
    assert len(refs) == 4


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ('{"a":[1,{"b":"x"},{"c":"y', '{"a":[1,{"b":"x"}]}'),
        ('{"a":1,"b":{"c":2,"d', '{"a":1,"b":{"c":2}}'),
        ('{"a":"} \\" ]","b":"', '{"a":"} \\" ]"}'),
        ('{"a":1} and more', '{"a":1}'),
        ('{"a":"cut', '{"a":"cut'),
        ("[1,2,", "[1,2]"),
        ("[1}", "[1}"),
        ("text", "text"),
        ("", ""),
        ('"a\\', '"a\\'),
    ],
)
def test_cut_json_is_closed_after_its_last_complete_value(text: str, closed: str) -> None:
    assert close_json(text) == closed
