"""`POST /api/v1/ingest`: who may send, how much, how often, and what a refusal says."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.programs import WAIT_S
from support.ship_server import Serving
from vestige.fleet.compression import pack
from vestige.fleet.server.ingest_process import Intake
from vestige.home import Home
from vestige.limits import INGEST_BURST, PARCEL_PACKED_MAX
from vestige.record.codec import render_line
from vestige.record.types import Log
from vestige.server.routes.ingest import Rates
from vestige.server.run_server import make_server, serve

RUN = "3d1957bd-0000-4000-8000-{:012d}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    serving = Serving(tmp_path_factory.mktemp("server") / "home")
    serving.key()
    serving.start()
    yield serving
    serving.stop()


def line(number: int, seq: int = 1) -> bytes:
    """One line of a writer and a run of its own."""
    run_id = RUN.format(number)
    return render_line(Log(1, f"{number:016x}", seq, 1_000, run_id, "agent", "info", "said"))


def post(
    server: Serving, body: bytes, key: str | None, encoding: str | None = None, path: str = ""
) -> tuple[int, dict[str, object], http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    if encoding is not None:
        headers["Content-Encoding"] = encoding
    connection.request("POST", path or "/api/v1/ingest", body, headers)
    response = connection.getresponse()
    data = json.loads(response.read())
    connection.close()
    return response.status, data, response.headers


def test_lines_are_taken_in_any_encoding_and_counted(server: Serving) -> None:
    """What is new, what was known, and what held nothing."""
    key = server.key()

    plain = post(server, line(1), key)
    zipped = post(server, gzip.compress(line(2) + b"torn {\n"), key, "gzip")
    packed = post(server, pack(line(2) + line(3)), key, "zstd")
    empty = post(server, b"", key)

    assert plain[:2] == (200, {"records": 1, "new": 1, "malformed": 0})
    assert zipped[:2] == (200, {"records": 1, "new": 1, "malformed": 1})
    assert packed[:2] == (200, {"records": 2, "new": 1, "malformed": 0})
    assert empty[:2] == (200, {"records": 0, "new": 0, "malformed": 0})
    assert {RUN.format(1), RUN.format(2), RUN.format(3)} <= server.runs().keys()


def test_without_a_key_that_may_write_nothing_is_taken(server: Serving) -> None:
    """401 for nobody and 403 for a reader; nothing of it is in the store."""
    reader = server.key("default", "runs:read")

    nobody = post(server, line(11), None)
    wrong = post(server, line(11), "vstg_00000000_" + "A" * 43)
    unfit = post(server, line(11), reader)

    assert (nobody[0], wrong[0], unfit[0]) == (401, 401, 403)
    assert RUN.format(11) not in server.runs()


def test_the_key_gives_the_tenant_and_never_the_record(server: Serving) -> None:
    """A line that names one is taken like any other; the name in it means nothing."""
    claim = line(21).replace(b'"v":1', b'"v":2,"tenant":"acme"')

    status, _, _ = post(server, claim, server.key("beta"))

    assert status == 200
    assert server.tenant_of(RUN.format(21)) == "beta"


def test_an_id_of_another_tenant_is_answered_as_any_other_id(server: Serving) -> None:
    """The answer does not show that the id is in use, and no record is lost or mixed."""
    post(server, line(31), server.key("acme"))
    same_run = line(32).replace(RUN.format(32).encode(), RUN.format(31).encode())

    known = post(server, same_run, server.key("gamma"))
    unknown = post(server, line(33), server.key("gamma"))
    again = post(server, same_run, server.key("gamma"))

    assert known[:2] == unknown[:2]
    assert known[0] == 200
    assert again[1]["new"] == 0
    assert server.runs()[RUN.format(31)].info.log_count == 1
    assert server.tenant_of(RUN.format(31)) == "acme"
    theirs = [run for run in server.runs() if server.tenant_of(run) == "gamma"]
    assert len(theirs) == 2
    assert RUN.format(31) not in theirs


def test_a_writer_of_another_tenant_keeps_its_records(server: Serving) -> None:
    post(server, line(34), server.key("acme"))

    status, data, _ = post(server, line(34), server.key("gamma"))

    assert (status, data["new"]) == (200, 1)
    assert server.runs()[RUN.format(34)].info.log_count == 1


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_bomb_is_a_413_and_the_server_goes_on(server: Serving, encoding: str) -> None:
    """Bounded while it unfolds."""
    key = server.key()
    zeros = bytes(16 * 1024 * 1024)
    bomb = gzip.compress(zeros) * 8 if encoding == "gzip" else pack(zeros) * 8

    status, data, _ = post(server, bomb, key, encoding)

    assert (status, data["error"]) == (413, "too_large")
    assert post(server, line(41), key)[0] == 200


def test_a_body_that_says_it_is_too_long_is_refused_before_it_is_sent(server: Serving) -> None:
    """By Content-Length; and one that does not say so, when it has become too long."""
    head = (
        f"POST /api/v1/ingest HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {server.key()}\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as declared:
        declared.sendall(f"{head}Content-Length: {PARCEL_PACKED_MAX + 1}\r\n\r\n".encode())
        reply = declared.recv(100)
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as endless:
        endless.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"100000\r\n" + bytes(0x100000) + b"\r\n"
        try:
            for _ in range(PARCEL_PACKED_MAX // 0x100000 + 8):
                endless.sendall(chunk)
        except OSError:
            pass  # it has heard enough
        heard = endless.recv(100)

    assert b" 413 " in reply
    assert b" 413 " in heard


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [(b"not packed", "gzip", 400), (pack(b"x" * 9_000)[:-3], "zstd", 400), (b"x", "br", 415)],
)
def test_what_cannot_be_unpacked_is_an_error_of_one_line(
    server: Serving, body: bytes, encoding: str, status: int
) -> None:
    """The envelope of all errors, and no traceback."""
    found, data, _ = post(server, body, server.key(), encoding)

    assert found == status
    assert "\n" not in str(data["message"])


def test_a_key_that_sends_too_often_is_told_when_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """429 with Retry-After, for that key alone."""
    # Few in a second: a client on a slow machine sends too often, too.
    monkeypatch.setattr("vestige.server.routes.ingest.INGEST_REQUESTS_S", 1.0)
    server = Serving(tmp_path / "home")
    key, other = server.key(), server.key()
    with serving_here(server):
        _send_too_often(server, key, other)


@contextmanager
def serving_here(server: Serving) -> Iterator[None]:
    """In a thread of this process, with its bounds as this process has them."""
    ready = threading.Event()
    made = make_server(server.home, "127.0.0.1", log=lambda line: None)
    arguments = (made, "127.0.0.1", server.port)
    more = {"collect": False, "ready": lambda url: ready.set()}
    thread = threading.Thread(target=serve, args=arguments, kwargs=more)
    thread.start()
    assert ready.wait(WAIT_S)
    try:
        yield
    finally:
        made.stop()
        thread.join(WAIT_S)


def _send_too_often(server: Serving, key: str, other: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT_S)
    # Of an encoding that is refused after the rate is looked at, and before anything else is done.
    headers = {"Authorization": f"Bearer {key}", "Content-Encoding": "br"}
    statuses = []
    while 429 not in statuses and len(statuses) < 20 * INGEST_BURST:
        connection.request("POST", "/api/v1/ingest", b"", headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        statuses.append(response.status)
    connection.close()

    assert response.getheader("Retry-After") == "1"
    assert answer["details"] == {"retryAfter": 1}
    assert statuses.count(415) >= INGEST_BURST
    assert post(server, line(51), other)[0] == 200


def test_rates_come_back_with_time_and_are_forgotten_beyond_a_bound() -> None:
    """A burst at once, then a number per second."""
    rates = Rates(per_s=1e-9, burst=2)

    waits = [rates.wait_s("a") for _ in range(3)]

    assert waits[:2] == [0.0, 0.0]
    assert waits[2] > 1e6
    assert rates.wait_s("b") == 0.0


@pytest.mark.slow
def test_a_secret_that_a_sender_did_not_mask_is_nowhere_on_the_server(server: Serving) -> None:
    """Not in the store, not beside it, not in an answer."""
    secret = "sk-ant-api03-" + "Qx7" * 20
    text = line(61).replace(b"said", secret.encode())

    status, data, _ = post(server, text, server.key())

    assert status == 200
    assert secret not in json.dumps(data)
    for path in server.home.root.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_a_process_that_dies_in_the_middle_of_its_answer_leaves_nobody_waiting(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting clients are asked to retry, and the next parcel starts another process."""
    home.make()
    dies = 'import sys; sys.stdin.buffer.readline(); sys.stdout.write(\'{"number":1,"rec\')'
    real = subprocess.Popen

    def torn(command: list[str], **more: object) -> subprocess.Popen[bytes]:
        return real([sys.executable, "-c", dies], **more)  # type: ignore[call-overload,no-any-return]

    intake = Intake(home)
    monkeypatch.setattr(subprocess, "Popen", torn)
    first = intake.submit(pack(b"\n"), "zstd", "default").result(WAIT_S)
    monkeypatch.setattr(subprocess, "Popen", real)
    second = intake.submit(pack(b"\n"), "zstd", "default").result(WAIT_S)
    intake.close()
    third = intake.submit(pack(b"\n"), "zstd", "default").result(WAIT_S)

    assert first.problem == "busy"
    assert second.problem is None
    assert third.problem == "busy", "the server is about to end: it starts nobody"
