"""The last column of a list: what `check` leads with, also when nobody has asked `check` before."""

from __future__ import annotations

import re
import sys

import pytest

import vestige
from support.programs import RunProgram
from vestige.home import Home
from vestige.limits import LIST_CHECKED_ROWS
from vestige.query.failures.check import CheckResult, find_chains, find_main
from vestige.query.failures.top_findings import find_top_findings
from vestige.record.finding import Finding, Severity
from vestige.recorder import Recorder
from vestige.store.sqlite.sqlite_store import SqliteStore

VESTIGE_RUN = (sys.executable, "-m", "vestige", "run", "--", sys.executable)


@pytest.fixture
def failed(home: Home) -> Home:
    """A home with one good run, and one whose tool failed."""
    with Recorder(home, last_words=False) as recorder:
        recorder.run("good").end()
        bad = recorder.run("billing")
        bad.span("charge", type="tool").end(error=ValueError("card refused"))
        bad.end(error=ValueError("card refused"))
    return home


def test_a_list_examines_small_runs_itself_and_keeps_what_it_found(failed: Home) -> None:
    """The same finding that `check` leads with; a second list reads it."""
    with vestige.open(failed.root) as debugger:
        before = debugger.list()
        listed = debugger.list(examine=True)
        after = debugger.list()
        kind = debugger.check(listed.runs[0].short_id).data()["findings"][0]["kind"]

    assert before.findings == {}
    assert listed.findings == after.findings
    assert [finding.kind for finding in listed.findings.values()] == [kind]
    assert listed.unexamined == []
    assert [run["examined"] for run in listed.data()["runs"]] == [True, True]


def test_what_was_not_looked_at_is_a_question_mark_with_the_command(failed: Home) -> None:
    """And the list says what to type; a run that is not finished is not meant."""
    with Recorder(failed, last_words=False) as recorder:
        long = recorder.run("long")
        for _ in range(LIST_CHECKED_ROWS):
            long.span("step").end()
        long.end()
        recorder.run("open")
        with vestige.open(failed.root) as debugger:
            answer = debugger.list(examine=True)
    text = answer.text()
    number = {run.name: run.short_id for run in answer.runs}["long"]
    rows = {line.split()[1]: line for line in text.splitlines()[1:-1]}

    assert rows["long"].endswith("?")
    assert not rows["open"].endswith("?") and not rows["good"].endswith("?")
    assert text.splitlines()[-1] == f"?: not checked yet: vestige check {number}"


def test_no_time_left_means_not_looked_at(failed: Home) -> None:
    """What a list may take is bounded, whatever there is to examine."""
    with vestige.open(failed.root) as debugger:
        runs = debugger.list().runs
        top = find_top_findings(debugger.store, runs, debugger._examine, seconds=0.0)

    assert top.findings == {}
    assert top.unexamined == [run.id for run in runs]


def found(kind: str, severity: Severity, confidence: float, cause: str) -> Finding:
    return Finding(
        check=kind,
        severity=severity,
        confidence=confidence,
        basis="measured",
        kind=kind,
        message="",
        cause=cause,
    )


def test_the_top_of_stored_findings_is_the_cause_of_the_page(home: Home) -> None:
    """The main finding of the first chain: a slow step around a failed call says less than it."""
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        first = run.child("plan", type="step")
        inner = first.child("search", type="tool")
        inner.end()
        first.end()
        other = run.child("report", type="step")
        other.end()
    findings = [
        found("late", "warning", 0.9, other.id),
        found("resource/missing", "warning", 0.7, inner.id),
        found("stalled-step", "warning", 0.9, first.id),
    ]
    with vestige.open(home.root) as debugger:
        (info,) = debugger.list().runs
        with SqliteStore.open(home.store) as store:
            store.store_findings(info, [CheckResult(each.check, 1, [each]) for each in findings])
        listed = debugger.list().findings[info.id]
        first_chain = find_chains(debugger._run(info.id), findings)[0]

    assert [each.kind for each in first_chain] == ["stalled-step", "resource/missing"]
    assert listed.kind == find_main(first_chain).kind == "resource/missing"


