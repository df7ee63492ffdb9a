"""Spans of OpenTelemetry in the process, beside a provider of the program's own."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from vestige.integrations.frameworks import otlp_exporters
from vestige.integrations.frameworks.opentelemetry import make_private_provider
from vestige.testing import FakeRecorder


def test_private_spans_are_recorded_and_not_exported(recorder: FakeRecorder) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    theirs = provider.get_tracer("program")
    ours = make_private_provider().get_tracer("framework")

    with (
        theirs.start_as_current_span("request") as request,
        ours.start_as_current_span("invoke_agent refund", attributes={"gen_ai.prompt": "x"}),
        ours.start_as_current_span("execute_tool convert"),
        theirs.start_as_current_span("query"),
    ):
        pass

    query, outer = exporter.get_finished_spans()
    assert (query.name, outer.name) == ("query", "request")
    assert query.parent is not None
    assert query.parent.span_id == request.get_span_context().span_id
    names = {span.span_id: span.name for span in recorder.spans}
    recorded = [(span.name, span.type, names.get(span.parent_id or "")) for span in recorder.spans]
    assert recorded == [("refund", "agent", None), ("convert", "tool", "refund")]


def test_nothing_is_propagated_where_the_program_has_no_spans(recorder: FakeRecorder) -> None:
    ours = make_private_provider().get_tracer("framework")
    with ours.start_as_current_span("invoke_agent refund"):
        assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("http://localhost:4318", [True, False]),
        ("http://127.0.0.1:4317", [True, False]),
        ("http://collector.example:4318", [False, False]),
    ],
)
def test_only_recorded_spans_for_this_machine_are_marked(
    recorder: FakeRecorder, protocol: str, endpoint: str, expected: list[bool]
) -> None:
    module = pytest.importorskip(f"opentelemetry.exporter.otlp.proto.{protocol}.trace_exporter")
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    for name in ("recorded", "other"):
        provider.get_tracer("program").start_span(name).end()
    spans = memory.get_finished_spans()
    otlp_exporters.mark_recorded(spans[0])
    exporter = module.OTLPSpanExporter(endpoint=endpoint)
    marked = otlp_exporters._mark_all(exporter, spans)
    exporter.shutdown()

    assert recorder.writer
    assert ["vestige.writer" in span.resource.attributes for span in marked] == expected
    assert all("vestige.writer" not in span.resource.attributes for span in spans)
    assert [span.name for span in marked] == ["recorded", "other"]


def test_spans_that_crewai_emits_by_itself_are_not_recorded_twice(recorder: FakeRecorder) -> None:
    for scope in ("crewai", "crewai.telemetry"):
        with make_private_provider().get_tracer(scope).start_as_current_span("execute task"):
            pass
    assert recorder.spans == []
