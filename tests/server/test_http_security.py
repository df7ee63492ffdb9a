"""Nobody in who does not belong: every route, for every kind of stranger.

The routes are read off the application, so one that is added later is tested too.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import monotonic, sleep
from urllib.parse import urlencode

import pytest

import vestige
from support.http_server import WAIT_S, Reply, Site, record_collected, served
from vestige._runtime.clock import FakeClock
from vestige.collector.loop import catch_up
from vestige.fleet.api_keys import SCOPES, Keys
from vestige.home import Home
from vestige.limits import HTTP_REFUSED_MAX
from vestige.query.command_tools import BY_NAME
from vestige.record.codec import render_line
from vestige.record.types import Log
from vestige.server import auth, run_server
from vestige.server.app import make_app
from vestige.server.auth import GuardedRoute
from vestige.server.routes import live
from vestige.server.server_state import Server

PUBLIC = {"/instance", "/v1/openapi.json", "/healthz", "/.well-known/openwop", "/login", "/logout"}
"""The paths that need no key; more is a decision, not an oversight."""

"""The paths that a key of any scope opens."""


def _doors(home: Home) -> list[tuple[GuardedRoute, str]]:
    """Every route with each of its methods."""
    routes = make_app(Server(home)).routes
    doors = [route for route in routes if isinstance(route, GuardedRoute)]
    assert len(doors) == len(routes)
    return [(door, method) for door in doors for method in sorted(door.methods or ())]


@dataclass
class Strangers:
    """A server with keys of all kinds."""

    site: Site
    keys: dict[str, str]
    run_id: str


@contextmanager
def _strangers(home: Home) -> Iterator[Strangers]:
    short = record_collected(home, "theirs")
    keys, then = Keys(home), Keys(home, FakeClock())
    made = {
        "good": keys.add("good", SCOPES).key,
        "expired": then.add("expired", SCOPES, expires_ns=FakeClock().now_ns() + 10**12).key,
        "revoked": keys.add("revoked", SCOPES).key,
        "other tenant": keys.add("other", SCOPES, tenant="acme").key,
        **{f"only {scope}": keys.add(scope.replace(":", "-"), [scope]).key for scope in SCOPES},
    }
    keys.revoke("revoked")
    with served(home, token=False) as site:
        run_id = site.data(f"/api/v1/overview?id={short}", key=made["good"])["run"]["id"]
        yield Strangers(site, made, run_id)


def _path(door: GuardedRoute, run_id: str) -> str:
    """A path that this door takes, about a run that is there."""
    path = re.sub(r"\{\w+\}", run_id, door.path_format)
    routes = ("reproduce", "share", "export", "messages", "lineage", "same_task")
    if path.removeprefix("/api/v1/") in routes:
        return f"{path}?id={run_id}"
    tool = BY_NAME.get(path.removeprefix("/api/v1/"))
    if tool is None:
        return path
    values = {"pattern": "refunds", "component": "agent", "query": "select name from runs"}
    parameters = {
        one.name: values.get(one.name, run_id)
        for one in tool.parameters
        if one.required or one.name == "id"
    }
    return f"{path}?{urlencode(parameters)}"


@pytest.mark.slow
def test_no_route_lets_in_who_has_no_good_key(home: Home) -> None:
    """Without a key, with one that is wrong, expired or revoked: 401, before anything else."""
    with _strangers(home) as strangers:
        wrong = strangers.keys["good"][:-4] + "AAAA"
        secrets = [None, "", " ", wrong, strangers.keys["expired"], strangers.keys["revoked"]]
        for door, method in _doors(home):
            path = _path(door, strangers.run_id)
            for secret in secrets:
                headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
                reply = strangers.site.ask(path, key=None, method=method, headers=headers)

                if door.path in PUBLIC:
                    assert door.public
                    continue
                assert reply.status == 401, (door.path, secret)
                assert reply.headers["www-authenticate"].startswith("Bearer")
                if method != "HEAD":
                    assert reply.json()["error"] == "unauthenticated"


@pytest.mark.slow
def test_every_route_says_what_it_is_for_and_refuses_other_scopes(home: Home) -> None:
    """A key for something else is 403, with the scope that is missing in the details."""
    with _strangers(home) as strangers:
        for door, method in _doors(home):
            if door.public:
                continue
            assert door.scope in SCOPES, door.path
            for scope in SCOPES:
                reply = (
                    strangers.site.ask(
                        _path(door, strangers.run_id),
                        method=method,
                        key=strangers.keys[f"only {scope}"],
                    )
                    if scope != door.scope
                    else None
                )

                if reply is not None:
                    assert reply.status == 403, (door.path, scope)
                    if method != "HEAD":
                        assert reply.json()["details"]["scope"] == door.scope


@pytest.mark.slow
def test_another_tenant_sees_nothing_of_a_run(home: Home) -> None:
    """Not its name, not its id, not that it is there: as if the store were empty."""
    with _strangers(home) as strangers:
        key = strangers.keys["other tenant"]
        for door, method in _doors(home):
            if door.path == "/api/v1/live" or method not in ("GET", "HEAD") or door.public:
                continue
            reply = strangers.site.ask(_path(door, strangers.run_id), key=key, method=method)
            text = reply.body.decode()
            own = json.loads(text) if "json" in reply.headers["content-type"] and text else {}

            assert reply.status in (200, 404) or door.path == "/metrics", (door.path, reply)
            assert "theirs" not in text, door.path
            assert str(home.root) not in text, door.path
            if reply.status == 200:
                assert strangers.run_id not in text, door.path
            if door.path == "/api/v1/sql" and method == "GET":
                assert own["rows"] == []


@pytest.mark.slow
def test_another_tenant_can_write_nothing_to_a_run(home: Home) -> None:
    """Notes and annotations are refused; records go to a run of the tenant's own."""
    with _strangers(home) as strangers:
        run_id, key = strangers.run_id, strangers.keys["other tenant"]
        path = f"/api/v1/show?id={run_id}"
        before = strangers.site.data(path, key=strangers.keys["good"])
        span = before["spans"][-1]["id"]

        def post(path: str, body: object) -> Reply:
            return strangers.site.ask(path, key=key, method="POST", body=json.dumps(body).encode())

        ours = json.dumps({"id": run_id, "text": "ours"}).encode()
        good = strangers.keys["good"]
        strangers.site.ask("/api/v1/notes", key=good, method="POST", body=ours)
        line = render_line(Log(1, "00000000000000aa", 1, 1_000, run_id, "agent", "info", "planted"))
        replies = [
            post("/api/v1/notes", {"id": run_id, "text": "planted"}),
            post("/api/v1/notes", {"id": span, "text": "planted"}),
            post("/api/v1/notes", {"id": before["run"]["short_id"], "text": "planted"}),
            strangers.site.ask(
                f"/api/v1/notes/1?id={run_id}", key=key, method="PATCH", body=b'{"text":"planted"}'
            ),
            strangers.site.ask(f"/api/v1/notes/1?id={run_id}", key=key, method="DELETE"),
            post(f"/v1/runs/{run_id}/annotations", {"signal": {"kind": "flag"}, "note": "planted"}),
            strangers.site.ask("/api/v1/ingest", key=key, method="POST", body=line),
        ]
        after = strangers.site.data(path, key=strangers.keys["good"])
        notes = strangers.site.data(f"/api/v1/notes?id={run_id}", key=strangers.keys["good"])

    assert [reply.status for reply in replies] == [404, 404, 404, 404, 404, 404, 200]
    assert after == before
    assert [note["text"] for note in notes["notes"]] == ["ours"]


