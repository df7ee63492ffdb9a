"""The OpenWOP debug bundle, clause by clause, against a real server and the published schemas and
client.

Each test's docstring is the clause that it holds us to.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from openwop_client import CreateAnnotationRequest, CreateRunRequest, OpenwopClient
from openwop_client.errors import WopError

import vestige
from support.http_server import Site, served
from support.openwop_server import (
    MACHINE,
    SECRETS,
    record_everything,
    validate,
    validate_bundle,
    validate_event,
)
from vestige.collector.loop import catch_up
from vestige.fleet.api_keys import Keys
from vestige.formats.openwop.constants import SPAN_KEYS, TERMINAL
from vestige.home import Home
from vestige.limits import OPENWOP_BUNDLE_MAX
from vestige.server.openwop.demo_workflows import WORKFLOWS

READ = ["runs:read"]
ALL = ["runs:read", "runs:write", "debug-bundle:read"]


class Host(NamedTuple):
    """A server with two runs, demo workflows, and keys of two tenants."""

    site: Site
    run: str
    failed: str
    key: str
    reader: str
    stranger: str

    def get(self, path: str, key: str | None = "", status: int = 200, **more: Any) -> Any:
        reply = self.site.ask(path, key=self.key if key == "" else key, **more)
        assert reply.status == status, reply
        assert reply.headers["cache-control"] == "no-store"
        if status >= 400:
            validate("error-envelope", reply.json())
        return reply.json()

    def bundle(self, run: str | None = None, query: str = "") -> Any:
        found = self.get(f"/v1/runs/{run or self.run}/debug-bundle{query}")
        validate_bundle(found)
        return found

    def post(self, path: str, value: Any, status: int, key: str | None = "", **more: Any) -> Any:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return self.get(path, key, status, method="POST", body=body, **more)

    @property
    def client(self) -> OpenwopClient:
        return OpenwopClient(f"http://127.0.0.1:{self.site.port}", self.key, timeout=20)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home = Home(tmp_path_factory.mktemp("openwop") / "home")
    runs = [record_everything(home, fails=fails) for fails in (False, True)]
    keys = Keys(home)
    made = [keys.add("all", ALL), keys.add("read", READ), keys.add("other", ALL, tenant="other")]
    with served(home, token=True, demo_workflows=True) as site:
        yield Host(site, *runs, *(each.key for each in made))


# --- Endpoint -------------------------------------------------------------------------------------


def test_the_bundle_needs_a_bearer_key(host: Host) -> None:
    """Auth: Required (Bearer). A 401 follows the canonical error envelope; 401 comes before 404."""
    for path in ("", "/events/poll", "/debug-bundle", "/annotations"):
        for run in (host.run, "no-such-run"):
            host.get(f"/v1/runs/{run}{path}", None, 401)
            host.get(f"/v1/runs/{run}{path}", "vstg_wrong", 401)
    host.get("/v1/runs", None, 401)
    host.post("/v1/runs", {}, 401, None)


def test_the_bundle_is_never_stored_by_anybody(host: Host) -> None:
    """Cache: Cache-Control: no-store (`get` asserts it of every answer, errors too)."""
    host.bundle()
    host.get("/.well-known/openwop", None)
    host.get(f"/v1/runs/{host.run}", None, 401)


def test_the_host_advertises_its_bundle(host: Host) -> None:
    """Profile gating: capabilities.debugBundle.supported: true; discovery needs no key, flags at
    the root.
    """
    capabilities = host.get("/.well-known/openwop", None)

    validate("capabilities", capabilities)
    assert capabilities["debugBundle"] == {"supported": True}
    assert capabilities["feedback"]["supported"] is True
    assert capabilities["compliance"]["defaultMode"] == "mask"
    assert set(capabilities["fixtures"]) == set(WORKFLOWS)


def test_a_host_that_does_not_advertise_bundles_answers_404(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that doesn't advertise capabilities.debugBundle.supported: true returns 404 Not
    Found.
    """
    run = record_everything(home)
    monkeypatch.setenv("VESTIGE_OPENWOP_BUNDLE", "0")
    monkeypatch.setenv("VESTIGE_OPENWOP_FEEDBACK", "0")
    unscoped = Keys(home).add("write", ["runs:write"]).key
    with served(home, token=True) as site:
        capabilities = site.data("/.well-known/openwop", key=None)
        bundle = site.ask(f"/v1/runs/{run}/debug-bundle")
        stranger = site.ask(f"/v1/runs/{run}/debug-bundle", key=None)
        other_scope = site.ask(f"/v1/runs/{run}/debug-bundle", key=unscoped)
        notes = [
            site.ask(f"/v1/runs/{run}/annotations", method=m, body=b)
            for m, b in (("GET", None), ("POST", b"{}"))
        ]
        client = OpenwopClient(f"http://127.0.0.1:{site.port}", site.server.token or "")
        by_client = client.runs_debug_bundle(run), client.list_annotations(run)

    assert capabilities["debugBundle"]["supported"] is False
    assert capabilities["fixtures"] == []
    assert (bundle.status, stranger.status, other_scope.status) == (404, 401, 404)
    assert [(each.status, each.json()["error"]) for each in notes] == [
        (501, "capability_not_provided")
    ] * 2
    assert by_client == (None, None)


