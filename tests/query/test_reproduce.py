"""A recorded request as a script: both kinds are run, and the bytes that arrive are compared."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from vestige import Recorder
from vestige.collector.loop import catch_up
from vestige.errors import NotFoundError, UsageError
from vestige.home import Home
from vestige.query.reproduce.request import FORMATS, reproduce
from vestige.record.redaction.masking import mask
from vestige.record.run import BodyRef, Run, SpanInfo
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore

# Put together here, so that nothing that looks like a key is in the repository.
KEY = "sk-" + "proj4f9a81c77e20b35d6cQv"
OTHER = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"

NASTY = {
    "json": '{"model": "m", "messages": [{"role": "user", "content": "it\'s \\"quoted\\" \\n"}]}',
    "shell": "$HOME `id` $(id) \\ \\n ! 'single' \"double\" %s %n\n\nEOF\n'\\''",
    "unicode": "Zürich 漢字 🦀 e\u0301 \u202ebidi\n",
    "newlines": "\r\n\na\r\n\n",
    "escapes": "\x1b[2J\x07bell\x00nul",
    "binary": b"\x89PNG\r\n\x1a\n\x00\xff\xfe" + bytes(range(256)),
    "none": "",
}


@dataclass
class Received:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Server(ThreadingHTTPServer):
    received: list[Received]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        assert isinstance(self.server, Server)
        self.server.received.append(Received(self.command, self.path, headers, body))
        self.send_response(429 if "refuse" in self.path else 200)
        self.end_headers()
        self.wfile.write(b'{"answer": 1}')

    do_GET = do_PUT = do_POST

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def url(server: Server) -> str:
    server.received = []
    return f"http://127.0.0.1:{server.server_port}"


def script(home: Home, format: str) -> str:
    """The only model call's."""
    catch_up(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        run, span = only_call(store)
        return reproduce(run, span, store.read_body, format)


def only_call(store: SqliteStore) -> tuple[Run, SpanInfo]:
    runs = [store.load_run(info.id) for info in store.list_runs(RunFilter())]
    return next((run, span) for run in runs for span in run.spans if span.type in ("llm", "http"))


def record_request(
    home: Home, url: str, body: str | bytes | None, headers: Any = None, **more: Any
) -> None:
    """A call as the wire records one."""
    attributes = {"method": "POST", "url": url, **more}
    attributes["request.headers"] = (
        {"content-type": "application/json"} if headers is None else headers
    )
    with Recorder(home) as recorder, recorder.run("r") as run:
        run.span("chat", "llm", attributes, body=body).end()


def send(text: str, format: str, tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a user would."""
    if format == "curl" and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    path = tmp_path / "again"
    path.write_text(text, encoding="utf-8", newline="")
    command = ["sh"] if format == "curl" else [sys.executable]
    return subprocess.run(
        [*command, str(path)], capture_output=True, text=True, env={**os.environ, **env}
    )


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", NASTY)
def test_the_same_bytes_arrive(
    home: Home, server: Server, url: str, tmp_path: Path, format: str, name: str
) -> None:
    """Whatever a shell or a literal would make of them; the answer is printed."""
    body = NASTY[name]
    record_request(
        home,
        f"{url}/v1/x?a=[1]&b={{2}}&c='q'$d",
        body,
        {"Content-Type": "text/x; a='b' $c", "X-Odd": "`id`"},
    )

    done = send(script(home, format), format, tmp_path)

    (arrived,) = server.received
    assert (done.returncode, done.stdout) == (0, '{"answer": 1}'), done.stderr
    assert arrived.body == (body if isinstance(body, bytes) else body.encode())
    assert arrived.path == "/v1/x?a=[1]&b={2}&c='q'$d"
    assert (arrived.headers["content-type"], arrived.headers["x-odd"]) == (
        "text/x; a='b' $c",
        "`id`",
    )


@pytest.mark.parametrize("format", FORMATS)
def test_masked_secrets_are_environment_variables(
    home: Home, server: Server, url: str, tmp_path: Path, format: str
) -> None:
    """The key that authorises has its usual name, wherever it is; another is another variable.
    What arrives is what was sent when it was recorded."""
    password, cookie = "a/b=c:d@e f+g/hij==", f"sid={OTHER}; theme=dark"
    body = json.dumps({"note": f"use {KEY} or {OTHER}.", "password": password})
    headers = {"authorization": mask(f"Bearer {KEY}"), "cookie": cookie}
    record_request(home, f"{url}/v1/x?key={mask(KEY)}", body, headers, provider="openai")

    text = script(home, format)
    # The recorder masks a cookie header as a whole.
    variables = {"OPENAI_API_KEY": KEY, "SECRET_1": cookie, "SECRET_2": OTHER, "SECRET_3": password}
    send(text, format, tmp_path, **variables)
    missing = send(text, format, tmp_path, **{**variables, "OPENAI_API_KEY": ""})

    (arrived,) = server.received
    assert KEY not in text
    assert arrived.body == body.encode()
    assert arrived.headers["authorization"] == f"Bearer {KEY}"
    assert arrived.headers["cookie"] == cookie
    assert arrived.path == f"/v1/x?key={KEY}"
    assert missing.returncode != 0
    assert "OPENAI_API_KEY" in missing.stderr
    assert "is not set" in missing.stderr
    assert "Traceback" not in missing.stderr


@pytest.mark.parametrize(
    ("attributes", "name"),
    [
        ({"provider": "anthropic"}, "ANTHROPIC_API_KEY"),
        ({"provider": "gemini"}, "GEMINI_API_KEY"),
        ({"url": "https://api.openai.com/v1/chat/completions"}, "OPENAI_API_KEY"),
        (
            {"url": "https://generativelanguage.googleapis.com/v1?key=%E2%80%A6redacted%E2%80%A6"},
            "GEMINI_API_KEY",
        ),
        ({"url": "http://localhost:8000/v1"}, "API_KEY"),
    ],
)
def test_the_key_has_the_name_that_the_provider_gives_it(
    home: Home, attributes: dict[str, str], name: str
) -> None:
    record_request(
        home,
        **{"url": "http://h/v1", "body": "{}", "headers": {"x-api-key": mask(KEY)}, **attributes},
    )  # type: ignore[arg-type]

    for kind in FORMATS:
        assert f"Set {name} (recorded as sk-…redacted…cQv)" in script(home, kind)


@pytest.mark.parametrize("format", FORMATS)
def test_a_secret_that_ends_in_odd_characters_is_replaced_whole(
    home: Home, server: Server, url: str, tmp_path: Path, format: str
) -> None:
    """Basic credentials end in `=`."""
    record_request(home, url, "x", {"authorization": mask("Basic dXNlcjpwYXNzd29yZA==")})

    send(script(home, format), format, tmp_path, API_KEY="dXNlcjpwYXNzd29yZA==")

    assert server.received[0].headers["authorization"] == "Basic dXNlcjpwYXNzd29yZA=="


@pytest.mark.parametrize("format", FORMATS)
def test_headers_of_the_connection_are_left_to_the_client(
    home: Home, server: Server, url: str, tmp_path: Path, format: str
) -> None:
    """A body that was sent encoded is sent plain; a header that is none is left out; other shapes
    of attributes are read; a refusal is an answer.
    """
    odd = {
        "host": "elsewhere",
        "Content-Length": "3",
        "accept-encoding": "br",
        "content-encoding": "gzip",
        ":authority": "x",
        "@/etc/passwd": "x",
        "x-break": "a\r\nx-injected: 1",
        "x-many": ["a", "b"],
    }
    more = {"request.encoding": "gzip", "request.wire_bytes": 99, "request.header.x-single": "yes"}
    record_request(home, f"{url}/refuse", "plain text", odd, **more)

    done = send(script(home, format), format, tmp_path)

    (arrived,) = server.received
    assert (done.returncode, done.stdout, arrived.body) == (0, '{"answer": 1}', b"plain text")
    assert (arrived.headers["x-many"], arrived.headers["x-single"]) == ("a, b", "yes")
    assert arrived.headers["host"] in url
    assert {"content-encoding", "x-injected", "x-break", "@/etc/passwd"}.isdisjoint(arrived.headers)


@pytest.mark.parametrize("format", FORMATS)
def test_a_request_without_a_body_has_none(
    home: Home, server: Server, url: str, tmp_path: Path, format: str
) -> None:
    record_request(home, f"{url}/v1/models", None, {"accept": "*/*"}, method="GET")

    send(script(home, format), format, tmp_path)

    (arrived,) = server.received
    assert (arrived.method, arrived.body) == ("GET", b"")
    assert "content-type" not in arrived.headers


def test_a_long_body_is_no_problem_of_the_command_line(
    home: Home, server: Server, url: str, tmp_path: Path
) -> None:
    """It goes through a pipe."""
    body = json.dumps({"text": "it's long " * 300_000})
    record_request(home, url, body)

    send(script(home, "curl"), "curl", tmp_path)

    assert server.received[0].body == body.encode()


# --- what cannot be sent again ------------------------------------------------------------------


def test_a_request_that_was_not_kept_whole_is_refused(home: Home) -> None:
    """Lost, cut, evicted, or never seen to its end."""
    record_request(home, "http://h/v1", "some body")
    catch_up(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        run, span = only_call(store)

        def refused(input: BodyRef, **attributes: Any) -> str:
            changed = msgspec.structs.replace(
                span, input=input, attributes={**span.attributes, **attributes}
            )
            with pytest.raises(NotFoundError, match="recorded request is incomplete") as caught:
                reproduce(run, changed, store.read_body, "curl")
            return str(caught.value)

        assert span.input is not None
        size, body_id = span.input.size_bytes, span.input.id
        assert "disk full" in refused(BodyRef(None, 9, "disk full"))
        assert "cut at 4" in refused(BodyRef(body_id, size, "cut at 4"))
        assert "999 bytes were sent" in refused(BodyRef(body_id, size), **{"request.bytes": 999})
        assert "\n" not in refused(BodyRef(10**9, size))


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"method": "POST"},
        {"url": 7},
        {"url": "file:///etc/passwd"},
        {"url": "http://a b"},
        {"url": "http://a/\n"},
    ],
)
def test_a_span_without_a_request_is_refused(home: Home, attributes: dict[str, Any]) -> None:
    with Recorder(home) as recorder, recorder.run("r") as run:
        run.span("chat", "llm", attributes, body="{}").end()

    for kind in FORMATS:
        with pytest.raises(UsageError, match="no HTTP request"):
            script(home, kind)


def test_an_unknown_format_is_refused(home: Home) -> None:
    record_request(home, "http://h/v1", "{}")

    with pytest.raises(UsageError, match="expected curl or python"):
        script(home, "perl")


def test_hostile_masks_and_names_run_nothing(home: Home, url: str, tmp_path: Path) -> None:
    """A recording is untrusted: nothing in it is ever a command."""
    marker = tmp_path / "owned"
    bad = f"`>{marker}`…redacted…`id`"
    record_request(
        home,
        f"{url}/$(touch${{IFS}}{marker})",
        f"`id…redacted…id`\n$(touch {marker})\n#",
        {"x-a": bad, "authorization": "`id…redacted…id`"},
        method="POST; touch x",
    )

    for kind in FORMATS:
        send(script(home, kind), kind, tmp_path, API_KEY="k", SECRET_1="s", SECRET_2="t")

    assert not marker.exists()
