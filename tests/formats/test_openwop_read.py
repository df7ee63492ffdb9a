"""OpenWOP bundles as runs: read without loss, partial ones shown as such, hostile ones survived."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.openwop_server import is_valid, record_everything, source_of
from vestige.errors import UnreadableError
from vestige.formats import openwop
from vestige.formats.openwop.assemble import assemble
from vestige.formats.openwop.from_records import Story
from vestige.formats.openwop.note_mapping import parse_text, render_text
from vestige.formats.openwop.times import parse_time_ns, render_time
from vestige.formats.openwop.validation_rules import RULES
from vestige.home import Home
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import export_run, import_path, open_path

NOW = 1_800_000_000_000_000_000

FOREIGN: dict[str, Any] = {
    "bundleVersion": "1",
    "generatedAt": "2026-05-01T12:34:56.000Z",
    "host": {"name": "other", "version": "2.1", "vendor": "acme"},
    "run": {
        "runId": "run_abc",
        "workflowId": "checkout",
        "status": "failed",
        "startedAt": "2026-05-01T12:00:00Z",
        "endedAt": "2026-05-01T12:00:09Z",
        "error": {"code": "boom", "message": "it broke"},
        "inputs": {"q": 1},
    },
    "events": [
        {
            "type": "run.started",
            "data": None,
            "sequence": 0,
            "timestamp": "2026-05-01T12:00:00Z",
            "nodeId": None,
        },
        {
            "type": "node.started",
            "nodeId": "fetch",
            "payload": {"nodeId": "fetch", "typeId": "core.ai.chat"},
            "timestamp": "2026-05-01T12:00:01Z",
        },
        {
            "type": "provider.usage",
            "nodeId": "fetch",
            "payload": {
                "provider": "openai",
                "model": "gpt-4o",
                "inputTokens": 7,
                "outputTokens": 3,
            },
            "timestamp": "2026-05-01T12:00:02Z",
        },
        {
            "type": "agent.toolCalled",
            "payload": {"agentId": "abc", "toolName": "search", "callId": "c1", "inputs": {"q": 2}},
            "timestamp": "2026-05-01T12:00:03Z",
        },
        {
            "type": "agent.toolReturned",
            "payload": {"agentId": "abc", "toolName": "search", "callId": "c1", "outcome": [1]},
            "timestamp": "2026-05-01T12:00:04Z",
        },
        {"type": "acme.canvas.published", "payload": {"x": 1}, "timestamp": "2026-05-01T12:00:05Z"},
        {
            "type": "node.failed",
            "nodeId": "fetch",
            "payload": {"nodeId": "fetch", "error": {"code": "boom", "message": "it broke"}},
            "timestamp": "2026-05-01T12:00:08Z",
        },
        {
            "type": "run.failed",
            "payload": {"error": {"code": "boom", "message": "it broke"}},
            "timestamp": "2026-05-01T12:00:09Z",
        },
    ],
    "annotations": [
        {
            "annotationId": "a1",
            "target": {"runId": "run_abc", "nodeId": "fetch"},
            "signal": {"kind": "rating", "rating": 2},
            "actor": {"principalRef": "ann"},
            "note": "slow",
            "createdAt": "2026-05-02T00:00:00Z",
        },
    ],
    "redactionApplied": True,
    "redactionMode": "mask",
}


def written(tmp_path: Path, bundle: Any, name: str = "b.json") -> Path:
    path = tmp_path / name
    path.write_bytes(bundle if isinstance(bundle, bytes) else json.dumps(bundle).encode())
    return path


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A bundle of ours, with every kind of event."""
    home = Home(tmp_path_factory.mktemp("good") / "home")
    raw = assemble(Story(source_of(home, record_everything(home, fails=True))), NOW)
    found: dict[str, Any] = json.loads(raw)
    return found


def without(bundle: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in bundle.items() if key not in keys}


def test_a_bundle_comes_back_as_the_bundle_that_it_was(
    good: dict[str, Any], tmp_path: Path
) -> None:
    """Exported, opened and exported again: equal ids, order, payloads, spans, cost."""
    with open_path(written(tmp_path, good)) as debugger:
        run = debugger.resolve(None, "run").run
        again = json.loads(
            export_run(debugger.store, run.id, "openwop", tmp_path / "c.json").read_bytes()
        )

    assert without(again, "generatedAt") == without(good, "generatedAt")


