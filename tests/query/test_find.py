"""Ids: whatever a person has at hand leads to one thing, or to a list of what it could be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import vestige
from support.programs import load
from vestige._runtime.clock import FakeClock
from vestige.errors import AmbiguousIdError, NotFoundError, UsageError
from vestige.home import Home
from vestige.query.debugger import Debugger
from vestige.query.ids.resolve import resolve
from vestige.recorder import Recorder
from vestige.store.protocol import RetentionPolicy
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import open_ids


@pytest.fixture
def store(home: Home) -> Iterator[SqliteStore]:
    """Two runs of one conversation, and one with the ids of other tools in it."""
    with Recorder(home, clock=FakeClock(), last_words=False) as recorder:
        for _ in range(2):
            recorder.run("chat", "ticket-9").end()
        with recorder.run("agent", attributes={"session_id": "sess_31"}) as run:
            run.child("search", type="tool", attributes={"tool_call_id": "toolu_01A"}).end()
            with run.child(
                "answer", type="llm", attributes={"request_id": "req_55", "n": 4711}
            ) as call:
                call.log.info("sent", message_id="msg-77")
            for _ in range(2):
                run.child("deliver", attributes={"message_id": "msg-88"}).end()
    load(home)
    with SqliteStore.open(home.store, readonly=True) as opened:
        yield opened


def spans(store: SqliteStore) -> dict[str, tuple[str, str]]:
    """Span id and short id by name, of the run with foreign ids."""
    run = store.load_run(resolve(store, "sess_31").run.id)
    return {span.name: (span.id, span.short_id) for span in run.spans}


def test_a_span_is_found_by_id_prefix_and_short_id(store: SqliteStore) -> None:
    """In upper case too."""
    span_id, short_id = spans(store)["search"]

    for text in (span_id, short_id, short_id.upper(), span_id.upper(), f" {span_id} "):
        target = resolve(store, text)

        assert (target.kind, target.span_id) == ("span", span_id)


def test_a_span_prefix_needs_four_characters(store: SqliteStore) -> None:
    """Ids of the fake clock all begin with zeros: fewer than four are no prefix, four fit many."""
    with pytest.raises(AmbiguousIdError, match="9 spans match") as problem:
        resolve(store, "000000000000000")
    with pytest.raises(NotFoundError, match="Span 'zzz' not found"):
        resolve(store, "zzz", "span")

    assert len(problem.value.candidates) > 1


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("toolu_01A", "search"),
        ("req_55", "answer"),
        ("msg-77", "answer"),
        ("4711", "answer"),
        ("sess_31", "agent"),
    ],
)
def test_another_tools_id_leads_to_the_span_that_has_it(
    store: SqliteStore, text: str, name: str
) -> None:
    """As an attribute of the span, or of a line that was said in it; the value must be whole."""
    target = resolve(store, text)

    assert (target.kind, target.span_id) == ("attribute", spans(store)[name][0])


def test_a_part_of_a_foreign_id_is_no_id(store: SqliteStore) -> None:
    """Attributes match exactly, or not at all."""
    with pytest.raises(NotFoundError):
        resolve(store, "toolu_01")


def test_an_id_that_two_spans_have_is_ambiguous_for_a_span_and_clear_for_a_run(
    store: SqliteStore,
) -> None:
    """It is never guessed which one; that both are of one run is enough for `show`."""
    with pytest.raises(AmbiguousIdError, match="2 spans have this value") as problem:
        resolve(store, "msg-88", "span")

    target = resolve(store, "msg-88", "run")
    assert (target.run.name, target.span_id) == ("agent", None)
    assert all(each.startswith("r") for each in problem.value.candidates)


def test_a_conversation_means_its_latest_run(store: SqliteStore) -> None:
    """And says of how many."""
    target = resolve(store, "ticket-9")

    assert target.kind == "conversation"
    assert target.how == "latest of 2 runs of this conversation"
    assert target.run.short_id == max(
        run.short_id for run in store.find_runs("") if run.name == "chat"
    )


def test_an_id_is_found_inside_pasted_text(store: SqliteStore) -> None:
    """A URL or a log line; a run and its span together mean the span."""
    span_id, short_id = spans(store)["search"]
    run = resolve(store, "sess_31").run

    assert resolve(store, f"https://host/runs/{run.id}?tab=1").run.id == run.id
    assert resolve(store, f"12:01 ERROR run={run.id} span={span_id} failed").span_id == span_id
    assert resolve(store, f"see {short_id}, please").span_id == span_id
    assert resolve(store, "tool call toolu_01A gave nothing").span_id == span_id


@pytest.mark.parametrize("response_id", ["chatcmpl-AbC123xyz", "msg_01XyZ9", "resp_68ab_77"])
def test_the_id_of_a_response_leads_to_its_model_call(home: Home, response_id: str) -> None:
    """In later requests the id occurs, too; the call is the one that received it."""
    with Recorder(home, clock=FakeClock()) as recorder, recorder.run("agent") as run:
        for number in range(2):
            call = run.child(f"call {number}", "llm", body=f'{{"previous": "{response_id}"}}')
            call.end(body=f'{{"id": "{response_id if number == 0 else "resp_other"}"}}')
    load(home)

    with vestige.open(home.root) as debugger:
        for text in (response_id, f"request failed, see {response_id} in the log"):
            assert debugger.span(text).data()["span"]["name"] == "call 0"
        with pytest.raises(NotFoundError):
            debugger.span(response_id[:-1])


def test_a_pasted_line_is_found_where_it_was_said(home: Home) -> None:
    """Also behind the time, level and logger that a log file puts before it; what several runs said
    is refused with their ids."""
    with Recorder(home, last_words=False) as recorder:
        for number in (1, 2):
            with recorder.run(f"agent {number}") as run:
                run.log.info("looking for refunds")
                with run.span("ship", type="tool") as ship:
                    ship.log.info(f"order {number} shipped: to nobody")
    load(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        line = "order 2 shipped: to nobody"
        for text in (line, f"2026-03-01 12:00:01,250 INFO shop: {line}", f"[12:00] {line}\nmore"):
            target = resolve(store, text)
            assert (target.kind, target.run.name, target.span_id) == ("line", "agent 2", ship.id)
        assert resolve(store, line, "run").span_id is None
        with pytest.raises(AmbiguousIdError, match="2 spans logged this") as problem:
            resolve(store, "looking for refunds")
        with pytest.raises(NotFoundError):
            resolve(store, "nobody said that")

    assert len(problem.value.candidates) == 2


def test_text_with_two_ids_is_ambiguous(store: SqliteStore) -> None:
    """Both are listed."""
    with pytest.raises(AmbiguousIdError, match="2 ids in this text"):
        resolve(store, "toolu_01A then req_55", "span")


def test_nothing_found_names_the_nearest(store: SqliteStore) -> None:
    """One line, without what a terminal would obey."""
    near = resolve(store, None).run.id[:-1] + "f"

    with pytest.raises(NotFoundError, match="Nearest: "):
        resolve(store, near)
    with pytest.raises(NotFoundError) as problem:
        resolve(store, "\x1b[31m nothing\nhere")
    assert "\x1b" not in str(problem.value)
    assert "\n" not in str(problem.value)


def test_a_search_in_a_large_store_stops_at_a_bound_and_goes_on_from_its_cursor(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounded by what was looked at, not by time: the pages together hold every hit, once."""
    monkeypatch.setattr("vestige.store.sqlite.read.search.SEARCH_ROWS_MAX", 300)
    monkeypatch.setattr("vestige.store.sqlite.read.search._ROWS_PER_STEP", 100)
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        for number in range(1000):
            word = "needle" if number % 250 == 7 else "hay"
            run.child("step", attributes={"word": word, "number": number}).end()
    found: list[str] = []
    pages, after = 0, None
    with vestige.open(home.root) as debugger:
        while True:
            searched = debugger.grep("needle", where="attrs", after=after).searched
            found += [hit.span_ref.short_id for hit in searched.hits]
            pages, after = pages + 1, searched.cursor
            if after is None:
                break

    assert pages > 2
    assert len(found) == len(set(found)) == 4


