"""run -> OTLP/JSON -> store: the same run, and a file that OpenTelemetry's own types can read."""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from vestige.errors import UsageError
from vestige.formats import otlp
from vestige.home import Home
from vestige.record.redaction.masking import is_secret_key
from vestige.record.run import Run
from vestige.record.types import (
    STATUSES,
    VERSION,
    BodyInfo,
    KnownRecord,
    Link,
    Log,
    SpanClose,
    SpanOpen,
)
from vestige.recorder import Recorder
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import export_run, import_path
from vestige.transfer.open_any_path import open_path

RUN = "3d1957bd-7105-4b04-b132-afe8fc31203e"
WRITERS = ("5f0c9a1e77b2c4d0", "00c1d2e3f4a5b6c7")
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
# Words of our own code are among the texts, and values of secret keys are redacted on the way.
KEYS = TEXTS.filter(lambda key: key and not is_secret_key(key)) | st.sampled_from(
    [
        "model",
        "provider",
        "input_tokens",
        "finish_reason",
        "tool_name",
        "gen_ai.system",
        "gen_ai.request.model",
        "error.type",
        "error.message",
        "session.id",
    ]
)
ATTRIBUTES = st.dictionaries(KEYS, SCALARS, max_size=4)
REQUEST = '{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}]}'
ANSWER = (
    '{"choices":[{"index":0,"message":{"role":"assistant",'
    '"content":"yes"},"finish_reason":"stop"}]}'
)
BODIES = (
    st.none()
    | st.sampled_from([REQUEST, ANSWER, "", "é✓"])
    | TEXTS
    | st.binary(min_size=1, max_size=8)
)
TIMES = st.integers(1_700_000_000_000_000_000, 1_700_000_000_000_000_050)
"""Few: clocks stand still, and run back."""
SPANS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["llm", "tool", "step", "state", "http", "odd one"]),
        "name": TEXTS,
        "component": st.sampled_from(["planner", "tools"]),
        "writer": st.sampled_from(WRITERS),
        "parent": st.integers(0, 100),
        "time_ns": TIMES,
        "status": st.none() | st.sampled_from(STATUSES),
        "took": st.integers(0, 10**12),
        "attributes": ATTRIBUTES,
        "input": BODIES,
        "output": BODIES,
        "said": st.lists(TEXTS, max_size=2),
        "id": st.sampled_from(["hex", "node-"]),
        "linked": st.booleans(),
    }
)


def body_of(value: str | bytes | None) -> tuple[str | None, BodyInfo | None]:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode(), BodyInfo(encoding="base64")
    return value, None


def records_of(spans: list[dict[str, Any]], conversation: str | None) -> list[KnownRecord]:
    """A run of one or two processes: openings and lines, then closes in reverse."""
    if len({span["writer"] for span in spans} | {WRITERS[0]}) > 1:
        # Between processes the clock decides; one that runs back orders lines otherwise than spans.
        times = sorted(span["time_ns"] for span in spans)
        spans = [span | {"time_ns": at} for span, at in zip(spans, times, strict=True)]
    seqs = dict.fromkeys(WRITERS, 0)

    def seq(writer: str) -> int:
        seqs[writer] += 1
        return seqs[writer]

    ids = ["ffffffffffffffaa"]
    first = SpanOpen(
        VERSION,
        WRITERS[0],
        seq(WRITERS[0]),
        1_700_000_000_000_000_000,
        RUN,
        ids[0],
        "planner",
        "run",
        "answer",
        None,
        conversation,
    )
    made: list[KnownRecord] = [first]
    for number, span in enumerate(spans, 1):
        ids.append(f"{number:016x}" if span["id"] == "hex" else f"node-{number}")
        links = (
            [Link(ids[0], None, "asked"), Link(ids[0], "4f0c9a1e-77b2-4c4d-8123-000000000001")]
            if span["linked"]
            else None
        )
        made.append(
            SpanOpen(
                VERSION,
                span["writer"],
                seq(span["writer"]),
                span["time_ns"],
                RUN,
                ids[-1],
                span["component"],
                span["type"],
                span["name"],
                ids[span["parent"] % number],
                None,
                span["attributes"],
                links,
                *body_of(span["input"]),
            )
        )
        for text in span["said"]:
            of = ids[-1] if len(text) % 2 else None
            made.append(
                Log(
                    VERSION,
                    span["writer"],
                    seq(span["writer"]),
                    span["time_ns"],
                    RUN,
                    span["component"],
                    "warn",
                    text,
                    of,
                    {"n": 1},
                    *body_of(span["output"]),
                )
            )
    for number in range(len(spans), 0, -1):
        span = spans[number - 1]
        if span["status"] is not None:
            made.append(
                SpanClose(
                    VERSION,
                    span["writer"],
                    seq(span["writer"]),
                    span["time_ns"] + 7,
                    RUN,
                    ids[number],
                    span["status"],
                    span["took"],
                    {},
                    *body_of(span["output"]),
                )
            )
    made.append(
        SpanClose(
            VERSION, WRITERS[0], seq(WRITERS[0]), 1_700_000_000_000_000_900, RUN, ids[0], "ok", 850
        )
    )
    return made


