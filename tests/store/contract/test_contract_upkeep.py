"""Contract of a store: tenants, notes, findings, retention, pins and the change feed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from support.stored_runs import DAY_NS, T0, make_run, run_id_of, span_id_of, writer_of
from vestige.errors import ForeignRunError, NotFoundError, UsageError
from vestige.record.finding import Finding
from vestige.record.note import Note
from vestige.record.types import SpanClose
from vestige.store.protocol import CheckResult, RetentionPolicy, RunFilter, SearchQuery, Store, Term

ONE_DAY = RetentionPolicy(age_max_s=86_400.0, body_bytes_max=None)


# --- tenants --------------------------------------------------------------------------------------


def test_a_tenant_sees_its_own_runs_by_every_question(engine: Any, store: Store) -> None:
    store.append(make_run(1, request='{"q": "secret of acme"}', conversation_id="c"), tenant="acme")
    store.append(make_run(2, conversation_id="c"))
    run = store.load_run(run_id_of(1))
    body = run.spans[1].input
    assert body is not None and body.id is not None
    query = SearchQuery(re.compile("secret"), ("secret",), False, None, ("attrs", "logs", "bodies"))
    with engine.open(readonly=True, tenant="default") as other:
        assert [each.id for each in other.list_runs(RunFilter())] == [run_id_of(2)]
        assert other.find_runs(run_id_of(1)) == other.find_runs(run.info.short_id) == []
        assert other.find_spans(span_id_of(1, 1)) == other.find_attribute("call_1") == []
        assert other.links_to(run_id_of(1), span_id_of(1, 2)) == []
        assert other.search(query).hits == []
        assert other.conversations([run_id_of(2)])[run_id_of(2)].runs == 1
        assert other.sum_model_calls([run_id_of(1)]) == []
        assert sum(total.count for total in other.sum_rollups("day", None)) == 1
        assert not other.has_run(run_id_of(1))
        assert other.read_ancestry(run_id_of(1), [span_id_of(1, 3)]) == []
        assert not other.read_outline(run.info.short_id, None, 100, 100).spans
        assert [row[0] for row in other.query("SELECT run_id FROM runs", 0, 9).rows] == [
            run_id_of(2)
        ]
        assert (other.sizes().runs, other.sizes().spans) == (1, 3)
        with pytest.raises(NotFoundError):
            other.read_body(body.id)
        with pytest.raises(NotFoundError):
            other.load_run(run_id_of(1))
    with engine.open(readonly=True, tenant="acme") as own:
        assert own.tenant == "acme"
        assert own.read_body(body.id) == b'{"q": "secret of acme"}'


def test_a_tenant_cannot_write_to_the_run_or_writer_of_another(store: Store) -> None:
    store.append(make_run(1), tenant="acme")
    close = SpanClose(1, "f" * 16, 1, T0, run_id_of(1), span_id_of(1, 1), "error", 1)

    with pytest.raises(ForeignRunError):
        store.append([close], tenant="other")
    assert store.find_foreign_ids([run_id_of(1), run_id_of(2)], [writer_of(1)], "other") == (
        {run_id_of(1)},
        {writer_of(1)},
    )
    assert store.find_foreign_ids([run_id_of(1)], [writer_of(1)], "acme") == (set(), set())


# --- notes and findings ---------------------------------------------------------------------------


def make_note(id: str, text: str = "look here", run: int = 1) -> Note:
    return Note(id=id, run_id=run_id_of(run), text=text, created_ns=T0)


def test_notes_are_stored_once_redacted_and_deleted(store: Store) -> None:
    store.append(make_run(1), tenant="acme")
    secret = "sk-proj-Qw3rTy7uIoP9aSdFgHjKlZxCvBnM1234567890abcdEFGH"

    assert store.add_note(make_note("n1", f"the key was {secret}"))
    assert not store.add_note(make_note("n1", "again"))
    assert secret not in store.notes(run_id_of(1))[0].text
    with pytest.raises(NotFoundError):
        store.add_note(make_note("n2"), tenant="other")
    with pytest.raises(NotFoundError):
        store.add_note(make_note("n3", run=9))
    with pytest.raises(UsageError):
        store.add_note(make_note("n4", " "))
    assert not store.delete_note(run_id_of(1), "n1", tenant="other")
    assert store.delete_note(run_id_of(1), "n1")
    assert store.notes(run_id_of(1)) == []


def test_a_note_is_edited_in_place(store: Store) -> None:
    store.append(make_run(1), tenant="acme")
    store.add_note(make_note("n1", "first"))
    store.add_note(make_note("n2", "other"))
    secret = "sk-proj-Qw3rTy7uIoP9aSdFgHjKlZxCvBnM1234567890abcdEFGH"

    assert store.edit_note(run_id_of(1), "n1", f"#culprit {secret}")
    assert not store.edit_note(run_id_of(1), "n1", "planted", tenant="other")
    assert not store.edit_note(run_id_of(1), "n9", "x")
    with pytest.raises(UsageError):
        store.edit_note(run_id_of(1), "n1", " ")
    edited, other = store.notes(run_id_of(1))
    assert edited.text.startswith("#culprit ") and secret not in edited.text
    assert (edited.id, edited.created_ns, other.text) == ("n1", T0, "other")
    assert store.delete_note(run_id_of(1), "n1")
    assert store.notes(run_id_of(1)) == [other]


def test_tags_are_found_as_words(store: Store) -> None:
    """In any case, with an end: #culprits and #culprit-2 are other tags."""
    texts = ["a #Culprit, it is", "#culprits", "#culprit-2", "at the end #culprit", "#größe 5", "x"]
    for number, text in enumerate(texts, 1):
        store.append(make_run(number))
        store.add_note(make_note(f"n{number}", text, number))

    def find(tag: str, negated: bool = False) -> list[str]:
        terms = (Term("tag", ":", tag, negated),)
        return sorted(run.id for run in store.search_runs(RunFilter(terms=terms)).runs)

    assert find("culprit") == [run_id_of(1), run_id_of(4)]
    assert find("culprits") == [run_id_of(2)]
    assert find("culprit-2") == [run_id_of(3)]
    assert find("größe") == [run_id_of(5)]
    assert find("gr") == []
    assert find("culprit", negated=True) == [run_id_of(each) for each in (2, 3, 5, 6)]


