"""Contract of a store: text search, users' SQL, bodies and sums."""

from __future__ import annotations

import re

import pytest

from support.stored_runs import DAY_NS, T0, make_run, run_id_of, span_id_of, writer_of
from vestige.errors import NotFoundError, UsageError
from vestige.record.types import SpanClose, SpanOpen
from vestige.store.protocol import SearchQuery, Store

PARTS = ("attrs", "logs", "bodies")


def find(store: Store, text: str, **more: object) -> list[tuple[str, str]]:
    options = {"ignore_case": False, "run_id": None, "parts": PARTS, "expression": False} | more
    literals = () if options["expression"] else (text,)
    pattern = re.compile(text if options["expression"] else re.escape(text))
    query = SearchQuery(pattern, literals, **options)  # type: ignore[arg-type]
    return [(hit.span_ref.run_id, hit.part) for hit in store.search(query).hits]


@pytest.mark.slow
def test_text_is_found_in_attributes_logs_and_bodies(store: Store) -> None:
    store.append(make_run(1))
    store.append(make_run(2, request='{"q": "where is order 22?"}', answer="It comes on foot."))
    parts = {"call_2": "attrs", "searching 2": "log", "order 22?": "input", "on foot": "output"}

    for text, part in parts.items():
        assert find(store, text) == [(run_id_of(2), part)]
        assert find(store, text, run_id=run_id_of(1)) == []
        assert find(store, text, expression=True, parts=("attrs",)) == (
            [(run_id_of(2), "attrs")] if part == "attrs" else []
        )


def test_text_is_found_at_its_offset_in_bodies_of_any_size(store: Store) -> None:
    sizes = [50, 1_000, 100_000]
    for number, size in enumerate(sizes, 1):
        body = "é" * size + f"needle{number}" + "z" * size
        store.append(make_run(number, answer=body))

    for number, size in enumerate(sizes, 1):
        text = f"needle{number}"
        query = SearchQuery(re.compile(text), (text,), False, None, ("bodies",))
        (hit,) = store.search(query).hits
        found = (hit.start_byte, hit.match, hit.span_ref.span_id)
        assert found == (2 * size, text, span_id_of(number, 2))


def test_a_search_continues_at_its_cursor(store: Store) -> None:
    for number in range(1, 6):
        store.append(make_run(number))
    query = SearchQuery(re.compile("searching"), ("searching",), False, None, ("logs",))
    found, cursor = [], None
    while True:
        result = store.search(query, cursor, 2)
        found += [hit.span_ref.run_id for hit in result.hits]
        cursor = result.cursor
        if cursor is None:
            break

    assert sorted(found) == [run_id_of(number) for number in range(1, 6)]


def test_a_user_query_reads_and_never_writes(store: Store) -> None:
    store.append(make_run(1))

    rows = store.query("SELECT type, count(*) FROM spans GROUP BY type ORDER BY type", 1, 1)
    assert (next(iter(rows.columns)), [list(row) for row in rows.rows], rows.more) == (
        "type",
        [["run", 1]],
        True,
    )
    for sql in ("DELETE FROM runs", "SELEC", "SELECT 1; SELECT 2", "DROP TABLE runs"):
        with pytest.raises(UsageError):
            store.query(sql, 0, 10)
    assert store.has_run(run_id_of(1))


def test_a_body_of_any_size_is_read_exactly_and_in_slices(store: Store) -> None:
    for number, size in enumerate([0, 1, 399, 400, 5_000, 2_000_000], 1):
        body = ("0123456789é" * (size // 10 + 1))[:size]
        store.append(make_run(number, answer=body))
        output = store.load_run(run_id_of(number)).spans[1].output
        assert output is not None and output.id is not None
        data, half = body.encode(), len(body.encode()) // 2

        assert output.size_bytes == len(data)
        assert store.read_body(output.id) == data
        assert store.read_body(output.id, half, half + 7) == data[half : half + 7]
        assert dict(store.read_bodies([output.id, 10**9])) == {output.id: data}


def test_a_body_that_does_not_exist_is_not_found(store: Store) -> None:
    with pytest.raises(NotFoundError):
        store.read_body(10**9)


def test_equal_bodies_of_a_run_have_one_id_when_it_is_loaded(store: Store) -> None:
    """Checks recognize repeated calls by the ids of their bodies."""
    run, records = run_id_of(1), []
    for at in range(2, 8):
        span, body = span_id_of(1, at), "x" * (30 if at % 2 else 3_000)
        records += [
            SpanOpen(1, writer_of(1), 2 * at, T0, run, span, "agent", "tool", "t", body=body),
            SpanClose(1, writer_of(1), 2 * at + 1, T0, run, span, "ok", 1),
        ]
        store.append(records[-2:])

    inputs = [span.input for span in store.load_run(run).spans if span.input]
    assert len(inputs) == 6
    assert {body.size_bytes: body.id for body in inputs}.keys() == {30, 3_000}
    assert len({body.id for body in inputs}) == 2


# --- sums -----------------------------------------------------------------------------------------


def test_rollups_are_sums_by_group(store: Store) -> None:
    store.append(make_run(1))
    store.append(make_run(2, started_ns=T0 + DAY_NS, status="error"))

    by_tool = {total.key: (total.count, total.errors) for total in store.sum_rollups("tool", None)}
    by_day = store.sum_rollups("day", None)
    (by_model,) = store.sum_models("model", None)
    assert by_tool == {"search": (2, 1)}
    assert [(total.count, total.errors, total.input_tokens) for total in by_day] == [
        (1, 0, 120),
        (1, 1, 120),
    ]
    assert (by_model.model, by_model.count, by_model.output_tokens) == ("m-1", 2, 60)
    assert store.find_first_day() == by_day[0].key
    assert len(store.sum_rollups("day", by_day[1].key)) == 1


def test_hours_are_sums_of_stored_runs(store: Store) -> None:
    store.append(make_run(1))
    store.append(make_run(2, started_ns=T0 + DAY_NS))

    hours = store.sum_hours(T0 - DAY_NS)
    models = store.sum_hour_models(T0 + 1)
    assert [total.count for total in hours.values()] == [1, 1]
    assert models is not None and [calls.input_tokens for calls in models] == [120]


def test_a_model_call_inside_another_counts_once(store: Store) -> None:
    store.append(make_run(1))
    run, inner = run_id_of(1), span_id_of(1, 9)
    usage = {"model": "m-1", "input_tokens": 120, "output_tokens": 30}
    opening = SpanOpen(1, writer_of(1), 8, T0, run, inner, "agent", "llm", "http", span_id_of(1, 2))
    store.append([opening, SpanClose(1, writer_of(1), 9, T0 + 1, run, inner, "ok", 1, usage)])

    ((calls, cost),) = store.sum_model_calls([run])
    assert (calls.count, calls.input_tokens, cost) == (1, 120, None)
    assert store.load_run(run).info.input_tokens == 120


def test_tools_and_latest_calls_are_counted(store: Store) -> None:
    store.append(make_run(1))
    store.append(make_run(2, started_ns=T0 + DAY_NS, status="error"))
    ids = [run_id_of(1), run_id_of(2)]

    latest = store.read_latest_calls(None, 10)
    assert store.count_tool_calls(ids) == {"search": (2, 1)}
    assert [(call.run_id, call.turns) for call in latest] == [(ids[1], 1), (ids[0], 1)]
    assert store.read_body(latest[0].body or 0) == b'{"q": "where is order 7?"}'
    assert store.read_prompt_assemblies(ids, 10) == []
