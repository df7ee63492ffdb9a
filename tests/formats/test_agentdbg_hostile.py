"""Damaged or hostile input: problems or one-line errors, no crash, no path outside."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.agentdbg_runs import RUN, call, make_run
from vestige.errors import UnreadableError
from vestige.formats import agentdbg
from vestige.limits import EVENT_LINE_MAX
from vestige.record.run import Run
from vestige.record.types import KnownRecord
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import import_path

PAYLOAD_FIELDS = [
    "model",
    "prompt",
    "response",
    "usage",
    "provider",
    "temperature",
    "stop_reason",
    "status",
    "error",
    "tool_name",
    "args",
    "result",
    "state",
    "diff",
    "error_type",
    "message",
    "stack",
    "details",
    "pattern",
    "repetitions",
    "window_size",
    "evidence_event_ids",
]


def read(path: Path) -> tuple[list[KnownRecord], list[str]]:
    source = agentdbg.read_run(path)
    records = list(source.records)
    return records, [problem.rule for problem in source.problems]


def taken(path: Path, tmp_path: Path) -> Run:
    with SqliteStore.open(tmp_path / "store.db") as store:
        (imported,) = import_path(store, path)
        return store.load_run(str(imported.run_id))


def append(run: Path, data: bytes) -> None:
    with open(run / "events.jsonl", "ab") as file:
        file.write(data)


def test_a_torn_last_line_is_a_problem_and_not_an_event(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    before, _ = read(run)
    append(run, b'{"spec_version": "0.1", "event_id": "torn')

    records, rules = read(run)

    assert len(records) == len(before) and rules == ["line-torn"]


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b"[]",
        b"17",
        b"null",
        b'"text"',
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 5000,
    ],
    ids=["text", "array", "number", "null", "string", "brace", "bytes", "deep", "deeper"],
)
def test_a_line_that_is_no_event_is_passed_over(tmp_path: Path, line: bytes) -> None:
    """The lines before and after it are read."""
    run = make_run(tmp_path, events=[call()])
    append(run, line + b"\n" + json.dumps(call(name="after")).encode() + b"\n")

    found = taken(run, tmp_path)
    rules = read(run)[1]

    assert [span.name for span in found.spans] == ["demo", "search", "after"]
    assert rules == ["line-invalid"]


@pytest.mark.slow
@pytest.mark.parametrize("field", sorted(call()))
@pytest.mark.parametrize("value", [None, 17, -1, 1e300, True, "x", [], {}, [[]], {"a": [1]}])
def test_any_type_in_any_field_is_read(tmp_path: Path, field: str, value: Any) -> None:
    run = make_run(tmp_path, events=[call(**{field: value}), call(name="after")])

    found = taken(run, tmp_path)

    assert found.spans[-1].name == "after"
    agentdbg.validate_run(run)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["LLM_CALL", "TOOL_CALL", "STATE_UPDATE", "ERROR", "LOOP_WARNING"])
@pytest.mark.parametrize("value", [17, -0.5, True, "x", "", [], {}, {"a": [1]}, "[1]", 10**30])
def test_any_type_in_any_payload_field_is_read(tmp_path: Path, kind: str, value: Any) -> None:
    keys = PAYLOAD_FIELDS
    lines = [call(kind, payload={key: value}) for key in keys]
    run = make_run(tmp_path, events=[*lines, call(name="after")])

    found = taken(run, tmp_path)

    assert found.spans[-1].name == "after"
    agentdbg.validate_run(run)


def test_a_line_of_100_mb_is_passed_over_in_little_memory(tmp_path: Path) -> None:
    """Memory stays near the longest line that is read."""
    run = make_run(tmp_path, events=[call()])
    with open(run / "events.jsonl", "ab") as file:
        file.write(b'{"name": "')
        for _ in range(100):
            file.write(b"x" * 1_000_000)
        file.write(b'"}\n' + json.dumps(call(name="after")).encode() + b"\n")
    tracemalloc.start()

    records, rules = read(run)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rules == ["line-too-long"]
    assert [getattr(record, "name", "") for record in records].count("after") == 1
    assert peak < 4 * EVENT_LINE_MAX


@pytest.mark.parametrize("kind", ["RUN_START", "LLM_CALL", "ERROR", "LOOP_WARNING", "OTHER"])
def test_a_byte_that_is_no_utf_8_costs_that_byte(tmp_path: Path, kind: str) -> None:
    """In a payload or in `meta`: the event is read all the same, and a problem says so."""
    line = json.dumps(call(kind, payload=dict.fromkeys(PAYLOAD_FIELDS, "a?b"), meta={"k": "a?b"}))
    run = make_run(tmp_path, events=[call()])
    append(run, line.encode().replace(b"?", b"\xff") + b"\n")
    append(run, json.dumps(call(name="after")).encode() + b"\n")

    found = taken(run, tmp_path)
    records, rules = read(run)

    assert found.spans[-1].name == "after"
    assert rules == ["line-odd"]
    assert "a\ufffdb" in str(records)


def test_an_export_with_a_byte_that_is_no_utf_8_is_read(tmp_path: Path) -> None:
    event = call("LLM_CALL", payload={"prompt": "a?b"})
    value = json.dumps({"spec_version": "0.1", "run": {"run_id": RUN}, "events": [event]})
    path = tmp_path / "export.json"
    path.write_bytes(value.encode().replace(b"?", b"\xff"))

    records, rules = read(path)

    assert "a\ufffdb" in str(records)
    assert rules == ["line-odd"]


def test_a_lone_surrogate_in_a_long_value_costs_nothing_else(tmp_path: Path) -> None:
    """Neither the rest of a long text, nor the shape of its container."""
    messages = [{"role": "user", "content": "x" * 30_000}, {"role": "user", "\ud800": "end"}]
    payload = {"prompt": messages, "response": "y" * 30_000 + "\ud800", "\ud800": 1}
    run = make_run(tmp_path, events=[call("LLM_CALL", payload=payload)])

    records, rules = read(run)

    assert rules == ["line-odd"]
    prompt, response = [body for record in records if (body := getattr(record, "body", None))]
    assert json.loads(str(prompt))[0] == messages[0] and "end" in str(prompt)
    assert str(response).startswith("y" * 30_000)


def test_nan_and_lone_surrogates_are_read(tmp_path: Path) -> None:
    """AgentDbg writes both; neither is JSON."""
    run = make_run(tmp_path)
    odd = json.dumps(call(payload={"args": {"x": float("nan")}, "result": "\ud800"}))
    append(run, odd.encode() + b"\n")

    found = taken(run, tmp_path)

    assert found.spans[-1].name == "search"
    assert "line-odd" in read(run)[1]


def test_unknown_events_and_payload_fields_are_kept(tmp_path: Path) -> None:
    """The format may grow: what is not known stays findable."""
    run = make_run(
        tmp_path,
        events=[
            call("THOUGHT", payload={"text": "hm"}),
            call(payload={"tool_name": "t", "new": 1}),
        ],
    )

    found = taken(run, tmp_path)

    assert found.logs[0].attributes["event_type"] == "THOUGHT" and found.logs[0].body is not None
    assert found.spans[1].attributes["agentdbg.payload"] == '{"new":1}'


def test_two_events_with_one_id_are_two_spans(tmp_path: Path) -> None:
    same = call()
    run = make_run(tmp_path, events=[same, same])

    found = taken(run, tmp_path)

    assert len(found.spans) == 3 and "event-id-duplicate" in read(run)[1]


def test_a_missing_or_broken_run_file_leaves_the_events(tmp_path: Path) -> None:
    run = make_run(tmp_path, events=[call()])
    (run / "run.json").write_text("{")
    broken = read(run)
    (run / "run.json").unlink()

    records, rules = read(run)

    assert broken[1] == ["run-file-invalid"] and rules == ["run-file-missing"]
    assert len(records) == len(broken[0]) == 5


def test_only_a_run_file_is_a_run_without_events(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "events.jsonl").unlink()

    found = taken(run, tmp_path)

    assert (found.info.outcome, len(found.spans)) == ("ok", 1)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A run directory, or a file in one, that leads elsewhere is refused."""
    run = make_run(tmp_path / "elsewhere")
    (tmp_path / "runs").mkdir()
    link = tmp_path / "runs" / RUN
    link.symlink_to(run)
    inside = make_run(tmp_path / "other")
    secret = tmp_path / "secret"
    secret.write_text(json.dumps(call(name="secret")) + "\n")
    (inside / "events.jsonl").unlink()
    (inside / "events.jsonl").symlink_to(secret)

    assert list(agentdbg.find_runs(tmp_path / "runs")) in ([], [tmp_path / "runs"])
    with pytest.raises(UnreadableError, match="link"):
        agentdbg.read_run(link)
    assert "secret" not in [getattr(record, "name", "") for record in read(inside)[0]]


