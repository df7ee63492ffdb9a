"""A recorded program that also exports its spans to Vestige is one run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.frameworks import Provider, start_provider
from support.programs import WAIT_S
from support.ship_server import Serving, runs_in
from vestige.record.run import Run

PROGRAM = """
from openai import OpenAI
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import {processor}

provider = TracerProvider()
provider.add_span_processor({processor}(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("program")
client = OpenAI()
with tracer.start_as_current_span("invoke_agent clerk", attributes={{
    "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk",
}}) as agent, tracer.start_as_current_span("chat m", attributes={{
    "gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
}}) as call:
    messages = [{{"role": "user", "content": "hello"}}]
    answer = client.chat.completions.create(model="m", messages=messages)
    call.set_attribute("gen_ai.usage.input_tokens", answer.usage.prompt_tokens)
    call.set_attribute("gen_ai.usage.output_tokens", answer.usage.completion_tokens)
provider.shutdown()
print(format(agent.get_span_context().trace_id, "032x"), answer.usage.prompt_tokens)
"""


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    started = Serving(tmp_path_factory.mktemp("otlp") / "server")
    started.write = started.key()  # type: ignore[attr-defined]
    started.start()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with start_provider(tmp_path_factory.mktemp("provider")) as started:
        yield started


def run_program(
    serving: Serving, provider: Provider, processor: str, *prefix: str
) -> tuple[str, int]:
    """Run the program. Return its trace id, and the tokens of its request."""
    key = serving.write  # type: ignore[attr-defined]
    environment = {
        **provider.environment(),
        "OTEL_EXPORTER_OTLP_ENDPOINT": serving.url,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{key}",
    }
    done = subprocess.run(
        [*prefix, sys.executable, "-c", PROGRAM.format(processor=processor)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    trace_id, tokens = done.stdout.split()
    return trace_id, int(tokens)


def runs_with(serving: Serving, trace_id: str) -> list[Run]:
    return [
        run
        for run in runs_in(serving.home).values()
        if any(span.attributes.get("otel.trace_id") == trace_id for span in run.spans)
    ]


@pytest.mark.slow  # a program that loads the SDK
@pytest.mark.parametrize("processor", ["BatchSpanProcessor", "SimpleSpanProcessor"])
def test_a_recorded_program_with_an_exporter_is_one_run(
    serving: Serving, provider: Provider, processor: str
) -> None:
    """Also if its spans are sent before the collector has read the journal."""
    record = (sys.executable, "-m", "vestige", "run", "-q", "--home", str(serving.home.root), "--")
    before = runs_in(serving.home).keys()
    trace_id, tokens = run_program(serving, provider, processor, *record)

    (run,) = runs_with(serving, trace_id)
    added = [run for run in runs_in(serving.home).values() if run.info.id not in before]
    assert [(span.type, span.name) for span in run.spans if span.type in ("agent", "llm")] == [
        ("agent", "clerk"),
        ("llm", "chat.completions"),
    ]
    assert sum(each.info.input_tokens for each in added) == tokens
    assert len([each for each in added if any(span.type == "agent" for span in each.spans)]) == 1


@pytest.mark.slow  # a program that loads the SDK
@pytest.mark.parametrize("recorded_elsewhere", [False, True])
def test_spans_that_no_journal_here_has_are_stored(
    serving: Serving, provider: Provider, tmp_path: Path, recorded_elsewhere: bool
) -> None:
    other = (sys.executable, "-m", "vestige", "run", "-q", "--home", str(tmp_path / "other"), "--")
    prefix = other if recorded_elsewhere else ()
    trace_id, tokens = run_program(serving, provider, "BatchSpanProcessor", *prefix)

    (run,) = runs_with(serving, trace_id)
    assert (run.info.name, run.info.input_tokens) == ("invoke_agent clerk", tokens)
