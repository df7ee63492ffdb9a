"""OTLP/JSON files as runs: every convention, whatever way the file is written."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from vestige.formats import otlp
from vestige.formats.otlp.constants import external_run_id
from vestige.home import Home
from vestige.record.run import Run, SpanInfo
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import import_path
from vestige.transfer.open_any_path import open_path

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
START = 1_790_000_000_000_000_000
SECRET = "sk-ant-api03-" + "q9Zr7Lk2" * 8


def pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value_of(value)} for key, value in attributes.items()]


def value_of(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [value_of(each) for each in value]}}
        case dict():
            return {"kvlistValue": {"values": pairs(value)}}
    return {"stringValue": value}


def span(
    number: int, attributes: dict[str, Any] | None = None, parent: int = 1, **more: Any
) -> dict[str, Any]:
    """Number 1 is the first, and the parent of the others."""
    made = {
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "name": f"span {number}",
        "kind": 1,
        "startTimeUnixNano": str(START + number * 1000),
        "endTimeUnixNano": str(START + 1_000_000 - number),
        "attributes": pairs(attributes or {}),
    }
    return made | ({"parentSpanId": f"{parent:016x}"} if number > 1 and parent else {}) | more


def request(*spans: dict[str, Any], **resource: Any) -> dict[str, Any]:
    attributes = {"service.name": "planner"} | resource
    scope = {"name": "my.instrumentation", "version": "1"}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": pairs(attributes)},
                "scopeSpans": [{"scope": scope, "spans": list(spans)}],
            }
        ]
    }


def write(path: Path, *requests: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in requests))
    return path


def only_run(path: Path) -> tuple[Run, dict[str, str]]:
    """The run of a file, and its bodies: `<span>.input`, `<span>.output`."""
    with open_path(path) as debugger:
        (info,) = debugger.store.list_runs(RunFilter())
        run = debugger.store.load_run(info.id)
        bodies = {}
        for each in run.spans:
            for side in ("input", "output"):
                ref = getattr(each, side)
                if ref is not None:
                    bodies[f"{each.name}.{side}"] = debugger.store.read_body(ref.id).decode()
    return run, bodies


# --- conventions ----------------------------------------------------------------------------------

MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q":1}'}}
TOOL = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}

GEN_AI = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.usage.input_tokens": 12,
    "gen_ai.usage.output_tokens": 3,
    "gen_ai.usage.cache_read.input_tokens": 4,
    "gen_ai.usage.cache_creation.input_tokens": 2,
    "gen_ai.response.finish_reasons": ["tool_call"],
    "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "be brief"}]),
    "gen_ai.input.messages": json.dumps(
        [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]
    ),
    "gen_ai.output.messages": json.dumps(
        [
            {
                "role": "assistant",
                "finish_reason": "tool_call",
                "parts": [
                    {"type": "tool_call", "id": "c1", "name": "search", "arguments": {"q": 1}}
                ],
            }
        ]
    ),
    "gen_ai.tool.definitions": json.dumps(
        [{"type": "function", "name": "search", "parameters": {"type": "object"}}]
    ),
}
STRUCTURED = GEN_AI | {
    key: json.loads(GEN_AI[key])  # type: ignore[arg-type]
    for key in ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions")
}
OPENINFERENCE = {
    "openinference.span.kind": "LLM",
    "llm.provider": "openai",
    "llm.model_name": "gpt-4o",
    "llm.token_count.prompt": 12,
    "llm.token_count.completion": 3,
    "llm.token_count.prompt_details.cache_read": 4,
    "llm.token_count.prompt_details.cache_write": 2,
    "llm.finish_reason": "tool_calls",
    "llm.tools.0.tool.json_schema": json.dumps(TOOL),
    "llm.input_messages.0.message.role": "system",
    "llm.input_messages.0.message.content": "be brief",
    "llm.input_messages.1.message.role": "user",
    "llm.input_messages.1.message.contents.0.message_content.type": "text",
    "llm.input_messages.1.message.contents.0.message_content.text": "hi",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "search",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"q":1}',
    "input.value": "hi",
    "output.value": "",
}
TRACELOOP = {
    "llm.request.type": "chat",
    "gen_ai.system": "openai",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.usage.prompt_tokens": 12,
    "gen_ai.usage.completion_tokens": 3,
    "gen_ai.usage.cache_read_input_tokens": 4,
    "gen_ai.usage.cache_creation_input_tokens": 2,
    "gen_ai.prompt.0.role": "system",
    "gen_ai.prompt.0.content": "be brief",
    "gen_ai.prompt.1.role": "user",
    "gen_ai.prompt.1.content": "hi",
    "gen_ai.completion.0.role": "assistant",
    "gen_ai.completion.0.finish_reason": "tool_calls",
    "gen_ai.completion.0.tool_calls.0.id": "c1",
    "gen_ai.completion.0.tool_calls.0.name": "search",
    "gen_ai.completion.0.tool_calls.0.arguments": '{"q":1}',
    "llm.request.functions.0.name": "search",
    "llm.request.functions.0.parameters": '{"type":"object"}',
}
LOGFIRE = {
    "gen_ai.operation.name": "chat",
    "gen_ai.system": "openai",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.usage.input_tokens": 12,
    "gen_ai.usage.output_tokens": 3,
    "gen_ai.usage.details.cache_read_tokens": 4,
    "gen_ai.usage.details.cache_write_tokens": 2,
    "gen_ai.response.finish_reasons": ["tool_call"],
    "gen_ai.tool.definitions": json.dumps([TOOL]),
    "events": json.dumps(
        [
            {"event.name": "gen_ai.system.message", "content": "be brief", "role": "system"},
            {"event.name": "gen_ai.user.message", "content": "hi", "role": "user"},
            {
                "event.name": "gen_ai.choice",
                "index": 0,
                "message": {"role": "assistant", "content": None, "tool_calls": [CALL]},
            },
        ]
    ),
}


@pytest.mark.parametrize(
    "attributes",
    [GEN_AI, STRUCTURED, OPENINFERENCE, TRACELOOP, LOGFIRE],
    ids=["gen_ai", "structured", "openinference", "traceloop", "logfire"],
)
def test_a_model_call_is_the_same_by_whatever_convention_it_is_told(
    tmp_path: Path, attributes: dict[str, Any]
) -> None:
    run, bodies = only_run(write(tmp_path / "t.jsonl", request(span(1), span(2, attributes))))
    call = run.spans[1]
    request_body, answered = json.loads(bodies["span 2.input"]), json.loads(bodies["span 2.output"])

    assert (call.type, call.attributes["model"], call.attributes["provider"]) == (
        "llm",
        "gpt-4o",
        "openai",
    )
    assert [
        call.attributes[f"{name}_tokens"]
        for name in ("input", "output", "cache_read", "cache_write")
    ] == [12, 3, 4, 2]
    assert call.attributes["finish_reason"] == "tool_calls"
    assert request_body == {"model": "gpt-4o", "messages": MESSAGES, "tools": [TOOL]}
    message = answered["choices"][0]["message"]
    assert (message["role"], message["tool_calls"]) == ("assistant", [CALL])
    assert not any("message" in key or "prompt." in key for key in call.attributes)
    assert (run.info.input_tokens, run.info.output_tokens) == (12, 3)


def test_a_provider_s_own_request_is_kept_byte_for_byte(tmp_path: Path) -> None:
    """OpenInference keeps what was sent; nothing is assembled again then."""
    sent = '{"model": "gpt-4o",  "messages": [{"role": "user", "content": "hi"}]}'
    attributes = {key: value for key, value in OPENINFERENCE.items() if key != "llm.model_name"}
    attributes["input.value"] = sent
    run, bodies = only_run(write(tmp_path / "t.jsonl", request(span(1), span(2, attributes))))

    assert bodies["span 2.input"] == sent
    assert run.spans[1].attributes["model"] == "gpt-4o"  # as after a call that failed


@pytest.mark.parametrize(
    ("attributes", "type_", "input_text", "came"),
    [
        (
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "search",
                "gen_ai.tool.call.arguments": '{"q":1}',
                "gen_ai.tool.call.result": "ok",
            },
            "tool",
            '{"q":1}',
            "ok",
        ),
        (
            {
                "openinference.span.kind": "TOOL",
                "tool.name": "search",
                "input.value": '{"q":1}',
                "output.value": "ok",
            },
            "tool",
            '{"q":1}',
            "ok",
        ),
        (
            {
                "traceloop.span.kind": "tool",
                "traceloop.entity.name": "search",
                "traceloop.entity.input": '{"q":1}',
                "traceloop.entity.output": "ok",
            },
            "tool",
            '{"q":1}',
            "ok",
        ),
        (
            {"gen_ai.tool.name": "search", "tool_arguments": '{"q":1}', "tool_response": "ok"},
            "tool",
            '{"q":1}',
            "ok",
        ),
        (
            {
                "openinference.span.kind": "RETRIEVER",
                "input.value": "who",
                "retrieval.documents.0.document.content": "she",
            },
            "retriever",
            "who",
            '[{"content":"she"}]',
        ),
        (
            {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "e"},
            "embedding",
            None,
            None,
        ),
        ({"traceloop.span.kind": "workflow", "traceloop.entity.input": "x"}, "step", "x", None),
        ({"openinference.span.kind": "AGENT"}, "agent", None, None),
        (
            {"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "m"},
            "agent",
            None,
            None,
        ),
        ({"anything": 1}, "step", None, None),
    ],
)
def test_other_work_has_its_type_and_its_bodies(
    tmp_path: Path, attributes: dict[str, Any], type_: str, input_text: str | None, came: str | None
) -> None:
    run, bodies = only_run(write(tmp_path / "t.jsonl", request(span(1), span(2, attributes))))

    assert run.spans[1].type == type_
    assert (bodies.get("span 2.input"), bodies.get("span 2.output")) == (input_text, came)
    if type_ == "tool":
        assert run.spans[1].attributes["tool_name"] == "search"


# --- the run --------------------------------------------------------------------------------------


def test_what_a_trace_says_of_itself_is_found_on_its_run(tmp_path: Path) -> None:
    """Name, outcome, conversation, resource, errors, lines, links."""
    failed = {"code": "STATUS_CODE_ERROR", "message": "boom"}
    events = [
        {
            "timeUnixNano": str(START + 2500),
            "name": "retrying",
            "attributes": pairs({"attempt": 2}),
        },
        {
            "timeUnixNano": str(START + 2600),
            "name": "exception",
            "attributes": pairs(
                {
                    "exception.type": "builtins.TimeoutError",
                    "exception.message": "late",
                    "exception.stacktrace": "Traceback",
                }
            ),
        },
    ]
    links = [{"traceId": "f" * 32, "spanId": "e" * 16}]
    document = request(
        span(
            2,
            {"session.id": "conv-9"},
            status=failed,
            events=events,
            links=links,
            kind="SPAN_KIND_CLIENT",
        ),
        span(1, name="answer"),
        **{"deployment.environment": "prod"},
    )
    run, _ = only_run(write(tmp_path / "t.jsonl", document))
    first, second = run.spans

    assert (run.info.id, run.info.name, run.info.outcome) == (
        external_run_id(TRACE),
        "answer",
        "ok",
    )
    assert (run.info.conversation_id, run.info.component) == ("conv-9", "planner")
    assert (first.type, first.id, first.parent_id) == ("run", f"{1:016x}", None)
    assert first.attributes["otel.trace_id"] == TRACE
    assert first.attributes["resource.deployment.environment"] == "prod"
    assert (second.status, second.attributes["error.type"]) == ("timeout", "builtins.TimeoutError")
    assert (second.attributes["error.message"], second.attributes["error.stack"]) == (
        "late",
        "Traceback",
    )
    assert second.duration_ns == 1_000_000 - 2 - 2000
    assert [(line.message, line.attributes, line.span_id) for line in run.logs] == [
        ("retrying", {"attempt": 2}, second.id)
    ]
    assert [(link.target_run, link.target_span) for link in run.links] == [
        (external_run_id("f" * 32), "e" * 16)
    ]


def test_a_call_that_nothing_is_around_gets_a_run_around_it(tmp_path: Path) -> None:
    run, _ = only_run(write(tmp_path / "t.jsonl", request(span(1, GEN_AI, name="chat gpt-4o"))))
    made, call = run.spans

    assert [made.type, call.type] == ["run", "llm"]
    assert (made.parent_id, call.parent_id) == (None, made.id)
    assert (run.info.name, run.info.outcome, run.info.input_tokens) == ("chat gpt-4o", "ok", 12)


def test_a_trace_that_began_elsewhere_has_a_name_and_an_end(tmp_path: Path) -> None:
    """Its first span is another program's. Should it come later, it is the run."""
    path = write(tmp_path / "t.jsonl", request(span(3, parent=2), span(2, parent=1, kind=2)))
    run, _ = only_run(path)
    with open(path, "a") as file:
        file.write(json.dumps(request(span(1, name="gateway", status={"code": 2}))))
    later, _ = only_run(path)

    assert (run.info.name, run.info.outcome) == ("span 2", "ok")
    assert [each.parent_id for each in run.spans if each.name == "span 3"] == [f"{2:016x}"]
    assert (later.info.name, later.info.outcome) == ("gateway", "error")


