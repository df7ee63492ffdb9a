"""`vestige server start --otlp`: real exporters of OpenTelemetry send over HTTP and gRPC."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from support.programs import ReadRuns
from vestige.home import Home
from vestige.server.otlp_ports import read_otlp_key

pytestmark = pytest.mark.slow

METRICS = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@contextmanager
def serving(home: Home) -> Iterator[tuple[int, int]]:
    """Yield the ports for HTTP and gRPC of a server in a process of its own."""
    http, rpc = free_ports(2)
    command = [sys.executable, "-m", "vestige", "serve", "--port", "0", "--no-log"]
    process = subprocess.Popen(
        [*command, f"--otlp={http},{rpc}", "--home", str(home.root)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "vestige setup otel" in line:
                break
        # The line is printed before the event loop starts: gRPC listens a moment later.
        with grpc.insecure_channel(f"127.0.0.1:{rpc}") as channel:
            grpc.channel_ready_future(channel).result(60)
        yield http, rpc
    finally:
        process.terminate()
        assert process.wait(60) == 0
        process.stderr.close()


def make_span(name: str) -> ReadableSpan:
    tracer = TracerProvider().get_tracer("agent")
    span = tracer.start_span(name, attributes={"gen_ai.operation.name": "chat"})
    span.end()
    assert isinstance(span, ReadableSpan)
    return span


def test_spans_arrive_over_http_and_over_grpc(home: Home, read_runs: ReadRuns) -> None:
    key = read_otlp_key(home)
    with serving(home) as (http, rpc):
        exporters: list[SpanExporter] = [
            HttpExporter(
                f"http://127.0.0.1:{http}/v1/traces", headers={"authorization": f"Bearer {key}"}
            ),
            # Some exporters send the header as it is written in the variable, percent-encoded.
            HttpExporter(
                f"http://127.0.0.1:{http}/v1/traces", headers={"authorization": f"Bearer%20{key}"}
            ),
            GrpcExporter(
                f"http://127.0.0.1:{rpc}",
                insecure=True,
                headers={"authorization": f"Bearer {key}"},
            ),
        ]
        for number, exporter in enumerate(exporters):
            assert exporter.export([make_span(f"answer {number}")]) is SpanExportResult.SUCCESS
            exporter.shutdown()

    names = {span.name for run in read_runs() for span in run.spans}
    assert {"answer 0", "answer 1", "answer 2"} <= names


def test_the_key_of_exporters_writes_and_cannot_read(home: Home) -> None:
    key = read_otlp_key(home)
    with serving(home) as (http, rpc):
        request = urllib.request.Request(
            f"http://127.0.0.1:{http}/api/v1/list", headers={"authorization": f"Bearer {key}"}
        )
        with pytest.raises(urllib.error.HTTPError) as forbidden:
            urllib.request.urlopen(request)
        with grpc.insecure_channel(f"127.0.0.1:{rpc}") as channel:
            export = channel.unary_unary(METRICS)
            accepted = export(b"", metadata=[("authorization", f"Bearer {key}")])
            with pytest.raises(grpc.RpcError) as refused:
                export(b"", metadata=[("authorization", "Bearer wrong")])
            with pytest.raises(grpc.RpcError) as unknown:
                channel.unary_unary("/other.Service/Call")(b"")

    assert forbidden.value.code == 403
    assert accepted == b""
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_port_in_use_is_named(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "vestige",
            "serve",
            "--port",
            "0",
            "--home",
            str(home.root),
        ]
        done = subprocess.run(
            [*command, f"--otlp={port},{port}"], capture_output=True, text=True, timeout=60
        )

    assert done.returncode == 2
    assert str(port) in done.stderr and "Traceback" not in done.stderr
