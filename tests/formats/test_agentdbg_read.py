"""AgentDbg runs as ours: the real ones, the later layout, exports; import twice, and as they
grow.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.agentdbg_runs import RUN, call, make_run, run_end
from vestige.formats import agentdbg
from vestige.record.run import Run
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import import_path

DATA = Path(__file__).parent.parent / "data" / "agentdbg"
REAL = sorted((DATA / "runs").iterdir())
KILLED = DATA / "runs" / "a103555f-06af-45e5-87fc-eacce41adee6"
HAPPY = DATA / "runs" / "3d1957bd-7105-4b04-b132-afe8fc31203e"
NESTED = DATA / "runs" / "4dc3f681-d4d4-4b88-9c4e-2d2a1cf6b4fd"
KINDS = {"llm": "LLM_CALL", "tool": "TOOL_CALL", "state": "STATE_UPDATE"}


def take(path: Path, tmp_path: Path) -> Run:
    """The one run at a path, from a store that it was imported into."""
    with SqliteStore.open(tmp_path / "store.db") as store:
        (imported,) = import_path(store, path)
        assert imported.run_id is not None
        return store.load_run(imported.run_id)


def events(run: Path) -> list[dict[str, Any]]:
    found = []
    for line in (run / "events.jsonl").read_text(encoding="utf-8").split("\n"):
        try:
            found.append(json.loads(line))
        except ValueError:
            pass  # a torn last line
    return found


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name[:8])
def test_a_real_run_opens_with_equal_counts_and_order(path: Path, tmp_path: Path) -> None:
    """Every event of AgentDbg is a span or a line of ours, in write order, found by its id."""
    written = events(path)

    run = take(path, tmp_path)

    nodes = [(span.seq or 0, span.attributes, span.type) for span in run.spans]
    nodes += [
        (log.seq, log.attributes, log.level) for log in run.logs if log.component != "vestige"
    ]
    ids = [attributes.get("event_id") for _, attributes, _ in sorted(nodes, key=lambda n: n[0])]
    assert ids == [event["event_id"] for event in written if event["event_type"] != "RUN_END"]
    for kind, event_type in KINDS.items():
        expected = sum(event["event_type"] == event_type for event in written)
        assert sum(span.type == kind for span in run.spans) == expected
    metadata = json.loads((path / "run.json").read_text())
    assert run.info.id == metadata["run_id"] and run.info.name == metadata["run_name"]
    outcome = metadata["status"] if metadata["status"] != "running" else "interrupted"
    assert run.info.outcome == outcome


def test_bodies_are_exactly_what_stands_in_the_file(tmp_path: Path) -> None:
    """A prompt is its JSON text, byte for byte; a string is its text."""
    with SqliteStore.open(tmp_path / "store.db") as store:
        (imported,) = import_path(store, HAPPY)
        run = store.load_run(str(imported.run_id))
        first, last = [span for span in run.spans if span.type == "llm"]
        bodies = [
            store.read_body(ref.id)
            for ref in (first.input, first.output, last.output)
            if ref is not None and ref.id is not None
        ]

    prompt = '[{"role": "user", "content": "Weather in Oslo? æøå 日本   end"}]'
    text = (HAPPY / "events.jsonl").read_text(encoding="utf-8")
    assert bodies[0].decode() in text and bodies[0].decode()[:20] == prompt[:20]
    assert bodies[1] == b'{"tool_calls": [{"name": "get_weather"}]}'
    assert bodies[2] == b"It is -3C."


def test_a_call_began_its_duration_before_its_event(tmp_path: Path) -> None:
    """`ts` is when an event was written: when the call was over."""
    run = make_run(
        tmp_path / "runs", events=[call(duration_ms=1500, ts="2026-03-01T00:00:10.000Z")]
    )

    span = take(run, tmp_path).spans[1]

    assert span.duration_ns == 1_500_000_000
    assert span.started_ns == 1_772_323_208_500_000_000


def test_usage_becomes_the_shared_token_attributes(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    run = make_run(
        tmp_path / "runs", events=[call("LLM_CALL", payload={"model": "m", "usage": usage})]
    )

    info = take(run, tmp_path).info

    assert (info.input_tokens, info.output_tokens) == (7, 5)


def test_nested_events_nest(tmp_path: Path) -> None:
    """`parent_id` may name an event that is written later: a tool call ends after what it did."""
    inner, outer = call(), call()
    inner["parent_id"] = outer["event_id"]
    run = make_run(tmp_path / "runs", events=[inner, outer])

    root, first, second = take(run, tmp_path).spans

    assert first.parent_id == second.id and second.parent_id == root.id


def test_what_one_finds_at_a_path(tmp_path: Path) -> None:
    """A run, a folder of runs and a whole data directory lead to the same runs."""
    assert list(agentdbg.find_runs(HAPPY)) == [HAPPY]
    assert list(agentdbg.find_runs(DATA / "runs")) == REAL
    assert list(agentdbg.find_runs(DATA)) == REAL
    assert not agentdbg.is_readable(tmp_path)
    assert not agentdbg.is_readable(Path(__file__))


def test_an_export_is_the_run_that_it_was_made_from(tmp_path: Path) -> None:
    """The same records, whichever way they come: importing both is importing one."""
    export = tmp_path / "export.json"
    run = json.loads((HAPPY / "run.json").read_text())
    text = {"spec_version": "0.1", "run": run, "events": events(HAPPY)}
    export.write_text(json.dumps(text, ensure_ascii=False, indent=2), encoding="utf-8")
    with SqliteStore.open(tmp_path / "store.db") as store:
        (first,) = import_path(store, HAPPY)
        (second,) = import_path(store, export)

    assert agentdbg.is_readable(export)
    assert first.records > 0 and second.records == 0 and second.known
    assert first.run_id == second.run_id


def test_the_later_layout_is_read_too(tmp_path: Path) -> None:
    """meta.json and spans.jsonl: trace ids become run ids that derive from them."""
    path = DATA / "v2" / "runs" / "54e74c01a747b6e26ca30ae7fe3c492d"

    run = take(path, tmp_path)

    assert run.info.name == "maida-run" and run.info.outcome == "error"
    assert [span.type for span in run.spans].count("tool") == 6
    assert {span.parent_id for span in run.spans[1:]} == {run.spans[0].id}
    assert run.spans[0].attributes["source_run_id"] == path.name
    assert [log.level for log in run.logs] == ["warn", "error"]
    llm = next(span for span in run.spans if span.type == "llm")
    assert (llm.attributes["input_tokens"], llm.attributes["provider"]) == (1, "openai")


def test_importing_again_changes_nothing_and_what_has_grown_is_added(tmp_path: Path) -> None:
    """Numbers come from the file: a prefix always has the same ones."""
    run = tmp_path / "runs" / HAPPY.name
    shutil.copytree(HAPPY, run)
    lines = (HAPPY / "events.jsonl").read_bytes().splitlines(keepends=True)
    metadata = json.loads((HAPPY / "run.json").read_text()) | {
        "status": "running",
        "ended_at": None,
    }
    (run / "run.json").write_text(
        json.dumps(metadata | {"duration_ms": None, "last_event_ts": None})
    )
    counts = []
    with SqliteStore.open(tmp_path / "store.db") as store:
        for length in (3, 3, 5, len(lines), len(lines)):
            (run / "events.jsonl").write_bytes(b"".join(lines[:length]))
            counts.append(next(iter(import_path(store, run))).records)
        grown = store.load_run(HAPPY.name)

    assert counts[1] == 0 and counts[2] > 0 and counts[3] > 0 and counts[4] == 0
    assert grown.info.outcome == "ok" and len(grown.spans) == 7


def test_a_run_of_ours_is_running_exactly_while_its_lock_is_held(tmp_path: Path) -> None:
    """The live sink holds the lock of events.jsonl; nobody needs to guess."""
    run = make_run(tmp_path / "runs", status="running", end=False, meta={"vestige": {}})
    with open(run / "events.jsonl") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        alive = take(run, tmp_path)
    (tmp_path / "store.db").unlink()

    dead = take(run, tmp_path)

    assert alive.info.outcome == "running"
    assert dead.info.outcome == "interrupted"
    assert dead.spans[0].attributes["python"] == "3.11.7"


def test_a_foreign_run_that_has_just_been_written_to_may_be_alive(tmp_path: Path) -> None:
    """Without a lock, a run that was silent for long is taken for dead (limits.py)."""
    young = make_run(tmp_path / "runs", status="running", end=False, now=True)
    fresh = take(young, tmp_path)
    (tmp_path / "store.db").unlink()
    os.utime(young / "events.jsonl", ns=(10**18, 10**18))

    assert fresh.info.outcome == "running"
    assert take(young, tmp_path).info.outcome == "interrupted"


def test_a_stamp_never_takes_the_number_of_an_event_that_comes_later(tmp_path: Path) -> None:
    """A run that was taken for dead, and went on: all of it is there in the end."""
    run = make_run(tmp_path / "runs", status="running", end=False, events=[call()])
    with SqliteStore.open(tmp_path / "store.db") as store:
        list(import_path(store, run))
        stamped = store.load_run(RUN).info.outcome
        with open(run / "events.jsonl", "a") as file:
            for event in (call(name="later"), run_end()):
                file.write(json.dumps(event) + "\n")
        list(import_path(store, run))
        complete = store.load_run(RUN)

    assert stamped == "interrupted"
    assert complete.info.outcome == "ok"
    assert [span.name for span in complete.spans] == ["demo", "search", "later"]


def test_a_secret_that_agentdbg_kept_in_clear_is_masked(tmp_path: Path) -> None:
    """`--token sk-SPACE` is in its argv; not in ours."""
    run = take(HAPPY, tmp_path)

    assert "sk-SPACE" not in str(run.spans[0].attributes["argv"])
    assert b"sk-SPACE" not in (tmp_path / "store.db").read_bytes()


def test_a_secret_or_an_odd_letter_among_many_events_is_found(tmp_path: Path) -> None:
    """Events are looked through some at a time: what one of them holds must not hide, or hide
    others.
    """
    calls = [call(payload={"tool_name": "t", "args": f"plain {n}"}) for n in range(50)]
    calls[20]["payload"]["args"] = "sk-proj-Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4"
    calls[21]["payload"]["args"] = "half a letter \ud800"
    path = make_run(tmp_path / "runs", calls)

    run = take(path, tmp_path)

    assert b"Zm9vYmFyYmF6cXV4" not in (tmp_path / "store.db").read_bytes()
    with SqliteStore.open(tmp_path / "store.db") as store:
        tools = [span.input for span in run.spans if span.type == "tool"]
        texts = [store.read_body(body.id) for body in tools if body is not None and body.id]
    assert len(texts) == 50
    assert texts[19] == b"plain 19" and texts[22] == b"plain 22"


def test_a_long_import_counts_up_on_a_terminal(tmp_path: Path) -> None:
    """One run may take many seconds: the user sees progress."""
    make_run(tmp_path / "runs", [call() for _ in range(600)])
    ours, terminal = pty.openpty()
    command = [sys.executable, "-m", "vestige", "import", str(tmp_path / "runs")]
    done = subprocess.run(
        [*command, "--home", str(tmp_path / "home")],
        stdout=subprocess.PIPE,
        stderr=terminal,
        check=False,
    )
    shown = os.read(ours, 10_000)
    os.close(ours)
    os.close(terminal)

    assert done.returncode == 0
    assert b"Importing  runs: 1,203 records" in shown
    assert done.stdout.startswith(b"Imported 1 run from ")