def test_a_foreign_bundle_as_the_text_has_it_is_read(tmp_path: Path) -> None:
    """Version "1", `data`, null nodeIds, a run id that is not a UUID, calls without a node."""
    path = written(tmp_path, FOREIGN)
    with open_path(path) as debugger:
        run = debugger.store.load_run(debugger.resolve(None, "run").run.id)
        shown = debugger.show(None).text()

    by_type = {span.type: span for span in run.spans}
    assert (run.info.name, run.info.outcome) == ("checkout", "error")
    assert run.spans[0].attributes["openwop.run_id"] == "run_abc"
    assert by_type["llm"].attributes["input_tokens"] == 7
    assert by_type["llm"].attributes["node_type"] == "core.ai.chat"
    assert by_type["tool"].attributes["tool_call_id"] == "c1"
    assert by_type["llm"].duration_ns == 7 * 10**9
    assert [log.message for log in run.logs] == ["acme.canvas.published"]
    assert "it broke" in shown


def test_importing_twice_changes_nothing_and_notes_come_along(home: Home, tmp_path: Path) -> None:
    path = written(tmp_path, FOREIGN)
    home.make()
    with SqliteStore.open(home.store) as store:
        first, second = [next(import_path(store, path)) for _ in range(2)]
        notes = store.notes(first.run_id or "")

    assert first.records > 5
    assert (second.records, second.known) == (0, True)
    assert [(note.text, note.author) for note in notes] == [("#rating 2\nslow", "ann")]


def test_an_annotation_that_says_nothing_hides_no_other(home: Home, tmp_path: Path) -> None:
    (annotation,) = FOREIGN["annotations"]
    empty = {**annotation, "annotationId": "a0", "signal": {"kind": "flag"}, "note": " "}
    path = written(tmp_path, {**FOREIGN, "annotations": [empty, annotation]})
    home.make()
    with SqliteStore.open(home.store) as store:
        (imported,) = import_path(store, path)
        notes = store.notes(imported.run_id or "")

    assert [note.text for note in notes] == ["#rating 2\nslow"]


def test_a_whole_bundle_adds_to_a_truncated_one(
    good: dict[str, Any], home: Home, tmp_path: Path
) -> None:
    """Numbers come from positions: the rest is taken in, nothing twice."""
    part = {**good, "events": good["events"][:6], "truncated": True, "truncatedReason": "x"}
    home.make()
    with SqliteStore.open(home.store) as store:
        first = next(import_path(store, written(tmp_path, part, "part.json")))
        next(import_path(store, written(tmp_path, good, "whole.json")))
        run = store.load_run(first.run_id or "")

    assert len(run.spans) == len(good["spans"])
    assert run.info.outcome == "error"


def test_a_truncated_bundle_is_partial_wherever_it_is_shown(
    good: dict[str, Any], tmp_path: Path
) -> None:
    """Clients MUST handle `truncated: true` by rendering that the bundle is partial."""
    part = {**good, "events": good["events"][:6], "truncated": True}
    part["truncatedReason"] = "events_truncated_to_size_cap"
    with open_path(written(tmp_path, part)) as debugger:
        shown, listed = debugger.show(None), debugger.list()
        texts = [shown.text(), listed.text(), debugger.overview().text(), debugger.check().text()]
        data = listed.data()

    assert all("partial" in text for text in texts)
    assert f"6 of {good['metrics']['eventCount']} events" in texts[0]
    assert data["runs"][0]["partial"] is True
    assert "partial" not in data["runs"][0]["outcome"]


def test_a_whole_bundle_is_not_partial(good: dict[str, Any], tmp_path: Path) -> None:
    with open_path(written(tmp_path, good)) as debugger:
        texts = [debugger.show(None).text(), debugger.list().text(), debugger.check().text()]

    assert not any("(partial)" in text for text in texts)


@pytest.mark.parametrize(
    "data",
    [
        b'{"bundleVersion":"1.0"',
        b'{"bundleVersion":1}',
        b'{"bundleVersion":"1.0","run":{},"events":[]}',
        b'{"bundleVersion":"1.0","run":{"runId":"x"},"events":{}}',
        b'{"bundleVersion":"1.0"} trailing',
        b'{"bundleVersion":"2.0","run":{"runId":"x"},"events":[]}',
        b'{"bundleVersion":"1.0","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"bundleVersion":"\xff"}',
    ],
)
def test_what_is_no_bundle_is_refused_in_one_line(data: bytes, tmp_path: Path) -> None:
    path = written(tmp_path, data)

    assert openwop.is_readable(path)
    with pytest.raises(UnreadableError) as error:
        openwop.read_run(path)
    assert "\n" not in str(error.value)
    assert any(problem.severity == "error" for problem in openwop.validate_run(path))


def test_a_bundle_larger_than_any_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with open(path, "wb") as file:
        file.write(b'{"bundleVersion":"1.0"')
        file.truncate(1 << 30)

    assert openwop.is_readable(path)
    with pytest.raises(UnreadableError, match="larger than"):
        openwop.read_run(path)