def test_the_numbers_of_all_tenants_are_for_who_runs_the_server(home: Home) -> None:
    """/metrics is of the whole home: a tenant's key learns nothing of its neighbours."""
    with _strangers(home) as strangers:
        refused = strangers.site.ask("/metrics", key=strangers.keys["other tenant"])
        own = strangers.site.ask("/metrics", key=strangers.keys["only runs:read"])

    assert refused.status == 403
    assert refused.json()["details"] == {"tenant": "default"}
    assert b"vestige_store_runs 2" in own.body  # with that of the process


@pytest.mark.slow
def test_doctor_tells_a_tenant_of_its_own_only(home: Home) -> None:
    """Not how large the store is, nor how many journals, writers and losses others have."""
    with _strangers(home) as strangers:
        with vestige.Recorder(home) as recorder, recorder.run("not taken in"):
            pass
        foreign = strangers.site.data("/api/v1/doctor", key=strangers.keys["other tenant"])
        text = strangers.site.ask(
            "/api/v1/doctor?format=text", key=strangers.keys["other tenant"]
        ).body.decode()
        own = strangers.site.data("/api/v1/doctor", key=strangers.keys["good"])

    numbers = [name for name, value in foreign.items() if type(value) is int and value]
    assert set(numbers) <= {"version", "retention_body_bytes"}
    assert "0 runs" in text
    assert str(home.root) not in text
    assert own["runs"] == 2  # with that of the process
    assert own["journal_files"] >= 1
    assert own["lag_bytes"] > 0


