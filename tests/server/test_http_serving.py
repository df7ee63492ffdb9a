"""`vestige server start`: how it begins, whom it serves, and how it ends."""

from __future__ import annotations

import datetime
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psutil
import pytest

import vestige
from support.http_server import WAIT_S, Events, Site, record_collected, served
from vestige.errors import UsageError
from vestige.fleet.api_keys import Keys
from vestige.home import Home
from vestige.limits import HTTP_THREADS
from vestige.server import run_server
from vestige.server.stderr_json_log import Log
from vestige.store.sqlite.sqlite_store import SqliteStore

EVERYWHERE = "0.0.0.0"  # noqa: S104  # refused, or not bound, in these tests


@contextmanager
def _command(home: Home, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """The command as a process: it, its address, its token."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "vestige",
            "serve",
            "--home",
            str(home.root),
            "--port",
            "0",
            *arguments,
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.match(r"Vestige is running at (https?://\S+?)/(?:\?token=(\w+))? ", line)
        assert found, line
        yield process, found[1], found[2] or ""
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def _get(base: str, path: str, token: str) -> Any:
    request = urllib.request.Request(base + path, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=WAIT_S) as response:
        return json.loads(response.read())


def _wait_for(condition: Any) -> None:
    deadline = monotonic() + WAIT_S
    while not condition():
        assert monotonic() < deadline
        sleep(0.05)  # another process does it


@pytest.mark.slow
def test_journals_are_taken_in_while_it_serves(home: Home) -> None:
    """Nobody else collects: what is recorded is served a moment later, and no offset is lost."""
    with _command(home) as (process, base, token):
        with vestige.Recorder(home) as recorder, recorder.run("recorded meanwhile") as run:
            run.span("search").end()
        _wait_for(lambda: _get(base, "/api/v1/list", token)["runs"])
        process.send_signal(signal.SIGTERM)
        code = process.wait(WAIT_S)
    with SqliteStore.open(home.store, readonly=True) as store:
        lag = [
            path.stat().st_size - store.positions().get((writer, generation), 0)
            for writer, generation, path in home.journal_files()
        ]

    assert code == 0
    assert not any(lag)


@pytest.mark.slow
def test_sigterm_ends_it_in_good_order_and_kill_leaves_no_process(home: Home) -> None:
    """Each request has a line of JSON on stderr; nothing else is said; the collector goes too."""
    record_collected(home)
    with _command(home) as (process, base, token):
        _get(base, "/api/v1/list", token)
        process.send_signal(signal.SIGTERM)
        _, output = process.communicate(timeout=WAIT_S)
    with _command(home) as (process, base, token):
        _wait_for(lambda: psutil.Process(process.pid).children())
        children = psutil.Process(process.pid).children()
        process.kill()
        _, alive = psutil.wait_procs(children, timeout=WAIT_S)

    lines = [json.loads(line) for line in output.splitlines()]
    assert process.returncode is not None
    assert [line["route"] for line in lines] == ["/api/v1/list"]
    assert token not in output
    assert alive == []


@pytest.mark.slow
def test_a_collector_that_hears_nothing_does_not_hold_up_the_end(home: Home) -> None:
    """It has its time for a last pass; the rest stays in the journals."""
    with _command(home) as (process, _, _):
        _wait_for(lambda: psutil.Process(process.pid).children())
        (collector,) = psutil.Process(process.pid).children()
        collector.suspend()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(60)
        finally:
            if collector.is_running():
                collector.kill()

    assert code == 0


@pytest.mark.slow
def test_who_is_told_the_address_can_end_it(home: Home) -> None:
    """The signal may come as soon as the address is printed: also then the end is orderly."""
    source = (
        "import os, signal, sys\n"
        "from vestige.server.run_server import make_server, serve\n"
        "from vestige.home import get_home\n"
        "server = make_server(get_home(sys.argv[1]), '127.0.0.1')\n"
        "serve(server, '127.0.0.1', 0, ready=lambda url: os.kill(os.getpid(), signal.SIGTERM))\n"
        "print('ended')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source, str(home.root)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


@pytest.mark.slow
def test_a_log_that_nobody_reads_holds_up_nobody(home: Home) -> None:
    """Lines that find no room in the pipe are dropped, and counted in the next that finds some."""
    record_collected(home)
    with _command(home) as (process, base, _):
        assert process.stderr is not None
        link = http.client.HTTPConnection(base.removeprefix("http://"), timeout=WAIT_S)
        statuses = set()
        for _ in range(800):  # a pipe holds about half as many lines
            link.request("GET", "/healthz")
            answer = link.getresponse()
            answer.read()
            statuses.add(answer.status)
        lines = [json.loads(process.stderr.readline()) for _ in range(100)]
        link.request("GET", "/healthz")
        link.getresponse().read()
        # A line is written after its answer: the last of the 800 may find room already.
        while sum(line.get("dropped_lines", 1) for line in lines) < 801:
            lines.append(json.loads(process.stderr.readline()))

    assert statuses == {200}
    assert sum(line.get("dropped_lines", 1) for line in lines) == 801
    assert any("dropped_lines" in line for line in lines)
    assert lines[-1]["route"] == "/healthz"


def test_a_log_whose_reader_is_gone_raises_nothing() -> None:
    """Nor does a closed descriptor; what could not be said is counted."""
    reader, writer = os.pipe()
    os.close(reader)
    log = Log(writer)
    log({"n": 1})
    os.close(writer)
    log({"n": 2})

    assert log.dropped == 2


@pytest.mark.slow
def test_a_request_under_way_is_finished_before_the_end(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries that the server has accepted are answered, although it is stopped meanwhile."""
    record_collected(home)
    slow = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)"
        " SELECT count(*) FROM n"
    )
    answers: list[int] = []
    accepted: list[str] = []
    with served(home) as site:
        readers = site.server._readers
        submit = readers.submit

        def count(key: str, *arguments: Any, **options: Any) -> Any:
            accepted.append(key)
            return submit(key, *arguments, **options)

        monkeypatch.setattr(readers, "submit", count)
        path = "/api/v1/sql?" + urllib.parse.urlencode({"query": slow})
        threads = [
            threading.Thread(target=lambda: answers.append(site.ask(path).status))
            for _ in range(HTTP_THREADS)  # more than one key may run at a time: some wait
        ]
        for thread in threads:
            thread.start()
        _wait_for(lambda: len(accepted) >= HTTP_THREADS)
    for thread in threads:
        thread.join(WAIT_S)

    assert answers == [200] * HTTP_THREADS


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "192.0.2.1", "example.com"])
def test_a_public_address_without_keys_is_refused(home: Home, host: str) -> None:
    """Keys that are revoked or expired are none."""
    keys = Keys(home)
    keys.revoke(keys.add("gone", ["runs:read"]).id)

    with pytest.raises(UsageError, match="no keys"):
        run_server.make_server(home, host)