# --- rules ----------------------------------------------------------------------------------------


def _breaks() -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    """(rule, where, what is put there); DELETE: it is taken away."""
    yield "key-missing", ("generatedAt",), DELETE
    yield "key-missing", ("run", "status"), DELETE
    yield "bundle-type", ("spans",), {}
    yield "bundle-type", ("run", "inputs"), []
    yield "bundle-version", ("bundleVersion",), "one"
    yield "bundle-version-short", ("bundleVersion",), "1"
    yield "bundle-version-newer", ("bundleVersion",), "2.0"
    yield "text-empty", ("host", "name"), ""
    yield "time", ("generatedAt",), "yesterday"
    yield "time", ("run", "startedAt"), "2026-05-01T12:00:00"
    yield "host-unknown-key", ("host", "ip"), "x"
    yield "run-status", ("run", "status"), "interrupted"
    yield "run-error", ("run", "error"), {"code": "x"}
    yield "cost", ("metrics", "openwopCost", "usd"), -1
    yield "cost", ("run", "metrics", "openwopCost", "tokens", "cached"), 1
    yield "redaction-mode", ("redactionMode",), "none"
    yield "redaction-malformed", ("redactionMode",), "passthrough"
    yield "redaction-malformed", ("redactionApplied",), False
    yield "secret-in-clear", ("run", "variables", "api_key"), "sk-ant-api03-abcdefgh12345678"
    yield "machine-detail", ("run", "variables", "at"), "http://10.1.2.3:80"
    yield "event-shape", ("events", 1, "eventId"), DELETE
    yield "event-shape", ("events", 1, "nodeId"), None
    yield "event-type", ("events", 1, "type"), "core.mine"
    yield "event-sequence", ("events", 3, "sequence"), 7
    yield "event-duplicate", ("events", 3, "eventId"), SAME
    yield "event-payload", ("events", 2, "payload", "typeId"), DELETE
    yield "run-differs", ("events", 1, "runId"), "another"
    yield "terminal-last", ("events", 1, "type"), "run.completed"
    yield "terminal-missing", ("events", -1), DELETE
    yield "event-count", ("metrics", "eventCount"), 1
    yield "node-count", ("metrics", "nodeCount"), 99
    yield "span-shape", ("spans", 0, "name"), ""
    yield "span-id", ("spans", 0, "spanId"), "XYZ"
    yield "span-attribute", ("spans", 0, "attributes", "host.name"), "x"
    yield "annotation-shape", ("annotations",), [{"annotationId": "a"}]
    yield "truncated-reason", ("truncated",), True


DELETE, SAME = object(), object()


