"""Recordings of one agent in many frameworks: the failed tool is named, nothing else is."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from vestige.query.debugger import Debugger
from vestige.query.failures.check import CheckAnswer, examine
from vestige.query.trajectory import build_trajectory
from vestige.query.trajectory.seen_contents import normalize
from vestige.store.protocol import RunFilter
from vestige.transfer.temp_store import load_runs

DATA = Path(__file__).parents[1] / "data" / "framework_runs"
RUNS = sorted(DATA.glob("*.gz"))
CONVERSATIONS = {"batch_par": 4, "batch_seq": 4, "two": 2, "one": 1}
EXPECTED = {"tool/soft-error", "error/reported", "cache/unexplained", "cache/prefix-changed"}
"""Kinds that may occur. The loopback provider caches nothing, which two kinds report."""


@pytest.fixture(scope="module", params=RUNS, ids=lambda path: path.name.partition(".")[0])
def debugger(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Debugger]]:
    packed: Path = request.param
    path = tmp_path_factory.mktemp("run") / packed.name.removesuffix(".gz")
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    temporary = load_runs(path)
    yield packed.name.partition(".")[0], Debugger(temporary.store)
    temporary.close()


def test_check_names_the_failed_tool_and_reports_no_other_failure(
    debugger: tuple[str, Debugger],
) -> None:
    _, debug = debugger
    store = debug.store
    run = store.load_run(store.list_runs(RunFilter())[0].id)
    report = examine(store, run)
    findings = CheckAnswer(run, report).data()["findings"]
    assert report.failed == {}
    named = [each for each in findings if each["kind"] == "tool/soft-error"]
    assert [each["message"].split()[0] for each in named] == ["get_exchange_rate"]
    assert {each["kind"] for each in findings} <= EXPECTED
    assert [each["kind"] for each in findings if each["severity"] == "error"] == []


def test_conversations_are_split_and_every_message_is_shown_once(
    debugger: tuple[str, Debugger],
) -> None:
    name, debug = debugger
    evidence = debug._open(None)
    trajectory = evidence.once(build_trajectory)
    if name in CONVERSATIONS:
        assert len(trajectory.conversations) == CONVERSATIONS[name]
    orders = [
        {word for word in ("5001", "5002", "5003", "5004") if word in conversation.opening}
        for conversation in trajectory.conversations
    ]
    assert all(len(each) <= 1 for each in orders)
    shown: Counter[tuple[int, str]] = Counter()
    for step in trajectory.steps:
        for item in step.new_input:
            if item.kind == "text" and item.text.strip():
                shown[step.conversation, normalize(item.text)] += 1
    assert [text for text, count in shown.items() if count > 1] == []
    items = debug.transcript(limit=1_000).data()["items"]
    calls = len(evidence.of_type("llm"))
    actions = sum(len(step.actions) for step in trajectory.steps)
    assert len(items) <= 3 * calls + actions + len(evidence.run.logs) + 1