def test_spans_that_began_at_the_same_moment_are_told_from_the_outside_in(tmp_path: Path) -> None:
    """Clocks of milliseconds are common; what takes longer is around what takes less."""
    spans = [
        span(
            number,
            parent=number - 1,
            startTimeUnixNano=str(START),
            endTimeUnixNano=str(START + 2 ** (20 - number)),
        )
        for number in (5, 3, 4, 2, 1)
    ]
    run, _ = only_run(write(tmp_path / "t.jsonl", request(*spans)))

    assert [each.name for each in run.spans] == [f"span {number}" for number in range(1, 6)]


# --- files ----------------------------------------------------------------------------------------


def coded(document: Any) -> Any:
    """As protobuf's own JSON has it: ids in base64."""
    if isinstance(document, dict):
        return {
            key: base64.b64encode(bytes.fromhex(value)).decode()
            if key in ("traceId", "spanId", "parentSpanId")
            else coded(value)
            for key, value in document.items()
        }
    return [coded(each) for each in document] if isinstance(document, list) else document


def snaked(document: Any) -> Any:
    import re

    if isinstance(document, dict):
        return {
            re.sub(r"([A-Z])", r"_\1", key).lower(): snaked(value)
            for key, value in document.items()
        }
    return [snaked(each) for each in document] if isinstance(document, list) else document


