"""run -> .wink -> store -> .wink: the same content, whatever a session, a log or a file holds."""

from __future__ import annotations

import json
import tempfile
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from support.wink_samples import (
    BUNDLE,
    DATA,
    make_bundle,
    members_of,
    seed_members,
    write_zip,
)
from vestige._runtime.clock import SYSTEM
from vestige.debug import DebugBundle
from vestige.formats.wink import validate_run
from vestige.formats.wink.archive.member_names import safe_path
from vestige.formats.wink.jsonl_entries import parse_log, render_log
from vestige.formats.wink.log_records import attributes_of, entry_of, our_level, to_ns
from vestige.home import Home
from vestige.record.redaction.redactor import Redactor
from vestige.record.run import Run
from vestige.recorder import Recorder
from vestige.store.protocol import RetentionPolicy
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import export_run, import_path
from vestige.transfer.open_any_path import open_path

REDACTOR = Redactor()
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=8), inner, max_size=3
        )
    ),
    max_leaves=8,
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
KEYS = NAMES | st.sampled_from(["event", "context.x", "entry.level", "entry.x", "path", "level"])
TIMES = st.datetimes(min_value=datetime(1990, 1, 1), max_value=datetime(2100, 1, 1)).map(
    lambda when: when.isoformat() + "+00:00"
)
LOGS = st.fixed_dictionaries(
    {
        "timestamp": TIMES | st.just("2024-01-15T10:30:00Z") | st.just("not a time"),
        "level": st.sampled_from(["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "notice", ""]),
        "logger": NAMES.filter(bool),
        "event": NAMES,
        "message": NAMES,
        "context": st.dictionaries(KEYS, VALUES, max_size=4),
    }
)
SNAPSHOTS = st.fixed_dictionaries(
    {
        "version": st.just("1"),
        "created_at": TIMES,
        "tags": st.dictionaries(NAMES, NAMES, max_size=2),
        "slices": st.lists(
            st.fixed_dictionaries(
                {
                    "slice_type": NAMES.filter(bool),
                    "item_type": NAMES,
                    "items": st.lists(VALUES, max_size=3),
                }
            ),
            max_size=2,
        ),
    }
)
PARTS = st.sampled_from(
    [".env", "CON", "a", "A", "é", "é", "x.py", "..", "a\\b", "b c", "✓", "%41", "~"]
) | st.text(st.characters(exclude_characters="/"), min_size=1, max_size=6)
PATHS = st.lists(PARTS, min_size=1, max_size=5).map("/".join)
FILES = st.dictionaries(PATHS, st.binary(max_size=40), max_size=5)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(snapshots=st.lists(SNAPSHOTS, max_size=4), logs=st.lists(LOGS, max_size=5), files=FILES)
def test_a_bundle_that_went_through_a_store_is_the_same(
    snapshots: list[dict[str, Any]], logs: list[dict[str, Any]], files: dict[str, bytes]
) -> None:
    """Snapshots and files byte for byte, log entries value for value, the manifest's facts."""
    # A word that happens to name a secret is masked on the way in, as it should be.
    assume(not REDACTOR.suspicious(json.dumps([snapshots, logs, list(files)]).encode()))
    made = make_bundle(
        _snapshots=[json.dumps(each) for each in snapshots],
        _logs=[json.dumps(each) for each in logs],
        _files=files,
    )
    with tempfile.TemporaryDirectory() as folder:
        first = made.export(f"{folder}/first.wink")
        second = _through_a_store(first, Path(folder) / "a.db", Path(folder) / "second.wink")
        third = _through_a_store(second, Path(folder) / "b.db", Path(folder) / "third.wink")
        loaded = DebugBundle.load(second)
        before, after = members_of(first), members_of(second)
        loaded_files = {path: loaded.read_file(path) for path in loaded.list_files()}
        same_again = second.read_bytes() == third.read_bytes()

    assert after["snapshots.jsonl"] == before["snapshots.jsonl"]
    sent, came = _entries(before["logs.jsonl"]), _entries(after["logs.jsonl"])
    assert sorted(map(_canonical, came)) == sorted(map(_canonical, sent))
    assert loaded_files == {
        name.removeprefix("files/"): data
        for name, data in before.items()
        if name.startswith("files/")
    }
    assert sorted(loaded_files.values()) == sorted(files.values())
    assert (loaded.agent, loaded.execution, loaded.tags) == (made.agent, made.execution, made.tags)
    assert same_again


def _through_a_store(path: Path, store_path: Path, target: Path) -> Path:
    with SqliteStore.open(store_path) as store:
        (imported,) = import_path(store, path)
        assert imported.run_id is not None and imported.records, imported
        (again,) = import_path(store, path)
        assert (again.records, again.known) == (0, True)
        return export_run(store, imported.run_id, "wink", target)


def _entries(raw: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in raw.splitlines()]


def _canonical(entry: dict[str, Any]) -> str:
    return json.dumps(entry, sort_keys=True)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(LOGS, st.dictionaries(NAMES, VALUES, max_size=2))
def test_a_log_entry_is_the_same_after_it_was_attributes(
    fields: dict[str, Any], more: dict[str, Any]
) -> None:
    """Also keys that the format does not have, and those that mean something to us."""
    entry = parse_log(json.dumps({**more, **fields}))
    assert entry is not None
    time_ns = to_ns(entry.timestamp)
    attributes = attributes_of(entry, time_ns)
    assert attributes is not None

    again = entry_of(time_ns or 0, our_level(entry.level), entry.logger, entry.message, attributes)

    assert json.loads(render_log(again)) == json.loads(render_log(entry))


@settings(max_examples=100)
@given(PATHS)
def test_a_stored_path_is_safe_and_stays(path: str) -> None:
    stored = safe_path(path)

    from vestige.formats.wink.archive.member_names import find_fault

    assert find_fault(f"files/{stored}") is None
    assert safe_path(stored) == stored


# --- a run that was recorded here ----------------------------------------------------------------


@pytest.fixture
def recorded(home: Home) -> Home:
    """Spans, links, logs, bodies of all sizes, a state, a file captured twice, an open span."""
    with Recorder(home, crash_hooks=False) as recorder:
        run = recorder.run("triage", "c-9", attributes={"order": 7})
        messages: list[dict[str, str]] = []
        for turn in range(6):
            messages.append({"role": "user", "content": f"turn {turn} " * 400})
            body = json.dumps({"model": "m-1", "messages": messages})
            call = run.span(
                "ask", type="llm", attributes={"model": "m-1", "input_tokens": 10 + turn}, body=body
            )
            call.end(body=f"answer {turn}", attributes={"output_tokens": 3})
        tool = run.span("search", type="tool", body='{"q": "x"}')
        tool.add_link(call, reason="asked for it")
        tool.log.warn("odd", n=1, text="ü")
        tool.end(error=ValueError("card refused"))
        run.span("state", type="snapshot", attributes={"index": 0}).end(
            body='{"version":"1","created_at":"2026-01-01T00:00:00+00:00","slices":[]}'
        )
        run.span("state", type="snapshot", attributes={"index": 1}).end(body="no JSON")
        for content in (b"old", b"\xff\x00new"):
            run.span("f", type="file", attributes={"path": "w/a.bin"}).end(body=content)
        run.span("left open", type="step")
        run.end(error=ValueError("card refused"))
    return home


def _facts(run: Run, read: Any) -> Any:
    """All that a run says, without the ids of the store that holds it."""

    def body(ref: Any) -> Any:
        return None if ref is None else (read(ref.id) if ref.id else None, ref.cut)

    info = run.info
    return (
        (
            info.id,
            info.name,
            info.outcome,
            info.started_ns,
            info.ended_ns,
            info.duration_ns,
            info.span_count,
            info.log_count,
            info.error_count,
            info.conversation_id,
            info.component,
            info.input_tokens,
            info.output_tokens,
        ),
        [
            (
                s.id,
                s.parent_id,
                s.started_ns,
                s.type,
                s.name,
                s.component,
                s.status,
                s.duration_ns,
                s.attributes,
                s.redacted,
                body(s.input),
                body(s.output),
            )
            for s in run.spans
        ],
        [
            (
                one.span_id,
                one.time_ns,
                one.level,
                one.component,
                one.message,
                one.attributes,
                body(one.body),
            )
            for one in run.logs
        ],
        [(one.span_id, one.target_run, one.target_span, one.reason) for one in run.links],
    )


def test_a_recorded_run_comes_back_as_it_was(recorded: Home, tmp_path: Path) -> None:
    """Order, times, bodies, links, errors; and a second trip changes nothing."""
    with open_path(recorded) as debugger:
        run = debugger.store.load_run(debugger.store.list_runs(_any())[0].id)
        before = _facts(run, debugger.store.read_body)
        first = export_run(debugger.store, run.info.id, "wink", tmp_path / "first.wink")
    second = _through_a_store(first, tmp_path / "a.db", tmp_path / "second.wink")
    with SqliteStore.open(tmp_path / "a.db", readonly=True) as store:
        after = _facts(store.load_run(run.info.id), store.read_body)

    assert after == before
    assert members_of(second) == members_of(first)
    assert second.read_bytes() == first.read_bytes()


def _any() -> Any:
    from vestige.store.protocol import RunFilter

    return RunFilter(limit=1)


STATE = json.dumps({"version": "1", "created_at": "2026-01-01T00:00:00+00:00", "slices": []})


@pytest.mark.parametrize(
    ("type", "path", "input", "output"),
    [
        ("snapshot", None, None, json.dumps(json.loads(STATE), indent=2)),
        ("snapshot", None, None, STATE + "\n"),
        ("snapshot", None, STATE, None),
        ("file", "/srv/app\\.env", None, b"A=1"),
        ("file", "w/a.txt", b"A=1", None),
    ],
    ids=["indented", "with a newline", "as input", "unsafe path", "file as input"],
)
def test_what_a_component_writes_in_another_form_is_not_taken_in_twice(
    home: Home, tmp_path: Path, type: str, path: str | None, input: Any, output: Any
) -> None:
    """A state is put on one line, a file under a safe name: it is still the one of the record."""
    with Recorder(home, crash_hooks=False) as recorder:
        run = recorder.run("triage")
        run.span("it", type=type, attributes={"path": path} if path else {}, body=input).end(
            body=output
        )
        run.end()
    with open_path(home) as debugger:
        run_id = debugger.store.list_runs(_any())[0].id
        before = debugger.store.load_run(run_id)
        first = export_run(debugger.store, run_id, "wink", tmp_path / "first.wink")
    second = _through_a_store(first, tmp_path / "a.db", tmp_path / "second.wink")
    with SqliteStore.open(tmp_path / "a.db", readonly=True) as store:
        after = store.load_run(run_id)

    assert [span.id for span in after.spans] == [span.id for span in before.spans]
    assert second.read_bytes() == first.read_bytes()


def test_a_log_entry_too_long_for_attributes_is_not_taken_in_twice(tmp_path: Path) -> None:
    entry = {
        "timestamp": "2026-11-15T18:12:26+00:00",
        "level": "INFO",
        "logger": "a",
        "event": "e",
        "message": "m",
        "context": {"text": "long " * 10_000},
    }
    made = make_bundle(_logs=[json.dumps(entry)]).export(tmp_path / "first.wink")
    second = _through_a_store(made, tmp_path / "a.db", tmp_path / "second.wink")
    third = _through_a_store(second, tmp_path / "b.db", tmp_path / "third.wink")

    assert [log.context for log in DebugBundle.load(third).logs] == [entry["context"]]
    assert third.read_bytes() == second.read_bytes()


def test_a_bundle_of_a_run_that_went_on_adds_how_it_ended(home: Home, tmp_path: Path) -> None:
    """What a span said at its end is new, though the span was in an earlier bundle of the run."""
    with Recorder(home, crash_hooks=False) as recorder:
        run = recorder.run("triage")
        call = run.span("ask", type="llm", attributes={"model": "m-1"})
        early = _export_latest(home, tmp_path / "early.wink")
        call.end(body="answer", attributes={"output_tokens": 3})
        run.end(error=ValueError("card refused"))
    late = _export_latest(home, tmp_path / "late.wink")
    with SqliteStore.open(tmp_path / "a.db") as store:
        (first,) = import_path(store, early)
        (second,) = import_path(store, late)
        root, model_call = store.load_run(second.run_id or "").spans

    assert first.run_id == second.run_id
    assert (root.status, root.attributes["error.message"]) == ("error", "card refused")
    assert (model_call.status, model_call.attributes) == (
        "ok",
        {"model": "m-1", "output_tokens": 3},
    )


def _export_latest(home: Home, target: Path) -> Path:
    with open_path(home) as debugger:
        return export_run(debugger.store, debugger.store.list_runs(_any())[0].id, "wink", target)


def test_a_root_that_says_much_is_found(home: Home, tmp_path: Path) -> None:
    """Its line may be longer than what is unpacked at once; the records are still the run."""
    with Recorder(home, crash_hooks=False) as recorder:
        attributes = {f"note {number}": "words " * 5_000 for number in range(12)}
        run = recorder.run("triage", attributes=attributes)
        run.span("search", type="tool").end()
        run.end()
    with open_path(home) as debugger:
        run_id = debugger.store.list_runs(_any())[0].id
        path = export_run(debugger.store, run_id, "wink", tmp_path / "x.wink")
    with open_path(path) as debugger:
        types = [span.type for span in debugger.store.load_run(run_id).spans]

    assert types == ["run", "tool"]


def test_a_file_that_retention_took_is_left_out(home: Home, tmp_path: Path) -> None:
    """An empty one in its place would say that it was empty."""
    with Recorder(home, crash_hooks=False) as recorder:
        run = recorder.run("triage")
        run.span("f", type="file", attributes={"path": "w/a.txt"}).end(body="text " * 1_000)
        run.span("f", type="file", attributes={"path": "w/empty"}).end(body="")
        run.end()
    with open_path(home) as debugger:
        run_id = debugger.store.list_runs(_any())[0].id
    with SqliteStore.open(home.store) as store:
        store.prune(RetentionPolicy(None, 0), SYSTEM.now_ns())
        path = export_run(store, run_id, "wink", tmp_path / "x.wink")

    assert "w/a.txt" not in DebugBundle.load(path).list_files()
    assert "files/w/a.txt" not in members_of(path)


def test_what_the_seed_has_a_place_for_is_there(recorded: Home, tmp_path: Path) -> None:
    """A reader that knows only the seed's files finds the states, the log and the newest files."""
    with open_path(recorded) as debugger:
        run_id = debugger.store.list_runs(_any())[0].id
        path = export_run(debugger.store, run_id, "wink", tmp_path / "x.wink")
    bundle = DebugBundle.load(path)

    assert (bundle.agent.name, bundle.agent.model) == ("triage", "m-1")
    assert bundle.execution.outcome == "failure"
    assert bundle.execution.error is not None
    assert bundle.execution.error["type"] == "ValueError"
    assert len(list(bundle.snapshots)) == 1
    logs = [log for log in bundle.logs if log.logger != "vestige"]
    assert [(log.level, log.message, log.context["text"]) for log in logs] == [
        ("WARNING", "odd", "ü")
    ]
    assert bundle.read_file("w/a.bin") == b"\xff\x00new"


def test_a_message_that_every_call_resends_is_written_once(recorded: Home, tmp_path: Path) -> None:
    with open_path(recorded) as debugger:
        run_id = debugger.store.list_runs(_any())[0].id
        path = export_run(debugger.store, run_id, "wink", tmp_path / "x.wink")
    members = members_of(path)

    assert members["vestige/pieces"].count(b"turn 0 turn 0") <= 400
    assert b"turn 0 turn 0" not in members["vestige/records.ndjson"]


def test_a_run_that_is_here_is_not_changed_by_a_bundle_of_it(
    recorded: Home, tmp_path: Path
) -> None:
    with open_path(recorded) as debugger:
        run_id = debugger.store.list_runs(_any())[0].id
        path = export_run(debugger.store, run_id, "wink", tmp_path / "x.wink")
    with SqliteStore.open(recorded.store) as store:
        (imported,) = import_path(store, path)

    assert (imported.run_id, imported.records, imported.known) == (run_id, 0, True)


@pytest.mark.slow
def test_the_records_of_a_run_and_a_capture_beside_it_are_one_run(
    recorded: Home, tmp_path: Path
) -> None:
    """A builder's bundle: its own state and logs, and the records of the run that it watched."""
    from vestige.formats.protocol import RunToWrite
    from vestige.formats.wink.embedded_records import RecordParts
    from vestige.formats.wink.write import write_bundle

    with open_path(recorded) as debugger:
        run = debugger.store.load_run(debugger.store.list_runs(_any())[0].id)
        parts = RecordParts(RunToWrite(run, debugger.store.read_body))
        made = make_bundle()

        class Both:
            manifest = made.manifest
            snapshots, logs, files = (made.content.snapshots, made.content.logs, made.content.files)
            extras = parts.extras

        path = write_bundle(Both(), tmp_path / "x.wink")  # type: ignore[arg-type]
    second = _through_a_store(path, tmp_path / "a.db", tmp_path / "second.wink")
    with SqliteStore.open(tmp_path / "a.db", readonly=True) as store:
        (imported,) = store.find_runs(run.info.id)
        complete = store.load_run(imported.id)
    types = [span.type for span in complete.spans]
    third = _through_a_store(second, tmp_path / "b.db", tmp_path / "third.wink")

    assert (types.count("llm"), types.count("snapshot")) == (6, 10)
    assert len(complete.logs) == len(run.logs) + 82
    root = next(span for span in complete.spans if span.type == "run")
    assert root.attributes["bundle_id"] == str(BUNDLE)
    assert root.attributes["order"] == 7
    assert DebugBundle.load(second).bundle_id == BUNDLE
    assert third.read_bytes() == second.read_bytes()


def test_a_store_keeps_a_state_that_hardly_changes_once(tmp_path: Path) -> None:
    """300 states that each repeat the previous one take a small multiple of the last one."""
    items = [{"name": "read", "call": n, "result": f"{n:x}" * 400} for n in range(120)]
    lines = [
        json.dumps(
            {
                "version": "1",
                "created_at": f"2026-01-01T00:{n // 60:02d}:{n % 60:02d}+00:00",
                "tags": {"session_id": "s"},
                "slices": [
                    {"slice_type": "t:Tool", "item_type": "t:Tool", "items": items[:n]},
                    {"slice_type": "z:Plan", "item_type": "z:Plan", "items": [{"n": n}]},
                ],
            }
        )
        for n in range(120)
    ]
    path = make_bundle(_snapshots=lines).export(tmp_path / "x.wink")
    with SqliteStore.open(tmp_path / "a.db") as store:
        list(import_path(store, path))
        stored = store.sizes().body_bytes

    assert stored < 2 * len(lines[-1]) + 50_000
    assert sum(map(len, lines)) > 40 * stored


@pytest.mark.slow
@pytest.mark.parametrize("name", ["snapshots.jsonl", "snapshots_timeline.jsonl", "later.zip"])
def test_what_else_is_read_goes_through_a_store_too(tmp_path: Path, name: str) -> None:
    second = _through_a_store(DATA / name, tmp_path / "a.db", tmp_path / "second.wink")
    third = _through_a_store(second, tmp_path / "b.db", tmp_path / "third.wink")

    assert third.read_bytes() == second.read_bytes()
    assert DebugBundle.load(second).session_id == DebugBundle.load(DATA / name).session_id


def through_a_store(tmp_path: Path, path: Path) -> Path:
    """Import a bundle, and export it again."""
    with SqliteStore.open(tmp_path / "through.db") as store:
        (imported,) = import_path(store, path)
        assert imported.run_id is not None
        return export_run(store, imported.run_id, "wink", tmp_path / "through.wink")


def test_what_a_foreign_bundle_has_beyond_the_format_survives(tmp_path: Path) -> None:
    """An empty logger, keys that nobody here knows, and lines that are no entries."""
    members = seed_members()
    manifest = json.loads(members["manifest.json"])
    manifest["team"] = {"name": "search"}
    manifest["agent"]["region"] = "eu"
    manifest["components"]["logs"]["encoding"] = "utf-8"
    lines = [
        (
            b'{"timestamp":"2024-01-15T10:30:00+00:00","level":"INFO",'
            b'"logger":"","event":"e","message":"m","context":{}}'
        ),
        b"Traceback (most recent call last):",
        b"  \xff not UTF-8",
        (
            b'{"timestamp":"2024-01-15T10:30:01+00:00","level":"INFO",'
            b'"logger":"b","event":"","message":"n","context":{}}'
        ),
    ]
    members["logs.jsonl"] = b"\n".join([*lines, b""])
    manifest["components"]["logs"] |= {"entry_count": 4, "size_bytes": len(members["logs.jsonl"])}
    members["manifest.json"] = json.dumps(manifest).encode()
    path = write_zip(tmp_path / "x.wink", members)

    made = members_of(through_a_store(tmp_path, path))
    again = json.loads(made["manifest.json"])

    assert made["logs.jsonl"] == members["logs.jsonl"]
    assert (again["team"], again["agent"]["region"]) == ({"name": "search"}, "eu")
    assert again["components"]["logs"]["encoding"] == "utf-8"
    loaded = DebugBundle.load(path)
    assert json.loads(members_of(loaded.export(tmp_path / "y.wink"))["manifest.json"])["team"]
    (tmp_path / "through.wink").rename(tmp_path / "z.wink")
    (tmp_path / "through.db").unlink()
    second = members_of(through_a_store(tmp_path, tmp_path / "z.wink"))
    assert second["logs.jsonl"] == members["logs.jsonl"], "and a second time"


def test_a_file_that_import_masked_is_named_in_the_manifest(tmp_path: Path) -> None:
    secret = b"token = 'sk-ant-REDACTED'\n"
    members = {**seed_members(), "files/workspace/x": secret}

    made = members_of(through_a_store(tmp_path, write_zip(tmp_path / "x.wink", members)))

    assert secret not in made["files/workspace/x"]
    assert json.loads(made["manifest.json"])["components"]["files"]["redacted"] == ["workspace/x"]


def write_foreign(path: Path, **changes: Any) -> Path:
    """Write a bundle of another program, with a component that is not known here."""
    manifest: dict[str, Any] = {
        "version": "1",
        "bundle_id": "b1",
        "created_at": "2026-01-01T00:00:00+00:00",
        "session_id": "s",
        "agent": {"name": "reviewer", "adapter": "openai", "model": "m"},
        "execution": {"started_at": "2026-01-01T00:00:00+00:00", "outcome": "success"},
        "components": {
            "snapshots": {"path": "snapshots.jsonl"},
            "logs": {"path": "logs.jsonl"},
            "metrics": {"path": "metrics.json", "entry_count": 5, "rows": 5},
        },
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", json.dumps(manifest | changes))
        for name in ("snapshots.jsonl", "logs.jsonl"):
            archive.writestr(name, "")
        archive.writestr("metrics.json", "{}")
    return path


def test_a_component_that_is_not_imported_is_named_and_the_export_is_valid(tmp_path: Path) -> None:
    source = write_foreign(tmp_path / "foreign.wink")
    with SqliteStore.open(tmp_path / "store.db") as store:
        (imported,) = import_path(store, source)
        assert imported.run_id is not None
        made = export_run(store, imported.run_id, "wink", tmp_path / "again.wink")
    with zipfile.ZipFile(made) as archive:
        manifest = json.loads(archive.read("manifest.json"))

    assert validate_run(made) == []
    assert "metrics" not in manifest["components"]
    assert manifest["components_left_out"] == {
        "metrics": {"path": "metrics.json", "entry_count": 5, "rows": 5}
    }


@pytest.mark.parametrize(
    "agent",
    [
        {"name": "reviewer", "version": None, "adapter": None, "model": None},
        {"name": "reviewer", "version": 3, "model": ["a", "b"]},
    ],
)
def test_an_agent_without_a_model_loads(tmp_path: Path, agent: Any) -> None:
    """Version, adapter and model only describe it."""
    path = write_foreign(tmp_path / "foreign.wink", agent=agent)
    bundle = DebugBundle.load(path)

    assert bundle.agent.name == "reviewer"
    assert isinstance(bundle.agent.model, str)
    with SqliteStore.open(tmp_path / "store.db") as store:
        (imported,) = import_path(store, path)
    assert imported.run_id is not None
