"""Calls that are decoded in one step: the same records as the careful way makes of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agentdbg_runs import RUN, call
from vestige.formats.agentdbg.fast_decode import decode_call
from vestige.formats.agentdbg.parse_event import BAD_JSON, Line, parse_event
from vestige.formats.agentdbg.to_records import EventReader, RunFacts
from vestige.record.types import KnownRecord

_text = st.text(max_size=5) | st.sampled_from(["ok", '{"a": 1}', " [1]", "x" * 40_000])
_odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_text, inner, max_size=2),
    max_leaves=4,
)
_error = st.none() | st.fixed_dictionaries(
    {}, optional={"error_type": _text, "message": _text, "stack": _text, "details": _odd}
)
_number = st.integers(0, 100) | st.integers()
_usage = st.fixed_dictionaries(
    {"prompt_tokens": _number, "completion_tokens": _number, "total_tokens": _number}
)
_outcome = {"status": st.sampled_from(["ok", "error", None]), "error": _error}
_llm = st.fixed_dictionaries(
    {},
    optional={
        "model": _text | st.none(),
        "prompt": _odd,
        "response": _odd,
        "usage": _usage | _odd,
        "provider": _text | st.none(),
        "temperature": st.floats(0, 2) | _number | _odd,
        "stop_reason": _text | st.none(),
        **_outcome,
    },
)
_tool = st.fixed_dictionaries(
    {}, optional={"tool_name": _text | st.none(), "args": _odd, "result": _odd, **_outcome}
)
_more = {
    "duration_ms": st.none() | st.integers(-5, 5_000),
    "name": _text,
    "parent_id": st.none() | _text,
    "event_id": st.none() | _text,
}
_events = st.fixed_dictionaries(_more).flatmap(
    lambda more: st.one_of(
        st.builds(lambda payload: call("LLM_CALL", payload=payload, **more), _llm),
        st.builds(lambda payload: call("TOOL_CALL", payload=payload, **more), _tool),
    )
)
_decode_carefully = msgspec.json.Decoder(Line).decode


def records_of(events: list[Any]) -> list[KnownRecord]:
    return list(EventReader(RUN, RUN, RunFacts(), 0).read(events))


@given(st.lists(_events, max_size=4))
def test_a_call_read_in_one_step_gives_what_the_careful_way_gives(
    events: list[dict[str, Any]],
) -> None:
    lines = [json.dumps(event).encode() for event in events]
    try:
        carefully = records_of([_decode_carefully(line) for line in lines])
    except BAD_JSON:
        return  # what only Python's own reader takes is not decoded in one step either

    assert records_of([parse_event(line)[0] for line in lines]) == carefully


@pytest.mark.parametrize("temperature", [2**63, -(10**30), 0.0, 1])
def test_a_temperature_of_any_length_is_kept_in_the_same_form(temperature: float) -> None:
    line = json.dumps(call("LLM_CALL", payload={"temperature": temperature})).encode()

    assert records_of([parse_event(line)[0]]) == records_of([_decode_carefully(line)])


@pytest.mark.parametrize(
    "change",
    [
        {"meta": {"user": 1}},
        {"meta": None},
        {"payload": {"tool_name": "search", "args": {}, "more": 1}},
        {"payload": {"tool_name": 5}},
        {"payload": {"status": ["ok"]}},
        {"payload": None},
        {"duration_ms": "5"},
        {"spec_version": 1},
        {"event_type": "STATE_UPDATE"},
    ],
)
def test_what_is_not_exactly_a_call_is_read_carefully(change: dict[str, Any]) -> None:
    assert decode_call(json.dumps(call(**change)).encode()) is None


def test_a_call_as_the_tool_writes_it_is_decoded_in_one_step() -> None:
    """Else the other tests of this file would look at nothing."""
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    payload = {"model": "m", "prompt": [{"role": "user"}], "response": "r", "usage": usage}

    assert decode_call(json.dumps(call()).encode()) is not None
    assert decode_call(json.dumps(call("LLM_CALL", payload=payload)).encode()) is not None