def test_an_unknown_path_is_401_to_a_stranger_and_404_to_others(home: Home) -> None:
    """What is there and what is not looks the same from outside."""
    with _strangers(home) as strangers:
        stranger = strangers.site.ask("/nowhere", key=None)
        known = strangers.site.ask("/nowhere", key=strangers.keys["good"])

    assert (stranger.status, known.status) == (401, 404)


@pytest.mark.slow
@pytest.mark.parametrize(
    "id",
    [
        "../../../../etc/passwd",
        "/etc/passwd",
        "..%2f..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/etc/passwd",
        "/proc/self/environ",
        "~/.ssh/id_rsa",
        "file:///etc/passwd",
        "....//....//etc/passwd",
        "r1%00.json",
        "keys.json",
        "store.db",
        "a.wink%233",
    ],
)
def test_no_id_opens_a_path(home: Home, id: str) -> None:
    """An id is looked for in the store and nowhere else, however it is written."""
    record_collected(home)
    Keys(home).add("one", ["runs:read"])
    with served(home, token=True) as site:
        replies = [
            site.ask(f"/api/v1/show?id={id}"),
            site.ask(f"/api/v1/span?id={id}"),
            site.ask(f"/api/v1/diff?a={id}&b={id}"),
            site.ask(f"/api/v1/show?id={home.root}"),
            site.ask(f"/api/v1/show?id={home.store}"),
            site.ask(f"/v1/runs/{id}"),
            site.ask(f"/{id}"),
        ]

    for reply in replies:
        assert reply.status in (400, 404)
        assert b"root:" not in reply.body
        assert b"sha256" not in reply.body


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8642",
        "evil@127.0.0.1:x",
        "",
        "[::1",
        "169.254.169.254",
        "127.0.0.1:80:80@evil",
    ],
)
def test_another_name_is_refused(home: Home, host: str) -> None:
    """DNS rebinding: a site's own name that leads here is not ours, whatever key comes with it."""
    record_collected(home)
    with served(home) as site:
        for path in ("/healthz", "/api/v1/list"):
            head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
            raw = site.raw(f"{head}Authorization: Bearer {site.server.token}\r\n\r\n".encode())

            assert raw.split(b" ", 2)[1] in (b"403", b"400")
            assert b'"runs"' not in raw


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"])
def test_our_own_names_are_known(home: Home, host: str) -> None:
    with served(home) as site:
        reply = site.ask("/api/v1/list", headers={"Host": f"{host}:{site.port}"})

    assert reply.status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
    ],
)
def test_another_sites_page_is_refused(home: Home, headers: dict[str, str]) -> None:
    """The cookie of the token would come along: another port on this machine is another site."""
    record_collected(home)
    with served(home) as site:
        cookie = f"{auth.cookie_name(site.server)}={site.server.token}"
        refused = site.ask("/api/v1/list", key=None, headers={"Cookie": cookie, **headers})
        with_key = site.ask("/api/v1/list", headers=headers)
        own = site.ask(
            "/api/v1/list",
            key=None,
            headers={
                "Cookie": cookie,
                "Origin": f"http://127.0.0.1:{site.port}",
                "Sec-Fetch-Site": "same-origin",
            },
        )

    assert refused.status == 403
    assert refused.json()["error"] == "forbidden_origin"
    assert with_key.status == 403
    assert own.status == 200
    assert not any(name.startswith("access-control") for name in own.headers)


