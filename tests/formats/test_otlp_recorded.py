"""What real instrumentation sent (tests/data/otlp): five packages record the same run."""

from __future__ import annotations

from pathlib import Path

import pytest

from vestige.fleet.server.otlp_ingest import open_spans, store_spans
from vestige.providers.parsing import parse_request, parse_response
from vestige.query.debugger import Debugger
from vestige.record.redaction.redactor import Redactor
from vestige.record.run import Run, SpanInfo
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer.open_any_path import open_path

RECORDED = Path(__file__).parents[1] / "data" / "otlp"
NAMES = sorted(path.stem for path in RECORDED.glob("*.jsonl"))
REDACTOR = Redactor()
QUESTION = "How long do refunds take?"


def only_run(debugger: Debugger) -> Run:
    (info,) = debugger.store.list_runs(RunFilter())
    return debugger.store.load_run(info.id)


def body(debugger: Debugger, span: SpanInfo, side: str) -> str:
    ref = getattr(span, side)
    assert ref is not None and ref.id is not None
    return debugger.store.read_body(ref.id).decode()


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_agent_asks_twice_and_its_tool_answers_between(name: str) -> None:
    """Messages, calls, results, usage and the finish reason, from every package."""
    with open_path(RECORDED / f"{name}.jsonl") as debugger:
        run = only_run(debugger)
        first, second = [span for span in run.spans if span.type == "llm"][:2]
        request = parse_request(body(debugger, second, "input"))
        answers = [parse_response(body(debugger, call, "output")) for call in (first, second)]

    assert request is not None and answers[0] is not None and answers[1] is not None
    messages = [(message.role, message.text) for message in request.messages]
    assert messages[:2] == [("system", "Be brief."), ("user", QUESTION)]
    assert [call.name for message in request.messages for call in message.calls] == ["search"]
    assert [
        (result.call_id, result.text) for message in request.messages for result in message.results
    ] == [("call_7", "three pages")]
    assert [(call.id, call.arguments.replace(" ", "")) for call in answers[0].calls] == [
        ("call_7", '{"q":"refunds"}')
    ]
    assert answers[1].text == "Refunds take five days."
    assert [call.attributes["finish_reason"] for call in (first, second)] == ["tool_calls", "stop"]
    assert [
        (call.attributes["input_tokens"], call.attributes["output_tokens"])
        for call in (first, second)
    ] == [(120, 30)] * 2
    assert {call.attributes["provider"] for call in (first, second)} == {"openai"}
    assert run.info.outcome == "ok" and run.spans[0].type == "run"


@pytest.mark.parametrize("name", [name for name in NAMES if name != "pydantic-ai"])
def test_the_call_that_failed_says_why(name: str) -> None:
    with open_path(RECORDED / f"{name}.jsonl") as debugger:
        failed = [
            span for span in only_run(debugger).spans if span.attributes.get("model") == "fail-4o"
        ]

    assert [span.status for span in failed] == ["error"]
    assert "no such model" in str(failed[0].attributes["error.message"])


@pytest.mark.parametrize("name", ["openinference", "traceloop", "logfire"])
def test_anthropic_s_tools_have_parameters_and_what_it_cached_is_counted(name: str) -> None:
    with open_path(RECORDED / f"{name}.jsonl") as debugger:
        spans = only_run(debugger).spans
        calls = [span for span in spans if span.attributes.get("provider") == "anthropic"]
        requests = [parse_request(body(debugger, call, "input")) for call in calls if call.input]

    assert [
        [(tool.name, list(tool.parameters or ())) for tool in one.tools] for one in requests if one
    ] == [[("search", ["type", "properties", "required"])]] * 2
    if name != "logfire":  # which has no attribute for it
        assert {call.attributes["cache_write_tokens"] for call in calls} == {16}
        assert {call.attributes["cache_read_tokens"] for call in calls} == {64}
    assert {str(call.attributes["finish_reason"]) for call in calls} <= {
        "tool_use",
        "tool_calls",
        "end_turn",
        "stop",
    }


def test_a_line_that_logfire_logged_is_a_line_of_the_span_around_it() -> None:
    """It sends lines as spans."""
    with open_path(RECORDED / "logfire.jsonl") as debugger:
        run = only_run(debugger)

    assert [(line.level, line.message, line.span_id) for line in run.logs] == [
        ("info", "thinking about 3 pages", run.spans[0].id)
    ]
    assert not any("thinking" in span.name for span in run.spans)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "otel-logs"])
def test_received_request_by_request_it_is_the_same_run_as_from_a_file(
    name: str, tmp_path: Path
) -> None:
    """Contents that come as log records aside: there they are lines."""
    lines = (RECORDED / f"{name}.jsonl").read_bytes().splitlines()
    with SqliteStore.open(tmp_path / "store.db") as store:
        for line in lines + lines[:3]:
            store_spans(store, open_spans(line, "otlp-traces-json", REDACTOR), "default")
        (info,) = store.list_runs(RunFilter())
        received = store.load_run(info.id)
    with open_path(RECORDED / f"{name}.jsonl") as debugger:
        read = only_run(debugger)

    def essence(run: Run) -> object:
        spans = [
            (each.id, each.parent_id, each.type, each.name, each.status, each.attributes)
            for each in run.spans
        ]
        return spans, [(line.message, line.span_id) for line in run.logs], run.info.conversation_id

    assert essence(received) == essence(read)
    assert (info.input_tokens, info.output_tokens) == (
        read.info.input_tokens,
        read.info.output_tokens,
    )
