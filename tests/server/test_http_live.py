"""/api/v1/live: what is recorded comes as it is recorded, and nothing is missed on the way."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import vestige
from support.http_server import WAIT_S, Events, record_collected, served
from vestige.collector.loop import catch_up
from vestige.fleet.api_keys import Keys
from vestige.home import Home
from vestige.record.types import Log
from vestige.server.routes import live
from vestige.store.sqlite.read.change_feed import FeedPosition
from vestige.store.sqlite.sqlite_store import SqliteStore


def test_spans_and_lines_come_as_they_are_written(home: Home) -> None:
    """A span that begins, a line, its end, and the run that they changed."""
    with served(home) as site, Events(site) as events, vestige.Recorder(home) as recorder:
        ready = events.next()
        run = recorder.run("triage")
        span = run.span("search", type="tool")
        catch_up(home)
        began = events.until("span", id=span.id)
        span.log.info("looking")
        span.end()
        catch_up(home)
        ended = events.until("log", message="looking")
        run.end()
        catch_up(home)
        over = events.until("run", id=run.run_id, outcome="ok")

    spans = [data for event, _, data in ended if event == "span" and data["id"] == span.id]
    runs = [
        data["outcome"] for event, _, data in began if event == "run" and data["id"] == run.run_id
    ]
    assert ready is not None
    assert ready[0] == "ready"
    assert began[-1][2]["status"] == "open"
    assert began[-1][2]["run_id"] == run.run_id
    assert runs == ["running"]
    assert spans[0]["status"] == "ok"
    assert spans[0]["duration_ms"] is not None
    assert ended[-1][2]["span_id"] == span.id
    assert over


def test_a_stream_goes_on_where_it_was_left(home: Home) -> None:
    """`Last-Event-ID`: all since then, at least once, also from a server that was restarted."""
    with served(home) as site, Events(site) as events:
        record_collected(home, "first", spans=2)
        place = events.until_done("first")[-1][1]
    record_collected(home, "second", spans=2)
    with served(home) as site, Events(site, headers={"Last-Event-ID": place}) as events:
        found = events.until_done("second")

    names = [data["name"] for event, _, data in found if event == "span"]
    assert names.count("search") == 2
    assert not any(data.get("name") == "first" for _, _, data in found)


def test_each_event_is_a_place_to_resume_from(home: Home) -> None:
    """Resumed after any event, the rest comes: nothing between two events is lost."""
    record_collected(home, "whole", spans=3)
    with served(home) as site:
        with Events(site, headers={"Last-Event-ID": "0-0-0"}) as events:
            found = events.until_done("whole")
        for number, (_, place, _) in enumerate(found[:-1]):
            with Events(site, headers={"Last-Event-ID": place}) as events:
                rest = events.until_done("whole")

            for event, _, data in found[number + 1 :]:
                assert (event, data) in [(one[0], one[2]) for one in rest] or event == "ready"


def test_one_run_alone_can_be_followed(home: Home) -> None:
    """`run=`: the others' records pass by, and the place to resume from moves on all the same."""
    mine = record_collected(home, "mine")
    with served(home) as site:
        path = f"/api/v1/live?run={mine}&after=0-0-0"
        with Events(site, path) as events:
            record_collected(home, "other")
            found = events.until_done("mine")
            missing = site.ask("/api/v1/live?run=r999")

    run_ids = {data["run_id"] for event, _, data in found if event in ("span", "log")}
    assert run_ids == {found[-1][2]["run_id"]}
    assert missing.status == 404


def test_a_place_that_is_gone_is_told(home: Home) -> None:
    """A cursor of another store, or older than what is kept: reload, and continue from here."""
    record_collected(home)
    with served(home) as site, Events(site, headers={"Last-Event-ID": "99999-0-0"}) as events:
        events.next()
        reset = events.next()

    assert reset is not None
    assert reset[0] == "reset"
    assert FeedPosition.parse(reset[1]) == FeedPosition.parse(reset[2]["cursor"])


@pytest.mark.parametrize("text", ["abc", "1-2", "-1-2-3", "1-2-9999999999999999999", "1-2-٣"])
def test_what_is_no_place_is_refused(home: Home, text: str) -> None:
    record_collected(home)
    with served(home) as site:
        reply = site.ask("/api/v1/live", headers={"Last-Event-ID": text.encode().decode("latin-1")})

    assert reply.status == 400
    assert "cursor" in reply.json()["message"]


@pytest.mark.slow
def test_a_tenant_is_told_of_its_own_runs_only(home: Home) -> None:
    """The same stream, behind the same views as every other question."""
    key = Keys(home).add("other", ["runs:read"], tenant="acme").key
    record_collected(home, "default's")
    with served(home) as site, Events(site, key=key, headers={"Last-Event-ID": "0-0-0"}) as events:
        with SqliteStore.open(home.store) as store:
            lines = _of_tenant(home)
            store.append(lines, tenant="acme")
        found = events.until("span", name="search")

    with SqliteStore.open(home.store, readonly=True, tenant="acme") as store:
        own = set(store.run_ids())
    assert {data["run_id"] for event, _, data in found if event == "span"} <= own
    assert "default's" not in json.dumps(found)


