"""Contract of a store: lists of runs, single runs, spans, outlines and related runs."""

from __future__ import annotations

import pytest

from support.stored_runs import DAY_NS, T0, make_run, run_id_of, span_id_of, writer_of
from vestige.errors import NotFoundError
from vestige.record.types import Log, SpanClose, SpanOpen
from vestige.store.protocol import RunFilter, Store, Term


def numbers(runs: object) -> list[int]:
    return [int(run.id[-12:], 16) for run in runs]  # type: ignore[attr-defined]


@pytest.fixture
def runs(store: Store) -> Store:
    """Four runs: 1 and 3 of a conversation, 2 failed, 4 of another name."""
    store.append(make_run(1, conversation_id="c1"))
    store.append(make_run(2, started_ns=T0 + DAY_NS, status="error"))
    store.append(make_run(3, started_ns=T0 + 2 * DAY_NS, conversation_id="c1"))
    store.append(make_run(4, name="refund", started_ns=T0 + 3 * DAY_NS))
    return store


FILTERS = [
    (RunFilter(), [4, 3, 2, 1]),
    (RunFilter(limit=2), [4, 3]),
    (RunFilter(failed=True), [2]),
    (RunFilter(since_ns=T0 + 2 * DAY_NS), [4, 3]),
    (RunFilter(before_ns=T0 + DAY_NS), [1]),
    (RunFilter(name="REF"), [4]),
    (RunFilter(name="100%"), []),
    (RunFilter(name_is="triage", outcome="ok"), [3, 1]),
    (RunFilter(conversation_id="c1"), [3, 1]),
    (RunFilter(like="searching 2"), [2]),
    (RunFilter(newest_of_conversation=True), [4, 3, 2]),
    (RunFilter(terms=(Term("tool", ":", "search"),)), [4, 3, 2, 1]),
    (RunFilter(terms=(Term("is", ":", "failed", negated=True),)), [4, 3, 1]),
    (RunFilter(terms=(Term("tokens", ">", 1_000),)), []),
]
"""Filters with the numbers of the runs that they select."""


def test_a_filter_selects_runs_newest_first(runs: Store) -> None:
    """All filters in one test: most of its time goes into storing the runs."""
    expected = [found for _, found in FILTERS]

    assert [numbers(runs.list_runs(each)) for each, _ in FILTERS] == expected
    assert [numbers(runs.search_runs(each).runs) for each, _ in FILTERS] == expected


def test_a_list_continues_after_a_run(runs: Store) -> None:
    first = runs.list_runs(RunFilter(limit=2))

    assert numbers(runs.list_runs(RunFilter(after=first[-1].short_id))) == [2, 1]


def test_a_run_is_found_by_id_prefix_and_short_id(runs: Store) -> None:
    (run,) = runs.find_runs(run_id_of(2))

    assert runs.find_runs(run.short_id) == [run]
    assert numbers(runs.find_runs("3d1957bd")) == [1, 2, 3, 4]
    assert runs.find_runs("ffff") == []
    assert runs.has_run(run.id) and not runs.has_run("ffff")


def test_a_run_that_does_not_exist_is_not_found(store: Store) -> None:
    with pytest.raises(NotFoundError, match="no such run"):
        store.load_run(run_id_of(9))


def test_conversations_are_summed_over_their_runs(runs: Store) -> None:
    found = runs.conversations([run_id_of(1), run_id_of(2)])

    assert set(found) == {run_id_of(1)}
    conversation = found[run_id_of(1)]
    assert (conversation.runs, conversation.failed, conversation.input_tokens) == (2, 0, 240)


def test_runs_to_compare_with_are_found(runs: Store) -> None:
    assert runs.find_last_good_run(run_id_of(2)) == run_id_of(1)
    assert runs.find_last_good_run(run_id_of(4)) is None
    assert runs.find_previous_run(run_id_of(3)) == run_id_of(1)
    assert runs.find_previous_run(run_id_of(1)) is None
    assert runs.find_previous_span(run_id_of(3), "llm", "chat") == (run_id_of(1), span_id_of(1, 2))
    assert runs.find_previous_span(run_id_of(3), "llm", "other") is None


def test_the_ends_of_runs_name_their_first_request_and_last_response(runs: Store) -> None:
    ends = runs.read_run_inputs_outputs([run_id_of(1), run_id_of(9)])
    calls = [span for span in runs.load_run(run_id_of(1)).spans if span.type == "llm"]

    assert set(ends) == {run_id_of(1)}
    requests = [call.input for call in calls if call.input is not None]
    responses = [call.output for call in calls if call.output is not None]
    assert ends[run_id_of(1)].request == (requests[0] if requests else None)
    assert ends[run_id_of(1)].response == (responses[-1] if responses else None)