@pytest.mark.parametrize(
    "claimed", ["../../etc", "/etc/passwd", "a/b", "..", "\x00", "x" * 10_000, ""]
)
def test_a_claimed_run_id_is_never_a_path(tmp_path: Path, claimed: str) -> None:
    """It becomes a findable attribute, and a run id that derives from it."""
    run = make_run(tmp_path / "in").rename(tmp_path / "in" / "renamed")
    metadata = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(metadata | {"run_id": claimed}))

    with SqliteStore.open(tmp_path / "store.db") as store:
        (imported,) = import_path(store, run)
        from vestige.transfer import export_run

        made = export_run(store, str(imported.run_id), "agentdbg", tmp_path / "out")

    assert made.parent == tmp_path / "out" and made.is_dir()
    assert [path.name for path in (tmp_path / "out").iterdir()] == [imported.run_id]


def test_a_pipe_or_folder_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "events.jsonl").unlink()
    os.mkfifo(run / "events.jsonl")

    assert read(run)[1] == ["events-unreadable"]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=400))
def test_any_bytes_are_read_without_a_crash(tmp_path: Path, data: bytes) -> None:
    run = tmp_path / RUN
    if not run.exists():
        make_run(tmp_path)
    (run / "events.jsonl").write_bytes(data)

    read(run)
    agentdbg.validate_run(run)