def test_findings_are_valid_until_the_run_changes(store: Store) -> None:
    store.append(make_run(1))
    (run,) = store.find_runs(run_id_of(1))
    finding = Finding(
        check="loops", severity="error", confidence=1.0, basis="measured", kind="loop", message="m"
    )
    results = [CheckResult("loops", 1, [finding]), CheckResult("crash", 2, [])]
    store.store_findings(run, results)

    stored = store.check_results([run.id, run_id_of(9)])
    assert set(stored) == {run.id}
    assert {each.name: list(each.findings) for each in stored[run.id]} == {
        "loops": [finding],
        "crash": [],
    }
    store.append([SpanClose(1, writer_of(1), 8, T0, run.id, span_id_of(1, 9), "error", 1)])
    assert store.check_results([run.id]) == {}
    store.store_findings(run, results)  # read before the change
    assert store.check_results([run.id]) == {}


# --- retention ------------------------------------------------------------------------------------


def test_old_runs_are_deleted_but_not_pinned_running_or_imported_ones(store: Store) -> None:
    for number in (1, 2, 4, 5):
        store.append(make_run(number, answer=f"{number} " * 2_000))
        store.end_writer(writer_of(number), "exited")
    store.append(make_run(3, ended=False))
    store.pin(run_id_of(2))
    store.mark_imported([run_id_of(4)], T0 + 10 * DAY_NS)
    now = T0 + 10 * DAY_NS

    planned = store.prune(ONE_DAY, now, dry_run=True)
    assert len(store.run_ids()) == 5
    done = store.prune(ONE_DAY, now)
    assert planned == done and (done.runs, done.spans) == (2, 6)
    assert sorted(store.run_ids()) == [run_id_of(number) for number in (2, 3, 4)]
    assert store.load_run(run_id_of(2)).info.pinned
    store.pin(run_id_of(2), False)
    assert store.prune(ONE_DAY, now).runs == 1