def test_a_run_marked_as_incomplete_is_partial(store: Store) -> None:
    store.append(make_run(1, attributes={"bundle.partial": "no events"}))
    store.append(make_run(2))

    assert store.find_partial_runs([run_id_of(1), run_id_of(2)]) == {run_id_of(1)}


def test_spans_are_found_by_id_attribute_and_link(runs: Store) -> None:
    (by_id,) = runs.find_spans(span_id_of(2, 3))
    (by_value,) = runs.find_attribute("call_2")
    ((linking, reason),) = runs.links_to(run_id_of(2), span_id_of(2, 2))

    assert by_id == by_value == linking
    assert (by_id.run_id, by_id.type, by_id.name) == (run_id_of(2), "tool", "search")
    assert runs.find_spans(by_id.short_id) == [by_id]
    assert reason == "requested by"
    assert runs.find_attribute("call_") == []


def test_facts_of_spans_are_bounded_per_run(runs: Store) -> None:
    facts = list(runs.read_span_facts([run_id_of(1), run_id_of(2)], 2))

    assert [(span.run_id, span.type) for span in facts] == [
        (run_id_of(1), "run"),
        (run_id_of(1), "llm"),
        (run_id_of(2), "run"),
        (run_id_of(2), "llm"),
    ]
    assert facts[1].attributes["model"] == "m-1"
    assert runs.read_body(facts[1].output_body or 0) == b"It is on its way."


def test_the_ancestry_of_a_span_ends_at_the_root(runs: Store) -> None:
    found = runs.read_ancestry(run_id_of(1), [span_id_of(1, 3)])

    assert [tuple(each) for each in found] == [
        (span_id_of(1, 1), None, "run"),
        (span_id_of(1, 3), span_id_of(1, 1), "tool"),
    ]


def test_the_size_of_the_bodies_of_a_run_is_known(runs: Store) -> None:
    assert runs.sum_body_bytes(run_id_of(1)) == len('{"q": "where is order 7?"}It is on its way.')


def test_debugging_hints_are_read_newest_first(store: Store) -> None:
    for number, text in ((1, "old"), (2, "new")):
        store.append(make_run(number))
        attributes = {"surface": text}
        log = Log(
            1,
            writer_of(number),
            8,
            T0 + number,
            run_id_of(number),
            "vestige",
            "debug",
            "surface",
            attributes=attributes,
        )
        store.append([log])

    assert store.read_debugging_hints(None, 10) == ["new", "old"]
    assert store.read_debugging_hints([run_id_of(1)], 10) == ["old"]
    assert store.read_debugging_hints(None, 1) == ["new"]


def test_an_outline_has_new_and_changed_rows_since_its_cursor(store: Store) -> None:
    store.append(make_run(1, ended=False))
    (run,) = store.find_runs(run_id_of(1))
    first = store.read_outline(run.short_id, None, 100, 9)
    nothing = store.read_outline(run.short_id, first.cursor, 100, 9)
    store.append(make_run(1)[6:])
    later = store.read_outline(run.short_id, first.cursor, 100, 9)

    assert [span.name for span in first.spans] == ["triage", "chat", "search"]
    assert [(log.message, log.message_length) for log in first.logs] == [("searching", 11)]
    assert [link.target_span for link in first.links] == [span_id_of(1, 2)]
    assert set(first.writers.values()) == {writer_of(1)}
    assert first.numbers[span_id_of(1, 1)] == first.spans[0].number
    assert [span.status for span in nothing.spans] == [None] and not nothing.logs
    assert [(span.name, span.status) for span in later.spans] == [("triage", "ok")]
    with pytest.raises(ValueError):
        store.read_outline(run.short_id, "no cursor", 100, 9)


def test_an_outline_is_read_in_pages(store: Store) -> None:
    store.append(make_run(1))
    (run,) = store.find_runs(run_id_of(1))
    names, cursor, more = [], None, True
    while more:
        page = store.read_outline(run.short_id, cursor, 1, 100)
        names += [span.name for span in page.spans]
        cursor, more = page.cursor, page.more

    assert names == ["triage", "chat", "search"]


def test_losses_of_a_run_are_counted(store: Store) -> None:
    opening = SpanOpen(
        1,
        writer_of(1),
        1,
        T0,
        run_id_of(1),
        span_id_of(1, 1),
        "agent",
        "run",
        "r",
        redacted={"api-key": 2},
    )
    close = SpanClose(1, writer_of(1), 4, T0, run_id_of(1), span_id_of(1, 1), "ok", 5)
    store.append([opening, close])
    (run,) = store.find_runs(run_id_of(1))

    losses = store.read_losses(run.short_id)
    assert (losses.redactions, losses.records_missing) == ({"api-key": 2}, 2)
