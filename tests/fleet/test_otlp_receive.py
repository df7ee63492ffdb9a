"""OTLP/HTTP to `vestige server start`: what OpenTelemetry's own exporters send becomes runs."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.ship_server import Serving
from vestige.formats.otlp.constants import external_run_id
from vestige.home import Home
from vestige.record.run import Run
from vestige.recorder import Recorder
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import export_run
from vestige.transfer.open_any_path import open_path

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SECRET = "sk-proj-" + "q9Zr7Lk2" * 8


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One server for all: each test sends traces of its own."""
    serving = Serving(tmp_path_factory.mktemp("otlp") / "server")
    serving.write = serving.key()  # type: ignore[attr-defined]
    serving.start()
    yield serving
    serving.stop()


def post(
    serving: Serving,
    body: bytes | dict[str, Any],
    *,
    path: str = "/v1/traces",
    key: str | None = None,
    **headers: str,
) -> tuple[int, str, bytes]:
    sent = json.dumps(body).encode() if isinstance(body, dict) else body
    connection = HTTPConnection("127.0.0.1", serving.port, timeout=30)
    all_headers = {
        "content-type": "application/json",
        "authorization": f"Bearer {key or serving.write}",
    }  # type: ignore[attr-defined]
    all_headers |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", path, sent, all_headers)
    answer = connection.getresponse()
    return answer.status, answer.headers["content-type"], answer.read()


def request(*spans: dict[str, Any], service: str = "planner") -> dict[str, Any]:
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": list(spans)}]}]}


def span(number: int, parent: int = 0, trace: str = TRACE, **more: Any) -> dict[str, Any]:
    made = {
        "traceId": trace,
        "spanId": f"{number:016x}",
        "name": f"span {number}",
        "startTimeUnixNano": str(10**18 + number * 1000),
        "endTimeUnixNano": str(10**18 + 10**6 - number),
    }
    return made | ({"parentSpanId": f"{parent:016x}"} if parent else {}) | more


def run_in(serving: Serving, trace: str) -> Run:
    with SqliteStore.open(serving.home.store, readonly=True) as store:
        return store.load_run(external_run_id(trace))


SDK = """
import sys
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider(resource=Resource.create({"service.name": "triage"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), max_export_batch_size=2))
tracer = provider.get_tracer("agent")
with tracer.start_as_current_span("answer", attributes={"session.id": "conv-7"}) as root:
    for turn in range(3):
        with tracer.start_as_current_span("chat", attributes={
            "gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o",
            "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2,
            "gen_ai.input.messages": (
                '[{"role":"user","parts":[{"type":"text","content":"my key is %s"}]}]' % sys.argv[1]
            ),
        }):
            pass
    try:
        with tracer.start_as_current_span("look up", attributes={"gen_ai.tool.name": "search"}):
            raise LookupError("no such customer")
    except LookupError:
        pass
print(format(root.get_span_context().trace_id, "032x"))
provider.shutdown()
"""


def send(serving: Serving, program: str, *arguments: str) -> str:
    """Run a program that sends to the server; what it printed."""
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": serving.url,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{serving.write}",  # type: ignore[attr-defined]
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
    }
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.strip()


@pytest.mark.slow  # a program that loads the SDK
def test_the_real_sdk_in_its_own_process_sends_a_run(serving: Serving) -> None:
    """In batches of two, children before their parents: one run, masked before it is written."""
    run = run_in(serving, send(serving, SDK, SECRET))

    assert (run.info.name, run.info.outcome, run.info.component) == ("answer", "ok", "triage")
    assert run.info.conversation_id == "conv-7"
    assert [span.type for span in run.spans] == ["run", "llm", "llm", "llm", "tool"]
    assert (run.info.input_tokens, run.info.output_tokens) == (30, 6)
    assert {span.parent_id for span in run.spans[1:]} == {run.spans[0].id}
    failed = run.spans[-1]
    assert (failed.status, failed.attributes["error.type"]) == ("error", "LookupError")
    assert failed.attributes["error.message"] == "no such customer"
    with SqliteStore.open(serving.home.store, readonly=True) as store:
        assert run.spans[1].input is not None and run.spans[1].input.id is not None
        body = store.read_body(run.spans[1].input.id)
    assert b"my key is sk-\xe2\x80\xa6redacted\xe2\x80\xa6" in body
    for path in serving.home.root.glob("store.db*"):
        assert SECRET.encode() not in path.read_bytes()