def essence(run: Run) -> list[Any]:
    def fields_of(each: SpanInfo) -> tuple[Any, ...]:
        return (
            each.id,
            each.parent_id,
            each.type,
            each.name,
            each.started_ns,
            each.duration_ns,
            each.attributes,
        )

    return [fields_of(each) for each in run.spans]


def test_however_a_file_is_written_it_holds_the_same_run(tmp_path: Path) -> None:
    spans = [span(1), span(2, GEN_AI), span(3, {"n": 1.5, "yes": True, "list": ["a", 1]}, parent=2)]
    request_of_all = request(*spans)
    numbers = json.loads(json.dumps(request_of_all))
    for each in numbers["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        each["startTimeUnixNano"] = int(each["startTimeUnixNano"])
        each["kind"] = "SPAN_KIND_INTERNAL"
    expected, _ = only_run(write(tmp_path / "lines.jsonl", *[request(each) for each in spans]))
    texts = {
        "line": json.dumps(request_of_all),
        "indented": json.dumps(request_of_all, indent=2),
        "array": json.dumps([request(each) for each in spans]),
        "base64": json.dumps(coded(request_of_all)),
        "protobuf names": json.dumps(snaked(request_of_all)),
        "numbers": json.dumps(numbers),
        "backwards": "\n".join(json.dumps(request(each)) for each in reversed(spans)),
        "mark": "\ufeff" + json.dumps(request_of_all),
    }
    found = {}
    for name, text in texts.items():
        path = tmp_path / f"{name}.json"
        path.write_text(text)
        found[name] = essence(only_run(path)[0])

    assert found == dict.fromkeys(texts, essence(expected))


def test_a_file_of_several_traces_is_several_runs(tmp_path: Path, store: SqliteStore) -> None:
    """Interleaved over lines, and again when it has grown: each is added to, none is doubled."""
    traces = [f"{number:032x}" for number in range(1, 4)]
    path = write(tmp_path / "t.jsonl", request(*[span(2, traceId=trace) for trace in traces]))
    first = list(import_path(store, path))
    with open(path, "a") as file:
        file.write(json.dumps(request(*[span(1, traceId=trace) for trace in traces])) + "\n")
    second = list(import_path(store, path))
    third = list(import_path(store, path))
    runs = [store.load_run(external_run_id(trace)) for trace in traces]

    assert [one.path.name for one in first] == [f"t.jsonl#{trace}" for trace in traces]
    assert [one.known for one in first] == [False] * 3
    assert all(one.known and one.records for one in second)
    assert [one.records for one in third] == [0, 0, 0]
    assert [
        [each.id for each in run.spans if not each.attributes.get("otel.made")] for run in runs
    ] == [[f"{1:016x}", f"{2:016x}"]] * 3


def test_a_trace_over_several_files_of_a_folder_is_one_run(
    tmp_path: Path, store: SqliteStore
) -> None:
    """As a collector leaves them when it begins another file."""
    folder = tmp_path / "traces"
    folder.mkdir()
    write(folder / "traces-2026-01-01.jsonl", request(span(2)))
    write(folder / "traces.jsonl", request(span(1)))
    imported = list(import_path(store, folder))

    assert {one.run_id for one in imported} == {external_run_id(TRACE)}
    assert {each.name for each in store.load_run(external_run_id(TRACE)).spans} >= {
        "span 1",
        "span 2",
    }


def test_all_files_of_a_folder_are_read_however_many_they_are(
    tmp_path: Path, store: SqliteStore
) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for number in range(1, 252):
        write(folder / f"{number}.jsonl", request(span(1, traceId=f"{number:032x}")))

    assert len(list(import_path(store, folder))) == 251


def test_messages_that_came_as_log_records_are_the_call_s_bodies(tmp_path: Path) -> None:
    """The older way of the GenAI conventions; other lines are lines of the run."""
    call = {
        key: value
        for key, value in GEN_AI.items()
        if "messages" not in key and "system_i" not in key
    }
    at = {"traceId": TRACE, "spanId": f"{2:016x}", "timeUnixNano": str(START + 2100)}
    records = [
        at | {"eventName": "gen_ai.system.message", "body": value_of({"content": "be brief"})},
        at | {"eventName": "gen_ai.user.message", "body": value_of({"content": "hi"})},
        at
        | {
            "eventName": "gen_ai.choice",
            "body": value_of(
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": "yes"},
                }
            ),
        },
        at | {"severityNumber": "SEVERITY_NUMBER_WARN", "body": value_of("slow")},
    ]
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
    path = write(tmp_path / "t.jsonl", logs, request(span(1), span(2, call)))
    run, bodies = only_run(path)

    assert json.loads(bodies["span 2.input"])["messages"] == MESSAGES
    assert json.loads(bodies["span 2.output"])["choices"][0]["message"]["content"] == "yes"
    assert [(line.level, line.message) for line in run.logs] == [("warn", "slow")]


