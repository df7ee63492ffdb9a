"""Finished spans, and sinks of one run: emit/finished_span.py, emit/run_sinks.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.programs import ReadRuns
from vestige.emit import run_sinks
from vestige.emit.finished_span import record_finished
from vestige.errors import AgentDbgGuardrailExceeded
from vestige.record.types import KnownRecord, Log, SpanClose, SpanOpen
from vestige.recorder import Recorder
from vestige.testing import FakeRecorder


class Listening:
    def __init__(self) -> None:
        self.heard: list[KnownRecord] = []
        self.records: list[KnownRecord] = []
        self.fails: BaseException | None = None

    def take(self, record: Any, arguments: Any, source: Any) -> None:
        self.heard.append(record)
        self.records.append(arguments)
        if self.fails is not None:
            raise self.fails

    def take_both(self, opened: Any, closed: Any, source: Any) -> None:
        self.take(opened, opened, source)
        self.take(closed, closed, source)


@pytest.fixture
def sink() -> Iterator[Listening]:
    yield Listening()
    run_sinks.SINKS.clear()


def test_a_told_span_is_stored_like_any_other(home: Any, read_runs: ReadRuns) -> None:
    with Recorder(home) as recorder, recorder.run("job") as run:
        record_finished(
            run, "search", "tool", {"n": 1}, {"q": 1}, end_attributes={"m": 2}, end_body="page"
        )

    (stored,) = [run for run in read_runs() if not run.info.implicit]
    (span,) = [span for span in stored.spans if span.type == "tool"]
    assert (span.name, span.status, span.parent_id) == ("search", "ok", run.id)
    assert (span.attributes["n"], span.attributes["m"]) == (1, 2)
    assert span.input is not None and span.output is not None


def test_both_records_are_one_write(tmp_path: Path) -> None:
    recorder = FakeRecorder()
    run = recorder.run("job")
    before = len(recorder.journal.lines)
    record_finished(run, "search", "tool", {})

    assert len(recorder.journal.lines) == before + 1
    assert recorder.journal.lines[-1].count(b"\n") == 2


def test_a_secret_in_either_is_masked() -> None:
    recorder = FakeRecorder()
    run = recorder.run("job")
    record_finished(
        run, "login", "tool", {}, {"password": "correct-horse"}, end_body="password=correct-horse"
    )

    text = b"".join(recorder.journal.lines)
    assert b"correct-horse" not in text and text.count("…redacted…".encode()) == 2


@pytest.mark.slow
def test_a_sink_gets_the_records_of_its_run_whoever_emits_them(sink: Listening) -> None:
    """Redacted; and as they were given, for one that has rules of its own."""
    one, other = FakeRecorder(), FakeRecorder("/nonexistent/other")
    with one.run("not this") as _:
        pass
    run = one.run("job", on_id=lambda run_id: run_sinks.SINKS.__setitem__(run_id, sink))
    with run:
        other.logger("elsewhere").info("said", password="correct-horse")
    record_finished(run, "t", "tool", {})

    assert [type(record) for record in sink.heard] == [
        SpanOpen,
        Log,
        SpanClose,
        SpanOpen,
        SpanClose,
    ]
    assert {record.run_id for record in sink.heard} == {run.run_id}
    assert "correct-horse" not in str(sink.heard) and "correct-horse" in str(sink.records)


def test_what_a_sink_raises_is_counted_but_a_guardrail_reaches_the_program(
    sink: Listening,
) -> None:
    recorder = FakeRecorder()
    run = recorder.run("job", on_id=lambda run_id: run_sinks.SINKS.__setitem__(run_id, sink))
    sink.fails = OSError("disk")
    run.log.info("fine")
    sink.fails = AgentDbgGuardrailExceeded("max_events", 1, 2, "stop")
    span = None
    with pytest.raises(AgentDbgGuardrailExceeded):
        span = run.span("t", type="tool")

    assert span is None
    assert recorder.faults == {"sink of a run raised OSError": 1}
