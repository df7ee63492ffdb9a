"""Our records as AgentDbg events: types, parents, payloads, ids; one line of strict JSON each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vestige.formats.agentdbg.constants import (
    INSTANT,
    LOOP_EVIDENCE,
    LOOP_PATTERN,
    LOOP_REPETITIONS,
    LOOP_WINDOW,
    META,
    span_event_id,
)
from vestige.formats.agentdbg.event_values import Shaper
from vestige.formats.agentdbg.file_structs import Event, parse_timestamp, render_event, timestamp
from vestige.formats.agentdbg.from_records import Mapper
from vestige.formats.protocol import is_uuid4
from vestige.record.redaction.masking import MARK
from vestige.record.types import KnownRecord, Log, SpanClose, SpanOpen, SpanUpdate

RUN = "3d1957bd-7105-4b04-b132-afe8fc31203e"
MS = 1_000_000


class Script:
    """Records of one run, numbered and timed: a millisecond each."""

    def __init__(self) -> None:
        self.records: list[KnownRecord] = []

    def _next(self) -> tuple[int, str, int, int, str]:
        seq = len(self.records) + 1
        return 1, "w" * 16, seq, 1_763_229_905_000 * MS + seq * MS, RUN

    def open(self, span_id: str, type: str, parent: str | None = "root", **more: Any) -> None:
        more.setdefault("name", type)
        self.records.append(
            SpanOpen(
                *self._next(), span_id=span_id, component="app", type=type, parent_id=parent, **more
            )
        )

    def close(self, span_id: str, status: str = "ok", ms: int = 5, **more: Any) -> None:
        self.records.append(
            SpanClose(*self._next(), span_id=span_id, status=status, duration_ns=ms * MS, **more)
        )

    def update(self, span_id: str, **attributes: Any) -> None:
        self.records.append(SpanUpdate(*self._next(), span_id=span_id, attributes=attributes))

    def log(self, message: str, span_id: str | None = "root", **attributes: Any) -> None:
        self.records.append(
            Log(
                *self._next(),
                component="app",
                level="error",
                message=message,
                span_id=span_id,
                attributes=attributes,
            )
        )

    def events(self, mapper: Mapper | None = None) -> list[Event]:
        mapper = mapper or Mapper(RUN)
        return [event for record in self.records for event in mapper.take(record)]


def lines(events: list[Event]) -> list[dict[str, Any]]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return [json.loads(render_event(event), parse_constant=refuse) for event in events]


def test_each_span_type_that_the_format_knows_is_one_event_when_it_ends() -> None:
    """Order is write order: a call is written when it is over, with its duration."""
    script = Script()
    script.open("root", "run", None, name="demo")
    script.open("llm1", "llm", name="gpt-4o", body='[{"role":"user","content":"hi"}]')
    script.update("llm1", model="gpt-4o", input_tokens=3, provider="openai", temperature=0.5)
    script.close("llm1", ms=7, attributes={"output_tokens": 2, "finish_reason": "stop"}, body="yo")
    script.open("tool1", "tool", name="search", body='{"q":"x"}')
    script.close("tool1", body="none")
    script.open("st1", "state", body='{"step":1}')
    script.close("st1", body='{"added":["step"]}')
    script.close("root", ms=20)

    start, llm, tool, state, end = lines(script.events())

    assert [start["event_type"], llm["event_type"], tool["event_type"]] == [
        "RUN_START",
        "LLM_CALL",
        "TOOL_CALL",
    ]
    assert llm["payload"] == {
        "model": "gpt-4o",
        "prompt": [{"role": "user", "content": "hi"}],
        "response": "yo",
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        "provider": "openai",
        "temperature": 0.5,
        "stop_reason": "stop",
        "status": "ok",
        "error": None,
    }
    assert llm["duration_ms"] == 7
    assert tool["payload"]["args"] == {"q": "x"} and tool["payload"]["result"] == "none"
    assert state["payload"] == {"state": {"step": 1}, "diff": {"added": ["step"]}}
    assert end["payload"] == {
        "status": "ok",
        "summary": {"llm_calls": 1, "tool_calls": 1, "errors": 0, "duration_ms": 20},
    }


def test_a_parent_is_the_nearest_span_around_that_has_an_event() -> None:
    """Steps have no event: what is inside them belongs to what is around them."""
    script = Script()
    script.open("root", "run", None)
    script.open("step", "step")
    script.open("tool", "tool", "step")
    script.open("http", "http", "tool")
    script.open("llm", "llm", "http")
    for span in ("llm", "http", "tool", "step", "root"):
        script.close(span)

    start, llm, tool, end = lines(script.events())

    assert start["parent_id"] is None
    assert llm["parent_id"] == tool["event_id"] == span_event_id(RUN, "tool")
    assert tool["parent_id"] == end["parent_id"] == start["event_id"]


def test_an_exception_that_leaves_several_spans_is_one_error_event() -> None:
    """`counts.errors` counts what went wrong, not how many frames saw it go by."""
    failed = {"error.type": "app.Broken", "error.message": "no", "error.stack": "Traceback"}
    script = Script()
    script.open("root", "run", None)
    script.open("outer", "step")
    script.open("inner", "step", "outer")
    for span in ("inner", "outer", "root"):
        script.close(span, "error", attributes=failed)
    mapper = Mapper(RUN)

    start, error, end = lines(script.events(mapper))

    assert error["payload"] == {
        "error_type": "Broken",
        "message": "no",
        "stack": "Traceback",
        "details": None,
    }
    assert error["meta"]["vestige"]["span_id"] == "inner"
    assert error["parent_id"] == start["event_id"]
    assert end["payload"]["status"] == "error" and end["payload"]["summary"]["errors"] == 1
    assert mapper.run_file().counts.errors == 1


def test_a_failed_call_is_told_in_its_payload_and_is_no_error_event() -> None:
    """counts.errors counts ERROR events only."""
    script = Script()
    script.open("root", "run", None)
    script.open("tool", "tool")
    script.close("tool", "timeout", attributes={"error.type": "TimeoutError"})
    script.close("root")
    mapper = Mapper(RUN)

    _, tool, end = lines(script.events(mapper))

    assert tool["payload"]["status"] == "error"
    assert tool["payload"]["error"]["error_type"] == "TimeoutError"
    assert tool["meta"]["vestige"]["status"] == "timeout"
    assert end["payload"]["status"] == "ok" and mapper.counts.errors == 0


@pytest.mark.parametrize("status", ["error", "cancelled", "interrupted"])
def test_a_run_that_failed_ends_with_an_error_and_its_end(status: str) -> None:
    """Also when nobody knows an exception: the status then names the error."""
    script = Script()
    script.open("root", "run", None)
    script.close("root", status)
    mapper = Mapper(RUN)

    kinds = [event["event_type"] for event in lines(script.events(mapper))]

    assert kinds == ["RUN_START", "ERROR", "RUN_END"]
    assert mapper.run_file().status == "error"


def test_lines_about_errors_and_loops_are_events_and_other_lines_are_not() -> None:
    """A loop's evidence are spans of ours; it names their events."""
    script = Script()
    script.open("root", "run", None)
    script.open("0123456789abcdef", "tool")
    script.close("0123456789abcdef")
    script.log("just saying")
    script.log("lost the card", **{"error.type": "CardError", "error.message": "declined"})
    loop = {LOOP_PATTERN: "a -> b", LOOP_REPETITIONS: 3, LOOP_WINDOW: 6}
    script.log("loop", **loop, **{LOOP_EVIDENCE: '["0123456789abcdef"]'})
    mapper = Mapper(RUN)

    _, tool, error, warning = lines(script.events(mapper))

    assert error["payload"]["message"] == "declined" and error["name"] == "CardError"
    assert warning["payload"] == {
        "pattern": "a -> b",
        "repetitions": 3,
        "window_size": 6,
        "evidence_event_ids": [tool["event_id"]],
    }
    assert (mapper.counts.errors, mapper.counts.loop_warnings) == (1, 1)
    assert mapper.run_file().status == "running"


