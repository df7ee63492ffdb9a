"""Real runs of other agents: every command answers within its budget, without false leads."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import vestige
from support.sampling import every_third
from vestige.query.answer import Answer
from vestige.query.debugger import Debugger
from vestige.query.evidence import Evidence
from vestige.query.failures.check import CheckAnswer, examine
from vestige.query.token_budget import count_tokens
from vestige.store.protocol import RunFilter
from vestige.transfer.temp_store import load_runs

DATA = Path(__file__).parents[1] / "data" / "real_runs"
RUNS = sorted([*DATA.glob("trail/*.gz"), *DATA.glob("whowhen/*.gz")])
SAMPLED_RUNS = every_third(RUNS)
TOKEN_CHARACTERS = 4.5
"""Characters per token, at most: budgets are estimated from characters."""

FALSE_LEADS = re.compile(r"history/invalid|history/refused|cache/|health/")
"""Kinds that lead in runs whose requests were rebuilt from spans or messages."""


@pytest.fixture
def run_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    packed: Path = request.param
    path = tmp_path / packed.name.removesuffix(".gz")
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    yield path


@pytest.mark.slow
@pytest.mark.parametrize("run_path", RUNS[::10], ids=lambda path: path.name[:20], indirect=True)
def test_every_command_answers_within_its_budget(run_path: Path) -> None:
    budgets = {"overview": 1_600, "show": 2_000, "check": 800, "transcript": 4_000}
    for verb, tokens in budgets.items():
        answer = vestige(verb, run_path)
        assert answer.exit_code in (0, 1), (verb, answer.output, answer.exception)
        assert "Traceback" not in answer.stderr if answer.stderr_bytes else True
        assert len(answer.output) <= TOKEN_CHARACTERS * tokens + 400, verb


class OneRunDebugger(Debugger):
    """Opens the run once for all verbs, as the server does."""

    _opened: Evidence | None = None

    def _open_run(self, run_id: str) -> Evidence:
        if self._opened is None or self._opened.run.info.id != run_id:
            self._opened = super()._open_run(run_id)
        return self._opened


def ask_everything(debugger: Debugger) -> Iterator[tuple[str, Answer]]:
    """Yield the answer of every verb about the run of a store."""
    run = debugger.store.load_run(debugger.store.list_runs(RunFilter())[0].id)
    call = next((span for span in run.spans if span.type == "llm"), run.spans[0])
    run_id, span = run.info.short_id, call.short_id
    yield "list", debugger.list()
    yield "overview", debugger.overview(run_id)
    yield "overview", debugger.overview(run_id, ids=True)
    yield "show", debugger.show(run_id)
    yield "show", debugger.show(run_id, errors=True)
    yield "check", debugger.check(run_id)
    yield "check", debugger.check(run_id, ids=True)
    yield "outline", debugger.outline(run_id)
    yield "transcript", debugger.transcript(run_id)
    yield "transcript", debugger.transcript(run_id, ids=True, step="1")
    yield "state", debugger.state(run_id)
    yield "files", debugger.files(run_id)
    yield "notes", debugger.notes(run_id)
    yield "span", debugger.span(span)
    yield "body", debugger.body(span)
    if debugger._open_run(run.info.id).request(call) is not None:
        yield "segments", debugger.segments(span)
    yield "why", debugger.why(run_id)
    yield "why", debugger.why(run.spans[-1].short_id)
    yield "grep", debugger.grep("error", run_id)
    yield "diff", debugger.diff(span, run.spans[-1].short_id)
    yield "stats", debugger.stats(by="tool")
    yield "trends", debugger.trends()
    yield "sql", debugger.sql("select type, count(*) from spans group by 1")


@pytest.mark.slow
@pytest.mark.parametrize("run_path", SAMPLED_RUNS, ids=lambda path: path.name[:20], indirect=True)
def test_every_verb_answers_within_its_budget(run_path: Path) -> None:
    temporary = load_runs(run_path)
    try:
        for verb, answer in ask_everything(OneRunDebugger(temporary.store)):
            text = answer.text()
            assert count_tokens(text) <= answer.budget, verb
            assert "Traceback (most recent call last)\n  File" not in text, verb
            assert answer.data() is not None, verb
    finally:
        temporary.close()


@pytest.mark.slow
@pytest.mark.parametrize("run_path", SAMPLED_RUNS, ids=lambda path: path.name[:20], indirect=True)
def test_no_check_fails_and_no_lead_is_of_a_kind_that_real_data_refuted(run_path: Path) -> None:
    temporary = load_runs(run_path)
    try:
        run = temporary.store.load_run(temporary.store.list_runs(RunFilter())[0].id)
        report = examine(temporary.store, run)
        findings = CheckAnswer(run, report).data()["findings"]
    finally:
        temporary.close()
    assert report.failed == {}
    leads = [each for each in findings if each["lead"] and each["severity"] != "hint"]
    assert [each["kind"] for each in leads if FALSE_LEADS.match(each["kind"])] == []
    refused = [each for each in findings if each["kind"] == "call/refused"]
    assert [
        each["message"] for each in refused if re.search("429|529|policy", each["message"])
    ] == []
    known = {span.id for span in run.spans}
    assert [each["kind"] for each in findings if each["cause"] and each["cause"] not in known] == []


@pytest.mark.slow
def test_a_finding_names_every_call_that_repeated_the_error(tmp_path: Path) -> None:
    packed = next(DATA.glob("trail/gaia-01c57271*.gz"))
    path = tmp_path / packed.name.removesuffix(".gz")
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    temporary = load_runs(path)
    try:
        debugger = Debugger(temporary.store)
        answer = debugger.check(None)
        found = next(each for each in answer.report.findings if each.kind == "tool/bad-arguments")
        short = {span.id: span.short_id for span in answer.run.spans if span.type == "llm"}
        calls = [each for each in found.evidence if each in short]
        assert len(calls) == 2
        assert f"also {short[calls[1]]}. See:" in answer.text(8_000)
        assert f"also {calls[1]}. See:" in debugger.check(None, ids=True).text(8_000)
    finally:
        temporary.close()


def test_the_labels_name_spans_and_steps_of_the_runs() -> None:
    trail = json.loads((DATA / "trail" / "labels.json").read_text())
    steps = json.loads((DATA / "whowhen" / "labels.json").read_text())
    assert len(trail) + len(steps) == len(RUNS) >= 40
