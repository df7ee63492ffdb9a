"""Files that nobody should have written: never a traceback, never endless, never much memory."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vestige.errors import ParcelError, UnreadableError
from vestige.fleet.server.otlp_ingest import open_spans
from vestige.formats import otlp
from vestige.formats.otlp.export_request import parse_export_request
from vestige.record.redaction.redactor import Redactor
from vestige.transfer.open_any_path import open_path

REDACTOR = Redactor()
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["STATUS_CODE_ERROR", "-1", "--1", "²", "1e400", "[{"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "key",
                    "value",
                    "stringValue",
                    "arrayValue",
                    "kvlistValue",
                    "values",
                    "intValue",
                    "doubleValue",
                    "bytesValue",
                    "name",
                    "code",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.operation.name",
        "llm.input_messages.0.message.role",
        "llm.input_messages.0.message.tool_calls.0.x",
        "gen_ai.prompt.0",
        "gen_ai.prompt.0.content",
        "events",
        "session.id",
        "vestige.seq",
        "vestige.input",
        "vestige.added",
        "vestige.redacted",
        "input.value",
        "gen_ai.usage.input_tokens",
        "gen_ai.response.finish_reasons",
        "exception.type",
    ]
)
PAIRS = st.lists(st.fixed_dictionaries({"key": KEYS, "value": JSON}), max_size=4)
SPANS = st.fixed_dictionaries(
    {
        "traceId": st.just(TRACE) | JSON,
        "spanId": st.just("00f067aa0ba902b7") | JSON,
        "startTimeUnixNano": st.just("1790000000000000000") | JSON,
    },
    optional={
        "endTimeUnixNano": JSON,
        "name": JSON,
        "kind": JSON,
        "parentSpanId": JSON,
        "attributes": PAIRS | JSON,
        "flags": JSON,
        "status": JSON,
        "events": st.lists(
            st.fixed_dictionaries(
                {
                    "name": st.sampled_from(["exception", "gen_ai.choice", "x"]),
                    "timeUnixNano": JSON,
                    "attributes": PAIRS,
                }
            ),
            max_size=2,
        )
        | JSON,
        "links": st.lists(
            st.fixed_dictionaries(
                {"traceId": st.just(TRACE) | JSON, "spanId": st.just("00f067aa0ba902b7") | JSON}
            ),
            max_size=2,
        )
        | JSON,
    },
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(SPANS, max_size=3), st.sampled_from(["traces", "logs"]), JSON)
def test_whatever_a_span_holds_it_is_taken_or_refused(
    spans: list[Any], signal: str, scope: Any
) -> None:
    """In a request and in a file: unusable data is reported, and nothing else happens."""
    outer, inner, name = (
        ("resourceSpans", "scopeSpans", "spans")
        if signal == "traces"
        else ("resourceLogs", "scopeLogs", "logRecords")
    )
    text = json.dumps({outer: [{"resource": scope, inner: [{"scope": scope, name: spans}]}]})
    try:
        taken = open_spans(text.encode(), f"otlp-{signal}-json", REDACTOR)
    except ParcelError as error:  # NaN is not JSON
        assert "not JSON" in str(error)
        return

    for records in taken.runs.values():
        for record in records:
            assert record.seq >= 1 and 0 <= record.time_ns <= 2**62
    assert taken.rejected <= len(spans)


def questions_about(path: Path) -> list[str]:
    """The rules that a file breaks; also read as runs."""
    try:
        with open_path(path) as debugger:
            debugger.store.list_runs  # noqa: B018  # that it opened is all
    except UnreadableError:
        pass
    return [problem.rule for problem in otlp.validate_run(path)]


GOOD = (
    b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"4bf92f3577b34da6a3ce929d0e0e4736",'
    b'"spanId":"00f067aa0ba902b7","name":"x",'
    b'"startTimeUnixNano":"1790000000000000000","endTimeUnixNano":"1790000000000000001"}]}]}]}'
)


@pytest.mark.parametrize(
    ("data", "rules"),
    [
        (
            b'{"resourceSpans":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n" + GOOD,
            ["line-unreadable"],
        ),
        (b'{"resourceSpans":[' + b"{}," * 5_000_000 + b"{}]}\n" + GOOD, ["line-unreadable"]),
        (GOOD + b"\n" + GOOD[:100], ["torn-line"]),
        (b"\n\n" + GOOD + b"\n\n", []),
        (b'{"resourceSpans": "none"}', ["no-trace"]),
        (b'{"resourceSpans":[1,null,{"scopeSpans":{"spans":[]}}]}', ["no-trace"]),
        (b'{"resourceSpans":"\xff\xfe"}\n', ["line-unreadable", "no-trace"]),
        (b'{"resourceMetrics":[],"resourceSpans":null}', ["no-trace"]),
    ],
    ids=["deep", "many", "torn", "blank lines", "text", "types", "bytes", "metrics"],
)
def test_a_file_that_is_none_is_told_in_a_word(
    tmp_path: Path, data: bytes, rules: list[str]
) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(data)

    assert questions_about(path) == rules


@pytest.mark.slow  # writes and reads a file of 100 MB
def test_a_line_of_100_megabytes_costs_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b'{"resourceSpans":[],"x":"' + b"a" * 101_000_000 + b'"}\n' + GOOD)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    done = subprocess.run(
        [sys.executable, "-m", "vestige", "validate", str(path)],
        capture_output=True,
        text=True,
        preexec_fn=limit,
        timeout=60,
    )

    assert done.returncode == 1 and "skipped" in done.stdout, done
    assert "Traceback" not in done.stderr


def test_a_trace_whose_spans_are_each_other_s_parents_is_shown(tmp_path: Path) -> None:
    spans = [
        {
            "traceId": TRACE,
            "spanId": f"{number:016x}",
            "parentSpanId": f"{3 - number:016x}",
            "name": "x",
            "startTimeUnixNano": "1790000000000000000",
        }
        for number in (1, 2)
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    done = subprocess.run(
        [sys.executable, "-m", "vestige", "show", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0 and done.stdout.count(" x ") >= 2, done


def field(number: int, data: bytes) -> bytes:
    """Of a binary message: one that has a length."""
    size, made = len(data), bytearray((number << 3 | 2,))
    while size > 0x7F:
        made.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(made) + bytes((size,)) + data


EMPTY_SPANS = field(1, field(2, b"\x12\x00" * 1_000_000))
GROUP = b"\x7b\x08\x01\x7c"
"""An old kind of field, number 15, with a number in it."""
CALL = field(9, field(1, b"gen_ai.input.messages") + field(2, field(1, b"[" + b"[]," * 4_000_001)))


@pytest.mark.parametrize(
    "data",
    [EMPTY_SPANS, GROUP + EMPTY_SPANS, field(1, field(2, field(2, CALL)))],
    ids=["spans", "after a group", "JSON in a text"],
)
def test_a_small_binary_request_is_not_taken_apart_into_gigabytes(data: bytes) -> None:
    """An empty span is two bytes, and packed next to nothing."""
    with pytest.raises(UnreadableError, match="request: more than"):
        parse_export_request(data, "traces", "protobuf")


@pytest.mark.slow
def test_a_request_has_no_more_spans_than_can_be_read_while_others_wait() -> None:
    spans = b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b"{}," * 100_001 + b"{}]}]}]}"
    with pytest.raises(UnreadableError, match="more than 100000 spans"):
        parse_export_request(spans, "traces", "json")


@pytest.mark.slow
def test_a_long_binary_request_is_read_as_before() -> None:
    """Its lengths are looked at first; texts, numbers and what is nested are passed over
    rightly.
    """
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    sent = ExportTraceServiceRequest()
    into = sent.resource_spans.add().scope_spans.add()
    for number in range(1, 40):
        span = into.spans.add(
            trace_id=b"\x0e" * 16,
            span_id=number.to_bytes(8, "big"),
            name="s" * 200,
            start_time_unix_nano=10**18,
            end_time_unix_nano=10**18 + 1,
            flags=0x300,
        )
        span.attributes.add(key="text").value.string_value = "x" * 40_000
        span.attributes.add(key="list").value.array_value.values.add().double_value = 0.5
    taken = parse_export_request(sent.SerializeToString(), "traces", "protobuf")

    assert (taken.accepted, taken.rejected) == (39, 0)
