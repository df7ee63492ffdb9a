"""What it costs a model call to be recorded at the wire: by the real SDK, against a server on
loopback.

Bare SDK (the floor), ours, and OpenInference's instrumentor for the same SDK (the peer) take
turns, a fresh process each, several rounds; a figure is the lowest of the rounds' medians, in
CPU time of the client's process with all its threads: the rest of a call is waiting. The peer
keeps what the program passed in, in spans that wait in memory for a batch; ours keeps the bytes,
on disk before the call returns.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench import place
from bench.figures import Figure, added, less_than_peer

ROUNDS = 3
CALLS = {"1 KB": 60, "100 KB": 30, "1 MB": 10, "stream of 10,000 chunks": 3}
"""A kind of call, and how often a round makes it."""

CONTENDERS = ("bare", "ours", "openinference")
SIZES = {"1 KB": 1_000, "100 KB": 100_000, "1 MB": 1_000_000}
MESSAGE_BYTES = 2_000


def measure() -> list[Figure]:
    found = take_turns()

    rows = []
    for kind in CALLS:
        bare, ours, peer = (found.get(name, {}).get(kind) for name in CONTENDERS)
        measured = "" if peer else " (peer not measured)"
        rows.append(
            Figure(f"CPU of a call of the OpenAI SDK, {kind}{measured}", "µs", ours, bare, peer)
        )
        if bare and ours and peer:
            rows.append(
                Figure(
                    f"what recording adds to it, {kind}",
                    "µs",
                    added(ours, bare),
                    None,
                    added(peer, bare),
                    less_than_peer(1) if kind.startswith(("1 MB", "stream")) else None,
                )
            )
    return rows


def take_turns() -> dict[str, dict[str, float]]:
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    with provider() as url:
        for _ in range(ROUNDS):
            for name in list(rounds):
                with place.folder() as folder:
                    done = place.run(["-m", "bench.wire", name, url, str(folder)])
                if done.returncode:
                    print(f"{name}: not measured: {done.stderr.strip().splitlines()[-1:]}")
                    del rounds[name]
                else:
                    rounds[name].append(json.loads(done.stdout))
    return {
        name: {kind: min(one[kind] for one in each) for kind in CALLS}
        for name, each in rounds.items()
        if each
    }


# --- the provider ---------------------------------------------------------------------------------


def _answer() -> bytes:
    message = {"role": "assistant", "content": "An answer. " * 40}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
    return json.dumps(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
            "usage": usage,
        }
    ).encode()


def _events() -> list[bytes]:
    def event(delta: dict[str, str], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode()

    return [event({"content": "word "})] * 9_998 + [event({}, "stop"), b"data: [DONE]\n\n"]


@contextmanager
def provider() -> Iterator[str]:
    answer = _answer()
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in _events()) + b"0\r\n\r\n"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            streamed = b'"stream":true' in body
            self.send_response(200)
            self.send_header(
                "Content-Type", "text/event-stream" if streamed else "application/json"
            )
            if streamed:
                self.send_header("Transfer-Encoding", "chunked")
            else:
                self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(chunks if streamed else answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


# --- one contender, in a process of its own -------------------------------------------------------


def _start(contender: str, folder: str) -> None:
    if contender == "ours":
        import os

        os.environ["VESTIGE_HOME"] = folder
        import vestige

        vestige.default_recorder()
        vestige.capture_http()
    elif contender == "openinference":
        from openinference.instrumentation.openai import OpenAIInstrumentor
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

        tracers = TracerProvider()
        out = Path(folder, "spans.ndjson").open("w", encoding="utf-8")  # noqa: SIM115
        exporter = ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(None) + "\n")
        tracers.add_span_processor(BatchSpanProcessor(exporter))
        OpenAIInstrumentor().instrument(tracer_provider=tracers)


def _messages(size: int) -> list[Any]:
    text = ("A few words of a conversation that goes on. " * 60)[: min(size, MESSAGE_BYTES)]
    return [
        {"role": ("user", "assistant")[n % 2], "content": f"{n} {text}"}
        for n in range(max(1, size // MESSAGE_BYTES))
    ]


def _main(contender: str, url: str, folder: str) -> None:
    _start(contender, folder)
    import openai

    client: Any = openai.OpenAI(base_url=url, api_key="sk-bench-4711471147114711")
    times = {}
    for kind, count in CALLS.items():
        stream = kind not in SIZES
        messages = _messages(SIZES.get(kind, 1_000))
        taken = []
        for _ in range(count + 1):
            begun = time.process_time_ns()
            answer = client.chat.completions.create(model="m", messages=messages, stream=stream)
            if stream:
                for _ in answer:
                    pass
            taken.append((time.process_time_ns() - begun) / 1000)
        times[kind] = statistics.median(taken[1:])
    print(json.dumps(times))


if __name__ == "__main__":
    _main(*sys.argv[1:4])
