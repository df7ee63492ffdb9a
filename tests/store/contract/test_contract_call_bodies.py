"""Contract of a store: a model call gets the bodies that its exporter sends as log records."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import pytest

from support.stored_runs import SECOND_NS, T0, run_id_of
from vestige.record.call_bodies import CALL_BODY
from vestige.record.otlp_sequence_numbers import external_seq, external_writer, log_seq
from vestige.record.types import KnownRecord, Log, SpanClose, SpanOpen
from vestige.store.protocol import RunFilter, Store
from vestige.store.sqlite.ingest import join_call_bodies

WRITER, RUN = external_writer("x"), run_id_of(1)
ROOT, FIRST, SECOND = "a" * 16, "b" * 16, "c" * 16
USAGE = {"model": "m-1", "input_tokens": 100, "output_tokens": 10}


def make_span(
    span_id: str, kind: str, at_s: int, seconds: int, request_id: str = "", **opening: Any
) -> list[KnownRecord]:
    parent = None if kind == "run" else ROOT
    attributes = {**USAGE, "request_id": request_id} if kind == "llm" else {}
    start_ns = T0 + at_s * SECOND_NS
    opened = SpanOpen(
        1,
        WRITER,
        external_seq(1, 1),
        start_ns,
        RUN,
        span_id,
        "agent",
        kind,
        kind,
        parent,
        attributes=attributes,
        **opening,
    )
    duration_ns = seconds * SECOND_NS
    end_ns = start_ns + duration_ns
    return [
        opened,
        SpanClose(1, WRITER, external_seq(1, 2), end_ns, RUN, span_id, "ok", duration_ns),
    ]


def make_event(side: str, at_s: float, body: str, **attributes: Any) -> list[KnownRecord]:
    time_ns = T0 + int(at_s * SECOND_NS)
    facts = {CALL_BODY: side, **attributes}
    seq = log_seq(hashlib.sha256(body.encode()).digest())
    return [Log(1, WRITER, seq, time_ns, RUN, "agent", "info", "body", ROOT, facts, body)]


CALLS = [
    make_span(FIRST, "llm", 1, 4, "req_1"),
    make_span(SECOND, "llm", 2, 1, "req_2"),  # inside the time of the first
    make_event("input", 1.1, "question 1"),
    make_event("input", 2.1, "question 2", body_truncated=True, body_length=5_000),
    make_event("output", 5.05, "answer 1", request_id="req_1"),
    make_event("output", 3, "answer 2", request_id="req_2"),
    make_span(ROOT, "run", 0, 10),
]


def read_calls(store: Store) -> dict[str, tuple[str | None, str | None, bool]]:
    """Return the input and output of each model call, and whether its request was truncated."""
    return {
        span.id: (
            read_text(store, span.input),
            read_text(store, span.output),
            span.attributes.get("request_body_length") == 5_000,
        )
        for span in store.load_run(RUN).spans
        if span.type == "llm"
    }


def read_text(store: Store, body: Any) -> str | None:
    return store.read_body(body.id).decode() if body else None


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7])
def test_calls_get_their_bodies_in_any_order_of_arrival(store: Store, batch_size: int) -> None:
    order = [*itertools.permutations(CALLS)][batch_size * 701]
    for at in range(0, len(order), batch_size):
        store.append([*itertools.chain(*order[at : at + batch_size])])

    assert read_calls(store) == {
        FIRST: ("question 1", "answer 1", False),
        SECOND: ("question 2", "answer 2", True),
    }
    (info,) = store.list_runs(RunFilter())
    assert (info.input_tokens, info.output_tokens, info.log_count) == (200, 20, 4)


def test_a_body_moves_to_the_call_that_arrives_later(store: Store) -> None:
    store.append([*CALLS[0], *CALLS[3]])
    before = read_calls(store)
    store.append([*CALLS[1]])

    assert before == {FIRST: ("question 2", None, True)}
    assert read_calls(store) == {
        FIRST: (None, None, False),
        SECOND: ("question 2", None, True),
    }


def test_bodies_of_the_span_itself_stay_and_a_repeated_record_changes_nothing(
    store: Store,
) -> None:
    own = make_span(FIRST, "llm", 1, 4, body="own question")
    records = [*own, *CALLS[2], *CALLS[4]]
    for _ in range(2):
        store.append(records)

    assert read_calls(store) == {FIRST: ("own question", "answer 1", False)}
    assert store.load_run(RUN).info.log_count == 2


def test_of_many_bodies_inside_one_span_the_first_are_joined(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_call_bodies, "_LOGS", join_call_bodies._LOGS.replace("4000", "1"))
    store.append([*itertools.chain(*CALLS)])

    assert read_calls(store) == {FIRST: ("question 1", None, False), SECOND: (None, None, False)}
    assert store.load_run(RUN).info.log_count == 4


def test_followers_see_the_call_again_with_its_body(store: Store) -> None:
    store.append([*CALLS[6], *CALLS[0]])
    cursor = store.cursor()
    store.append(CALLS[2])

    assert [change.span_id for change in store.changes(cursor).spans] == [FIRST]
    assert read_calls(store)[FIRST][0] == "question 1"