def _put(bundle: Any, where: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(bundle)
    place = changed
    for key in where[:-1]:
        place = place[key]
    if value is DELETE:
        del place[where[-1]]
    else:
        place[where[-1]] = changed["events"][0]["eventId"] if value is SAME else value
    return changed


@pytest.mark.parametrize(("rule", "where", "value"), list(_breaks()))
def test_each_rule_is_told_by_a_bundle_that_breaks_it(
    rule: str, where: tuple[Any, ...], value: Any, good: dict[str, Any], tmp_path: Path
) -> None:
    """All problems at once, each with its place and its rule."""
    problems = openwop.validate_run(written(tmp_path, _put(good, where, value)))

    found = [problem for problem in problems if problem.rule == rule]
    assert found
    assert all((problem.severity == "warning") is RULES[rule].warning for problem in found)


def test_every_rule_has_a_bundle_that_breaks_it() -> None:
    known = {rule for rule, _, _ in _breaks()} | {"json", "size"}

    assert known == set(RULES)


def test_all_that_is_wrong_is_told_at_once(good: dict[str, Any], tmp_path: Path) -> None:
    bundle = good
    for _, where, value in list(_breaks())[:10]:
        try:
            bundle = _put(bundle, where, value)
        except (KeyError, TypeError):
            continue
    rules = {problem.rule for problem in openwop.validate_run(written(tmp_path, bundle))}

    assert len(rules) >= 5


def _agrees(bundle: Any, tmp_path: Path) -> None:
    """What the published schemas refuse, we refuse; what we refuse, a schema or a clause does."""
    problems = [
        each for each in openwop.validate_run(written(tmp_path, bundle)) if each.severity == "error"
    ]
    schema_valid = is_valid("debug-bundle", bundle) and (
        is_valid("run-snapshot", bundle["run"])
        and all(is_valid("run-event", event) for event in bundle["events"])
        and all(is_valid("annotation", each) for each in bundle.get("annotations", []))
    )
    by_schema = [each for each in problems if ".schema.json" in RULES[each.rule].clause]
    assert bool(by_schema) == (not schema_valid) or bundle.get("bundleVersion") == "1", (
        schema_valid,
        problems,
    )


_LEAF = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        ["", "x", "1.0", "mask", "run.started", "2026-05-01T12:00:00Z", "completed", "é\u0000"]
    ),
    st.just({}),
    st.just([]),
    st.just({"code": "x", "message": "y"}),
    st.just(DELETE),
)


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, each in inner:
        if at[-1:] not in (("payload",), ("inputs",), ("variables",), ("details",)):
            yield (*at, key)
            yield from _places(each, (*at, key))


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_bundle_with_anything_anywhere_is_judged_as_the_schemas_judge_it(
    data: st.DataObject, good: dict[str, Any], tmp_path: Path
) -> None:
    """Never a crash; reading it gives a run or one line; the verdict is that of the schemas."""
    # Of events and spans a few: they are all alike.
    bundle = {**good, "events": good["events"][:3], "spans": good["spans"][:2]}
    places = list(_places(bundle))
    for _ in range(data.draw(st.integers(1, 3))):
        try:
            bundle = _put(bundle, data.draw(st.sampled_from(places)), data.draw(_LEAF))
        except (KeyError, IndexError, TypeError, AttributeError):
            continue
    path = written(tmp_path, bundle)
    try:
        source = openwop.read_run(path)
        list(source.records)
    except UnreadableError:
        pass
    if not isinstance(bundle.get("run"), dict) or not isinstance(bundle.get("events"), list):
        assert any(problem.severity == "error" for problem in openwop.validate_run(path))
    elif isinstance(bundle.get("annotations", []), list) and isinstance(
        bundle.get("spans", []), list
    ):
        _agrees(bundle, tmp_path)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "run",
                        "events",
                        "spans",
                        "runId",
                        "type",
                        "payload",
                        "nodeId",
                        "node.started",
                        "sequence",
                        "annotations",
                        "target",
                        "signal",
                        "metrics",
                        "timestamp",
                    ]
                ),
                inner,
                max_size=6,
            )
        ),
        max_leaves=20,
    )
)
def test_any_json_is_read_or_refused_and_never_crashes(tmp_path: Path, value: Any) -> None:
    path = written(
        tmp_path,
        {
            "bundleVersion": "1.0",
            "run": {"runId": "x"},
            "events": [
                value,
                {"type": "node.started", "nodeId": "n", "payload": value},
                {"type": "log.appended", "payload": value},
            ],
            "spans": [value],
            "annotations": [value],
            "metrics": value,
        },
    )
    openwop.validate_run(path)
    try:
        source = openwop.read_run(path)
    except UnreadableError:
        return
    records = list(source.records)

    assert [record.seq for record in records if record.writer == source.writer] == list(
        range(1, 1 + sum(record.writer == source.writer for record in records))
    )


@given(st.integers(0, 2**62))
def test_times_come_back_as_they_went(ns: int) -> None:
    assert parse_time_ns(render_time(ns)) == ns // 1000 * 1000


@given(
    st.one_of(
        st.fixed_dictionaries({"kind": st.just("flag")}),
        st.fixed_dictionaries({"kind": st.just("rating"), "rating": st.integers(1, 5)}),
        st.fixed_dictionaries({"kind": st.just("label"), "label": st.text()}),
        st.fixed_dictionaries({"kind": st.just("correction"), "correction": st.text()}),
    ),
    st.none() | st.text(min_size=1).filter(lambda text: not text.startswith("#")),
)
def test_signals_come_back_from_the_notes_that_they_became(
    signal: dict[str, Any], note: str | None
) -> None:
    assert parse_text(render_text(signal, note)) == (signal, note)


@pytest.mark.parametrize(
    "signal", [{"kind": "rating", "rating": 4.0}, {"kind": "label", "label": '"x"'}]
)
def test_a_rating_with_a_point_and_a_label_in_quotes_come_back_too(signal: dict[str, Any]) -> None:
    assert parse_text(render_text(signal, "why")) == (signal, "why")


@pytest.mark.slow
def test_a_call_that_returns_again_and_again_takes_no_longer_than_others(tmp_path: Path) -> None:
    """Each return is reported, and none is compared with all others: that would not end here."""
    times = 30_000
    events: list[dict[str, Any]] = [
        {"type": "node.started", "nodeId": "n", "payload": {}},
        {"type": "agent.toolCalled", "nodeId": "n", "payload": {"toolName": "search"}},
    ]
    for _ in range(times):
        events.append({"type": "agent.toolReturned", "nodeId": "n", "payload": {"outcome": 1}})
        events.append({"type": "node.started", "nodeId": "n", "payload": {}})

    source = openwop.read_run(written(tmp_path, {**FOREIGN, "events": events}))

    assert len(list(source.records)) > 2 * times