def test_secrets_are_masked_on_the_way_in(tmp_path: Path, home: Home, store: SqliteStore) -> None:
    attributes = GEN_AI | {
        "gen_ai.system_instructions": f"use {SECRET}",
        "http.request.header.authorization": f"Bearer {SECRET}",
    }
    list(
        import_path(
            store,
            write(tmp_path / "t.jsonl", request(span(1, {"api_key": SECRET}), span(2, attributes))),
        )
    )
    store.close()

    for path in home.root.rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes(), path


# --- what is wrong --------------------------------------------------------------------------------


def test_every_fault_is_told_with_its_place(tmp_path: Path) -> None:
    good = request(span(1))
    path = write(
        tmp_path / "t.jsonl",
        request(
            span(1),
            span(2, spanId="xyz"),
            span(3, traceId="0" * 32),
            span(4, startTimeUnixNano="yesterday"),
        ),
        request(
            span(5, endTimeUnixNano=str(START)),
            span(6, parentSpanId=f"{6:016x}"),
            span(7, parent=99),
            span(8, kind=17),
        ),
        {"something": "else"},
        good,
    )
    with open(path, "a") as file:
        file.write("{nonsense}\n" + json.dumps(good)[:50])
    found = {(problem.place, problem.rule, problem.severity) for problem in otlp.validate_run(path)}

    assert found == {
        ("line 1", "span-id", "error"),
        ("line 1", "trace-id", "error"),
        ("line 1", "start-time", "error"),
        ("line 2", "end-before-start", "error"),
        ("line 2", "own-parent", "error"),
        ("line 2", "parent-missing", "warning"),
        ("line 2", "kind", "warning"),
        ("line 3", "not-otlp", "error"),
        ("line 4", "span-twice", "warning"),
        ("line 5", "line-unreadable", "error"),
        ("line 6", "torn-line", "warning"),
        ("", "roots", "warning"),
    }


def test_a_good_file_has_no_problems(tmp_path: Path) -> None:
    assert otlp.validate_run(write(tmp_path / "t.jsonl", request(span(1), span(2, GEN_AI)))) == []
