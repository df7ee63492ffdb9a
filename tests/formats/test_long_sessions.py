"""Long logs of coding agents: the first page reads only the beginning, and says so."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from support.commands import vestige
from support.programs import WAIT_S
from vestige._runtime import clock
from vestige.errors import UnreadableError
from vestige.store.open import open_store
from vestige.transfer.open_any_path import open_as_home, open_path
from vestige.transfer.view_while_importing import import_in_background

SESSION = "00000000-0000-4000-8000-000000000001"
TURNS = 60


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A session of Claude Code that is long by limits that suit a test."""
    monkeypatch.setattr("vestige.formats.session_files.FIRST_PAGE_MIN", 1_000)
    monkeypatch.setattr("vestige.formats.session_files.FIRST_PAGE_EVENTS", 120)
    path = tmp_path / f"{SESSION}.jsonl"
    with open(path, "w") as file:
        for number in range(TURNS):
            base = {"sessionId": SESSION, "timestamp": f"2026-11-01T10:00:00.{number:03}Z"}
            prompt = {"role": "user", "content": f"question {number}"}
            answer = {
                "id": f"m{number}",
                "role": "assistant",
                "model": "claude-sonnet-4-5",
                "content": [{"type": "text", "text": f"answer {number}"}],
                "stop_reason": "end_turn",
            }
            for type_, message in (("user", prompt), ("assistant", answer)):
                entry = {**base, "type": type_, "uuid": f"{type_}{number}", "message": message}
                file.write(json.dumps(entry) + "\n")
    return path


def test_the_first_page_of_a_transcript_reads_the_beginning_and_the_next_one_the_rest(
    session: Path,
) -> None:
    first = vestige("transcript", session, "--budget", 600)
    words = shlex.split(first.stdout.splitlines()[-1].partition("vestige ")[2])
    second = vestige(*words, "--budget", 600)
    last = vestige("transcript", session, "--step", TURNS)

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert "partial: only the beginning was read" in first.stdout
    assert "answer 3" in first.stdout
    assert "partial" not in second.stdout
    shown = [line for line in first.stdout.splitlines() if "answer " in line]
    number = int(shown[-1].partition("answer ")[2].split()[0])
    assert f"answer {number + 1}" in second.stdout
    assert f"answer {TURNS - 1}" in last.stdout


def test_the_overview_of_a_very_long_session_says_that_it_is_partial(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = vestige("overview", session)
    monkeypatch.setattr("vestige.cli.view.overview.OVERVIEW_ALL_MAX", 1_000)
    partial = vestige("overview", session)

    assert "partial" not in complete.stdout
    assert f"steps ({TURNS}" in complete.stdout
    assert "partial: only the beginning was read" in partial.stdout
    assert f"steps ({TURNS}" not in partial.stdout


@pytest.mark.slow
def test_the_viewer_of_a_long_session_has_its_beginning_and_then_the_rest(session: Path) -> None:
    before = session.stat()
    with open_as_home(str(session)) as (home, is_lasting):
        assert not is_lasting
        deadline = clock.monotonic() + WAIT_S
        count, outcome = 0, ""
        while outcome != "ok" and clock.monotonic() < deadline:
            with open_store(home.store, readonly=True) as store:
                run = store.load_run(SESSION)
            assert len(run.spans) >= count
            count, outcome = len(run.spans), run.info.outcome
        assert (count, outcome) == (1 + 2 * TURNS, "ok")
    assert not home.root.exists()
    after = session.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@pytest.mark.slow
def test_a_long_session_that_cannot_be_read_is_an_error_of_the_viewer(session: Path) -> None:
    session.unlink()
    with (
        pytest.raises(UnreadableError, match="no such file"),
        import_in_background(session),
    ):
        pass


def _read_pages(path: Path) -> list[dict[str, object]]:
    """Return all pages of a session's transcript as data."""
    pages = []
    with open_path(path) as debugger:
        after = None
        while True:
            page = debugger.transcript(after=after, limit=25).data()
            pages.append(page)
            after = page["next"]
            if after is None:
                return pages


def test_the_transcript_of_a_very_long_session_is_read_in_parts(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = [item for page in _read_pages(session) for item in page["items"]]
    monkeypatch.setattr("vestige.query.trajectory.run_parts.TRAJECTORY_SPANS_MAX", 20)
    pages = _read_pages(session)

    assert [item for page in pages for item in page["items"]] == complete
    counts = {page["part"]["count"] for page in pages}
    assert len(counts) == 1
    assert [page["part"]["number"] for page in pages][-1] == counts.pop() > 3
    assert {page["title"] for page in pages} == {"question 0"}
    assert [page["answer"] for page in pages][-1] == f"answer {TURNS - 1}"


def test_the_overview_of_a_very_long_session_names_the_steps_that_it_did_not_build(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = json.loads(vestige("overview", session, "--json").stdout)
    monkeypatch.setattr("vestige.query.trajectory.first_and_last_steps.OVERVIEW_SPANS_MAX", 40)
    ends = json.loads(vestige("overview", session, "--json").stdout)
    text = vestige("overview", session, "--budget", 4000).stdout

    first, last = ends["steps_not_read"]
    assert complete["steps_not_read"] is None
    left = [step for step in complete["steps"] if not first <= step["number"] <= last]
    names = ("number", "span", "headline", "cost_usd", "total_cost_usd", "actions")
    assert [[step[name] for name in names] for step in ends["steps"]] == [
        [step[name] for name in names] for step in left
    ]
    assert 4 < len(left) < TURNS
    for name in ("title", "task", "answer", "findings", "cause", "cost_usd", "types"):
        assert ends[name] == complete[name]
    assert f"steps ({TURNS}):" in text
    assert f"… steps {first}-{last} were not looked at: vestige transcript" in text


def test_steps_of_a_session_in_parts_are_found_by_number_and_after_the_page_before(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = vestige("transcript", session, "--step", 41).stdout
    monkeypatch.setattr("vestige.query.trajectory.run_parts.TRAJECTORY_SPANS_MAX", 20)
    step = vestige("transcript", session, "--step", 41).stdout
    beyond = vestige("transcript", session, "--step", TURNS + 1)

    assert "answer 40" in complete
    assert step.splitlines()[-2:] == complete.splitlines()[-2:]
    assert (beyond.exit_code, f"expected 1 to {TURNS}" in beyond.stderr) == (2, True)

    answers = []
    words = ["transcript", str(session), "--limit", "1000"]
    while words:
        page = vestige(*words, "--budget", 4000).stdout.splitlines()
        answers += [line.split()[-1] for line in page if "| answer " in line]
        words = shlex.split(page[-1].partition("vestige ")[2]) if "continue:" in page[-1] else []
    assert answers == [str(number) for number in range(TURNS)]
