"""One record through every folder: the architecture page, executable.

    emit ── record ──▶ journal ═══ file ═══▶ collector ──▶ store ──▶ query ──▶ terminal

An agent's tool call is followed from the line of code that makes it to the line that a
person reads. Read it from top to bottom; each stop names the module that does the work.
"""

from __future__ import annotations

import json
import re

import pytest

from support.commands import vestige
from vestige._runtime import file_locks
from vestige._runtime.clock import FakeClock
from vestige.collector.loop import hold
from vestige.home import Home
from vestige.journal.reader import read_lines
from vestige.query.views.show import render_line
from vestige.query.views.timeline import timeline
from vestige.record.codec import parse_lines
from vestige.record.types import SpanClose, SpanOpen
from vestige.recorder import Recorder
from vestige.settings import find_store
from vestige.store.open import open_store


def test_one_record_goes_from_a_line_of_code_to_a_line_on_the_screen(
    home: Home, engine: str
) -> None:
    """What the agent said is what the reader sees, and every stop on the way is a plain file."""
    # 1. EMIT (emit/span.py). The agent opens a run, and a span for its tool call. The clock is
    #    injected, so here it counts 1, 2, 3; nowhere else is time or an id made.
    recorder = Recorder(home, clock=FakeClock())
    run = recorder.run("triage", conversation_id="c-9")
    span = run.child(
        "search",
        type="tool",
        attributes={"tool_call_id": "call_7", "api_key": "hunter2-hunter2"},
        body='{"q": "refund"}',
    )

    # 2. JOURNAL (journal/writer.py). The call has returned, so the record is in a file: one line,
    #    written with one os.write. From here on no `kill -9` can take it back. The secret never
    #    got here: record/redaction/redactor.py masked it on the way out.
    ((writer, generation, path),) = home.journal_files()
    data, offset = read_lines(path, 0)
    records, malformed = parse_lines(data)
    opened = next(record for record in records if getattr(record, "span_id", "") == span.id)

    assert (writer, generation, malformed) == (recorder.writer, 1, 0)
    assert isinstance(opened, SpanOpen)
    assert json.loads(data.splitlines()[opened.seq - 1]) == {
        "v": 1,
        "kind": "span-open",
        "writer": recorder.writer,
        "seq": opened.seq,
        "time_ns": opened.time_ns,
        "run_id": run.run_id,
        "span_id": span.id,
        "parent_id": run.id,
        "component": "agent",
        "type": "tool",
        "name": "search",
        "attributes": {"tool_call_id": "call_7", "api_key": "hun…redacted…er2"},
        "body": '{"q": "refund"}',
        "redacted": opened.redacted,
    }
    assert path.stat().st_mode & 0o777 == 0o600

    # 3. The lock on the file (_runtime/file_locks.py) says that its writer lives: a reader will
    # take in what is there and leave the file, and will not call the open span interrupted.
    assert file_locks.is_held(path)

    # 4. COLLECTOR (collector/loop.py, take.py). Any reading command becomes the collector for a
    #    moment. One tick: complete lines in, rows and offset in one transaction.
    with hold(home) as collector:
        assert collector is not None
        taken = collector.tick()
        reached = collector.store.positions()[writer, generation]

    assert taken.records == len(records)
    assert reached == offset
    assert path.exists()

    # 5. STORE (store/sqlite/ingest/batch_ingest.py, store/sqlite/bodies/body_store.py; on a server
    # store/clickhouse, which merges records with the same code). The span is one row, still open;
    # its body is elsewhere, by reference, stored once however often it is sent.
    with open_store(find_store(home), readonly=True) as store:
        loaded = store.load_run(run.run_id)
        found = next(found for found in loaded.spans if found.id == span.id)
        assert found.input is not None
        body = store.read_body(found.input.id or 0)

    assert (found.status, found.seq, found.component) == (None, opened.seq, "agent")
    assert found.attributes["tool_call_id"] == "call_7"
    assert body == b'{"q": "refund"}'

    # 6. QUERY (query/views/timeline.py). A pure function turns the run into lines; the call is in
    # flight.
    line = next(line for line in timeline(loaded) if line.id == found.short_id)

    assert line.text.startswith("tool search (open) tool_call_id=call_7")
    assert (line.depth, line.style) == (1, "open")

    # 7. The tool answers. The close is a second record; the store folds it into the same row.
    span.end(body="[]")
    run.end()
    recorder.close()
    data, _ = read_lines(path, offset)
    closes = [record for record in parse_lines(data)[0] if isinstance(record, SpanClose)]

    assert (closes[0].span_id, closes[0].status, closes[0].seq) == (span.id, "ok", opened.seq + 1)

    # 8. TERMINAL (cli). `vestige show` takes in the rest, loads the run, prints its lines.
    shown = vestige("show", run.run_id, "--home", home.root)
    text = next(text for text in shown.stdout.splitlines() if text.startswith(found.short_id))

    assert shown.exit_code == 0
    # The clock counts its callers, and background threads are among them if a step takes long.
    assert re.search(r"tool search\(q=refund\) \d\.0ms → ok tool_call_id=call_7", text)
    with open_store(find_store(home), readonly=True) as store:
        finished = store.load_run(run.run_id)
    # The arguments are read from the body when a line is printed.
    lines = [render_line(line, len(found.short_id)) for line in timeline(finished)]
    assert text.replace("(q=refund)", "") in lines

    # 9. Nothing is left on the way: the process is gone, its journal was read to the end, and so
    #    the file is deleted. All of the evidence is in the store: one SQLite file, or a database.
    with open_store(find_store(home), readonly=True) as store:
        rows = store.query("SELECT outcome FROM runs WHERE name = 'triage'", 0, 10).rows

    assert home.journal_files() == []
    assert [tuple(row) for row in rows] == [("ok",)]
    assert home.store.exists() == (engine == "sqlite")


@pytest.mark.usefixtures("engine")
def test_the_same_record_when_the_agent_dies_on_the_way(home: Home) -> None:
    """The second journey: no close ever comes, and the story still has an end."""
    # The agent is killed in the middle of its tool call: its lock is free, its file stays.
    recorder = Recorder(home, clock=FakeClock())
    run = recorder.run("triage")
    span = run.child("search", type="tool")
    ((_, _, path),) = home.journal_files()
    evidence = path.read_bytes()
    span.end()
    run.end()
    recorder.close()
    path.write_bytes(evidence)

    # The next reader ingests the journal, finds no living process, and records the crash
    # (collector/crash_detection.py).
    shown = vestige("show", "--home", home.root).stdout

    assert "triage: interrupted" in shown
    assert "tool search → interrupted" in shown
    assert "!! process exited unexpectedly after tool search" in shown