def test_event_ids_derive_from_our_identities() -> None:
    """The same records give the same events, live and exported; no two events share an id."""
    script = Script()
    script.open("root", "run", None)
    for number in range(3):
        script.log("bad", **{"error.type": "E", "error.message": str(number)})
    script.close("root", "error")

    first, second = script.events(), script.events()

    ids = [event.event_id for event in first]
    assert first == second
    assert len(set(ids)) == len(ids) and all(map(is_uuid4, ids))


def test_a_callers_meta_and_unknown_durations_are_kept() -> None:
    """What was recorded after the fact has no duration; our own things have a key of their own."""
    script = Script()
    script.open("root", "run", None)
    script.open("t", "tool", attributes={META: '{"tag":"x"}', INSTANT: True, "attempt": 2})
    script.close("t")

    event = lines(script.events())[1]

    assert event["duration_ms"] is None
    assert event["meta"] == {
        "tag": "x",
        "vestige": {"component": "app", "span_id": "t", "attributes": {"attempt": 2}},
    }


def test_masks_become_the_formats_marker_and_long_strings_are_cut_after_that() -> None:
    """Truncation comes after redaction, and what is kept fits `max_field_bytes`."""
    shaper = Shaper(max_field_bytes=100)

    assert shaper.body("sk-…redacted…xyz") == "__REDACTED__"
    assert shaper.body('{"a":"…redacted…","b":[1]}') == {"a": "__REDACTED__", "b": [1]}
    assert shaper.string("Bearer abc…redacted…xyz") == "Bearer __REDACTED__"
    cut = shaper.string("é" * 200)
    assert len(cut.encode()) <= 100 and cut.endswith("__TRUNCATED__")
    assert shaper.body(json.dumps({"deep": ["y" * 200]}))["deep"][0].endswith("__TRUNCATED__")


