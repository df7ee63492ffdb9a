"""Secrets that were recorded, and secrets that requests bring: in no answer and in no log line.

One program plants them wherever a recorder takes something. Then everything is asked that can be
asked: every route, every verb about every span, every table, OpenWOP in every mode; and every
byte that comes back is searched.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest

import vestige
from support.http_server import Events, Reply, Site, served
from test_canary import SECRETS, leaks
from vestige.collector.loop import catch_up
from vestige.fleet.api_keys import Keys
from vestige.home import Home
from vestige.query.command_tools import TOOLS
from vestige.query.reproduce.request import FORMATS
from vestige.record.redaction.output_redaction import output_redactor
from vestige.server.app import make_app
from vestige.server.auth import GuardedRoute
from vestige.server.server_state import Server
from vestige.store.sqlite.sqlite_store import SqliteStore

PEM = f"-----BEGIN PRIVATE KEY-----\n{SECRETS['pem']}\n-----END PRIVATE KEY-----"
URL = f"postgres://admin:{SECRETS['url']}@db.internal:5432/app"
BEARER = f"Bearer {SECRETS['bearer']}"
HEADERS = {
    "Authorization": BEARER,
    "Cookie": f"session={SECRETS['cookie']}",
    "X-Api-Key": SECRETS["password"],
}
SHAPES = " and ".join(
    [
        *(SECRETS[name] for name in ("openai", "anthropic", "github", "aws", "slack", "jwt")),
        BEARER,
        URL,
        PEM,
    ]
)
"""Each is known by its shape; passwords and cookies are known by their keys."""

TEXT = f"{SHAPES} and {SECRETS['registered']}"
"""With one that only its recorder knows."""

COMPONENT = "billing"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, list[str]]]:
    """A home, and the ids of its two runs."""
    home = Home(tmp_path_factory.mktemp("secrets") / "home")
    with vestige.Recorder(home) as recorder:
        recorder.secret(SECRETS["registered"])
        recorder.logger(COMPONENT).surface(
            text=TEXT, span_types=["deliver"], queries={"unpaid": f"SELECT 1 -- {SHAPES}"}
        )
        runs = [_plant(recorder, number) for number in range(2)]
    catch_up(home)
    yield home, runs


def _plant(recorder: vestige.Recorder, number: int) -> str:
    """A run with a secret in every place that takes a text."""
    nested = {"outer": json.dumps({"headers": HEADERS, "password": SECRETS["password"]})}
    inputs = {"q": TEXT, "headers": HEADERS, TEXT: "as a key", "deep": [{"a": {TEXT: nested}}]}
    attributes = {
        "note": TEXT,
        "headers": HEADERS,
        "api_key": SECRETS["password"],
        TEXT: "as a key",
    }
    run = recorder.run(
        f"triage {SECRETS['openai']}",
        f"talk {SECRETS['github']}",
        attributes=attributes,
        body=inputs,
    )
    request = {
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": TEXT}],
        "headers": HEADERS,
    }
    wire = {
        "model": "gpt-4o",
        "provider": "openai",
        "method": "POST",
        "url": "https://api.openai.com/v1/chat"
        f"?api_key={SECRETS['password']}&k={SECRETS['openai']}",
        **{f"request.header.{name.lower()}": value for name, value in HEADERS.items()},
    }
    with run.span(f"chat {SECRETS['slack']}", "llm", wire, body=json.dumps(request)) as call:
        call.set_attributes(token=SECRETS["password"], finish=TEXT, input_tokens=9, output_tokens=3)
        call.end(
            body=json.dumps({"choices": [{"message": {"role": "assistant", "content": TEXT}}]})
        )
    tool = run.child(
        "search", f"type {SECRETS['aws']}", {"tool_call_id": f"call {SECRETS['jwt']}"}, body=inputs
    )
    tool.add_link(call, reason=TEXT)
    tool.log.error(TEXT, error=ValueError(TEXT), **attributes)
    tool.end(RuntimeError(f"{TEXT} {number}"), body={"result": TEXT, "token": SECRETS["password"]})
    for step in range(2):
        state = {"step": step, "password": SECRETS["password"], TEXT: TEXT}
        run.span("plan", "state", {"index": step}, body=state).end()
    run.span("file", "file", {"path": f"{SECRETS['anthropic']}.txt"}).end(body=TEXT)
    run.span("bytes", "tool", body=b"\xff\x00 " + TEXT.encode()).end()
    run.log.child(session_token=SECRETS["password"]).warn(f"{TEXT} {number}")
    run.log.info(f"run {number} is done")
    if number:
        run.end(error=ConnectionError(TEXT))
    else:
        run.end(body={"answer": TEXT, "cookie": SECRETS["cookie"]})
    return run.run_id


def _spans(home: Home, run_id: str) -> list[str]:
    with SqliteStore.open(home.store, readonly=True) as store:
        return [span.id for span in store.load_run(run_id).spans]


def _questions(home: Home, runs: list[str]) -> Iterator[str]:
    """About everything that is there, as data and as text."""
    a, b = runs
    spans = [span for run in runs for span in _spans(home, run)]
    about_runs: dict[str, list[dict[str, str]]] = {
        "list": [
            {},
            {"all": "true", "cost": "true"},
            {"group": "conversation"},
            {"like": "triage"},
        ],
        "show": [{"no_fold": "true"}, {"errors": "true"}],
    }
    for tool in TOOLS:
        names = {one.name for one in tool.parameters}
        queries: list[dict[str, str]] = about_runs.get(tool.name, [{}])
        match tool.name:
            case "why" | "span" | "segments":
                queries = [{"id": span} for span in spans]
            case "body":
                queries = [{"id": span, which: "true"} for span in spans for which in ("in", "out")]
            case "grep":
                queries = [{"pattern": text} for text in ("e", "key", "redacted", SECRETS["aws"])]
            case "diff":
                queries = [{"a": a, "b": b}, *({"a": span, "prev": "true"} for span in spans)]
            case "compare":
                queries = [{"a": a, "b": b}]
            case "help":
                queries = [{"component": COMPONENT}]
            case "sql":
                with SqliteStore.open(home.store, readonly=True) as store:
                    tables = store._connection.execute(
                        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
                    )
                    queries = [{"query": f"SELECT * FROM {name}"} for (name,) in tables]
            case "state":
                queries = [{"id": f"{run}#1", "than": "0"} for run in runs] + [{"id": a}, {"id": b}]
            case _ if "id" in names:
                queries = [{"id": run, **each} for run in runs for each in queries]
        for each in queries:
            for form in ({}, {"format": "text", "budget": "20000"}):
                yield f"/api/v1/{tool.name}?{urlencode({**each, **form})}"
    for span in spans:
        yield from (f"/api/v1/reproduce?id={span}&language={language}" for language in FORMATS)


def _leaks(site: Site, replies: list[tuple[str, Reply]]) -> list[tuple[str, list[str]]]:
    """Where, and which."""
    found = []
    for path, reply in replies:
        body = reply.body
        if reply.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        sent = body + json.dumps(reply.headers).encode()
        if leaks(sent):
            found.append((path, leaks(sent)))
    lines = json.dumps(site.lines).encode()
    return [*found, *([("log", leaks(lines))] if leaks(lines) else [])]


@pytest.mark.slow
def test_no_answer_of_any_verb_holds_a_recorded_secret(planted: tuple[Home, list[str]]) -> None:
    """Inputs, events, attributes, errors, names, keys of objects, states, files, hints, links."""
    home, runs = planted
    with served(home) as site:
        replies = [(path, site.ask(path)) for path in _questions(home, runs)]
        live = _live(site)
        found = _leaks(site, [*replies, ("live", live)])

    assert {path.split("?")[0] for path, reply in replies if reply.status == 200} >= {
        f"/api/v1/{tool.name}" for tool in TOOLS
    }
    assert not [path for path, reply in replies if reply.status >= 500]
    assert b"redacted" in live.body
    assert found == []


@pytest.mark.slow
def test_what_a_store_holds_in_clear_leaves_through_no_answer(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was written before a rule for it existed, or before it was registered."""
    with vestige.Recorder(home, redact=False) as recorder:
        runs = [_plant(recorder, number) for number in range(2)]
    catch_up(home)
    stored = b"".join(path.read_bytes() for path in home.root.rglob("*") if path.is_file())
    monkeypatch.setenv("BILLING_SECRET", SECRETS["registered"])
    output_redactor.cache_clear()
    try:
        with served(home) as site:
            replies = [(path, site.ask(path)) for path in _questions(home, runs)]
            found = _leaks(site, [*replies, ("live", _live(site))])
    finally:
        output_redactor.cache_clear()

    assert "registered" in leaks(stored), "nothing is in clear in the store"
    assert not [path for path, reply in replies if reply.status >= 500]
    assert found == []


