"""What a program itself says went wrong is a finding, unless somebody tells it better."""

from __future__ import annotations

from llm_evidence import findings

from vestige.home import Home
from vestige.query.checks import crash
from vestige.query.checks.reported import FINDINGS_MAX, reported_error
from vestige.recorder import Recorder


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

    caught, said = findings(home, reported_error)

    assert (caught.kind, caught.severity, caught.cause) == ("error/reported", "warning", search.id)
    assert caught.evidence == [search.id]
    assert "no such word: KeyError: 'blue', at test_check_reported.py:" in caught.message
    assert caught.message.endswith(", 2 times.")
    assert said.cause == run.id
    assert "says: the answer is empty." in said.message


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


def test_many_kinds_are_bounded(home: Home) -> None:
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        for number in range(FINDINGS_MAX * 3):
            run.log.error(f"failed in way {number}")

    assert len(findings(home, reported_error)) == FINDINGS_MAX
