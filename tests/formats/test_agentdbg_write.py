"""Our runs as AgentDbg run directories: whole or not at all, valid, and back without loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.agentdbg_runs import make_run
from vestige.errors import UsageError
from vestige.formats import agentdbg
from vestige.record.run import Run
from vestige.record.types import KnownRecord, Log, SpanClose, SpanOpen
from vestige.recorder import Recorder
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import export_run, import_path
from vestige.transfer.import_runs import import_source

SCHEMAS = Path(__file__).parent.parent / "data" / "agentdbg" / "schemas"
REAL = Path(__file__).parent.parent / "data" / "agentdbg" / "runs"


def validate(run: Path) -> list[dict[str, Any]]:
    """Against the published schemas, formats included; the events."""
    event_schema = json.loads((SCHEMAS / "event.schema.json").read_text())
    run_schema = json.loads((SCHEMAS / "run.schema.json").read_text())
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    metadata = json.loads((run / "run.json").read_text())
    jsonschema.Draft202012Validator(run_schema, format_checker=checker).validate(metadata)
    lines = (run / "events.jsonl").read_text(encoding="utf-8").split("\n")
    events = [json.loads(line) for line in lines if line]
    for event in events:
        jsonschema.Draft202012Validator(event_schema, format_checker=checker).validate(event)
    return events


def record_demo(recorder: Recorder) -> str:
    """A run with everything that the format knows, and much that it does not."""
    with recorder.run("demo", conversation_id="c1", attributes={"team": "x"}) as run:
        run.log.info("hello", number=3)
        with run.span("plan", "step") as step:
            with step.span("gpt", "llm", {"model": "gpt"}, body='[{"role":"user"}]') as llm:
                llm.set_attributes(input_tokens=3, output_tokens=4)
                llm.end(body="y" * 50_000)
            with step.span("search", "tool", body=b"\xff\x00 bytes") as tool:
                tool.add_link(llm)
                tool.end(ValueError("no"), body={"a": [1]})
            with step.span("GET", "http", {"status_code": 200}):
                pass
        with run.span("memory", "state", body={"k": 1}):
            pass
        run.log.error("lost", error=KeyError("k"))
        return run.run_id


@pytest.fixture
def recorded(home: Any) -> tuple[Path, str]:
    recorder = Recorder(home)
    run_id = record_demo(recorder)
    recorder.close()
    from vestige.collector.loop import catch_up

    catch_up(home)
    return home.store, run_id


def facts(run: Run, store: SqliteStore) -> list[Any]:
    """A run without what differs from store to store: numbers of rows, writers, seqs."""

    def body(ref: Any) -> Any:
        return None if ref is None else (ref.size_bytes, ref.id and store.read_body(ref.id))

    spans = [
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
    ]
    logs = [
        (
            log.span_id,
            log.time_ns,
            log.level,
            log.component,
            log.message,
            log.attributes,
            log.redacted,
            body(log.body),
        )
        for log in run.logs
    ]
    links = [(link.span_id, link.target_run, link.target_span, link.reason) for link in run.links]
    info = run.info
    return [
        spans,
        logs,
        links,
        info.id,
        info.name,
        info.outcome,
        info.started_ns,
        info.ended_ns,
        info.duration_ns,
        info.conversation_id,
        info.component,
        info.input_tokens,
        info.output_tokens,
        info.error_count,
    ]


def test_a_run_of_ours_comes_back_without_loss(recorded: tuple[Path, str], tmp_path: Path) -> None:
    """Steps, lines, links, bytes, nanoseconds: the format has no place for them; the run has."""
    path, run_id = recorded
    with SqliteStore.open(path, readonly=True) as store:
        made = export_run(store, run_id, "agentdbg", tmp_path / "runs")
        before = facts(store.load_run(run_id), store)
    with SqliteStore.open(tmp_path / "other.db") as store:
        (imported,) = import_path(store, made)
        after = facts(store.load_run(run_id), store)

    assert imported.problems == []
    assert after == before


def test_what_is_written_is_valid_and_says_what_the_format_can(
    recorded: tuple[Path, str], tmp_path: Path
) -> None:
    path, run_id = recorded
    with SqliteStore.open(path, readonly=True) as store:
        made = export_run(store, run_id, "agentdbg", tmp_path / "runs")

    events = validate(made)

    kinds = [event["event_type"] for event in events]
    assert kinds == ["RUN_START", "LLM_CALL", "TOOL_CALL", "STATE_UPDATE", "ERROR", "RUN_END"]
    start, llm, tool = events[:3]
    assert start["payload"]["platform"] and start["payload"]["argv"] != []
    assert llm["payload"]["response"].endswith("__TRUNCATED__")
    assert len(llm["payload"]["response"]) == 20_000
    assert tool["payload"]["error"]["error_type"] == "ValueError"
    assert tool["payload"]["result"] == {"a": [1]}
    assert llm["parent_id"] == start["event_id"]
    assert agentdbg.validate_run(made) == []


def test_an_export_can_be_repeated_and_gives_the_same_events(
    recorded: tuple[Path, str], tmp_path: Path
) -> None:
    """Ids derive from ours; also when the run has been out and in again."""
    path, run_id = recorded
    with SqliteStore.open(path, readonly=True) as store:
        first = export_run(store, run_id, "agentdbg", tmp_path / "a")
    with SqliteStore.open(tmp_path / "other.db") as store:
        list(import_path(store, first))
        second = export_run(store, run_id, "agentdbg", tmp_path / "b")

    def content_of(made: Path) -> list[Any]:
        events = validate(made)
        return [(event["event_id"], event["event_type"], event["ts"]) for event in events]

    assert content_of(first) == content_of(second)


@pytest.mark.parametrize("path", sorted(REAL.iterdir()), ids=lambda path: path.name[:8])
def test_a_foreign_run_goes_out_with_the_ids_it_came_with(path: Path, tmp_path: Path) -> None:
    """Import and export again: the same events in the same order, and nothing is worse than it
    was.
    """
    source = []
    for line in (path / "events.jsonl").read_text(encoding="utf-8").split("\n"):
        try:
            source.append(json.loads(line))
        except ValueError:
            pass
    with SqliteStore.open(tmp_path / "store.db") as store:
        list(import_path(store, path))
        events = validate(export_run(store, path.name, "agentdbg", tmp_path / "runs"))

    identities = [(event["event_id"], event["event_type"], event["name"]) for event in events]
    assert identities[: len(source)] == [
        (e["event_id"], e["event_type"], e["name"]) for e in source
    ]
    assert [kind for _, kind, _ in identities[len(source) :]] in ([], ["ERROR", "RUN_END"])
    for before, after in zip(source, events, strict=False):
        assert after["duration_ms"] == before["duration_ms"] or after["event_type"] == "RUN_END"


def test_a_target_that_is_in_the_way_is_left_as_it_is(
    recorded: tuple[Path, str], tmp_path: Path
) -> None:
    """Nothing is overwritten, and nothing half written stays."""
    path, run_id = recorded
    with SqliteStore.open(path, readonly=True) as store:
        made = export_run(store, run_id, "agentdbg", tmp_path / "runs")
        before = (made / "events.jsonl").read_bytes()
        with pytest.raises(UsageError, match="there already"):
            export_run(store, run_id, "agentdbg", tmp_path / "runs")

    assert (made / "events.jsonl").read_bytes() == before
    assert list((tmp_path / "runs").iterdir()) == [made]


def test_our_records_are_passed_over_when_the_events_were_changed(
    recorded: tuple[Path, str], tmp_path: Path
) -> None:
    """The events are the public contract: they speak when they differ."""
    path, run_id = recorded
    with SqliteStore.open(path, readonly=True) as store:
        made = export_run(store, run_id, "agentdbg", tmp_path / "runs")
    lines = (made / "events.jsonl").read_text().splitlines(keepends=True)
    (made / "events.jsonl").write_text("".join(lines[:2] + lines[-1:]))
    with SqliteStore.open(tmp_path / "other.db") as store:
        (imported,) = import_path(store, made)
        run = store.load_run(run_id)

    assert [problem.rule for problem in imported.problems] == ["sidecar-passed-over"]
    assert [span.type for span in run.spans] == ["run", "llm"]


# --- any run ------------------------------------------------------------------------------------

texts = st.text(max_size=30)
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts
attributes = st.dictionaries(st.text(min_size=1, max_size=12), scalars, max_size=4)
bodies = (
    st.none() | texts | st.sampled_from(['{"a":[1,{"b":null}]}', "[NaN]", '"x"', "12", "[", "\n"])
)


@st.composite
def runs(draw: st.DrawFn) -> list[KnownRecord]:
    """The records of a run: spans in spans, lines between, some left open."""
    run_id = "22222222-2222-4222-8222-222222222222"
    records: list[KnownRecord] = []
    now = 1_763_229_905_000_000_000
    stack: list[tuple[str, int]] = []

    def begin() -> tuple[int, str, int, int, str]:
        nonlocal now
        now += draw(st.integers(0, 3_000_000))
        return 1, "a" * 16, len(records) + 1, now, run_id

    def close() -> None:
        span_id, opened_ns = stack.pop()
        head = begin()
        status = draw(st.sampled_from(["ok", "ok", "error", "timeout", "cancelled", "interrupted"]))
        records.append(SpanClose(*head, span_id, status, head[3] - opened_ns, {}, draw(bodies)))

    head = begin()
    records.append(
        SpanOpen(*head, "0" * 16, "app", "run", draw(texts), None, None, draw(attributes))
    )
    stack.append(("0" * 16, head[3]))
    for number in range(draw(st.integers(0, 8))):
        what = draw(st.sampled_from(["open", "open", "close", "log"]))
        if what == "open":
            head = begin()
            kind = draw(st.sampled_from(["llm", "tool", "state", "step", "http", "run", "x"]))
            span_id = f"{number + 1:016x}"
            records.append(
                SpanOpen(
                    *head,
                    span_id,
                    draw(texts),
                    kind,
                    draw(texts),
                    stack[-1][0],
                    None,
                    draw(attributes),
                    None,
                    draw(bodies),
                )
            )
            stack.append((span_id, head[3]))
        elif what == "close" and len(stack) > 1:
            close()
        else:
            more = draw(st.sampled_from([{}, {"error.type": "a.B"}, {"loop.pattern": "x"}]))
            span_attributes = {**draw(attributes), **more}
            records.append(
                Log(
                    *begin(),
                    "app",
                    draw(st.sampled_from(["info", "error"])),
                    draw(texts),
                    stack[-1][0],
                    span_attributes,
                    draw(bodies),
                )
            )
    while stack and draw(st.booleans()):
        close()
    return records


@pytest.mark.slow
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(runs())
def test_any_run_is_written_validly_and_read_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, records: list[KnownRecord]
) -> None:
    """read(write(run)) is the run; what is written is valid by the published schemas."""
    folder = tmp_path_factory.mktemp("any")
    run_id = records[0].run_id
    with SqliteStore.open(folder / "a.db") as store:
        store.append(records)
        made = export_run(store, run_id, "agentdbg", folder / "runs")
        before = facts(store.load_run(run_id), store)
    validate(made)
    with SqliteStore.open(folder / "b.db") as store:
        source = agentdbg.read_run(made)
        unmasked = _NoMasking()
        import_source(store, source, unmasked)  # type: ignore[arg-type]
        after = facts(store.load_run(run_id), store)

    assert after == before


class _NoMasking:
    def suspicious(self, line: bytes) -> bool:
        return False

    def complete_scanner(self) -> None:
        return None


def test_a_foreign_run_and_its_export_answer_alike(tmp_path: Path) -> None:
    run = make_run(tmp_path / "in")
    with SqliteStore.open(tmp_path / "a.db") as store:
        list(import_path(store, run))
        made = export_run(store, run.name, "agentdbg", tmp_path / "out")
        before = facts(store.load_run(run.name), store)
    with SqliteStore.open(tmp_path / "b.db") as store:
        list(import_path(store, made))
        after = facts(store.load_run(run.name), store)

    assert after == before


def test_a_damaged_line_of_our_records_is_told(recorded: tuple[Path, str], tmp_path: Path) -> None:
    """What could not be read is missing in the run, so a reader has to know."""
    path, run_id = recorded
    with SqliteStore.open(path, readonly=True) as store:
        made = export_run(store, run_id, "agentdbg", tmp_path / "runs")
    lines = (made / "vestige.ndjson").read_bytes().split(b"\n")
    (made / "vestige.ndjson").write_bytes(b"\n".join([*lines[:2], b"\x00damaged", *lines[3:]]))
    with SqliteStore.open(tmp_path / "other.db") as store:
        (imported,) = import_path(store, made)

    found = [(problem.rule, problem.place) for problem in imported.problems]
    assert found == [("line-invalid", "line 3")]


def test_the_times_of_a_real_run_survive_import_and_export(tmp_path: Path) -> None:
    """run.json and RUN_START.ts: AgentDbg takes each of them at another moment."""
    compared = 0
    for folder in sorted(REAL.iterdir()):
        before = json.loads((folder / "run.json").read_text())
        if before["status"] == "running":
            continue
        with SqliteStore.open(tmp_path / f"{folder.name}.db") as store:
            (imported,) = import_path(store, folder)
            assert imported.run_id is not None
            made = export_run(store, imported.run_id, "agentdbg", tmp_path / "out")
        assert json.loads((made / "run.json").read_text()) == before
        first, again = (
            json.loads((each / "events.jsonl").read_text().split("\n")[0])
            for each in (folder, made)
        )
        assert (again["event_type"], again["ts"]) == ("RUN_START", first["ts"])
        compared += 1

    assert compared == 5
