"""OpenWOP bundles from stored runs: valid, whole or a strict prefix, and nothing leaks."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

import vestige
from support.openwop_server import (
    MACHINE,
    MODES,
    SECRETS,
    record_everything,
    source_of,
    validate_bundle,
)
from vestige.collector.loop import catch_up
from vestige.errors import SensitiveDataError
from vestige.formats import openwop
from vestige.formats.openwop.assemble import assemble, poll
from vestige.formats.openwop.constants import SPAN_KEYS, TERMINAL
from vestige.formats.openwop.from_records import Story
from vestige.formats.protocol import RunToWrite
from vestige.home import Home
from vestige.limits import OPENWOP_BUNDLE_MAX
from vestige.record.note import Note
from vestige.record.run import BodyRef, LogInfo, Run, RunInfo, SpanInfo
from vestige.transfer import export_run, open_path

NOW = 1_800_000_000_000_000_000
RUN_ID = "3d1957bd-7105-4b04-b132-afe8fc31203e"


def bundle_of(source: RunToWrite, mode: Any = "mask", max_events: int | None = None) -> Any:
    raw = assemble(Story(source, mode, key=b"k" * 32), NOW, max_events)
    assert len(raw) <= OPENWOP_BUNDLE_MAX
    bundle = json.loads(raw)
    validate_bundle(bundle)
    return bundle


def made_run(
    bodies: dict[int, bytes] | None = None, spans: int = 3, *, message: str = "", **root: Any
) -> RunToWrite:
    """A run without a store: as many spans and lines as wanted, bodies as given."""
    bodies = bodies or {}
    info = RunInfo(
        id=RUN_ID,
        short_id="r1",
        name="big",
        outcome="ok",
        started_ns=NOW,
        ended_ns=NOW + 10**9,
        duration_ns=10**9,
        last_ns=NOW + 10**9,
        span_count=spans,
        log_count=0,
        error_count=0,
        conversation_id=None,
        component="a",
        input_tokens=0,
        output_tokens=0,
        pinned=False,
        implicit=False,
    )

    def ref(number: int) -> BodyRef | None:
        return BodyRef(number, len(bodies[number])) if number in bodies else None

    def span(number: int, type: str, parent: str | None, **more: Any) -> SpanInfo:
        return SpanInfo(
            id=f"{number:016x}",
            short_id=f"r1.s{number}",
            parent_id=parent,
            writer="w",
            seq=10 * number,
            started_ns=NOW + number,
            type=type,
            name="n",
            component="agent",
            status="ok",
            duration_ns=1,
            redacted={},
            input=ref(number),
            output=None,
            end_seq=10 * number + 5,
            **{"attributes": {}, **more},
        )

    first = span(0, "run", None, **root)
    nodes = [first, *(span(number, "step", first.id) for number in range(1, spans + 1))]
    logs = [
        LogInfo(
            span_id=node.id,
            writer="w",
            seq=(node.seq or 0) + 1,
            time_ns=node.started_ns,
            level="info",
            component="agent",
            message=message,
            attributes={},
            redacted={},
            body=None,
        )
        for node in nodes[1:]
        if message
    ]
    return RunToWrite(Run(info=info, spans=nodes, logs=logs, links=[]), bodies.__getitem__)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fails", [False, True])
def test_no_secret_and_nothing_of_the_machine_is_in_a_bundle(
    home: Home, mode: str, fails: bool
) -> None:
    """Planted in inputs, events, attributes, errors, notes, names and keys: absent in every
    mode.
    """
    run_id = record_everything(home, fails=fails)
    source = source_of(home, run_id)
    note = Note(id="n1", run_id=run_id, text=f"see {SECRETS['note']}", created_ns=NOW)
    source = RunToWrite(source.run, source.read_body, source.process, [note])

    text = json.dumps(bundle_of(source, mode), ensure_ascii=False)

    for secret in SECRETS.values():
        assert secret not in text
        assert secret[4:16] not in text
    for detail in MACHINE:
        assert detail not in text
    assert "…redacted…" not in text
    assert str(home.root.parent) not in text


def test_each_mode_writes_a_masked_value_in_its_own_way(home: Home) -> None:
    """mask: `[REDACTED]`; omit: the field is gone; hash: `sha256:<hex>`, equal for equal
    secrets.
    """
    source = source_of(home, record_everything(home))
    inputs = {mode: bundle_of(source, mode)["run"]["inputs"] for mode in MODES}

    assert inputs["mask"]["api_key"] == "[REDACTED]"
    assert "api_key" not in inputs["omit"]
    assert inputs["hash"]["api_key"].startswith("sha256:")
    assert len(inputs["hash"]["api_key"]) == 7 + 64
    assert all(each["q"] == "refund" for each in inputs.values())
    assert bundle_of(source, "hash")["run"]["inputs"] == inputs["hash"]


def test_hashes_of_another_key_are_others(home: Home) -> None:
    """Keyed, so that nobody can test a guess against a bundle."""
    source = source_of(home, record_everything(home))
    snapshots = [
        json.loads(Story(source, "hash", key=key).snapshot) for key in (b"a" * 32, b"b" * 32)
    ]

    assert snapshots[0]["inputs"]["api_key"] != snapshots[1]["inputs"]["api_key"]


def test_passthrough_is_refused_where_something_was_masked(home: Home) -> None:
    """`redactionApplied: false` is permitted only when no sensitive data was present."""
    source = source_of(home, record_everything(home))

    with pytest.raises(SensitiveDataError, match="passthrough is refused"):
        Story(source, "passthrough")


@pytest.mark.parametrize("text", ["sk-ant-api03-abcdefgh12345678", "reach 10.1.2.3 now"])
def test_passthrough_is_refused_where_the_store_itself_holds_something(text: str) -> None:
    """A store that was filled by another hand: what nobody masked is still not passed through."""
    with pytest.raises(SensitiveDataError):
        assemble(Story(made_run(message=text), "passthrough"), NOW)


def test_passthrough_of_a_harmless_run_says_that_nothing_was_applied() -> None:
    bundle = bundle_of(made_run({1: b'{"a":1}'}, message="hello"), "passthrough")

    assert (bundle["redactionApplied"], bundle["redactionMode"]) == (False, "passthrough")


def test_a_secret_that_was_never_masked_is_masked_on_its_way_out() -> None:
    """All goes once more past the rules by which a recorder masks."""
    body = json.dumps(
        {
            "headers": {"Authorization": "Bearer abcdefghijklmnop123"},
            "cookies": ["sid=verysecretsid99"],
        }
    )
    text = json.dumps(bundle_of(made_run({1: body.encode()})))

    assert "abcdefghijklmnop123" not in text
    assert "verysecretsid99" not in text


def test_spans_have_only_the_attributes_that_are_listed(home: Home) -> None:
    """Span attributes pass an allowlist by key, not by prefix."""
    bundle = bundle_of(source_of(home, record_everything(home)))

    keys = {key for span in bundle["spans"] for key in span["attributes"]}
    assert keys <= SPAN_KEYS
    assert {"openwop.cost.usd", "openwop.node_type"} <= keys
    assert all(len(span["spanId"]) == 16 for span in bundle["spans"])
    assert bundle["spans"][0]["parentSpanId"] is None


def test_events_count_from_zero_and_end_with_the_one_terminal_event(home: Home) -> None:
    bundle = bundle_of(source_of(home, record_everything(home, fails=True)))

    events = bundle["events"]
    assert [event["sequence"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events if event["type"] in TERMINAL] == ["run.failed"]
    assert events[-1]["type"] == "run.failed"
    assert events[0]["type"] == "run.started"
    assert [event["timestamp"] for event in events] == sorted(
        event["timestamp"] for event in events
    )
    assert bundle["metrics"]["eventCount"] == len(events)
    assert bundle["metrics"]["nodeCount"] == len({e["nodeId"] for e in events if "nodeId" in e})


def test_a_run_tells_its_calls_usage_lines_and_cost(home: Home) -> None:
    bundle = bundle_of(source_of(home, record_everything(home)))

    by_type = {event["type"]: event for event in bundle["events"]}
    assert by_type["agent.toolCalled"]["payload"]["callId"] == "call_7"
    assert by_type["agent.toolReturned"]["payload"]["error"]["code"] == "ValueError"
    usage = by_type["provider.usage"]["payload"]
    assert (usage["inputTokens"], usage["outputTokens"], usage["cacheReadTokens"]) == (
        1000,
        100,
        10,
    )
    cost = bundle["metrics"]["openwopCost"]
    assert cost["tokens"] == {"input": 1000, "output": 100}
    assert cost["usd"] == pytest.approx(usage["costEstimateUsd"])
    assert bundle["run"]["metrics"]["openwopCost"] == cost
    assert bundle["run"]["variables"]["done"] == 1


def test_a_killed_run_is_failed_and_its_code_says_interrupted(home: Home, run_program: Any) -> None:
    """Status stays in what both enums know; interrupted is `failed` with an error code."""
    run_program(
        """
        import os, vestige
        run = vestige.Recorder().run("doomed")
        run.span("slow", type="tool", body="{}")
        os.kill(os.getpid(), 9)
        """
    )
    with open_path(home) as debugger:
        run_id = debugger.resolve(None, "run").run.id
    bundle = bundle_of(source_of(home, run_id))

    assert bundle["run"]["status"] == "failed"
    assert bundle["run"]["error"]["code"] == "interrupted"
    assert bundle["run"]["completedAt"] == bundle["run"]["endedAt"]
    assert bundle["events"][-1]["type"] == "run.failed"
    assert any(event["type"] == "node.failed" for event in bundle["events"])


def test_a_run_that_goes_on_has_no_terminal_event_and_no_end(home: Home) -> None:
    with vestige.Recorder(home) as recorder:
        run = recorder.run("long")
        run.log.info("still here")
        catch_up(home)
        story = Story(source_of(home, run.run_id))
        snapshot, page = json.loads(story.snapshot), poll(story)
        run.end()

    assert (snapshot["status"], snapshot["endedAt"]) == ("running", None)
    assert "completedAt" not in snapshot
    assert not page.is_complete
    assert not any(json.loads(event)["type"] in TERMINAL for event in page.events)


def test_bundle_poll_and_snapshot_are_deep_equal(home: Home) -> None:
    """They come from one pipeline."""
    source = source_of(home, record_everything(home, fails=True))
    story = Story(source)
    bundle = json.loads(assemble(story, NOW))

    assert json.loads(Story(source).snapshot) == bundle["run"]
    assert json.loads(poll(Story(source)).render()) == {
        "events": bundle["events"],
        "isComplete": True,
    }
    for after in range(-1, len(bundle["events"]) + 1):
        page = poll(Story(source), after)
        assert [json.loads(event) for event in page.events] == bundle["events"][after + 1 :]
        assert page.is_complete


@pytest.mark.parametrize("most", [0, 1, 5])
def test_max_events_keeps_a_prefix_and_the_total(home: Home, most: int) -> None:
    source = source_of(home, record_everything(home))
    complete, part = bundle_of(source), bundle_of(source, max_events=most)

    assert part["events"] == complete["events"][:most]
    assert part["truncated"] is True
    assert part["truncatedReason"] == "events_truncated_to_size_cap"
    assert part["metrics"] == complete["metrics"]
    assert "truncated" not in complete
    assert bundle_of(source, max_events=10**9) == complete


@pytest.mark.slow
def test_more_events_than_fit_are_a_strict_prefix_made_in_one_pass() -> None:
    """100,000 events of 4 KB: only those that are kept are rendered."""
    body = b'{"text":"' + b"x" * 4000 + b'"}'
    source = made_run(spans=50_000)
    read = 0

    def read_body(number: int) -> bytes:
        nonlocal read
        read += 1
        return body

    spans = source.run.spans
    for place in range(1, len(spans)):
        spans[place] = _with_bodies(spans[place], len(body))
    bundle = bundle_of(RunToWrite(source.run, read_body))

    count = len(bundle["events"])
    assert bundle["metrics"]["eventCount"] == 100_002
    assert bundle["metrics"]["nodeCount"] == 50_000
    assert bundle["truncatedReason"] == "events_truncated_to_size_cap"
    assert 1_000 < count < 2_000
    assert read <= count + 1
    assert [event["sequence"] for event in bundle["events"]] == list(range(count))


def _with_bodies(span: SpanInfo, size: int) -> SpanInfo:
    import msgspec

    return msgspec.structs.replace(span, input=BodyRef(1, size), output=BodyRef(1, size))


@pytest.mark.slow
def test_one_huge_event_ends_the_prefix_and_the_poll_still_gives_it() -> None:
    """20 MB in the middle: what comes before is kept, and polling gets past it."""
    source = made_run({2: b'{"text":"' + b"x" * 20_000_000 + b'"}'})
    bundle = bundle_of(source)

    assert [event["type"] for event in bundle["events"]] == [
        "run.started",
        "node.started",
        "node.completed",
    ]
    assert bundle["truncated"] is True
    assert bundle["metrics"]["eventCount"] == 8
    seen: list[Any] = []
    for _ in range(8):
        page = poll(Story(source), len(seen) - 1)
        assert page.events
        seen += [json.loads(event) for event in page.events]
        if page.is_complete:
            break
    assert [event["sequence"] for event in seen] == list(range(8))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("inputs", "inputs_"),
        ("variables", "variables_"),
        ("error", None),
        ("notes", "annotations_"),
    ],
)
def test_an_oversized_part_of_the_run_leaves_room_for_its_events(
    part: str, reason: str | None
) -> None:
    """Huge inputs, variables, errors, notes: the answer stays within the cap, and says what is
    cut.
    """
    huge = b'{"text":"' + b"\\n" * 10_000_000 + b'"}'
    source = made_run({0: huge} if part == "inputs" else {}, message="hello")
    run, notes = source.run, []
    if part == "variables":
        state = _with_bodies(run.spans[1], len(huge))
        run.spans[1] = type(state)(
            **{f: getattr(state, f) for f in state.__struct_fields__} | {"type": "state"}
        )
        source = RunToWrite(run, lambda number: huge)
    if part == "error":
        run.spans[0].attributes.update(
            {"error.type": "E", "error.message": "m" * 20_000_000, "error.stack": "s" * 20_000_000}
        )
        info = type(run.info)(
            **{f: getattr(run.info, f) for f in run.info.__struct_fields__} | {"outcome": "error"}
        )
        source = RunToWrite(
            Run(info=info, spans=run.spans, logs=run.logs, links=[]), source.read_body
        )
    if part == "notes":
        notes = [
            Note(id=f"n{n}", run_id=RUN_ID, text="t" * 900_000, created_ns=NOW) for n in range(20)
        ]
        source = RunToWrite(run, source.read_body, {}, notes)
    bundle = bundle_of(source)

    if part != "variables":  # there the events of the state are as large
        assert bundle["events"][-1]["type"] in TERMINAL
    if reason is not None and part != "variables":
        assert bundle["truncatedReason"].startswith(reason)
    assert bundle.get("truncated", False) is (reason is not None)
    assert bundle["events"][0]["type"] == "run.started"


@pytest.mark.slow
def test_more_spans_than_fit_do_not_push_the_events_out() -> None:
    """Spans get a quarter, and what the events leave."""
    bundle = bundle_of(made_run(spans=12_000))

    assert bundle["truncated"] is True
    assert len(bundle["spans"]) > 2_000
    assert len(bundle["events"]) > 10_000


@pytest.mark.parametrize(
    "body",
    [
        b'{"n": 123456789012345678901234567890}',
        b'{"n": 1e999}',
        b'{"a": NaN}',
        b"[" * 5_000,
        b"[" * 300 + b"]" * 300,
        b'{"a": "\\ud800"}',
        b"\xff\xfe",
        b"",
        b'{"a":1,"a":2}',
        b"null",
    ],
)
def test_odd_bodies_are_told_and_never_break_a_bundle(body: bytes) -> None:
    bundle = bundle_of(made_run({0: body, 1: body}))

    assert bundle["events"][-1]["type"] == "run.completed"


def test_a_run_without_its_root_still_begins_and_ends() -> None:
    """The opening may be lost; the format needs one."""
    source = made_run()
    run = source.run
    bundle = bundle_of(
        RunToWrite(Run(info=run.info, spans=run.spans[1:], logs=[], links=[]), source.read_body)
    )

    assert [event["type"] for event in bundle["events"]][::7] == ["run.started", "run.completed"]


def test_an_exported_bundle_is_whole_or_not_there(home: Home, tmp_path: Path) -> None:
    """A target is never overwritten, and nothing half written is left."""
    run_id = record_everything(home)
    with open_path(home) as debugger:
        made = export_run(debugger.store, run_id, "openwop", tmp_path / "a.json")
        with pytest.raises(vestige.errors.UsageError, match="already exists"):
            export_run(debugger.store, run_id, "openwop", tmp_path / "a.json")
        with pytest.raises(SensitiveDataError):
            export_run(debugger.store, run_id, "openwop", tmp_path / "b.json", "passthrough")
        inside = export_run(debugger.store, run_id, "openwop", tmp_path)

    validate_bundle(json.loads(made.read_bytes()))
    assert inside.name == f"{run_id}.openwop.json"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == sorted(
        ["a.json", inside.name]
    )
    assert openwop.validate_run(made) == []


def test_why_a_node_was_cancelled_names_files_without_their_folders(home: Home) -> None:
    """It is an error's message, under another name."""
    with vestige.Recorder(home) as recorder:
        run = recorder.run("shop")
        with contextlib.suppress(asyncio.CancelledError), run, run.span("read"):
            raise asyncio.CancelledError("while reading /srv/app/secret-place/orders.py")
    catch_up(home)

    bundle = bundle_of(source_of(home, run.run_id))

    cancelled = next(each for each in bundle["events"] if each["type"] == "node.cancelled")
    assert cancelled["payload"]["reason"] == "while reading orders.py"