def test_a_page_behind_a_proxy_that_speaks_tls_is_our_own(home: Home) -> None:
    """`--name`: the proxy's name is one of ours, and its pages are https though we are not."""
    record_collected(home)
    with served(home, names=["vestige.example.com"]) as site:
        headers = {"Host": "vestige.example.com", "Origin": "https://vestige.example.com"}
        own = site.ask("/api/v1/list", headers=headers)
        other = site.ask("/api/v1/list", headers={**headers, "Origin": "https://example.com"})

    assert own.status == 200
    assert other.status == 403


def test_the_printed_url_lets_a_browser_in_once_and_hides_the_token(home: Home) -> None:
    """The token is exchanged for a cookie that no script reads and no other site sends."""
    record_collected(home)
    with served(home) as site:
        token = site.server.token
        came = site.ask(f"/api/v1/list?token={token}&limit=1", key=None)
        cookie = came.headers["set-cookie"]
        value = cookie.split(";")[0]
        then = site.ask(came.headers["location"], key=None, headers={"Cookie": value})
        wrong = site.ask("/api/v1/list?token=wrong", key=None)
        away = site.ask(f"//evil.example/x?token={token}", key=None)
        posted = site.ask(f"/api/v1/list?token={token}", key=None, method="POST")

    assert came.status == 303
    assert came.headers["location"] == "/api/v1/list?limit=1"
    assert came.headers["cache-control"] == "no-store"
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert then.status == 200
    assert wrong.status == 401
    assert away.headers["location"] == "/evil.example/x"
    assert posted.status == 401


