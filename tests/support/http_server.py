"""A real server on loopback for the tests of server, and a client that hides nothing."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import vestige
from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.server.run_server import make_server, serve
from vestige.server.server_state import Server
from vestige.store.sqlite.sqlite_store import SqliteStore

WAIT_S = 120.0


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Site:
    """A server that runs, and what it logged."""

    server: Server
    url: str
    lines: list[dict[str, object]] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.server.port

    def ask(
        self,
        path: str,
        *,
        key: str | None = "",
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Reply:
        """One request on a connection of its own. `key`: empty, the local token; None, no key."""
        sent = dict(headers or {})
        secret = self.server.token if key == "" else key
        if secret is not None:
            sent["Authorization"] = f"Bearer {secret}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            connection.request(method, path, body=body, headers=sent)
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
        return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, data)

    def data(self, path: str, **more: Any) -> Any:
        reply = self.ask(path, **more)
        assert reply.status == 200, reply
        return reply.json()

    def raw(self, data: bytes) -> bytes:
        """Bytes as they are; what comes back until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S) as connection:
            found = b""
            try:
                connection.sendall(data)
                while part := connection.recv(65536):
                    found += part
            except ConnectionError:
                pass  # closed while we still spoke
        return found


@contextmanager
def served(
    home: Home,
    *,
    collect: bool = False,
    cert: Path | None = None,
    key: Path | None = None,
    **options: Any,
) -> Iterator[Site]:
    """A server of this home in a thread, until the block ends."""
    lines: list[dict[str, object]] = []
    server = make_server(home, "127.0.0.1", log=lines.append, **options)
    ready = threading.Event()
    urls: list[str] = []

    def set_url(url: str) -> None:
        urls.append(url)
        ready.set()

    thread = threading.Thread(
        target=serve,
        args=(server, "127.0.0.1", 0),
        kwargs={"collect": collect, "cert": cert, "key": key, "ready": set_url},
    )
    thread.start()
    assert ready.wait(WAIT_S)
    try:
        yield Site(server, urls[0], lines)
    finally:
        server.stop()
        thread.join(WAIT_S)
        assert not thread.is_alive()


def record_collected(
    home: Home, name: str = "triage", spans: int = 3, message: str = "looking"
) -> str:
    """A small finished run, taken in; its short id."""
    with vestige.Recorder(home) as recorder, recorder.run(name) as run:
        for number in range(spans):
            span = run.span("search", type="tool", body=json.dumps({"q": f"refunds {number}"}))
            span.log.info(message)
            span.end(body="three pages")
        run.log.info(f"{name} is done")
    catch_up(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        return store.find_runs(run.run_id)[0].short_id


class Events:
    """A stream of server-sent events, read as they come."""

    def __init__(self, site: Site, path: str = "/api/v1/live", **more: Any) -> None:
        headers = {"Authorization": f"Bearer {more.get('key') or site.server.token}"}
        self._connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=WAIT_S)
        self._connection.request("GET", path, headers={**headers, **more.get("headers", {})})
        self.response = self._connection.getresponse()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.response.close()
        self._connection.close()

    def next(self) -> tuple[str, str, Any] | None:
        """(event, id, data); None at the stream's end. Heartbeats are passed over."""
        found: dict[str, str] = {}
        deadline = monotonic() + WAIT_S  # heartbeats come for ever
        while line := self.response.readline():
            assert monotonic() < deadline, "nothing came"
            text = line.decode().rstrip("\n")
            if text:
                name, _, value = text.partition(": ")
                found[name] = value
            elif "data" in found:
                return found["event"], found["id"], json.loads(found["data"])
        return None

    def until_done(self, name: str) -> list[tuple[str, str, Any]]:
        """Everything up to the last line of a run that `record` made."""
        return self.until("log", message=f"{name} is done")

    def until(self, event: str, **fields: object) -> list[tuple[str, str, Any]]:
        """Everything up to the first event that has all of this, inclusive."""
        seen = []
        while (one := self.next()) is not None:
            seen.append(one)
            if one[0] == event and fields.items() <= one[2].items():
                return seen
        raise AssertionError(f"the stream ended before {event} {fields}: {seen}")