def content_of(store: SqliteStore, run: Run) -> Any:
    """All that a run says, without the names of its writers."""

    def body(ref: Any) -> Any:
        return None if ref is None else (ref.cut, store.read_body(ref.id))

    info = run.info
    return {
        "run": (
            info.id,
            info.name,
            info.outcome,
            info.started_ns,
            info.ended_ns,
            info.duration_ns,
            info.conversation_id,
            info.component,
            info.input_tokens,
            info.output_tokens,
            info.error_count,
        ),
        "spans": [
            (
                s.id,
                s.parent_id,
                s.type,
                s.name,
                s.component,
                s.started_ns,
                s.status,
                s.duration_ns,
                s.attributes,
                body(s.input),
                body(s.output),
            )
            for s in run.spans
        ],
        "lines": [
            (
                line.span_id,
                line.time_ns,
                line.level,
                line.component,
                line.message,
                line.attributes,
                body(line.body),
            )
            for line in run.logs
        ],
        "links": sorted(map(str, run.links)),
    }


@pytest.mark.slow
@settings(
    max_examples=10,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.lists(SPANS, max_size=6), st.none() | TEXTS.filter(bool))
def test_a_run_that_went_out_and_came_back_is_the_same(
    spans: list[dict[str, Any]], conversation: str | None
) -> None:
    """Spans, their order, statuses, times, usage, attributes, bodies, lines and links; twice
    over.
    """
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        with SqliteStore.open(at / "a.db", lasting=False) as store:
            store.append(records_of(spans, conversation))
            before = content_of(store, store.load_run(RUN))
            export_run(store, RUN, "otlp", at / "a.jsonl")
        with SqliteStore.open(at / "b.db", lasting=False) as store:
            (imported,) = import_path(store, at / "a.jsonl")
            (again,) = import_path(store, at / "a.jsonl")
            after = content_of(store, store.load_run(RUN))
            export_run(store, RUN, "otlp", at / "b.jsonl")
        with open_path(at / "b.jsonl") as debugger:
            twice = content_of(debugger.store, debugger.store.load_run(RUN))
        lines = (at / "a.jsonl").read_bytes()
        problems = otlp.validate_run(at / "a.jsonl")

    assert imported.problems == [] and (again.records, again.known) == (0, True)
    assert after == before
    assert twice == before
    assert [problem for problem in problems if problem.severity == "error"] == []
    for line in lines.splitlines():
        json_format.Parse(with_base64_ids(line), ExportTraceServiceRequest())