def test_a_list_does_not_lead_with_what_every_run_of_a_program_has(home: Home) -> None:
    """As on the page of the run; nor does a group that was made while fewer runs were known."""
    spans: dict[str, str] = {}
    with Recorder(home, last_words=False) as recorder:
        for _ in range(5):
            with recorder.run("agent") as run:
                each = run.child("chat", type="llm")
                each.end()
                own = run.child("search", type="tool")
                own.end()
                spans[run.run_id] = each.id
        last = own.id

    def common(run: str) -> list[Finding]:
        return [found("prompt/short", "warning", 0.95, spans[run])]

    with vestige.open(home.root) as debugger, SqliteStore.open(home.store) as store:
        infos = debugger.list().runs
        failed = infos[0]
        other = found("tool/failed", "warning", 0.5, last)
        failures = [*common(failed.id), other]
        store.store_findings(failed, [CheckResult(each.check, 1, [each]) for each in failures])
        before = find_top_findings(store, infos).findings[failed.id].kind
        for info in infos[1:]:
            store.store_findings(
                info, [CheckResult(each.check, 1, [each]) for each in common(info.id)]
            )
        after = find_top_findings(store, infos).findings[failed.id].kind

    assert (before, after) == ("prompt/short", "tool/failed")


def test_what_only_costs_money_comes_after_what_went_wrong(home: Home) -> None:
    """Of one severity, and surer."""
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        cached, looped = run.child("chat", type="llm"), run.child("search", type="tool")
        cached.end()
        looped.end()
    findings = [
        found("cache/prefix-changed", "warning", 0.95, cached.id),
        found("loop/cyclic", "warning", 0.9, looped.id),
    ]
    with vestige.open(home.root) as debugger:
        (info,) = debugger.list().runs
        kinds = [chain[0].kind for chain in find_chains(debugger._run(info.id), findings)]

    assert kinds == ["loop/cyclic", "cache/prefix-changed"]


def test_a_crash_of_the_whole_process_hides_nothing_that_was_found_in_it(home: Home) -> None:
    """All that `vestige run` records is in one process: that is not a chain of causes."""
    with Recorder(home, last_words=False) as recorder, recorder.run("agent.py") as run:
        process = run.child("agent.py", type="process")
        call = process.child("chat", type="llm")
        call.end()
        process.end(error=ValueError("not JSON"))
    findings = [
        found("cut", "warning", 0.95, call.id),
        found("crash", "error", 0.95, process.id),
    ]
    with vestige.open(home.root) as debugger:
        (info,) = debugger.list().runs
        with SqliteStore.open(home.store) as store:
            store.store_findings(info, [CheckResult(each.check, 1, [each]) for each in findings])
        listed = debugger.list().findings[info.id]
        led = [chain[0].kind for chain in find_chains(debugger._run(info.id), findings)]

    assert led == ["crash", "cut"]
    assert listed.kind == "crash"


CUT = """
import json, vestige
answer = '{"choices": [{"finish_reason": "length", "message": {"content": "{"}}]}'
log = vestige.default_recorder().logger("agent")
with log.span("chat", type="llm", body='{"model": "m", "messages": []}') as span:
    span.end(body=answer, attributes={"finish_reason": "length", "output_tokens": 1})
json.loads("{")
"""


def test_why_of_a_crashed_program_tells_what_else_was_found_in_it(
    run_program: RunProgram, home: Home
) -> None:
    """The process is where it hurts; no span above it has the cause."""
    run_program(CUT, command=VESTIGE_RUN)
    with vestige.open(home.root) as debugger:
        text = debugger.why().text()

    assert "crash/uncaught" in text
    assert "also found in r" in text
    assert "[warning] output/cut at r" in text


def test_why_of_a_run_begins_with_the_gravest_finding_or_with_what_failed(home: Home) -> None:
    """A failure that the program caught, and that no check explains, is still the question."""
    with Recorder(home, last_words=False) as recorder, recorder.run("crawl") as run:
        for page in range(3):
            step = run.child("step", type="tool", body={"page": page})
            step.end(ValueError("empty") if page == 1 else None)
    with vestige.open(home.root) as debugger:
        text = debugger.why().text()

    assert re.match(r"r\d+\.s3 tool step: error", text)