def test_a_bundle_validates_against_the_published_schema(host: Host) -> None:
    """Hosts that advertise true MUST return a bundle that schema-validates (`bundle` validates
    it).
    """
    for run in (host.run, host.failed):
        assert host.bundle(run)["run"]["runId"] == run


# --- Field reference ------------------------------------------------------------------------------


def test_the_top_level_fields_are_there(host: Host) -> None:
    """bundleVersion, generatedAt, host, run, events, redactionApplied, redactionMode MUST; spans,
    metrics SHOULD.
    """
    bundle = host.bundle()

    assert bundle["bundleVersion"] == "1.0"
    assert bundle["host"] == host.get("/.well-known/openwop", None)["implementation"]
    assert {"generatedAt", "run", "events", "spans", "metrics", "annotations"} <= bundle.keys()


def test_run_mirrors_the_snapshot_exactly(host: Host) -> None:
    """run: the run snapshot, the same shape as GET /v1/runs/{runId}."""
    for run in (host.run, host.failed):
        snapshot = host.get(f"/v1/runs/{run}")
        validate("run-snapshot", snapshot)
        assert host.bundle(run)["run"] == snapshot


def test_run_has_no_fields_beyond_the_two_schemas(host: Host) -> None:
    """Hosts MUST NOT include fields beyond what run-snapshot.schema.json defines."""
    folder = Path(__file__).parent.parent / "data" / "openwop"
    known = json.loads((folder / "run-snapshot.schema.json").read_text())["properties"].keys()
    shared = json.loads((folder / "debug-bundle.schema.json").read_text())["properties"]["run"][
        "properties"
    ].keys()

    for run in (host.run, host.failed):
        assert host.bundle(run)["run"].keys() <= known | shared


def test_events_mirror_the_poll_exactly(host: Host) -> None:
    """events: the full event log, in order, the same shape as GET .../events/poll's events."""
    for run in (host.run, host.failed):
        page = host.get(f"/v1/runs/{run}/events/poll")
        bundle = host.bundle(run)
        assert page == {"events": bundle["events"], "isComplete": True}


def test_events_follow_the_event_schema_and_their_payload_schemas(host: Host) -> None:
    """Each entry follows run-event.schema.json."""
    events = [event for run in (host.run, host.failed) for event in host.bundle(run)["events"]]
    for event in events:
        validate_event(event)

    assert {
        "run.started",
        "run.completed",
        "run.failed",
        "node.started",
        "node.completed",
        "node.failed",
        "agent.toolCalled",
        "agent.toolReturned",
        "provider.usage",
        "log.appended",
    } <= {event["type"] for event in events}


def test_a_run_has_exactly_one_terminal_event_which_is_last(host: Host) -> None:
    """Canonical lifecycle: exactly one of run.completed, run.failed, run.cancelled, and it is
    last.
    """
    for run in (host.run, host.failed):
        types = [event["type"] for event in host.bundle(run)["events"]]
        assert sum(each in TERMINAL for each in types) == 1
        assert types[-1] in TERMINAL


def test_spans_are_named_canonically_and_nest(host: Host) -> None:
    """Each span includes name (canonical openwop.*), spanId, parentSpanId, startedAt, endedAt,
    attributes.
    """
    spans = host.bundle()["spans"]
    ids = {span["spanId"] for span in spans}

    assert spans[0]["name"] == "openwop.run"
    assert all(span["name"].startswith("openwop.node.") for span in spans[1:])
    assert all(span["parentSpanId"] in ids for span in spans[1:])
    assert all(int(span["spanId"], 16) >= 0 and len(span["spanId"]) == 16 for span in spans)