@pytest.mark.parametrize(
    "body",
    ["NaN", "[NaN]", '{"a":\n1}', "\ud800", '{"a":"\\ud800"}', "[" * 500 + "]" * 500, "[" * 9999],
)
def test_any_body_gives_one_line_of_strict_json(body: str) -> None:
    """Whatever an agent recorded, a strict reader can read the line."""
    script = Script()
    script.open("root", "run", None, name="\udcff")
    script.open("t", "tool", body=body)
    script.close("t", body=body)

    for event in script.events():
        line = render_event(event)

        assert line.endswith(b"\n") and line.count(b"\n") == 1
        lines([event])


def test_timestamps_have_milliseconds_and_a_z_and_are_read_back() -> None:
    assert timestamp(1_763_229_905_123_456_789) == "2025-11-15T18:05:05.123Z"
    assert parse_timestamp("2025-11-15T18:05:05.123Z") == 1_763_229_905_123 * MS
    assert parse_timestamp("2025-11-15T19:05:05+01:00") == 1_763_229_905_000 * MS
    assert timestamp(2**62) == "2116-02-20T23:53:38.427Z"
    for junk in ("", "soon", None, 5, "2025-11-15T25:00:00Z", "9" * 100):
        assert parse_timestamp(junk) is None


def test_keys_that_look_alike_once_they_are_masked_or_cut_keep_their_values() -> None:
    masked = Shaper().value({f"sk-{MARK}abc": 1, f"sk-{MARK}abd": 2})
    cut = Shaper(max_field_bytes=100).value({"a" * 200 + "1": 1, "a" * 200 + "2": 2})

    assert masked == {"__REDACTED__": 1, "__REDACTED__ (2)": 2}
    assert list(cut.values()) == [1, 2]
