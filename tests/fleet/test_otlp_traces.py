"""OTLP requests into a store: a split, shuffled or repeated trace is one run and one writer."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vestige.collector.crash_detection import stamp_dead
from vestige.collector.health import examine
from vestige.collector.rootless_traces import stamp_rootless
from vestige.fleet.server.otlp_ingest import IngestResult, open_spans, store_spans
from vestige.formats.otlp.constants import external_run_id
from vestige.formats.otlp.export_request import parse_export_request
from vestige.home import Home
from vestige.record.redaction.redactor import Redactor
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import import_path

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
START = 10**18
CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.usage.input_tokens": "7",
}


def span(
    number: int, parent: int = 0, attributes: dict[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    made = {
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "name": f"span {number}",
        "startTimeUnixNano": str(START + number * 1000),
        "endTimeUnixNano": str(START + 10**6 - number),
        "attributes": [
            {"key": key, "value": {"stringValue": value}}
            for key, value in (attributes or {}).items()
        ],
        "events": [{"timeUnixNano": str(START + number * 1000 + 1), "name": f"event of {number}"}],
    }
    return made | ({"parentSpanId": f"{parent:016x}"} if parent else {}) | more


def request(*spans: dict[str, Any]) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}).encode()


def keep(store: SqliteStore, *spans: dict[str, Any]) -> IngestResult:
    with store.transaction():
        return store_spans(
            store, open_spans(request(*spans), "otlp-traces-json", REDACTOR), "default"
        )


REDACTOR = Redactor()


def stored_spans(store: SqliteStore) -> dict[str, Any]:
    """All content of a store, except numbers and row ids, which depend on the order."""
    run = store.load_run(external_run_id(TRACE))
    info = run.info
    query = (
        "SELECT type, name, count, errors, duration_ns, input_tokens"
        " FROM rollups WHERE count ORDER BY 1, 2"
    )
    own = store._connection.execute("SELECT own_count FROM runs").fetchone()
    return {
        "run": (
            info.name,
            info.conversation_id,
            info.outcome,
            info.started_ns,
            info.ended_ns,
            info.duration_ns,
            info.span_count,
            info.log_count,
            info.error_count,
            info.input_tokens,
            own,
        ),
        "spans": [
            (
                each.id,
                each.parent_id,
                each.type,
                each.name,
                each.started_ns,
                each.duration_ns,
                each.status,
            )
            for each in run.spans
        ],
        "numbers": sorted(each.short_id for each in run.spans),
        "lines": [(line.span_id, line.message, line.time_ns) for line in run.logs],
        "sums": store._connection.execute(query).fetchall(),
        "writers": [(each.missing, each.ended) for each in store.writers()],
    }


ERROR = {"status": {"code": 2}}
TRACES = {
    "a tree": [
        span(1),
        *[span(number, number // 2, CHAT if number % 3 else None) for number in range(2, 9)],
    ],
    "two without a parent": [
        span(1),
        span(2),
        span(3, 1, {"session.id": "conv-7"}),
        span(4, 2, CHAT),
        span(5, 2, **ERROR),
    ],
    "calls that stand alone": [
        span(1, attributes=CHAT),
        span(2, attributes=CHAT, **ERROR),
        span(3, 1, {"session.id": "conv-7"}),
        span(4, attributes=CHAT),
    ],
    "a call beside the first": [
        span(1, attributes=CHAT),
        span(2),
        span(3, 2),
        span(4, attributes=CHAT),
    ],
    "a server's part": [span(2, 1, kind=2), span(3, 2, CHAT), span(4, 1, kind=2, **ERROR)],
    "a server's part, and the first": [
        span(2, 1, {"session.id": "theirs"}, kind=2),
        span(3, 2),
        span(4, 1, kind=2),
        span(1, attributes={"session.id": "conv-7"}),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRACES)
def test_however_a_trace_is_cut_shuffled_and_repeated_the_same_is_kept(
    name: str, tmp_path: Path
) -> None:
    """Whatever came first, and however often."""
    found = []
    for seed in range(12):
        chance = random.Random(seed)
        spans = list(TRACES[name])
        with SqliteStore.open(tmp_path / f"{seed}.db") as store:
            if seed:
                chance.shuffle(spans)
            while spans:
                size = chance.randint(1, 3) if seed else len(spans)
                some, spans = spans[:size], spans[size:]
                keep(store, *some)
                if chance.random() < 0.5:
                    keep(store, *some, *chance.sample(TRACES[name], 1))
            again = keep(store, *TRACES[name])
            found.append(stored_spans(store))

        assert again.new == 0
        assert found[seed] == found[0], seed
    assert found[0]["writers"] == [(0, "imported")]
    assert sum(each[2] == "run" for each in found[0]["spans"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", TRACES)
def test_records_that_were_cut_off_anywhere_are_completed_once(name: str, tmp_path: Path) -> None:
    """A batch may end anywhere: a second request adds the rest, and no line twice."""
    records = parse_export_request(request(*TRACES[name]), "traces", "json").records
    with SqliteStore.open(tmp_path / "whole.db") as store:
        store.append(records)
        expected = stored_spans(store)
    found = []
    for cut in range(1, len(records)):
        with SqliteStore.open(tmp_path / f"{cut}.db") as store:
            store.append(records[:cut])
            store.append(records)
            found.append(stored_spans(store))

    assert found == [expected] * len(found)


RECEIVE = """
import random, sys
from vestige.fleet.server.receive import Delivery, Receiver
from vestige.home import get_home
requests = [line.strip().encode() for line in sys.stdin]
random.Random(sys.argv[2]).shuffle(requests)
with Receiver(get_home(sys.argv[1])) as receiver:
    for one in requests:
        print(receiver.ingest([Delivery(one, "identity", "default", "otlp-traces-json")])[0].new)
