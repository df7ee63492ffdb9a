"""A failure that a program reports itself is a finding, unless a better one exists."""

from __future__ import annotations

import logging

import pytest

from support.llm_evidence import findings
from support.programs import load
from vestige.emit.hooks.logging_capture import LoggingHandler
from vestige.home import Home
from vestige.query.checks.process import crash
from vestige.query.checks.process.reported_errors import FINDINGS_MAX, reported_error
from vestige.query.debugger import Debugger
from vestige.recorder import Recorder
from vestige.store.sqlite.sqlite_store import SqliteStore


def test_errors_that_were_caught_and_logged_are_told_by_kind_with_their_place(home: Home) -> None:
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        with run.span("search", type="tool") as search:
            for word in ("blue", "green"):
                try:
                    {}[word]
                except KeyError as error:
                    search.log.error("no such word", error=error)
        run.log.error("the answer is empty")
        run.log.warn("slow")

    caught, logged = findings(home, reported_error)

    assert (caught.kind, caught.severity, caught.cause) == ("error/reported", "warning", search.id)
    assert caught.evidence == [search.id]
    assert "no such word: KeyError: 'blue' at test_check_reported.py:" in caught.message
    assert caught.message.endswith(" (2 times).")
    assert logged.cause == run.id
    assert "logged: the answer is empty." in logged.message


def test_what_ended_the_run_is_told_once(home: Home) -> None:
    """By who knows that it ended it."""
    try:
        with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
            try:
                {}["blue"]
            except KeyError as error:
                run.log.error("giving up", error=error)
                raise
    except KeyError:
        pass

    assert findings(home, reported_error) == []
    assert [found.kind for found in findings(home, crash.uncaught_exception)] == ["crash/uncaught"]


@pytest.mark.parametrize("level", [logging.ERROR, logging.WARNING])
def test_a_framework_that_logs_what_it_swallows(home: Home, level: int) -> None:
    """It answers 500, and the run is ok."""
    logger = logging.getLogger("shop.errors")
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        handler = LoggingHandler(recorder)
        logger.addHandler(handler)
        with run.span("serve", type="step") as span:
            for _ in range(2):
                try:
                    raise RuntimeError("boom in request 7")
                except RuntimeError:
                    logger.log(level, "Exception in application", exc_info=True)
        logger.removeHandler(handler)

    found = findings(home, reported_error)

    assert [each.cause for each in found] == ([span.id] if level == logging.ERROR else [])
    assert all("Exception in application: RuntimeError: boom" in each.message for each in found)


def test_an_error_about_a_model_call_names_the_call(home: Home) -> None:
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        call = run.span("chat", type="llm", attributes={"model": "m"})
        failure = {
            "status_code": 429,
            "error.type": "HTTP 429",
            "error.message": "quota is used up",
        }
        call.end(status="error", attributes=failure)
        try:
            raise RuntimeError("Error code: 429 - quota is used up")
        except RuntimeError as error:
            run.log.error("no answer", error=error)

    (found,) = findings(home, reported_error)

    assert (found.cause, found.evidence) == (call.id, [call.id, run.id])


def test_what_a_program_says_leads_no_chain(home: Home) -> None:
    """Why comes before that something failed."""
    with (
        Recorder(home, last_words=False) as recorder,
        recorder.run("agent") as run,
        run.span("desk", type="agent") as desk,
    ):
        for _ in range(3):
            call = desk.child("hold", type="tool", body={"seat": 7})
            call.end(error=TimeoutError("no seat"))
        desk.log.error("gave up on the seat")
    load(home)

    with SqliteStore.open(home.store, readonly=True) as store:
        debugger = Debugger(store)
        kinds = [finding.kind for finding in debugger.check(run.run_id).ordered()]

    assert kinds == ["tool/failed", "error/reported", "repeated-tool-error"]


def test_what_a_span_tells_of_itself_is_not_told_again(home: Home) -> None:
    """As a case of a suite that came with its bundle: what failed it is a line, too."""
    with Recorder(home, last_words=False) as recorder, recorder.run("suite") as run:
        case = run.child("test_sum", type="test")
        case.log.error("assert 1 == 2")
        case.log.error("no such page")
        case.end(status="error", attributes={"error.message": "assert 1 == 2"})

    (found,) = findings(home, reported_error)

    assert "no such page" in found.message


def test_many_kinds_are_bounded(home: Home) -> None:
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        for number in range(FINDINGS_MAX * 3):
            run.log.error(f"failed in way {number}")

    assert len(findings(home, reported_error)) == FINDINGS_MAX
