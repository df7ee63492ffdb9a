"""Long logs of coding agents: the first page reads only the beginning, and says so."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from support.commands import vestige

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