def _live(site: Site) -> Reply:
    """All events of the stream from the beginning of the store."""
    with Events(site, "/api/v1/live?after=0-0-0") as events:
        received = events.until_done("run 1")
    return Reply(200, {}, json.dumps(received).encode())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["mask", "omit", "hash", "passthrough"])
def test_no_answer_of_openwop_holds_a_secret_in_any_mode(
    planted: tuple[Home, list[str]], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bundle, snapshot, events, annotations and the list; `passthrough` refuses such a run."""
    home, runs = planted
    monkeypatch.setenv("VESTIGE_OPENWOP_REDACTION", mode)
    note = {"signal": {"kind": "correction", "correction": SHAPES}, "note": SHAPES}
    replies: list[tuple[str, Reply]] = []
    with served(home) as site:
        for run in runs:
            path = f"/v1/runs/{run}/annotations"
            posted = site.ask(path, method="POST", body=json.dumps(note).encode())
            replies.append((path, posted))
        paths = [
            f"/v1/runs{path}" for path in ["", *(f"/{run}{part}" for run in runs for part in PARTS)]
        ]
        gzip_too = {"Accept-Encoding": "gzip"}
        replies += [(path, site.ask(path, headers=gzip_too)) for path in paths]
        found = _leaks(site, replies)

    statuses = {reply.status for _, reply in replies}
    assert statuses <= ({200, 409} if mode == "passthrough" else {200, 201})
    assert 200 in statuses
    assert found == []


PARTS = ("", "/events/poll", "/debug-bundle", "/debug-bundle?maxEvents=3", "/annotations")


@pytest.mark.slow
def test_a_secret_that_a_request_brings_is_kept_and_logged_nowhere(home: Home) -> None:
    """In a path, a query, a header, a cookie, a method, a note, an annotation, a record, a wrong
    key.
    """
    with vestige.Recorder(home) as recorder, recorder.run("triage") as run:
        run.span("search", "tool").end()
    catch_up(home)
    secret = SECRETS["openai"]
    Keys(home).add("ci", ["runs:read"])
    with served(home, token=True) as site:
        doors = [
            route for route in make_app(Server(home)).routes if isinstance(route, GuardedRoute)
        ]
        for door in doors:
            path = door.path_format.replace("{runId}", quote(secret))
            if path == "/api/v1/live":
                path += "?run=" + quote(secret)
            for query in ("id", "pattern", "query", "name", "token", "after", "limit", secret):
                joint = "&" if "?" in path else "?"
                site.ask(f"{path}{joint}{urlencode({query: secret})}", headers=_everywhere(secret))
            site.ask(f"{path}/{quote(secret)}")
            for method in ("POST", "PUT"):
                site.ask(path, method=method, body=f'{{"{secret}": "{secret}"}}'.encode())
        site.ask("/api/v1/list", key=secret)
        site.raw(f"{secret} /{secret} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        site.raw(f"GET /{secret} HTTP/9.9\r\nHost: {secret}\r\n{secret}\r\n\r\n".encode())
        texts = {"id": run.run_id, "text": SHAPES, "author": f"eva {secret}"}
        replies = [
            site.ask("/api/v1/notes", method="POST", body=json.dumps(texts).encode()),
            site.ask(
                f"/v1/runs/{run.run_id}/annotations",
                method="POST",
                headers={"Idempotency-Key": secret},
                body=json.dumps({"signal": {"kind": "flag"}, "note": SHAPES}).encode(),
            ),
            site.ask(f"/api/v1/notes?id={run.run_id}"),
            site.ask("/api/v1/sql?query=select+*+from+notes"),
        ]
        _settle(site)
        logged = leaks(json.dumps(site.lines).encode())
        leaked = [name for reply in replies for name in leaks(reply.body)]

    assert [reply.status for reply in replies] == [201, 201, 200, 200]
    assert len(site.lines) > 10 * len(doors)
    assert logged == []
    assert leaked == []
    assert {line["route"] for line in site.lines if "route" in line} <= {
        "-",
        *(d.path for d in doors),
    }
    for path in home.root.rglob("*"):
        if path.is_file():
            assert leaks(path.read_bytes()) == [], path


def _settle(site: Site) -> None:
    """A line is written after its answer was sent: the last one is waited for."""
    count = -1
    while count != len(site.lines):
        count = len(site.lines)
        time.sleep(0.05)


def _everywhere(secret: str) -> dict[str, str]:
    return {
        "Cookie": f"a={secret}",
        "User-Agent": secret,
        "Referer": f"http://127.0.0.1/{secret}",
        "If-None-Match": f'"{secret}"',
        "X-Api-Key": secret,
        "Accept-Encoding": secret,
        "Last-Event-ID": secret,
        "traceparent": secret,
    }
