"""The recorders that compete, each doing the same tool call in its own idiom.

    python -m bench.contenders otel-batch /var/tmp/x time   # prints {"p50_us": ..., "cpu_us": ...}
    python -m bench.contenders ours /var/tmp/x burst           # 10,000 calls, then SIGKILL

Each runs in a process of its own, as it would in life. AgentDbg has an environment
of its own too, so nothing but the standard library is imported before it is needed.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INPUT = json.dumps({"query": "how do I return a damaged parcel? " * 7, "limit": 20, "page": 1})
OUTPUT = json.dumps(
    [
        {"id": n, "title": "Returns", "text": "Fill in the form, then print the label. " * 3}
        for n in range(6)
    ]
)[:1000]
NAME = "search"

CALLS_MAX = 6_000
SECONDS_MAX = 0.6
WARM_UP = 300


def attributes() -> dict[str, Any]:
    """Five, and a fresh dict for each call, as a program makes it."""
    return {
        "tool_call_id": "call_7",
        "index": "kb-en",
        "attempt": 1,
        "cached": False,
        "tier": "gold",
    }


@dataclass(frozen=True, slots=True)
class Contender:
    """One recorder, set up to write into a folder."""

    call: Callable[[], None]
    """A whole tool call: opened, then closed with its output."""

    open: Callable[[], Any] | None = None
    """A tool call that is still under way; the caller keeps what this returns."""


# --- the floor ------------------------------------------------------------------------------


def floor(folder: Path) -> Contender:
    """The least work that leaves the same bytes: build, encode, write, twice.

    No buffer is kept between calls: threads would have to take turns for it.
    """
    import _random

    import msgspec

    from vestige.record.types import SpanClose, SpanOpen

    encode = msgspec.json.Encoder().encode_lines
    fd = os.open(folder / "floor.ndjson", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    write, now, monotonic = os.write, time.time_ns, time.monotonic_ns
    bits = _random.Random(7).getrandbits
    seq = itertools.count(1)
    writer, parent = "0123456789abcdef", "fedcba9876543210"
    run = "00000000-0000-4000-8000-000000000000"

    def call() -> None:
        span = f"{bits(64):016x}"
        opening = SpanOpen(
            1,
            writer,
            next(seq),
            now(),
            run,
            span,
            "agent",
            "tool",
            NAME,
            parent,
            None,
            attributes(),
            None,
            INPUT,
        )
        write(fd, encode((opening,)))
        begun = monotonic()
        close = SpanClose(
            1, writer, next(seq), now(), run, span, "ok", monotonic() - begun, {}, OUTPUT
        )
        write(fd, encode((close,)))

    return Contender(call)


# --- ours -----------------------------------------------------------------------------------


def ours_bare(folder: Path) -> Contender:
    """No redaction, nothing ambient: the span alone."""
    import vestige

    parent = vestige.Recorder(folder, redact=False).run("bench")

    def call() -> None:
        parent.child(NAME, "tool", attributes(), INPUT).end(body=OUTPUT)

    return Contender(call)


def ours(folder: Path, scanner: str | None = None) -> Contender:
    """As a program gets it: redaction on, the span ambient while it is open."""
    import vestige

    recorder = vestige.Recorder(folder)
    if scanner is not None:
        from vestige.record.redaction.redactor import Redactor

        recorder._redactor = Redactor(scanner=scanner)
        recorder._scanner = recorder._redactor.scanner
    parent = recorder.run("bench").__enter__()

    def call() -> None:
        with parent.child(NAME, "tool", attributes(), INPUT) as span:
            span.end(body=OUTPUT)

    return Contender(call, lambda: parent.child(NAME, "tool", attributes(), INPUT))


def ours_new_home(folder: Path) -> Contender:
    """The first process of a home, while its scanner is not compiled yet."""
    return ours(folder)


def ours_compiled(folder: Path) -> Contender:
    """Every later process, and the first one after about a second."""
    import vestige
    from vestige.record.redaction.secret_scanner import Scanner

    scanners = vestige.Recorder(folder, redact=False).home.scanners
    Scanner(cache_folder=scanners).compile()
    return ours(folder)


def disabled(folder: Path) -> Contender:
    os.environ["VESTIGE_DISABLED"] = "1"
    return ours(folder)


# --- the others -----------------------------------------------------------------------------


def otel(folder: Path, processor: str) -> Contender:
    """OpenTelemetry's SDK with its own exporter to a stream, here a file."""
    from opentelemetry.sdk.trace import TracerProvider, export

    file = open(folder / "otel.ndjson", "a")  # noqa: SIM115  # open until the process dies
    exporter = export.ConsoleSpanExporter(
        out=file, formatter=lambda span: span.to_json(indent=None) + "\n"
    )
    provider = TracerProvider()
    provider.add_span_processor(getattr(export, processor)(exporter))
    tracer = provider.get_tracer("bench")
    tracer.start_as_current_span("bench").__enter__()

    def begin() -> Any:
        return tracer.start_span(NAME, attributes={**attributes(), "input.value": INPUT})

    def call() -> None:
        span_attributes = {**attributes(), "input.value": INPUT}
        with tracer.start_as_current_span(NAME, attributes=span_attributes) as span:
            span.set_attribute("output.value", OUTPUT)

    return Contender(call, begin)