PROVIDER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o-2024-08-06",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "yes"},
            }
        ],
        "usage": {
            "prompt_tokens": 12,
            "completion_tokens": 3,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
    }
).encode()


class Model(BaseHTTPRequestHandler):
    """A provider that always says the same."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(PROVIDER)))
        self.end_headers()
        self.wfile.write(PROVIDER)

    def log_message(self, format: str, *args: object) -> None:
        pass


INSTRUMENTED = """
import sys
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from openinference.instrumentation.openai import OpenAIInstrumentor
import openai

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
OpenAIInstrumentor().instrument(tracer_provider=provider)
client = openai.OpenAI(api_key="x", base_url=sys.argv[1])
with provider.get_tracer("agent").start_as_current_span("answer") as root:
    client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "hi"}])
print(format(root.get_span_context().trace_id, "032x"))
provider.shutdown()
"""


@pytest.mark.slow  # a program that loads the SDK and a provider's client
def test_an_instrumented_agent_is_a_run_with_prompts_and_usage(serving: Serving) -> None:
    """OpenInference on the OpenAI client: nothing of the agent's code knows of Vestige."""
    with HTTPServer(("127.0.0.1", 0), Model) as model:
        threading.Thread(target=model.serve_forever, daemon=True).start()
        trace = send(serving, INSTRUMENTED, f"http://127.0.0.1:{model.server_port}/v1")
        model.shutdown()
    root, call = run_in(serving, trace).spans
    with open_path(serving.home) as debugger:
        assert call.input is not None and call.input.id is not None
        request = json.loads(debugger.store.read_body(call.input.id))

    assert (root.type, call.type, call.parent_id) == ("run", "llm", root.id)
    assert call.attributes["input_tokens"] == 12 and call.attributes["cache_read_tokens"] == 4
    assert call.attributes["finish_reason"] == "stop"
    assert request["messages"] == [{"role": "user", "content": "hi"}]


def test_late_repeated_and_shuffled_spans_are_one_run(serving: Serving) -> None:
    """However a trace is cut into requests, and whatever comes again: what is kept is the same."""
    spans = [span(1)] + [span(number, number // 2) for number in range(2, 12)]
    first_half = []
    for seed in range(4):
        trace = f"{seed + 1:032x}"
        own = [each | {"traceId": trace} for each in spans]
        order = random.Random(seed)
        order.shuffle(own)
        while own:
            some, own = own[:3], own[3:]
            assert post(serving, request(*some))[0] == 200
            assert post(serving, request(*order.sample(some, len(some))))[2] == b"{}"
        first_half.append(run_in(serving, trace))

    stored = [
        [
            (
                each.id,
                each.parent_id,
                each.type,
                each.name,
                each.status,
                each.started_ns,
                each.duration_ns,
            )
            for each in run.spans
        ]
        for run in first_half
    ]
    assert stored[0] == stored[1] == stored[2] == stored[3]
    assert [each[3] for each in stored[0]] == [f"span {number}" for number in range(1, 12)]
    assert {run.info.outcome for run in first_half} == {"ok"}
    assert {run.info.span_count for run in first_half} == {11}


def test_what_cannot_be_placed_is_told_and_the_rest_is_kept(serving: Serving) -> None:
    trace = "a" * 32
    status, kind, answer = post(serving, request(span(1, trace=trace), span(2, trace="xyz")))

    partial = json.loads(answer)["partialSuccess"]
    assert (status, kind) == (200, "application/json")
    assert partial["rejectedSpans"] == "1" and "not a trace id" in partial["errorMessage"]
    assert run_in(serving, trace).info.span_count == 1


def test_log_records_become_lines_of_their_run(serving: Serving) -> None:
    trace = "b" * 32
    record = {
        "traceId": trace,
        "spanId": f"{1:016x}",
        "timeUnixNano": str(10**18 + 5),
        "severityNumber": 17,
        "body": {"stringValue": "it broke"},
        "attributes": [{"key": "exception.type", "value": {"stringValue": "KeyError"}}],
    }
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record, record | {"traceId": ""}]}]}]}
    first = post(serving, logs, path="/v1/logs")
    again = post(serving, logs, path="/v1/logs")
    post(serving, request(span(1, trace=trace)))

    run = run_in(serving, trace)
    assert json.loads(first[2])["partialSuccess"]["rejectedLogRecords"] == "1"
    assert again[0] == 200
    assert [(line.level, line.message, line.span_id) for line in run.logs] == [
        ("error", "it broke", f"{1:016x}")
    ]
    assert run.logs[0].attributes["error.type"] == "KeyError"