def test_what_a_kept_run_says_is_found_though_the_first_that_said_it_is_gone(home: Home) -> None:
    """Equal bodies are stored once, and retention may take the run that they came with."""
    for _ in range(2):
        with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
            run.child("search", type="tool").end(body="no needle in this haystack")
    with vestige.open(home.root) as debugger:
        first, last = sorted(debugger.list().runs, key=lambda run: run.started_ns)
    with SqliteStore.open(home.store) as store:
        pruned = store.prune(RetentionPolicy(0, None), first.last_ns + 1)
        searched = Debugger(store).grep("needle").searched

    assert pruned.runs >= 1
    assert [hit.span_ref.run_id for hit in searched.hits] == [last.id]


def test_a_text_that_many_runs_share_is_found_in_each_of_them(home: Home) -> None:
    """A system prompt is in every request there is, and in this run, too."""
    system = {"role": "system", "content": "You find the needle. " * 30}
    with Recorder(home, last_words=False) as recorder:
        for number in range(210):
            with recorder.run("agent") as run:
                message = {"role": "user", "content": f"{number} " * 2_000}
                run.child("chat", type="llm", body={"messages": [system, message]}).end()
    with vestige.open(home.root) as debugger:
        newest = debugger.list().runs[0]
        searched = debugger.grep("needle", newest.short_id).searched

    assert [hit.span_ref.run_id for hit in searched.hits] == [newest.id]