def test_a_public_address_without_tls_is_served_only_on_demand(home: Home) -> None:
    """Keys would travel in clear; a proxy may speak TLS for us."""
    Keys(home).add("ci", ["runs:read"])
    command = [sys.executable, "-m", "vestige", "serve", "--host", EVERYWHERE, "--port", "0"]
    refused = subprocess.run(
        [*command, "--home", str(home.root)], capture_output=True, text=True, timeout=120
    )
    assert refused.returncode == 2
    assert "--insecure" in refused.stderr and "Traceback" not in refused.stderr
    with _command(home, "--host", EVERYWHERE, "--insecure") as (process, _, _):
        assert process.poll() is None


def test_with_keys_there_is_no_token(home: Home) -> None:
    """Who has keys has no secret in a log; and any name leads to a public server."""
    Keys(home).add("ci", ["runs:read"])
    public = run_server.make_server(home, EVERYWHERE)
    local = run_server.make_server(home, "127.0.0.1")
    server = run_server.make_server(home, "127.0.0.1", token=True)

    assert public.token is None
    assert public.hosts is None
    assert local.token is None
    assert server.token is not None
    with pytest.raises(UsageError, match="this machine only"):
        run_server.make_server(home, EVERYWHERE, token=True)


def test_tokens_are_new_at_each_start(home: Home) -> None:
    tokens = {run_server.make_server(home, "127.0.0.1").token for _ in range(5)}

    assert len(tokens) == 5
    assert all(len(str(token)) >= 32 for token in tokens)


@pytest.mark.slow
def test_what_cannot_be_served_is_said_in_one_line(home: Home) -> None:
    """Exit code 2, and no traceback."""
    result = subprocess.run(
        [sys.executable, "-m", "vestige", "serve", "--home", str(home.root), "--host", EVERYWHERE],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )

    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert "vestige server keys add" in result.stderr