def test_keys_decide_who_may_send_and_whose_it_is(serving: Serving) -> None:
    """A trace id of another tenant is stored under another run id, and theirs stays as it is."""
    ours, theirs = serving.key("acme"), serving.key("other")
    reader = serving.key("acme", "runs:read")
    shared, own = "c" * 32, "d" * 32
    assert post(serving, request(span(1, trace=shared)), key=ours)[0] == 200

    mixed = post(serving, request(span(2, 1, trace=shared), span(1, trace=own)), key=theirs)
    assert post(serving, request(span(1)), key="nobody")[0] == 401
    assert post(serving, request(span(1)), key=reader)[0] == 403
    assert (mixed[0], json.loads(mixed[2]).get("partialSuccess")) == (200, None)
    assert run_in(serving, shared).info.span_count == 1
    assert serving.tenant_of(external_run_id(shared)) == "acme"
    assert serving.tenant_of(external_run_id(own)) == "other"


def test_half_a_character_and_huge_numbers_are_taken_all_the_same(serving: Serving) -> None:
    trace = "e" * 32
    messages = [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
        {
            "key": "gen_ai.input.messages",
            "value": {"stringValue": '[{"role":"user","content":"\\ud800"}]'},
        },
        {"key": "gen_ai.usage.input_tokens", "value": {"intValue": str(2**63)}},
        {"key": "odd \u2028", "value": {"doubleValue": "NaN"}},
    ]
    status, _, answer = post(serving, request(span(1, trace=trace, attributes=messages)))

    assert (status, answer) == (200, b"{}")
    assert run_in(serving, trace).spans[1].type == "llm"


def test_a_run_of_ours_is_the_same_run_at_the_server(serving: Serving, home: Home) -> None:
    """Exported here and posted there, line by line, twice; but never over one recorded there."""
    with Recorder(home) as recorder, recorder.run("answer") as run:
        run.log.info("thinking")
    with open_path(home) as debugger:
        (listed,) = debugger.store.list_runs(RunFilter())
        line = export_run(debugger.store, listed.id, "otlp", home.root).read_bytes()
    answers = [post(serving, line), post(serving, line)]
    with open_path(serving.home) as debugger:
        there = debugger.store.load_run(listed.id)
    with Recorder(serving.home) as recorder, recorder.run("recorded") as own:
        own.log.info("one line")
    with open_path(serving.home) as debugger:
        (recorded,) = debugger.store.list_runs(RunFilter(name_is="recorded"))
        claim = export_run(debugger.store, recorded.id, "otlp", home.root).read_bytes()
    refused = json.loads(post(serving, claim)[2])["partialSuccess"]

    assert [answer[2] for answer in answers] == [b"{}", b"{}"]
    assert (there.info.name, [line.message for line in there.logs]) == ("answer", ["thinking"])
    assert refused["rejectedSpans"] == "1" and "was recorded here" in refused["errorMessage"]


