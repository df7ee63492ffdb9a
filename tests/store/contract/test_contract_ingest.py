"""Contract of a store: records are stored once, in any order, with the journal's position."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from support.stored_runs import T0, make_run, run_id_of, span_id_of, writer_of
from vestige.collector.crash_detection import stamp_dead
from vestige.errors import ForeignRunError, StoreError
from vestige.home import Home
from vestige.record.types import AnyRecord, BodyInfo, Log, SpanClose, SpanOpen, Unknown
from vestige.store.protocol import Position, RunFilter, Store


def as_plain(store: Store, number: int = 1) -> dict[str, Any]:
    """Return what a reader sees of a run, with the texts of its bodies."""
    run = store.load_run(run_id_of(number))
    spans = [
        (
            span.id,
            span.parent_id,
            span.type,
            span.name,
            span.status,
            span.duration_ns,
            span.attributes,
            *(store.read_body(body.id) if body else None for body in (span.input, span.output)),
        )
        for span in run.spans
    ]
    logs = [(log.span_id, log.level, log.message) for log in run.logs]
    info = run.info
    counts = (info.span_count, info.log_count, info.error_count, info.input_tokens)
    return {"outcome": info.outcome, "counts": counts, "spans": spans, "logs": logs}


def test_a_run_is_stored_with_its_spans_logs_links_and_bodies(store: Store) -> None:
    count = store.append(make_run(1))

    run = store.load_run(run_id_of(1))
    plain = as_plain(store)
    assert count == 7
    assert (run.info.name, run.info.outcome, run.info.duration_ns) == ("triage", "ok", 4 * 10**9)
    assert plain["counts"] == (3, 1, 0, 120)
    assert [span[:2] for span in plain["spans"]] == [
        (span_id_of(1, 1), None),
        (span_id_of(1, 2), span_id_of(1, 1)),
        (span_id_of(1, 3), span_id_of(1, 1)),
    ]
    assert plain["spans"][1][-2:] == (b'{"q": "where is order 7?"}', b"It is on its way.")
    assert plain["logs"] == [(span_id_of(1, 3), "info", "searching 1")]
    assert [(link.span_id, link.target_span) for link in run.links] == [
        (span_id_of(1, 3), span_id_of(1, 2))
    ]


def test_records_that_come_again_change_nothing(store: Store) -> None:
    records = make_run(1)
    store.append(records)
    before = as_plain(store), store.sum_rollups("name", None), store.sizes().bodies

    again = store.append(records), store.append(records[2:5])

    assert again == (0, 0)
    assert (as_plain(store), store.sum_rollups("name", None), store.sizes().bodies) == before


def test_batches_in_any_order_make_the_same_run(store: Store) -> None:
    """A close may arrive before its opening, and a child before its parent. One run per order."""
    orders = list(itertools.permutations(range(3)))
    for number, order in enumerate(orders, 1):
        records = make_run(number)
        parts = [records[:2], records[2:5], records[5:]]
        for at in order:
            store.append(parts[at])

    runs = [as_plain(store, number) for number, _ in enumerate(orders, 1)]
    rollups = {total.key: total.count for total in store.sum_rollups("type", None)}
    assert [(run["outcome"], run["counts"]) for run in runs] == [("ok", (3, 1, 0, 120))] * 6
    assert [{span[4] for span in run["spans"]} for run in runs] == [{"ok"}] * 6
    assert rollups == {"llm": 6, "run": 6, "tool": 6}


def test_the_position_of_a_journal_is_stored_with_its_records(store: Store) -> None:
    store.append(make_run(1), Position(writer_of(1), 3, 712), malformed=2)

    assert store.positions() == {(writer_of(1), 3): 712}
    assert [(writer.writer, writer.malformed) for writer in store.writers()] == [(writer_of(1), 2)]
    store.delete_position(writer_of(1), 3)
    assert store.positions() == {}


def test_missing_numbers_of_a_writer_are_counted(store: Store) -> None:
    records = make_run(1)
    store.append([records[0], records[1], records[5]])

    (writer,) = store.writers()
    assert (writer.last_seq, writer.missing) == (6, 3)
    assert store.has_seen(writer_of(1), 2) and not store.has_seen(writer_of(1), 3)


def test_a_transaction_that_fails_stores_nothing(store: Store) -> None:
    with pytest.raises(RuntimeError), store.transaction():
        store.append(make_run(1))
        raise RuntimeError("the disk burns")

    assert store.run_ids() == [] and store.sizes().bodies == 0
    assert store.append(make_run(1)) == 7


def test_a_failed_write_inside_a_transaction_is_undone_alone(store: Store) -> None:
    store.append(make_run(1), tenant="acme")
    with store.transaction():
        store.append(make_run(2))
        with pytest.raises(ForeignRunError):
            store.append(make_run(1), tenant="other")

    assert sorted(store.run_ids()) == [run_id_of(1), run_id_of(2)]


def test_open_spans_and_unfinished_writers_are_found(store: Store) -> None:
    store.append(make_run(1, ended=False))
    store.append(make_run(2))
    store.end_writer(writer_of(2), "exited")

    assert [span.span_id for span in store.open_spans(writer_of(1))] == [span_id_of(1, 1)]
    assert [writer.writer for writer in store.writers(unfinished=True)] == [writer_of(1)]
    assert store.load_run(run_id_of(1)).info.outcome == "running"


def test_a_spilled_body_is_read_while_its_record_is_stored(engine: Any) -> None:
    info = BodyInfo(spilled_bytes=9, sha256="0" * 64)
    record = SpanOpen(
        1, writer_of(1), 1, T0, run_id_of(1), span_id_of(1, 1), "agent", "run", "r", body_info=info
    )
    with engine.open(read_spill=lambda writer, seq, info: b"spilled %d" % seq) as store:
        store.append([record])

        (span,) = store.load_run(run_id_of(1)).spans
        assert store.read_body(span.input.id) == b"spilled 1"


def test_remote_writers_run_until_their_end_is_reported(store: Store) -> None:
    new, ended = store.append_remote(make_run(1, ended=False))
    running = store.find_running_remote_writers()

    assert (new, ended, running) == (6, 0, {writer_of(1)})
    assert store.find_silent_remote_writers(before_ns=2**62) == {writer_of(1)}
    assert store.append_remote([], [(writer_of(1), "Fatal Python error")]) == (0, 1)
    assert store.find_running_remote_writers() == set()
    assert store.find_remote_fault(writer_of(1)) == "Fatal Python error"


def test_a_crash_stamp_is_withdrawn_each_time_that_records_arrive(
    store: Store, tmp_path: Path
) -> None:
    *records, last = make_run(1, ended=False)
    for part in (records, [last], make_run(1)[-1:]):
        store.append(part)
        stamp_dead(Home(tmp_path), store)  # which has no journal of this writer

    run = store.load_run(run_id_of(1))
    assert (run.info.outcome, run.info.log_count, len(run.logs)) == ("ok", 1, 1)
    assert {span.status for span in run.spans} == {"ok"}


def test_unknown_kinds_are_stored_and_counted_as_seen(store: Store) -> None:
    unknown = Unknown("dream", writer_of(1), 1, run_id_of(1), {"kind": "dream", "v": 9})

    assert store.append([unknown]) == 1
    assert store.append([unknown]) == 0


def test_facts_are_single_values(store: Store) -> None:
    store.set_fact("pruned_ns", "1")
    store.set_fact("pruned_ns", "2")

    assert (store.get_fact("pruned_ns"), store.get_fact("other")) == ("2", None)


def test_what_was_committed_is_there_after_reopening(engine: Any) -> None:
    with engine.open() as store:
        store.append(make_run(1), Position(writer_of(1), 1, 10))
        store.sync()
    with engine.open(readonly=True) as store:
        assert as_plain(store)["outcome"] == "ok"
        assert store.positions() == {(writer_of(1), 1): 10}


def test_a_reader_sees_later_commits_but_not_inside_a_snapshot(engine: Any) -> None:
    with engine.open() as store, engine.open(readonly=True) as reader:
        store.append(make_run(1))
        with reader.snapshot():
            before = len(reader.run_ids())
            store.append(make_run(2))
            inside = len(reader.run_ids())

        assert (before, inside, len(reader.run_ids())) == (1, 1, 2)


def test_a_reader_cannot_write(engine: Any) -> None:
    engine.open().close()
    with engine.open(readonly=True) as reader, pytest.raises(StoreError):
        reader.append(make_run(1))


def test_a_log_record_outside_spans_belongs_to_the_run(store: Store) -> None:
    records: list[AnyRecord] = [
        *make_run(1),
        Log(1, writer_of(1), 8, T0, run_id_of(1), "agent", "error", "after all"),
    ]
    store.append(records)

    run = store.load_run(run_id_of(1), with_logs=False)
    messages = [store.read_log(log.row).message for log in run.logs if log.row is not None]
    assert sorted(messages) == ["after all", "searching 1"]
    assert run.info.error_count == 1


def test_a_failed_root_span_is_the_outcome_of_its_run(store: Store) -> None:
    store.append(make_run(1, status="error"))
    store.append(make_run(2, ended=False))
    store.append([SpanClose(1, "f" * 16, 1, T0, run_id_of(2), span_id_of(2, 1), "timeout", 5)])

    outcomes = {run.id: run.outcome for run in store.list_runs(RunFilter(failed=True))}
    assert outcomes == {run_id_of(1): "error", run_id_of(2): "timeout"}