@pytest.mark.slow
def test_no_header_can_be_injected(home: Home) -> None:
    """What is sent back in a header is encoded; line breaks do not pass."""
    for number in range(3):
        record_collected(home, f"run {number}", spans=1)
    with served(home) as site:
        token = site.server.token
        came = site.ask(f"/x%0d%0aSet-Cookie:%20a=b?token={token}&y=%0d%0aX-Evil:%201", key=None)
        page = site.ask("/api/v1/list?limit=1&name=run%0d%0aX-Evil:%201")
        paged = site.ask("/api/v1/list?limit=1&name=run%20")
        raw = site.raw(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\rX-Evil: 1\r\n\r\n")

    for reply in (came, page, paged):
        assert "x-evil" not in reply.headers
        assert "\n" not in reply.headers.get("location", "")
    assert came.headers["set-cookie"].startswith("vestige-")
    assert paged.headers["link"].startswith("</api/v1/list?limit=1&name=run+&after=")
    assert raw.startswith(b"HTTP/1.1 400")


def test_what_is_too_long_is_refused(home: Home) -> None:
    """Bodies, headers, arguments: each has a bound, and a status that says which."""
    record_collected(home)
    with served(home) as site:
        body = site.ask("/api/v1/list", method="GET", body=b"x" * 10)
        argument = site.ask("/api/v1/list?name=" + "x" * 17_000)
        header = site.raw(
            b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 200_000 + b"\r\n\r\n"
        )
        many = site.ask("/api/v1/compare?" + "&".join(["a=r1"] * 1_500))

    assert body.status == 413
    assert body.json()["error"] == "too_large"
    assert argument.status == 400
    assert header == b"" or header.startswith(b"HTTP/1.1 4")  # closed while we still spoke
    assert many.status in (400, 404)


def test_a_request_that_does_not_arrive_is_let_go(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that says nothing, or a header that never ends, is closed."""
    monkeypatch.setattr(run_server, "HTTP_HEADER_S", 0.2)
    with served(home) as site:
        silent = site.raw(b"")
        dripping = site.raw(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        first = second = b""
        while not first:  # we may be too slow ourselves
            address = ("127.0.0.1", site.port)
            with (
                contextlib.suppress(ConnectionError),
                socket.create_connection(address, timeout=WAIT_S) as connection,
            ):
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                while b'"ok"' not in first and (part := connection.recv(65536)):
                    first += part  # head and body may come apart
                connection.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
                second = connection.recv(65536)

    assert silent == b""
    assert dripping == b""
    assert first.startswith(b"HTTP/1.1 200")
    assert second == b""


@pytest.mark.parametrize("path", ["/api/v1/notes", "/api/v1/ingest", "/v1/runs/r1/annotations"])
def test_a_body_that_does_not_arrive_is_a_408(home: Home, path: str) -> None:
    """A client that stops in the middle gets an error, and does not hold the connection."""
    run = record_collected(home)
    with served(home, body_s=0.2) as site:
        head = (
            f"POST {path.replace('r1', run)} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {site.server.token}\r\nContent-Length: 100\r\n\r\n"
        )
        answer = site.raw(head.encode() + b'{"id": ')
        health = site.ask("/healthz", key=None)

    assert answer.startswith(b"HTTP/1.1 408")
    assert b'{"error":"timeout","message":"' in answer
    assert b"connection: close" in answer
    assert health.status == 200
    assert [line["status"] for line in site.lines] == [408, 200]


def test_garbage_is_no_request(home: Home) -> None:
    with served(home) as site:
        for data in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"\0" * 100 + b"\r\n\r\n"):
            answer = site.raw(data + b"\r\n\r\n")

            assert answer.startswith(b"HTTP/1.1 400")
            head, _, body = answer.partition(b"\r\n\r\n")
            assert b"connection: close" in head.lower()
            assert set(json.loads(body)) == {"error", "message"}
        health = site.ask("/healthz", key=None)

    assert health.status == 200


def test_no_secret_is_in_a_log_line_or_an_error(home: Home) -> None:
    """Not the token, not a key, not what a query or a path held, nor what was recorded."""
    secret = "sk-proj-" + "a1B2c3D4" * 5
    record_collected(home)
    key = Keys(home).add("ci", ["runs:read"]).key
    with served(home, token=True) as site:
        token = str(site.server.token)
        replies = [
            site.ask(f"/?token={token}", key=None),
            site.ask("/api/v1/list", key=key),
            site.ask(f"/api/v1/{secret}"),
            site.ask(f"/{secret}?token={key}", key=None),
            site.ask("/api/v1/list", key=secret),
            site.ask(f"/api/v1/live?run={secret}"),
        ]
        text = json.dumps(site.lines)

    assert len(site.lines) == len(replies)
    for each in (token, key, secret):
        assert each not in text
    assert {line["route"] for line in site.lines} >= {"/api/v1/list", "-"}
    assert any(line["key"] not in (None, "local") for line in site.lines)


@pytest.mark.slow
def test_secrets_of_a_run_are_in_no_answer(home: Home) -> None:
    """They were masked before they were written; the server shows what is stored."""
    secret = "sk-ant-api03-Zk3qT7vW2mRb9LxYc4HnJd8PsGf5Ke1UaVwQ"
    with vestige.Recorder(home) as recorder, recorder.run("secrets") as run:
        span = run.span("call", type="tool", body=f'{{"api_key": "{secret}"}}')
        span.set_attributes({"authorization": f"Bearer {secret}", secret: "as a key"})
        span.log.error(f"failed with {secret}")
        span.end(ValueError(f"bad key {secret}"))
    catch_up(home)
    with served(home) as site:
        paths = [
            "list?like=secrets",
            f"show?id={run.run_id}",
            f"check?id={run.run_id}",
            f"span?id={span.id}",
            f"body?id={span.id}&in=true",
            "grep?pattern=failed",
            f"overview?id={run.run_id}",
            f"why?id={span.id}",
            "sql?query=select+attributes+from+spans",
            "stats",
        ]
        replies = [site.ask(f"/api/v1/{path}") for path in paths]

    assert {reply.status for reply in replies} == {200}
    for reply in replies:
        assert secret.encode() not in reply.body


def test_a_keys_file_that_cannot_be_trusted_opens_nothing(home: Home) -> None:
    """It is said that the server cannot tell, not that the key is wrong."""
    key = Keys(home).add("ci", ["runs:read"]).key
    with served(home, token=False) as site:
        good = site.ask("/api/v1/list", key=key)
        home.keys.write_text("{")
        broken = site.ask("/api/v1/list", key=key)

    assert good.status == 200
    assert broken.status == 503
    assert str(home.root) not in broken.body.decode()


def test_more_connections_than_a_bound_are_told_to_come_again(home: Home) -> None:
    """In the envelope; and they are closed, so that others find room."""
    with served(home) as site:
        site.server.connections_max = 1
        with socket.create_connection(("127.0.0.1", site.port), timeout=WAIT_S) as waiting:
            waiting.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            first = waiting.recv(12)
            refused = site.ask("/healthz", key=None)
        site.server.connections_max = 10
        later = site.ask("/healthz", key=None)

    assert first == b"HTTP/1.1 200"
    assert refused.status == 503
    assert refused.json()["error"] == "busy"
    assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")
    assert later.status == 200


def test_connections_that_ask_nothing_do_not_use_up_the_files(home: Home) -> None:
    """Some more than the bound are kept for an answer; the others are closed at once."""

    with served(home) as site, ExitStack() as stack:
        site.server.connections_max = 2
        address = ("127.0.0.1", site.port)
        silent = [
            stack.enter_context(socket.create_connection(address, timeout=WAIT_S))
            for _ in range(HTTP_REFUSED_MAX + 10)
        ]
        last = _closed_by_server(silent[-1])
        open_connections = len(site.server.connections)
        site.server.connections_max = 200
        health = site.ask("/healthz", key=None)

    assert last
    assert open_connections <= HTTP_REFUSED_MAX + 2
    assert health.status == 200


def _closed_by_server(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_connection_that_is_reset_is_no_bug(home: Home) -> None:
    """Clients vanish: nothing is logged as ours, and the next one is answered."""
    record_collected(home, spans=200)
    with served(home) as site:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", site.port)) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                connection.sendall(
                    b"GET /api/v1/show HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
                    + str(site.server.token).encode()
                    + b"\r\n\r\n"
                )
        health = site.ask("/healthz", key=None)
        lines = list(site.lines)

    assert health.status == 200
    assert not [line for line in lines if "bug" in line]


def test_garbage_after_an_answer_closes_the_connection_and_is_no_traceback(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    """An invalid body of a stranger: it was answered already, and nothing is written for it
    to a stderr that nobody may read."""
    with (
        served(home) as site,
        socket.create_connection(("127.0.0.1", site.port), timeout=WAIT_S) as connection,
    ):
        connection.sendall(
            b"POST /api/v1/ingest HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        answer = b""
        while b"unauthenticated" not in answer:
            answer += connection.recv(65536)
        connection.sendall(b"zzz\r\n")
        rest = b"".join(iter(lambda: connection.recv(65536), b""))
        health = site.ask("/healthz", key=None)

    assert answer.startswith(b"HTTP/1.1 401")
    assert b"HTTP/1.1" not in rest
    assert health.status == 200
    assert not [line for line in site.lines if "Fatal" in str(line.get("server", ""))]
    assert "Traceback" not in caplog.text


def test_who_hangs_up_while_they_send_is_no_bug(home: Home) -> None:
    """Not even a stranger can make the log tell of one."""
    with served(home) as site:
        with socket.create_connection(("127.0.0.1", site.port), timeout=WAIT_S) as connection:
            connection.sendall(
                b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nkey="
            )
            while not site.server.connections:
                sleep(0.01)  # the server does it
        while site.server.connections:
            sleep(0.01)

    assert [line.get("status") for line in site.lines] == [400]


@pytest.mark.slow
def test_an_answer_that_nobody_takes_is_let_go(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection whose client does not read would else be there for ever, with all its bytes."""
    monkeypatch.setattr(run_server, "LIVE_SEND_S", 0.2)
    monkeypatch.setattr(live, "LIVE_SEND_S", 0.2)
    record_collected(home, spans=2_000, message="x" * 1_500)
    with served(home) as site, socket.socket() as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect(("127.0.0.1", site.port))
        stuck.sendall(
            b"GET /api/v1/live?after=0-0-0 HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
            + str(site.server.token).encode()
            + b"\r\n\r\n"
        )
        stuck.recv(12)
        deadline = monotonic() + 30
        while site.server.connections and monotonic() < deadline:
            sleep(0.05)  # the server does it
        left = len(site.server.connections)

    assert left == 0