def test_bad_requests_get_an_answer_that_says_why(serving: Serving) -> None:
    bomb = gzip.compress(b"[" * (65 * 1024 * 1024))
    answers = {
        "no JSON": post(serving, b"{nonsense"),
        "no object": post(serving, b"[]"),
        "wrong type": post(serving, b'{"resourceSpans": 5}'),
        "deep": post(serving, b'{"a":' + b"[" * 100_000),
        "protobuf": post(serving, b"\xff\xff\xff", content_type="application/x-protobuf"),
        "text": post(serving, b"hi", content_type="text/plain"),
        "encoding": post(serving, b"{}", content_encoding="br"),
        "no gzip": post(serving, b"{}", content_encoding="gzip"),
        "bomb": post(serving, bomb, content_encoding="gzip"),
        "empty": post(serving, b"{}"),
    }

    assert {name: answer[0] for name, answer in answers.items()} == {
        "no JSON": 400,
        "no object": 400,
        "wrong type": 400,
        "deep": 400,
        "protobuf": 400,
        "text": 415,
        "encoding": 415,
        "no gzip": 400,
        "bomb": 413,
        "empty": 200,
    }
    for name, (status, kind, body) in answers.items():
        if status != 200:
            assert kind == "application/json", name
            assert json.loads(body)["message"], name


def test_a_protobuf_answer_says_what_was_not_taken(serving: Serving) -> None:
    """In the encoding of the request."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTraceServiceRequest,
        ExportTraceServiceResponse,
    )

    sent = ExportTraceServiceRequest()
    into = sent.resource_spans.add().scope_spans.add()
    into.spans.add(
        trace_id=b"\x0e" * 16,
        span_id=b"\x01" * 8,
        name="good",
        start_time_unix_nano=10**18,
        end_time_unix_nano=10**18 + 1,
    )
    into.spans.add(trace_id=b"", span_id=b"\x02" * 8, name="bad")
    status, kind, body = post(
        serving, sent.SerializeToString(), content_type="application/x-protobuf"
    )
    answer = ExportTraceServiceResponse.FromString(body)

    assert (status, kind) == (200, "application/x-protobuf")
    assert answer.partial_success.rejected_spans == 1
    assert "not a trace id" in answer.partial_success.error_message
    assert run_in(serving, "0e" * 16).info.name == "good"


@pytest.mark.slow
def test_other_signals_are_accepted_and_not_recorded(serving: Serving) -> None:
    """Exporters of all signals would otherwise report an error at each export."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult

    reader = InMemoryMetricReader()
    MeterProvider([reader]).get_meter("shop").create_counter("orders").add(3)
    data = reader.get_metrics_data()
    assert data is not None
    headers = {"authorization": f"Bearer {serving.write}"}  # type: ignore[attr-defined]
    exporter = OTLPMetricExporter(f"{serving.url}/v1/metrics", headers=headers)
    exported = exporter.export(data)
    body = b'{"resourceMetrics": []}'

    assert exported is MetricExportResult.SUCCESS
    assert post(serving, body, path="/v1/metrics") == (200, "application/json", b"{}")
    assert post(serving, body, path="/v1development/profiles")[0] == 200
    assert post(serving, body, path="/v1/metrics", key="wrong")[0] == 401
    assert post(serving, body, path="/v1/nothing")[0] == 404


SERVER_WITHOUT = """
import sys
sys.path.insert(0, sys.argv[1])
sys.argv = ["vestige", "serve", *sys.argv[2:]]
from vestige.cli.main import main
main()
"""


def test_without_its_package_a_binary_request_is_answered_with_what_to_install(
    tmp_path: Path,
) -> None:
    """In the answer and in the server's log: exporters print the status only."""
    shadow = tmp_path / "opentelemetry"
    shadow.mkdir()
    (shadow / "__init__.py").touch()
    serving = Serving(tmp_path / "server")
    serving.write = serving.key()  # type: ignore[attr-defined]
    options = ["--home", str(serving.home.root), "--port", str(serving.port)]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER_WITHOUT, str(tmp_path), *options],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        assert process.stderr.readline().startswith("Vestige is running at ")
        status, _, body = post(serving, b"", content_type="application/x-protobuf")
    finally:
        process.terminate()
    log = process.communicate(timeout=60)[1]
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    (line,) = [line for line in lines if line.get("route") == "/v1/traces"]

    assert (status, line["status"]) == (415, 415)
    for text in (json.loads(body)["message"], line["message"]):
        assert "pip install 'vestige[otlp]'" in text and "http/json" in text