"""


def test_two_processes_that_receive_the_same_at_once_keep_it_once(
    home: Home, store: SqliteStore
) -> None:
    spans = [span(1), *[span(number, number // 2) for number in range(2, 60)]]
    requests = b"\n".join(request(*spans[at : at + 2]) for at in range(0, len(spans), 2))
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", RECEIVE, str(home.root), seed],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for seed in "ab"
    ]
    for program in programs:
        assert program.stdin is not None
        program.stdin.write(requests)
        program.stdin.close()
    new = 0
    for program in programs:
        assert program.stdout is not None
        new += sum(int(line) for line in program.stdout)
        assert program.wait() == 0
    run = store.load_run(external_run_id(TRACE))

    assert new == 3 * len(spans)  # an opening, an event and a close
    assert (run.info.span_count, run.info.log_count, run.info.outcome) == (59, 59, "ok")
    assert len(store.writers()) == 1


def test_a_first_span_that_comes_late_has_the_number_of_the_one_that_stood_in(
    store: SqliteStore,
) -> None:
    """`r1.s1` is the run's first span before and after, and nothing made up is left."""
    keep(store, span(2, attributes=CHAT))
    (before, call) = store.load_run(external_run_id(TRACE)).spans
    cursor = store.cursor()
    keep(store, span(1, status={"code": 2}))
    run = store.load_run(external_run_id(TRACE))
    (live,) = store.changes(cursor).spans

    assert (before.short_id, before.attributes["otel.made"], call.parent_id) == (
        "r1.s1",
        True,
        before.id,
    )
    assert [(each.short_id, each.name, each.type, each.parent_id) for each in run.spans] == [
        ("r1.s1", "span 1", "run", None),
        ("r1.s2", "span 2", "llm", None),
    ]
    assert "otel.made" not in run.spans[0].attributes
    assert (live.number, live.name, live.status) == (1, "span 1", "error")
    assert (run.info.name, run.info.outcome, run.info.error_count) == ("span 1", "error", 1)


def test_a_trace_whose_program_was_killed_ends_after_a_day_of_silence(
    home: Home, store: SqliteStore
) -> None:
    """A trace without a root is closed after a silence. A root that still arrives replaces that."""
    keep(store, span(3, 2), span(2, 1))
    ((arrived_ns,),) = store._connection.execute("SELECT imported_ns FROM runs")
    before = store.load_run(external_run_id(TRACE)).info.outcome
    hour_ns = 3600 * 10**9
    counts = [stamp_rootless(store, arrived_ns + hours * hour_ns) for hours in (23, 25, 26)]
    ended = store.load_run(external_run_id(TRACE))
    stamped = stamp_dead(home, store)
    keep(store, span(1))
    late = store.load_run(external_run_id(TRACE))

    assert (before, counts, stamped) == ("running", [0, 1, 0], 0)
    assert (ended.info.outcome, ended.info.name) == ("interrupted", "span 2")
    assert ended.info.ended_ns == START + 10**6 - 2
    assert (late.info.outcome, late.info.name, late.info.span_count) == ("ok", "span 1", 3)


def test_lines_of_a_trace_have_its_writer_and_are_known_by_what_they_say(
    home: Home, store: SqliteStore
) -> None:
    lines = [
        {
            "traceId": TRACE,
            "timeUnixNano": str(START + number % 7),
            "body": {"stringValue": f"line {number}"},
        }
        for number in range(50)
    ]
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": lines + lines[:1]}]}]})
    new = []
    for _ in range(2):
        with store.transaction():
            received = open_spans(body.encode(), "otlp-logs-json", REDACTOR)
            new.append(store_spans(store, received, "default").new)
    run = store.load_run(external_run_id(TRACE))
    times = [line.time_ns for line in run.logs]

    assert new == [51, 0]
    assert times == sorted(times) and len(times) == 51
    assert len(store.writers()) == 1
    assert examine(home, store).missing == 0


def test_a_folder_whose_later_file_has_the_first_span_is_one_run(
    tmp_path: Path, store: SqliteStore
) -> None:
    """Each file is whole in itself, and the run is of both."""
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(request(span(2, 1, CHAT), span(3, 2)) + b"\n")
    (folder / "b.jsonl").write_bytes(request(span(1)) + b"\n")
    for _ in range(2):
        list(import_path(store, folder))
    run = store.load_run(external_run_id(TRACE))

    assert [(each.name, each.type) for each in run.spans] == [
        ("span 1", "run"),
        ("span 2", "llm"),
        ("span 3", "step"),
    ]
    assert run.info.name == "span 1"