def with_base64_ids(line: bytes) -> str:
    """OTLP/JSON writes ids in hex; protobuf's own JSON has base64 for them."""

    def coded(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {
            key: base64.b64encode(bytes.fromhex(value)).decode()
            if key in ("traceId", "spanId", "parentSpanId")
            else value
            for key, value in pairs
        }

    return json.dumps(json.loads(line, object_pairs_hook=coded))


def test_what_goes_out_has_the_names_of_the_conventions(tmp_path: Path, home: Home) -> None:
    with Recorder(home) as recorder, recorder.run("answer", "conv-1", component="planner") as run:
        attributes = {"model": "gpt-4o", "provider": "openai"}
        call = run.child("chat", "llm", attributes, json.loads(REQUEST))
        usage = {"input_tokens": 12, "output_tokens": 3, "cache_read_tokens": 4}
        call.end(attributes=usage | {"finish_reason": "stop"}, body=json.loads(ANSWER))
        with pytest.raises(LookupError), run.child("search", "tool", None, {"q": 1}):
            raise LookupError("none")
    with open_path(home) as debugger:
        (listed,) = debugger.store.list_runs(RunFilter())
        made = export_run(debugger.store, listed.id, "otlp", tmp_path)
        with pytest.raises(UsageError, match="already exists"):
            export_run(debugger.store, listed.id, "otlp", made)
    request = json_format.Parse(with_base64_ids(made.read_bytes()), ExportTraceServiceRequest())
    resource = request.resource_spans[0]
    root, call, tool = resource.scope_spans[0].spans

    assert made.name == f"{listed.id}.otlp.jsonl"
    assert {each.trace_id.hex() for each in (root, call, tool)} == {listed.id.replace("-", "")}
    assert call.parent_span_id == tool.parent_span_id == root.span_id
    assert flat(resource.resource.attributes)["service.name"] == "planner"
    assert flat(root.attributes)["gen_ai.conversation.id"] == "conv-1"
    exported = flat(call.attributes)
    assert (
        exported["gen_ai.operation.name"] == "chat" and exported["gen_ai.request.model"] == "gpt-4o"
    )
    assert (
        exported["gen_ai.usage.input_tokens"] == 12 and exported["gen_ai.usage.output_tokens"] == 3
    )
    assert exported["gen_ai.usage.cache_read.input_tokens"] == 4
    assert json.loads(exported["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "hi"}]}
    ]
    assert json.loads(exported["gen_ai.output.messages"])[0]["parts"] == [
        {"type": "text", "content": "yes"}
    ]
    assert flat(tool.attributes)["gen_ai.tool.call.arguments"] == '{"q":1}'
    assert tool.status.code == 2 and tool.status.message == "none"
    assert flat(tool.events[-1].attributes)["exception.type"] == "LookupError"


def flat(pairs: Any) -> dict[str, Any]:
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value")
        for pair in pairs
    }


def test_a_recorded_run_is_not_changed_by_its_own_export(tmp_path: Path, home: Home) -> None:
    """A file that carries the id of a run that is here adds nothing to it."""
    with Recorder(home) as recorder, recorder.run("answer") as run:
        run.log.info("thinking")
    with open_path(home) as debugger:
        (listed,) = debugger.store.list_runs(RunFilter())
        made = export_run(debugger.store, listed.id, "otlp", tmp_path)
    with SqliteStore.open(home.store) as store:
        (imported,) = import_path(store, made)
        run_after = store.load_run(listed.id)

    assert (imported.records, imported.known) == (0, True)
    assert len(run_after.logs) == 1


def test_a_long_run_is_written_in_lines_that_can_be_read_one_by_one(tmp_path: Path) -> None:
    spans = [
        {
            "type": "tool",
            "name": "t",
            "component": "c",
            "writer": WRITERS[0],
            "parent": 0,
            "time_ns": 1_700_000_000_000_000_001,
            "status": "ok",
            "took": 1,
            "attributes": {},
            "input": None,
            "output": None,
            "said": [],
            "id": "hex",
            "linked": False,
        }
    ] * 1_200
    with SqliteStore.open(tmp_path / "a.db") as store:
        store.append(records_of(spans, None))
        made = export_run(store, RUN, "otlp", tmp_path / "a.jsonl")
    with open_path(made) as debugger:
        run = debugger.store.load_run(RUN)

    assert len(made.read_bytes().splitlines()) == 3
    assert len(run.spans) == 1_201