def test_rollups_outlive_their_runs_and_notes_do_not(store: Store) -> None:
    store.append(make_run(1))
    store.end_writer(writer_of(1), "exited")
    store.add_note(make_note("n1"))
    before = store.sum_rollups("name", None), store.sum_models("model", None)
    store.prune(ONE_DAY, T0 + 10 * DAY_NS)

    assert store.run_ids() == [] and store.notes(run_id_of(1)) == []
    assert (store.sizes().spans, store.sizes().bodies, store.sizes().body_bytes) == (0, 0, 0)
    assert (store.sum_rollups("name", None), store.sum_models("model", None)) == before


def test_the_oldest_bodies_are_evicted_and_leave_their_size(store: Store) -> None:
    for number in (1, 2, 3):
        text = "".join(f"{number}-{at}-{at * at * number} " for at in range(3_000))
        store.append(make_run(number, started_ns=T0 + number * DAY_NS, answer=text))
        store.end_writer(writer_of(number), "exited")
    store.pin(run_id_of(1))
    half = store.sizes().body_bytes // 2
    result = store.prune(RetentionPolicy(None, half), T0 + 9 * DAY_NS)

    bodies = {number: store.load_run(run_id_of(number)).spans[1].output for number in (1, 2, 3)}
    assert result.runs == 0 and result.bodies > 0
    assert store.read_body(bodies[1].id).startswith(b"1-0-0")  # type: ignore[union-attr, arg-type]
    with pytest.raises(NotFoundError, match="evicted"):
        store.read_body(bodies[2].id)  # type: ignore[union-attr, arg-type]
    assert bodies[2].size_bytes > 10_000  # type: ignore[union-attr]


# --- the change feed ------------------------------------------------------------------------------


def test_the_feed_has_new_spans_ends_and_logs_since_a_cursor(store: Store) -> None:
    store.append(make_run(1, ended=False))
    begin = store.cursor()
    nothing = store.changes(begin)
    store.append(make_run(1)[6:])
    store.append(make_run(2))
    changes = store.changes(begin)

    assert not (nothing.spans or nothing.logs or nothing.more)
    names = [(span.run_id, span.name, span.status) for span in changes.spans]
    assert (run_id_of(1), "triage", "ok") in names
    assert len([name for name in names if name[0] == run_id_of(2)]) == 3
    assert [log.message for log in changes.logs] == ["searching 2"]
    assert {run.id for run in changes.runs} == {run_id_of(1), run_id_of(2)}
    assert {span.run_id for span in store.changes(begin, run_id_of(1)).spans} == {run_id_of(1)}
    assert not store.changes(changes.cursor).spans


def test_the_feed_is_read_in_pages_without_gaps(store: Store) -> None:
    begin = store.cursor()
    for number in range(1, 6):
        store.append(make_run(number))
    seen, cursor, more = [], begin, True
    while more:
        page = store.changes(cursor, limit=2)
        seen += [span.span_id for span in page.spans]
        cursor, more = page.cursor, page.more

    assert sorted(seen) == sorted(span_id_of(n, at) for n in range(1, 6) for at in (1, 2, 3))


def test_a_cursor_is_checked(store: Store) -> None:
    assert store.is_cursor(store.cursor())
    assert not store.is_cursor("x\nid: 1")
    with pytest.raises(ValueError):
        store.changes("x")


def test_a_cursor_from_another_store_is_reported_as_lost(engine: Any, store: Store) -> None:
    store.append(make_run(1))
    far = re.sub(r"\d+", "999999", store.cursor())

    assert store.changes(far).lost