def _of_tenant(home: Home) -> list[object]:
    """Records of a run, as another machine would send them."""
    from vestige.record.codec import parse_lines

    elsewhere = Home(home.root.parent / "elsewhere")
    with vestige.Recorder(elsewhere) as recorder, recorder.run("acme's") as run:
        run.span("search").end()
    data = b"".join(path.read_bytes() for _, _, path in elsewhere.journal_files())
    return list(parse_lines(data)[0])


@pytest.mark.slow
def test_a_client_that_does_not_read_holds_up_nobody(home: Home) -> None:
    """Each stream reads on in the store when its client has taken what it was sent."""
    record_collected(home, "many", spans=2_000)
    request = (
        "GET /api/v1/live?after=0-0-0 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        "Authorization: Bearer {}\r\n\r\n"
    )
    with served(home) as site, socket.create_connection(("127.0.0.1", site.port)) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(request.format(site.server.token).encode())
        with Events(site) as quick:
            quick.next()
            record_collected(home, "next")
            found = quick.until_done("next")
            listed = site.data("/api/v1/list")

    assert found
    assert len(listed["runs"]) == 2


def test_streams_are_bounded(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is 429, and says when to come again; a closed one makes room."""
    monkeypatch.setattr(live, "LIVE_KEY_CLIENTS_MAX", 1)
    record_collected(home)
    with served(home) as site:
        with Events(site) as events:
            events.next()
            refused = site.ask("/api/v1/live")
        with Events(site) as again:  # as soon as the server has seen that the first one is gone
            while again.response.status == 429:
                again.__exit__()
                again.__init__(site)  # type: ignore[misc]
            came = again.next()

    assert refused.status == 429
    assert refused.json()["details"] == {"retryAfter": 10}
    assert refused.headers["retry-after"] == "10"
    assert came is not None


def test_a_revoked_key_ends_its_stream(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client without access gets no further events, either."""
    monkeypatch.setattr(live, "LIVE_HEARTBEAT_S", 0.05)
    keys = Keys(home)
    key = keys.add("ci", ["runs:read"])
    with served(home) as site, Events(site, key=key.key) as events:
        events.next()
        keys.revoke(key.id)
        end = events.next()

    assert end is None


def test_a_revoked_key_ends_its_stream_also_where_there_is_always_something_new(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The access of a busy stream is checked as often as that of a silent one."""
    monkeypatch.setattr(live, "LIVE_HEARTBEAT_S", 0.3)
    keys = Keys(home)
    key = keys.add("ci", ["runs:read"])
    over = threading.Event()

    def record_on() -> None:
        with SqliteStore.open(home.store) as store:
            for seq in range(1, 2_000):
                store.append([Log(1, "a" * 16, seq, seq, "run", "agent", "info", f"line {seq}")])
                if over.wait(0.02):  # more often than a stream looks
                    return

    with served(home) as site, Events(site, key=key.key) as events:
        thread = threading.Thread(target=record_on)
        thread.start()
        events.until("log", level="info")
        keys.revoke(key.id)
        found = [events.next() for _ in range(300)]
        over.set()
        thread.join(WAIT_S)

    assert found[-1] is None


def test_an_end_of_the_server_ends_its_streams(home: Home) -> None:
    """SIGTERM waits for requests; a stream is none that ever ends by itself."""
    with served(home) as site:
        events = Events(site)
        events.next()
        ended: list[object] = []
        thread = threading.Thread(target=lambda: ended.append(events.next()))
        thread.start()
    thread.join(WAIT_S)

    assert ended == [None]


@pytest.mark.slow
def test_what_another_process_collects_is_told_too(home: Home, tmp_path: Path) -> None:
    """Events come from the store, whichever process writes to it."""
    program = "import vestige\nwith vestige.Recorder().run('elsewhere') as r: r.span('x').end()"
    with served(home) as site, Events(site) as events:
        events.next()
        subprocess.run(
            [sys.executable, "-m", "vestige", "run", "--", sys.executable, "-c", program],
            check=True,
        )
        found = events.until("run", name="elsewhere", outcome="ok")

    assert found


def test_who_asks_only_for_the_head_of_a_stream_can_ask_on(home: Home) -> None:
    """On the same connection: no stream is begun, and none is counted."""
    record_collected(home)
    with served(home) as site:
        link = http.client.HTTPConnection("127.0.0.1", site.port, timeout=20)
        link.request(
            "HEAD", "/api/v1/live", headers={"Authorization": f"Bearer {site.server.token}"}
        )
        head = link.getresponse()
        head.read()
        link.request("GET", "/healthz")
        health = link.getresponse().status
        link.close()

    assert head.status == 200
    assert str(head.getheader("content-type")).startswith("text/event-stream")
    assert health == 200
