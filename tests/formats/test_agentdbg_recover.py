"""`vestige store recover` on AgentDbg runs: dead ones are finished on disk, others left alone."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.agentdbg_runs import call, make_run
from support.commands import vestige
from vestige.formats import agentdbg
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import import_path

KILLED = Path(__file__).parent.parent / "data/agentdbg/runs/a103555f-06af-45e5-87fc-eacce41adee6"
LONG_AGO = (10**18, 10**18)


def events(run: Path) -> list[dict[str, Any]]:
    found = []
    for line in (run / "events.jsonl").read_text(encoding="utf-8").split("\n"):
        try:
            found.append(json.loads(line))
        except ValueError:
            pass
    return found


def recover(path: Path) -> list[tuple[Path, str]]:
    return list(agentdbg.recover_runs(path))


def test_a_killed_run_becomes_an_error_with_counts_from_its_events(tmp_path: Path) -> None:
    """Status error, an ERROR event `Interrupted`, a RUN_END; then it is shown as interrupted."""
    run = Path(shutil.copytree(KILLED, tmp_path / "runs" / KILLED.name))
    os.utime(run / "events.jsonl", ns=LONG_AGO)

    finished = recover(tmp_path)

    metadata = json.loads((run / "run.json").read_text())
    *before, error, end = events(run)
    assert finished == [(run, "")]
    assert metadata["status"] == "error"
    assert metadata["counts"] == {"llm_calls": 1, "tool_calls": 2, "errors": 1, "loop_warnings": 0}
    assert metadata["ended_at"] == metadata["last_event_ts"] == before[-1]["ts"]
    assert (error["event_type"], error["payload"]["error_type"]) == ("ERROR", "Interrupted")
    assert end["event_type"] == "RUN_END" and end["payload"]["status"] == "error"
    # Only the torn line is left of what was wrong: it is evidence, and now it is a line.
    assert {problem.rule for problem in agentdbg.validate_run(run)} == {"json"}
    with SqliteStore.open(tmp_path / "store.db") as store:
        (imported,) = import_path(store, run)
        assert store.load_run(str(imported.run_id)).info.outcome == "interrupted"


def test_recovering_again_changes_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path, events=[call()], status="running", end=False)
    os.utime(run / "events.jsonl", ns=LONG_AGO)
    recover(run)
    before = (run / "events.jsonl").read_bytes(), (run / "run.json").read_bytes()

    assert recover(run) == []
    assert ((run / "events.jsonl").read_bytes(), (run / "run.json").read_bytes()) == before
    assert agentdbg.validate_run(run) == []


def test_a_run_that_somebody_holds_is_left_alone(tmp_path: Path) -> None:
    """Ours, alive: its lock says so, however silent it is."""
    run = make_run(tmp_path, status="running", end=False, meta={"vestige": {}})
    os.utime(run / "events.jsonl", ns=LONG_AGO)
    before = (run / "events.jsonl").read_bytes()
    with open(run / "events.jsonl") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        recovered = recover(run)

    assert [left for _, left in recovered] == ["a process may still write to it"]
    assert (run / "events.jsonl").read_bytes() == before
    assert recover(run) == [(run, "")]


def test_a_foreign_run_that_was_written_to_lately_is_left_alone(tmp_path: Path) -> None:
    run = make_run(tmp_path, status="running", end=False, now=True)

    assert [bool(left) for _, left in recover(run)] == [True]
    assert json.loads((run / "run.json").read_text())["status"] == "running"


def test_a_kill_between_the_events_and_the_run_file_is_made_good(tmp_path: Path) -> None:
    """The events were added, run.json was not: it is finished from them, and nothing is added."""
    run = make_run(tmp_path, events=[call()], status="running", end=False)
    os.utime(run / "events.jsonl", ns=LONG_AGO)
    unfinished = (run / "run.json").read_bytes()
    recover(run)
    before = (run / "events.jsonl").read_bytes()
    (run / "run.json").write_bytes(unfinished)
    os.utime(run / "events.jsonl", ns=LONG_AGO)

    recover(run)

    assert (run / "events.jsonl").read_bytes() == before
    assert json.loads((run / "run.json").read_text())["counts"]["errors"] == 1
    assert agentdbg.validate_run(run) == []


def test_a_run_file_that_is_missing_is_made_from_the_events(tmp_path: Path) -> None:
    run = make_run(tmp_path, events=[call()])
    (run / "run.json").unlink()
    os.utime(run / "events.jsonl", ns=LONG_AGO)

    recover(run)

    assert agentdbg.validate_run(run) == []
    assert json.loads((run / "run.json").read_text())["status"] == "ok"


def test_the_command_takes_a_run_a_folder_or_a_data_directory(tmp_path: Path) -> None:
    for number, part in enumerate(("", "runs", f"runs/{KILLED.name}")):
        data = tmp_path / str(number)
        run = Path(shutil.copytree(KILLED, data / "runs" / KILLED.name))
        os.utime(run / "events.jsonl", ns=LONG_AGO)

        result = vestige("recover", str(data / part))

        assert result.exit_code == 0, result.output
        assert result.output.startswith("Finalized 1 crashed run")
        assert json.loads((run / "run.json").read_text())["status"] == "error"


def test_every_verb_takes_a_run_directory(tmp_path: Path) -> None:
    """By path in place of an id, or as `--home`; next commands lead back to it."""
    run = str(KILLED)
    commands = [
        ["show", run],
        ["overview", run],
        ["show", run, "--json"],
        ["grep", "t2", "--home", run],
        ["sql", "SELECT count(*) FROM spans", "--home", run],
        ["stats", "--home", run],
        ["span", "r1.s4", "--home", run],
        ["list", "--home", run],
        ["schema", "--home", run],
        ["why", "r1.s4", "--home", run],
        ["body", "r1.s3", "--home", run],
    ]
    for command in commands:
        result = vestige(*command)

        assert result.exit_code == 0, (command, result.output)
    assert f"--home {run}" in vestige("overview", run).output
    checked = vestige("check", run)
    assert checked.exit_code == 1 and "line-torn" in checked.output


@pytest.mark.slow
def test_a_long_run_shows_its_first_page_without_reading_all_of_it(tmp_path: Path) -> None:
    """The page says what it is made from, and how to go on; ids are those that the rest will
    have.
    """
    run = make_run(tmp_path, events=[call(payload={"args": f"{n}" * 400}) for n in range(3000)])

    first = vestige("show", run).output
    output = vestige("show", run, "--after", "0").output

    (remaining,) = re.findall(r"about (\d+) more events", first)
    assert 0.8 < int(remaining) / (3002 - 500) < 1.2
    assert "--after" in first.splitlines()[-1] and "3001 spans" in output
    # Longer span ids leave less room for attributes, so only id, time, type and arguments are
    # compared.
    pages = [[line.split()[:4] for line in page.splitlines()] for page in (first, output)]
    assert pages[0][6:20] == pages[1][5:19]


def test_an_event_that_lacks_only_the_end_of_its_line_has_happened(tmp_path: Path) -> None:
    """It counts as the others do; and a run whose last event it is has ended by itself."""
    called = make_run(tmp_path / "called", events=[call()], status="running", end=False)
    ended = make_run(tmp_path / "ended", events=[call()], status="running", end=True)
    for run in (called, ended):
        data = (run / "events.jsonl").read_bytes()
        (run / "events.jsonl").write_bytes(data.removesuffix(b"\n"))
        os.utime(run / "events.jsonl", ns=LONG_AGO)

        recover(run)

        assert agentdbg.validate_run(run) == []
    assert json.loads((called / "run.json").read_text())["counts"]["tool_calls"] == 1
    assert json.loads((ended / "run.json").read_text())["status"] == "ok"
    assert [event["event_type"] for event in events(ended)][-1] == "RUN_END"
    assert "ERROR" not in [event["event_type"] for event in events(ended)]


def test_a_kill_between_the_two_last_events_is_made_good(tmp_path: Path) -> None:
    """A write that a full disk cut: the ERROR is there already, and is not said again."""
    run = make_run(tmp_path, events=[call()], status="running", end=False)
    unfinished = (run / "run.json").read_bytes()
    os.utime(run / "events.jsonl", ns=LONG_AGO)
    recover(run)
    lines = (run / "events.jsonl").read_bytes().splitlines(keepends=True)
    (run / "events.jsonl").write_bytes(b"".join(lines[:-1]))
    (run / "run.json").write_bytes(unfinished)
    os.utime(run / "events.jsonl", ns=LONG_AGO)

    recover(run)

    assert (run / "events.jsonl").read_bytes().splitlines(keepends=True) == lines
    assert json.loads((run / "run.json").read_bytes())["counts"]["errors"] == 1
    assert agentdbg.validate_run(run) == []