@pytest.mark.slow
def test_an_expression_that_would_take_for_ever_is_ended(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a thread nobody could end it, and no other thread would run: a server would be silent."""
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        run.child("search", type="tool", body="a" * 60 + "b").end(body=b"a\xff needle")
    with vestige.open(home.root) as debugger:
        with monkeypatch.context() as soon:
            soon.setattr("vestige.store.sqlite.read.isolated_query.EXPRESSION_S", 2.0)
            with pytest.raises(UsageError, match="takes longer than 2 s"):
                debugger.grep("(a+)+$", regex=True)
        with pytest.raises(UsageError, match="not a cursor of this search"):
            debugger.grep("a+", regex=True, after="elsewhere:1")
        (hit,) = debugger.grep("NEE.LE", regex=True, ignore_case=True).searched.hits

    assert (hit.before, hit.match, hit.span_ref.name) == ("a\udcff ", "needle", "search")


def test_an_argument_with_bytes_that_are_no_text_is_a_question_like_any_other(home: Home) -> None:
    """A shell hands them over as surrogates, which no database takes."""
    odd = "\udcff\ud800"
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        run.child("search", type="tool").end(body=b"one \xff\xfe two")
    with vestige.open(home.root) as debugger:
        for ask in (debugger.overview, debugger.span, lambda odd: debugger.list(after=odd)):
            with pytest.raises(NotFoundError) as problem:
                ask(odd)
            assert str(problem.value).isprintable()
        nothing = [debugger.list(conversation=odd).text(), debugger.show(type=odd).text()]
        (hit,) = debugger.grep("\udcff\udcfe").searched.hits

    assert all(text.encode() for text in nothing)
    assert hit.span_ref.name == "search"


def test_the_error_of_a_call_and_of_its_parents_is_one_line(home: Home) -> None:
    with Recorder(home, crash_hooks=False) as recorder, recorder.run("shop") as run:
        step = run.child("step 1", "step")
        call = step.child("chat", "llm")
        for span in (call, step):
            span.end(ValueError('the "till" is empty'))
    with open_ids(home, None) as (debugger, _):
        answer = debugger.grep("is empty")

        (line,) = [each for each in answer.text(2_000).splitlines() if " attrs" in each]
        assert "(+1 span)" in line
        assert len(answer.data()["hits"]) == 2
        answer.columns = 200
        (line,) = [each for each in answer.text(2_000).splitlines() if " attrs" in each]

    assert "(shop, " in line
    assert 'the "till" «is empty»' in line
