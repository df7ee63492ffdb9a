"""Make phoenix-*.jsonl with Phoenix, its server and its client: python make_phoenix.py FOLDER."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from phoenix.client import Client

TARGET = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
ROOT = {"input.value": "Where is order 7?", "output.value": "It is late."}
CHAT = {
    "llm.model_name": "gpt-4o-mini",
    "llm.input_messages.0.message.role": "user",
    "llm.input_messages.0.message.content": "Where is order 7?",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.content": "It is late.",
    "llm.token_count.prompt": 120,
    "llm.token_count.completion": 18,
}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def send_spans(url: str) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces")))
    tracer = provider.get_tracer("shop")

    def span(name: str, kind: str, **attributes: Any) -> Any:
        facts = {"openinference.span.kind": kind} | attributes
        return tracer.start_as_current_span(name, attributes=facts)

    def tool(id: int, **attributes: Any) -> Any:
        facts = {"tool.name": "find_order", "input.value": json.dumps({"id": id})}
        return span("find_order", "TOOL", **facts, **attributes)

    with span("shop", "AGENT", **ROOT):
        with tool(7, **{"output.value": "order 7: late"}):
            time.sleep(0.01)
        try:
            with tool(13):
                raise ValueError("no such order")
        except ValueError:
            pass
        with span("chat", "LLM", **CHAT):
            time.sleep(0.01)
    provider.shutdown()


def main(folder: str) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    own = {"PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": str(free_port())}
    own |= {"PHOENIX_HOST": "127.0.0.1", "PHOENIX_WORKING_DIR": folder}
    own["PHOENIX_TELEMETRY_ENABLED"] = "false"
    command = [sys.executable, "-m", "phoenix.server.main", "serve"]
    server = subprocess.Popen(command, env=os.environ | own, stdout=subprocess.DEVNULL)
    try:
        for _ in range(120):
            try:
                httpx.get(f"{url}/healthz", timeout=1).raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(1)
        send_spans(url)
        client = Client(base_url=url)
        spans: list[Any] = []
        while len(spans) < 4:
            time.sleep(1)
            spans = list(client.spans.get_spans(project_identifier="default"))
        for span in spans:
            for event in span["events"]:  # paths of this machine
                event["attributes"]["exception.stacktrace"] = "Traceback ..."
        lines = [json.dumps(span, default=str) + "\n" for span in spans]
        (TARGET / "phoenix-client.jsonl").write_text("".join(lines))
        frame = client.spans.get_spans_dataframe(project_identifier="default")
        rows = frame.drop(columns=["events"]).reset_index(drop=True)
        rows.to_json(
            TARGET / "phoenix-frame.jsonl", orient="records", lines=True, date_format="iso"
        )
    finally:
        server.terminate()
        server.wait(30)


with tempfile.TemporaryDirectory() as folder:
    main(folder)