def test_node_count_and_event_count_are_those_of_the_events(host: Host) -> None:
    """nodeCount SHOULD equal the number of distinct nodeId values; eventCount MUST equal
    events.length.
    """
    bundle = host.bundle()

    assert bundle["metrics"]["eventCount"] == len(bundle["events"])
    assert bundle["metrics"]["nodeCount"] == len(
        {e["nodeId"] for e in bundle["events"] if "nodeId" in e}
    )


def test_the_cost_is_that_of_the_snapshot(host: Host) -> None:
    """The optional openwopCost matches RunSnapshot.metrics.openwopCost."""
    bundle = host.bundle()

    assert bundle["metrics"]["openwopCost"] == bundle["run"]["metrics"]["openwopCost"]
    assert bundle["metrics"]["openwopCost"]["usd"] > 0


# --- Redaction guarantees -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["mask", "omit", "hash"])
def test_no_answer_and_no_log_line_holds_a_secret(
    mode: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens, credentials and keys in payloads, errors or span attributes MUST be sanitized, in
    every mode.
    """
    run = record_everything(home, fails=True)
    monkeypatch.setenv("VESTIGE_OPENWOP_REDACTION", mode)
    note = {
        "signal": {"kind": "correction", "correction": SECRETS["note"]},
        "note": f"{SECRETS['note']} at {MACHINE[0]}",
    }
    with served(home) as site:
        posted = site.ask(
            f"/v1/runs/{run}/annotations", method="POST", body=json.dumps(note).encode()
        )
        paths = (
            "",
            f"/{run}",
            f"/{run}/events/poll",
            f"/{run}/debug-bundle",
            f"/{run}/annotations",
        )
        replies = [posted, *(site.ask(f"/v1/runs{path}") for path in paths)]
        lines = json.dumps(site.lines)
    bundle = replies[4].json()
    validate_bundle(bundle)

    assert [reply.status for reply in replies] == [201, 200, 200, 200, 200, 200]
    text = lines + "".join(reply.body.decode() for reply in replies)
    for secret in (*SECRETS.values(), *MACHINE):
        assert secret not in text
    assert "…redacted…" not in text
    assert (bundle["redactionApplied"], bundle["redactionMode"]) == (True, mode)


def test_passthrough_with_sensitive_data_present_is_refused(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """redactionApplied: false is permitted only when no sensitive data was present; true AND
    passthrough is MALFORMED.
    """
    run = record_everything(home)
    with vestige.Recorder(home) as recorder, recorder.run("harmless", body={"q": 1}) as plain:
        pass
    catch_up(home)
    monkeypatch.setenv("VESTIGE_OPENWOP_REDACTION", "passthrough")
    with served(home) as site:
        refused = [
            site.ask(f"/v1/runs/{run}{path}") for path in ("", "/events/poll", "/debug-bundle")
        ]
        bundle = site.data(f"/v1/runs/{plain.run_id}/debug-bundle")
        listed = site.ask("/v1/runs")
    validate_bundle(bundle)

    assert [reply.status for reply in refused] == [409] * 3
    assert (bundle["redactionApplied"], bundle["redactionMode"]) == (False, "passthrough")
    assert SECRETS["name"] not in listed.body.decode()


def test_span_attributes_outside_the_allowlist_are_filtered(host: Host) -> None:
    """Span attributes outside the canonical openwop.* allowlist MUST be either filtered or
    sanitized.
    """
    for run in (host.run, host.failed):
        for span in host.bundle(run)["spans"]:
            assert span["attributes"].keys() <= SPAN_KEYS


# --- Authorization and scoping --------------------------------------------------------------------


def test_another_tenant_sees_no_run_at_all(host: Host) -> None:
    """A bundle response MUST NOT reveal other tenants' data: a foreign run is 404, as one that is
    not there.
    """
    for path in ("", "/events/poll", "/debug-bundle", "/annotations"):
        foreign = host.get(f"/v1/runs/{host.run}{path}", host.stranger, 404)
        missing = host.get(
            f"/v1/runs/{'0' * 8}-0000-4000-8000-{'0' * 12}{path}", host.stranger, 404
        )
        assert foreign == missing
    host.post(
        f"/v1/runs/{host.run}/annotations",
        {"signal": {"kind": "flag"}, "note": "x"},
        404,
        host.stranger,
    )
    assert host.run not in json.dumps(host.get("/v1/runs", host.stranger))


def test_no_other_run_is_in_a_bundle(host: Host) -> None:
    """A bundle response MUST NOT reveal other runs' events or spans."""
    text = json.dumps(host.bundle())

    assert host.failed not in text


def test_nothing_of_the_machine_is_in_a_bundle(host: Host) -> None:
    """A bundle response MUST NOT reveal machine names, internal addresses, connection strings."""
    for run in (host.run, host.failed):
        text = json.dumps(host.bundle(run))
        for detail in (
            *MACHINE,
            "postgres://",
            str(Path(__file__).parent),
            str(host.site.server.home.root),
        ):
            assert detail not in text


def test_a_key_without_the_scope_is_told_which_one_is_missing(host: Host) -> None:
    """Hosts MAY require an additional capability grant. A 403 follows the canonical error
    envelope.
    """
    bundle = host.get(f"/v1/runs/{host.run}/debug-bundle", host.reader, 403)
    note = host.post(
        f"/v1/runs/{host.run}/annotations", {"signal": {"kind": "flag"}}, 403, host.reader
    )

    assert bundle["details"] == {"scope": "debug-bundle:read"}
    assert note["details"] == {"scope": "runs:write"}
    host.get(f"/v1/runs/{host.run}", host.reader)


# --- Bundle size limits ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_too_large_for_the_cap_is_a_truncated_prefix(home: Home) -> None:
    """Hosts MUST cap bundle size at 8 MB by default; the host returns the bundle truncated, and
    says why.
    """
    with vestige.Recorder(home) as recorder, recorder.run("big") as run:
        for number in range(12):
            run.span(f"s{number}", "step", body="x" * 1_000_000).end()
    catch_up(home)
    with served(home) as site:
        reply = site.ask(f"/v1/runs/{run.run_id}/debug-bundle")
        packed = site.ask(
            f"/v1/runs/{run.run_id}/debug-bundle", headers={"Accept-Encoding": "gzip"}
        )
        events: list[Any] = []
        complete = False
        while not complete:
            page = site.data(f"/v1/runs/{run.run_id}/events/poll?lastSequence={len(events) - 1}")
            events, complete = events + page["events"], page["isComplete"]
    bundle = reply.json()
    validate_bundle(bundle)

    assert len(reply.body) <= OPENWOP_BUNDLE_MAX
    assert bundle["truncated"] is True
    assert bundle["truncatedReason"] == "events_truncated_to_size_cap"
    assert 0 < len(bundle["events"]) < len(events) == bundle["metrics"]["eventCount"] == 26
    assert bundle["events"] == events[: len(bundle["events"])]
    assert len(packed.body) < len(reply.body) // 10
    unpacked = json.loads(gzip.decompress(packed.body))
    assert {**unpacked, "generatedAt": ""} == {**bundle, "generatedAt": ""}


@pytest.mark.slow
def test_the_cap_can_be_raised_and_lowered(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts MAY raise the cap via implementation-defined configuration."""
    with vestige.Recorder(home) as recorder, recorder.run("big") as run:
        for number in range(6):
            run.span(f"s{number}", "step", body="x" * 300_000).end()
    catch_up(home)
    sizes = {}
    for cap in (600_000, 20_000_000):
        monkeypatch.setenv("VESTIGE_OPENWOP_BUNDLE_BYTES", str(cap))
        with served(home) as site:
            reply = site.ask(f"/v1/runs/{run.run_id}/debug-bundle")
        sizes[cap] = len(reply.body), reply.json().get("truncated", False)

    assert sizes[600_000][0] <= 600_000
    assert [truncated for _, truncated in sizes.values()] == [True, False]


@pytest.mark.parametrize("name", ["maxEvents", "host.vestige.maxEvents"])
def test_max_events_only_lowers_the_cap(host: Host, name: str) -> None:
    """Hosts MAY accept query parameters to lower the cap; host.<vendor>.<query> is preferred."""
    complete = host.bundle()
    for most in (0, 1, 2):
        part = host.bundle(query=f"?{name}={most}")
        assert part["events"] == complete["events"][:most]
        assert (part["truncated"], part["metrics"]) == (True, complete["metrics"])
        assert part["run"] == complete["run"]
    for much in ("1e9", "1000000000"):
        assert host.bundle(query=f"?{name}={much}")["events"] == complete["events"]
    for junk in ("-1", "abc", "", "1.5", "0x10", "%00", "9" * 40, "1e999999"):
        host.get(f"/v1/runs/{host.run}/debug-bundle?{name}={junk}", status=400)


def test_the_lower_of_two_caps_holds(host: Host) -> None:
    assert len(host.bundle(query="?maxEvents=3&host.vestige.maxEvents=2")["events"]) == 2


# --- Annotations ----------------------------------------------------------------------------------


def test_annotations_travel_in_the_bundle(host: Host) -> None:
    """When feedback is supported, a run's debug bundle SHOULD include the run's annotations,
    already redacted.
    """
    node = host.bundle(host.failed)["events"][2]["nodeId"]
    annotations = [
        {"signal": {"kind": "flag"}, "note": "look here", "target": {"nodeId": node}},
        {"signal": {"kind": "rating", "rating": 2}},
        {"signal": {"kind": "label", "label": "flaky"}, "note": f"key {SECRETS['note']}"},
        {"signal": {"kind": "correction", "correction": "42\nnot 41"}},
        {"signal": {"kind": "flag"}},
    ]
    made = [host.post(f"/v1/runs/{host.failed}/annotations", each, 201) for each in annotations]
    for each in made:
        validate("annotation", each)
    listed = host.get(f"/v1/runs/{host.failed}/annotations")["annotations"]

    assert [each["signal"] for each in made] == [each["signal"] for each in annotations]
    assert made[0]["note"] == "look here"
    assert made[0]["target"] == {"runId": host.failed, "nodeId": node}
    assert made[2]["note"] == "key [REDACTED]"
    assert listed == made
    assert host.bundle(host.failed)["annotations"] == made
    assert not any(event["type"] == "run.annotated" for event in host.bundle(host.failed)["events"])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"{}",
        b'{"signal":{}}',
        b'{"signal":{"kind":"rating"}}',
        b"[" * 50_000,
        b'{"signal":{"kind":"rating","rating":9}}',
        b'{"signal":{"kind":"flag"},"more":1}',
        b'{"signal":{"kind":"flag"},"target":{"runId":"x"}}',
        b'{"signal":{"kind":"flag"},"note":1}',
        b'{"signal":{"kind":"flag"},"target":{"nodeId":"ffffffffffffffff"}}',
        b'{"signal":{"kind":"flag"},"target":[]}',
        b'{"signal":{"kind":"love"}}',
        b"\xff",
    ],
)
def test_an_annotation_that_does_not_fit_is_refused(host: Host, body: bytes) -> None:
    """annotation-create.schema is closed: a 400 in the envelope, and nothing is kept."""
    before = host.get(f"/v1/runs/{host.run}/annotations")
    host.post(f"/v1/runs/{host.run}/annotations", body, 400)

    assert host.get(f"/v1/runs/{host.run}/annotations") == before


def test_a_repeated_annotation_is_kept_once(host: Host) -> None:
    """The same Idempotency-Key gives the same annotation again."""
    made = [
        host.post(
            f"/v1/runs/{host.run}/annotations",
            {"signal": {"kind": "flag"}, "note": "once"},
            201,
            headers={"Idempotency-Key": "k1"},
        )
        for _ in range(2)
    ]

    assert made[0] == made[1]


# --- runs, poll, demo workflows -------------------------------------------------------------------


def test_runs_are_listed_in_pages(host: Host) -> None:
    """GET /v1/runs answers {runs: [...]}."""
    everything = host.get("/v1/runs")["runs"]
    paged: list[Any] = []
    query = "?limit=2"
    while query:
        page = host.get(f"/v1/runs{query}")
        paged += page["runs"]
        query = f"?limit=2&after={page['nextAfter']}" if "nextAfter" in page else ""
    for run in everything:
        validate("run-snapshot", run)

    assert paged == everything
    assert {host.run, host.failed} <= {run["runId"] for run in everything}
    for junk in ("limit=x", "limit=-1", "after="):
        assert host.site.ask(f"/v1/runs?{junk}", key=host.key).status in (400, 404)


def test_a_poll_goes_on_after_a_sequence(host: Host) -> None:
    """Poll takes `lastSequence` and `timeout` and answers {events, isComplete}; without, everything
    from 0.
    """
    events = host.get(f"/v1/runs/{host.run}/events/poll")["events"]
    for after in (-1, 0, 3, len(events) - 1, 10**6):
        page = host.get(f"/v1/runs/{host.run}/events/poll?lastSequence={after}&timeout=5")
        assert page == {"events": events[after + 1 :], "isComplete": True}
    for junk in ("lastSequence=-2", "lastSequence=abc", "timeout=-1", "timeout=x"):
        host.get(f"/v1/runs/{host.run}/events/poll?{junk}", status=400)


def test_a_poll_waits_for_what_comes(home: Home) -> None:
    """A long poll ends with the first new event, and not before its time is up without one."""
    with vestige.Recorder(home) as recorder:
        run = recorder.run("live")
        run.log.info("one")
        catch_up(home)
        with served(home) as site:
            path = f"/v1/runs/{run.run_id}/events/poll"
            first = site.data(path)
            nothing = site.data(f"{path}?lastSequence={len(first['events']) - 1}&timeout=1")
            pages: list[Any] = []
            after = f"{path}?lastSequence={len(first['events']) - 1}&timeout=20"
            waiting = threading.Thread(target=lambda: pages.append(site.data(after)))
            waiting.start()
            run.log.info("two")
            catch_up(home)
            waiting.join(120)
            run.end()
            catch_up(home)
            rest = site.data(path)

    assert (nothing["events"], nothing["isComplete"]) == ([], False)
    assert [event["payload"]["message"] for event in pages[0]["events"]] == ["two"]
    assert rest["events"][: len(first["events"])] == first["events"]
    assert rest["isComplete"] is True
    assert rest["events"][-1]["type"] == "run.completed"


def test_without_demo_workflows_no_run_is_started(home: Home) -> None:
    """A recorder is not a workflow engine: POST /v1/runs is 501."""
    record_everything(home)
    with served(home) as site:
        reply = site.ask("/v1/runs", method="POST", body=b'{"workflowId":"conformance-noop"}')

    assert (reply.status, reply.json()["error"]) == (501, "capability_not_provided")
    validate("error-envelope", reply.json())


@pytest.mark.parametrize(
    ("workflow", "status"),
    [
        ("noop", "completed"),
        ("multi-node", "completed"),
        ("identity", "completed"),
        ("failure", "failed"),
    ],
)
def test_a_demo_workflow_runs_through_the_real_recorder(
    host: Host, workflow: str, status: str
) -> None:
    """`fixtures` lists them, and conformance suites can start them."""
    payload = {"text": "hello", "list": [1, "two", {"three": 3}], "deep": {"er": {"leaf": None}}}
    made = host.post(
        "/v1/runs", {"workflowId": f"conformance-{workflow}", "inputs": {"payload": payload}}, 201
    )
    bundle = host.bundle(made["runId"])

    assert bundle["run"]["status"] == status
    assert bundle["run"]["inputs"] == {"payload": payload}
    assert len(bundle["events"]) >= 4
    if workflow == "identity":
        assert bundle["run"]["variables"] == {"payload": payload}
        assert bundle["events"][-1]["payload"]["outputs"] == {"payload": payload}
    if workflow == "failure":
        assert bundle["run"]["error"]["code"] == "fixture_failure"


def test_a_demo_run_belongs_to_the_tenant_that_started_it(host: Host) -> None:
    made = host.post("/v1/runs", {"workflowId": "conformance-noop"}, 201, host.stranger)

    host.get(f"/v1/runs/{made['runId']}", host.stranger)
    host.get(f"/v1/runs/{made['runId']}", host.key, 404)


def test_an_unknown_workflow_or_request_is_refused(host: Host) -> None:
    host.post("/v1/runs", {"workflowId": "nothing"}, 404)
    for junk in ({}, {"workflowId": 1}, {"workflowId": "conformance-noop", "inputs": []}, b"{"):
        host.post("/v1/runs", junk, 400)


@pytest.mark.slow
def test_an_inbound_traceparent_is_honoured(host: Host) -> None:
    """The run's spans stand in the caller's trace; a broken header starts a trace of its own."""
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    body = json.dumps({"workflowId": "conformance-noop"}).encode()
    for header, honoured in (
        (f"00-{trace}-{span}-01", True),
        ("00-zz-1-01", False),
        (f"00-{trace.upper()}-{span}-01", False),
        (f"00-{'0' * 32}-{span}-01", False),
    ):
        reply = host.site.ask(
            "/v1/runs", key=host.key, method="POST", body=body, headers={"traceparent": header}
        )
        spans = host.bundle(reply.json()["runId"])["spans"]
        assert (spans[0]["parentSpanId"] == span) is honoured
        assert all((each["traceId"] == trace) is honoured for each in spans)
        assert (reply.headers["traceparent"].split("-")[1] == trace) is honoured


def test_the_nodes_of_a_fixture_have_their_published_names(host: Host) -> None:
    """As the conformance suite's multi-node-ordering asks; also as the target of an annotation."""
    made = host.post("/v1/runs", {"workflowId": "conformance-multi-node"}, 201)["runId"]
    bundle = host.bundle(made)
    done = [event for event in bundle["events"] if event["type"] == "node.completed"]
    assert [event["nodeId"] for event in done] == ["a", "b", "c"]
    assert [event["payload"]["nodeId"] for event in done] == ["a", "b", "c"]
    assert bundle["metrics"]["nodeCount"] == 3
    body = {"target": {"nodeId": "b"}, "signal": {"kind": "flag"}}
    stored = host.post(f"/v1/runs/{made}/annotations", body, 201)
    assert stored["target"]["nodeId"] == "b"


def test_an_annotation_is_about_an_event_of_its_run(host: Host) -> None:
    path = f"/v1/runs/{host.run}/annotations"
    events = host.bundle()["events"]
    for event in (events[0], events[3], events[-1]):
        body = {"target": {"eventId": event["eventId"]}, "signal": {"kind": "flag"}}
        stored = host.post(path, body, 201)
        assert stored["target"]["eventId"] == event["eventId"]
    body = {"target": {"eventId": "no-such-event"}, "signal": {"kind": "flag"}}
    refused = host.post(path, body, 400)
    assert "target.eventId" in refused["message"]


def test_the_openapi_document_needs_no_key(host: Host) -> None:
    reply = host.site.ask("/v1/openapi.json", key=None)
    assert reply.status == 200
    assert "/v1/runs/{runId}/debug-bundle" in reply.json()["paths"]


# --- the published client -------------------------------------------------------------------------


def test_the_published_client_works(host: Host) -> None:
    """openwop-client: discovery, runs, events, the bundle, annotations, errors."""
    client = host.client
    started = client.runs_create(CreateRunRequest(workflowId="conformance-multi-node"))
    snapshot, page = client.runs_get(started.runId), client.runs_poll_events(started.runId)
    bundle = client.runs_debug_bundle(started.runId)
    cut = client.runs_debug_bundle(started.runId, max_events=2)
    assert bundle is not None and cut is not None
    note = client.create_annotation(
        started.runId,
        CreateAnnotationRequest(
            signal={"kind": "flag"}, note="hm", target={"eventId": page.events[1].eventId}
        ),
        idempotency_key="one",
    )

    assert client.discovery_capabilities().protocolVersion
    assert (snapshot.status, page.isComplete) == ("completed", True)
    assert [event["eventId"] for event in bundle.events] == [event.eventId for event in page.events]
    assert (len(cut.events), cut.truncated) == (2, True)
    assert client.list_annotations(started.runId) == [note]
    assert note.target["eventId"] == page.events[1].eventId
    with pytest.raises(WopError) as error:
        client.runs_get("00000000-0000-4000-8000-000000000000")
    assert (error.value.status, error.value.envelope.error) == (404, "not_found")  # type: ignore[union-attr]
    assert client.runs_debug_bundle("00000000-0000-4000-8000-000000000000") is None


@pytest.mark.parametrize(
    "run", ["..", "%2e%2e%2fetc", "r1", "a" * 500, "%00", "%F0%9F%92%A9", "*", "'"]
)
def test_ids_that_cannot_be_are_runs_that_are_not_there(host: Host, run: str) -> None:
    """Path traversal and encoded ids: 404 in the envelope; nothing else is found by them."""
    for path in ("", "/events/poll", "/debug-bundle", "/annotations"):
        host.get(f"/v1/runs/{run}{path}", status=404)


def test_the_routes_are_in_the_openapi_document(host: Host) -> None:
    """/v1/openapi.json is generated and true."""
    paths = host.site.data("/v1/openapi.json", key=host.key)["paths"]

    for path in (
        "",
        "/{runId}",
        "/{runId}/events/poll",
        "/{runId}/debug-bundle",
        "/{runId}/annotations",
    ):
        assert f"/v1/runs{path}" in paths
    assert set(paths["/v1/runs/{runId}/annotations"]) == {"get", "post"}