def logging_json(folder: Path) -> Contender:
    """Standard logging, a JSON formatter, one line for the start and one for the end."""
    import logging

    class Json(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            line = {"time": self.formatTime(record), "level": record.levelname}
            return json.dumps(line | {"message": record.getMessage()} | record.fields)  # type: ignore[attr-defined]

    log = logging.getLogger("bench")
    log.setLevel(logging.INFO)
    log.propagate = False
    handler = logging.FileHandler(folder / "log.ndjson")
    handler.setFormatter(Json())
    log.addHandler(handler)
    return _two_lines(lambda message, fields: log.info(message, extra={"fields": fields}))


def structlog_orjson(folder: Path) -> Contender:
    import orjson
    import structlog

    file = open(folder / "log.ndjson", "ab")  # noqa: SIM115  # open until the process dies
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(serializer=orjson.dumps),
        ],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        logger_factory=structlog.BytesLoggerFactory(file),
        cache_logger_on_first_use=True,
    )
    log = structlog.get_logger().bind()
    return _two_lines(lambda message, fields: log.info(message, **fields))


def _two_lines(write: Callable[[str, dict[str, Any]], object]) -> Contender:
    def begin() -> None:
        write("start", {"name": NAME, **attributes(), "input": INPUT})

    def call() -> None:
        begin()
        write("end", {"name": NAME, "output": OUTPUT})

    return Contender(call, begin)


def agentdbg(folder: Path) -> Contender:
    """One event for each tool call, and an fsync for each event."""
    import warnings

    warnings.simplefilter("ignore")
    os.environ["AGENTDBG_DATA_DIR"] = str(folder)
    from agentdbg import record_tool_call, traced_run

    run = traced_run(name="bench")
    run.__enter__()
    numbers = itertools.count()

    def call() -> None:
        # Numbered: the same call again and again would wake its loop detection.
        arguments = {"query": INPUT, "n": next(numbers)}
        record_tool_call(NAME, args=arguments, result=OUTPUT, meta=attributes())

    contender = Contender(call)
    _open_spans.append(run)
    return contender


_open_spans: list[Any] = []
"""What must live as long as the process."""

CONTENDERS: dict[str, Callable[[Path], Contender]] = {
    "floor": floor,
    "ours-bare": ours_bare,
    "ours": ours_compiled,
    "ours-new-home": ours_new_home,
    "ours-ahocorasick": lambda folder: ours(folder, "ahocorasick"),
    "ours-re": lambda folder: ours(folder, "re"),
    "disabled": disabled,
    "otel-batch": lambda folder: otel(folder, "BatchSpanProcessor"),
    "otel-simple": lambda folder: otel(folder, "SimpleSpanProcessor"),
    "logging": logging_json,
    "structlog": structlog_orjson,
    "agentdbg": agentdbg,
}


# --- what is done with them -----------------------------------------------------------------


def time_calls(call: Callable[[], None]) -> dict[str, float]:
    """The median of one call, and the CPU of one, threads in the background included."""
    clock = time.perf_counter_ns
    for _ in range(WARM_UP):
        call()
    deadline = clock() + SECONDS_MAX * 1e9
    cpu = time.process_time_ns()
    times = []
    while len(times) < CALLS_MAX:
        begun = clock()
        call()
        ended = clock()
        times.append(ended - begun)
        if ended > deadline:
            break
    cpu = time.process_time_ns() - cpu
    return {"p50_us": statistics.median(times) / 1000, "cpu_us": cpu / len(times) / 1000}


def act_and_die(contender: Contender, scene: str) -> None:
    """Play a scene of survival.py, then die as one dies of the OOM killer."""
    open_spans = []
    if scene == "paced":
        for _ in range(20):
            contender.call()
            time.sleep(0.05)  # paced: the calls are spread over a second
    elif scene == "burst":
        for _ in range(10_000):
            contender.call()
    else:
        assert contender.open is not None
        open_spans = [contender.open() for _ in range(5)]
    os.kill(os.getpid(), signal.SIGKILL)
    del open_spans


def main() -> None:
    name, folder, task = sys.argv[1:]
    contender = CONTENDERS[name](Path(folder))
    if task == "time":
        print(json.dumps(time_calls(contender.call)), flush=True)
        os._exit(0)  # no recorder's goodbye is part of the figure
    act_and_die(contender, task)


if __name__ == "__main__":
    main()