def test_a_port_that_is_taken_and_a_certificate_that_is_none_are_refused(
    home: Home, tmp_path: Path
) -> None:
    """Before anything is served."""
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    server = run_server.make_server(home, "127.0.0.1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="Choose another port"):
            run_server.serve(server, "127.0.0.1", taken.getsockname()[1])
    with pytest.raises(UsageError, match="expected both or neither"):
        run_server.serve(server, "127.0.0.1", 0, cert=junk)
    with pytest.raises(UsageError, match="cannot be loaded"):
        run_server.serve(server, "127.0.0.1", 0, cert=junk, key=junk)
    with pytest.raises(UsageError, match="not an address of this machine"):
        run_server.serve(server, "no.such.host.invalid", 0, insecure=True)


def test_tls_is_spoken_with_a_certificate(home: Home, tmp_path: Path) -> None:
    record_collected(home)
    cert, key = _certificate(tmp_path)
    context = ssl.create_default_context(cafile=str(cert))
    with served(home, cert=cert, key=key) as site:
        connection = http.client.HTTPSConnection("localhost", site.port, context=context)
        connection.request(
            "GET", "/api/v1/list", headers={"Authorization": f"Bearer {site.server.token}"}
        )
        response = connection.getresponse()
        status = response.status
        response.read()
        connection.request("GET", f"/?token={site.server.token}")
        cookie = connection.getresponse().headers["set-cookie"]
        connection.close()

    assert site.url.startswith("https://")
    assert status == 200
    assert "Secure" in cookie


@pytest.mark.slow
def test_a_ship_speaks_tls_with_a_server_whose_certificate_it_trusts(
    home: Home, tmp_path: Path
) -> None:
    """`serve --cert --key`, `ship --ca-file`; without the certificate, or for another name, nothing
    is sent, and all is still there to be sent."""
    cert, key = _certificate(tmp_path)
    there = Home(tmp_path / "there")
    there.make()
    secret = Keys(there).add("ship", ["runs:write", "runs:read"]).key
    with vestige.Recorder(home) as recorder, recorder.run("shipped") as run:
        run.span("search", "tool", body="q").end()

    def ship(url: str, *more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "vestige", "ship", "--home", str(home.root), "--once"]
        return subprocess.run(
            [*command, "--to", url, *more],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "VESTIGE_SHIP_KEY": secret},
        )

    with _command(there, "--cert", str(cert), "--key", str(key), "--no-log") as (_, url, token):
        named = url.replace("127.0.0.1", "localhost")
        strange = ship(named)
        other_name = ship(url, "--ca-file", str(cert))
        sent = ship(named, "--ca-file", str(cert))
        context = ssl.create_default_context(cafile=str(cert))
        request = urllib.request.Request(
            f"{named}/api/v1/list", headers={"Authorization": f"Bearer {secret}"}
        )
        with urllib.request.urlopen(request, timeout=WAIT_S, context=context) as response:
            runs = json.loads(response.read())["runs"]

    assert (url.startswith("https://"), token) == (True, "")
    assert (strange.returncode, other_name.returncode) == (1, 1)
    for refused in (strange, other_name):
        assert "its certificate is not trusted" in refused.stderr
        assert "Traceback" not in refused.stderr
        assert secret not in refused.stderr + refused.stdout
    assert sent.returncode == 0, sent.stderr
    assert [each["id"] for each in runs] == [run.run_id]


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Of localhost, by itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(private, hashes.SHA256())
    )
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert, key


def test_a_home_that_is_collected_by_another_is_served_all_the_same(home: Home) -> None:
    """The lock is taken: what the other one takes in is what is served."""
    from vestige.collector.loop import hold

    with hold(home) as collector, served(home, collect=True) as site, Events(site) as events:
        events.next()
        with vestige.Recorder(home) as recorder, recorder.run("theirs") as run:
            run.log.info("theirs is done")
        assert collector is not None
        collector.tick()
        found = events.until_done("theirs")

    assert found


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_home_that_may_only_be_read_is_served(home: Home) -> None:
    record_collected(home)
    home.root.chmod(0o500)
    try:
        with served(home) as site:
            listed = site.data("/api/v1/list")
    finally:
        home.root.chmod(0o700)

    assert len(listed["runs"]) == 1


def test_what_checks_find_is_kept_for_the_next(home: Home) -> None:
    """Written behind the answer's back, once."""
    run = record_collected(home)
    with served(home) as site:
        first = site.data(f"/api/v1/check?id={run}")
    with SqliteStore.open(home.store, readonly=True) as store:
        results = store.check_results([first["run_id"]])

    assert results[first["run_id"]]


def test_too_many_questions_are_told_to_come_again(home: Home) -> None:
    """Beyond the bound nobody waits for long: 503 with a time, and the others are answered."""
    record_collected(home)
    with served(home) as site:
        site.server._readers._waiting_max = 0
        busy = site.ask("/api/v1/list")
        site.server._readers._waiting_max = 10
        again = site.ask("/api/v1/list")

    assert busy.status == 503
    assert busy.json()["error"] == "busy"
    assert busy.headers["retry-after"] == "1"
    assert again.status == 200


def test_a_bug_is_no_traceback(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client gets the envelope; the log has the kind and the place, not what it was about."""
    from vestige.query.debugger import Debugger

    def broken(self: object) -> None:
        raise KeyError("a secret of the run")

    record_collected(home)
    monkeypatch.setattr(Debugger, "doctor", broken)
    with served(home) as site:
        reply = site.ask("/api/v1/doctor")
        lines = list(site.lines)

    assert reply.status == 500
    assert reply.json()["error"] == "internal"
    assert "secret" not in reply.body.decode() + json.dumps(lines)
    assert any(line.get("bug") == "KeyError" for line in lines)


def test_site_is_a_site(home: Home) -> None:
    """The printed URL is where it listens."""
    with served(home) as site:
        assert isinstance(site, Site)
        assert site.url == f"http://127.0.0.1:{site.port}/?token={site.server.token}"
