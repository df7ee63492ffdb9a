"""The recording proxy with real TLS hosts: what it records, and what it only relays."""

from __future__ import annotations

import gzip
import json
import ssl
import threading
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve

from support.commands import vestige_json
from support.provider_calls import calls_in
from support.tls_upstream import (
    BLOB,
    question,
    running_proxy,
    serve_http1,
    serve_http2,
    server_context,
    write_certificate,
)
from vestige.home import Home
from vestige.wire.call_selection import unrecorded


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = write_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    return path


def test_an_event_reaches_the_program_before_the_next_one_is_sent(
    home: Home, certificate: Path
) -> None:
    with serve_http1(certificate, wait=True) as upstream, running_proxy(home, "localhost") as proxy:
        url = f"https://localhost:{upstream.port}/v1/chat/completions"
        with (
            unrecorded(),
            httpx.Client(proxy=proxy.url, verify=proxy.context, timeout=60) as client,
            client.stream("POST", url, content=question()) as response,
        ):
            parts = response.iter_raw()
            first = next(parts)
            upstream.may_continue.set()
            rest = b"".join(parts)
    (call,) = calls_in(home)

    assert first + rest == upstream.sent[0]
    assert (call.request, call.response) == (upstream.bodies[0], upstream.sent[0])
    assert call["url"] == url
    assert call["finish_reason"] == "stop"


def test_http2_streams_are_separate_calls(home: Home, certificate: Path) -> None:
    with serve_http2(certificate) as upstream, running_proxy(home, "localhost") as proxy:
        url = f"https://localhost:{upstream.port}/v1/chat/completions"
        with (
            unrecorded(),
            httpx.Client(proxy=proxy.url, verify=proxy.context, http2=True, timeout=60) as client,
        ):
            answers = [client.post(url, content=question(text)) for text in ("one", "two")]
    calls = calls_in(home)

    assert {answer.http_version for answer in answers} == {"HTTP/2"}
    assert [call.request for call in calls] == upstream.bodies
    assert [call.response for call in calls] == upstream.sent
    assert {call["http_version"] for call in calls} == {"HTTP/2"}


def test_each_request_on_a_websocket_is_a_call(home: Home, certificate: Path) -> None:
    events = [
        {"type": "response.created", "response": {"id": "r1", "output": []}},
        {
            "type": "response.completed",
            "response": {
                "id": "r1",
                "object": "response",
                "status": "completed",
                "model": "m",
                "output": [],
                "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7},
            },
        },
    ]

    def answer(connection: ServerConnection) -> None:
        for _ in connection:
            for event in events:
                connection.send(json.dumps(event))

    create = json.dumps({"type": "response.create", "model": "m", "input": "hello"})
    server = serve(answer, "127.0.0.1", 0, ssl=server_context(certificate))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with running_proxy(home, "localhost") as proxy, unrecorded():
        url = f"wss://localhost:{server.socket.getsockname()[1]}/v1/responses"
        with connect(url, ssl=proxy.context, proxy=proxy.url) as connection:
            for _ in range(2):
                connection.send(create)
                received = [json.loads(connection.recv(60)) for _ in events]
    server.shutdown()
    calls = calls_in(home)

    assert received == events
    assert [json.loads(call.request) for call in calls] == [json.loads(create)] * 2
    assert [call["input_tokens"] for call in calls] == [5, 5]


@pytest.mark.slow
def test_other_hosts_are_tunnelled_byte_for_byte(home: Home, certificate: Path) -> None:
    """The program sees the certificate of the host itself, not that of the proxy."""
    trusted = ssl.create_default_context(cafile=str(certificate))
    with (
        serve_http1(certificate) as upstream,
        running_proxy(home, "other.test") as proxy,
        unrecorded(),
        httpx.Client(proxy=proxy.url, verify=trusted, timeout=60) as client,
    ):
        blob = client.get(f"https://localhost:{upstream.port}/blob").content

    assert blob == BLOB
    assert calls_in(home) == []


@pytest.mark.slow
def test_a_certificate_error_of_the_host_is_passed_on_and_recorded(
    home: Home, tmp_path: Path
) -> None:
    certificate = write_certificate(tmp_path)  # It is trusted nowhere.
    with (
        serve_http1(certificate) as upstream,
        running_proxy(home, "localhost") as proxy,
        unrecorded(),
        httpx.Client(proxy=proxy.url, verify=proxy.context) as client,
        pytest.raises(httpx.ProxyError, match="502"),
    ):
        client.post(f"https://localhost:{upstream.port}/v1/messages", content=question())

    assert upstream.bodies == []
    findings = vestige_json("check", "--home", home.root)
    assert "the certificate of localhost is not valid" in json.dumps(findings)


def test_a_program_that_pins_its_certificates_works_on_its_next_attempt(
    home: Home, certificate: Path
) -> None:
    pinned = ssl.create_default_context(cafile=str(certificate))
    with serve_http1(certificate) as upstream, running_proxy(home, "localhost") as proxy:
        url = f"https://localhost:{upstream.port}/v1/chat/completions"
        with unrecorded(), httpx.Client(proxy=proxy.url, verify=pinned, timeout=60) as client:
            with pytest.raises(httpx.ConnectError):
                client.post(url, content=question())
            assert client.post(url, content=question()).content == upstream.sent[0]

    findings = vestige_json("check", "--home", home.root)
    assert "does not accept the certificate of the proxy" in json.dumps(findings)


def test_plain_http_is_forwarded_and_compressed_requests_are_decoded(home: Home) -> None:
    with (
        serve_http1(None) as upstream,
        running_proxy(home) as proxy,
        unrecorded(),
        httpx.Client(proxy=proxy.url, timeout=60) as client,
    ):
        url = f"http://127.0.0.1:{upstream.port}/v1/chat/completions"
        body = gzip.compress(question())
        client.post(url, content=body, headers={"content-encoding": "gzip"})
    (call,) = calls_in(home)

    assert upstream.bodies == [body]
    assert call.request == question()


@pytest.mark.slow
def test_the_user_s_own_proxy_is_used(home: Home, certificate: Path, tmp_path: Path) -> None:
    """Here the user's own proxy is another one of ours: the call passes both."""
    other = Home(tmp_path / "other")
    with (
        serve_http1(certificate) as upstream,
        running_proxy(other) as users,
        running_proxy(home, "localhost", env={"HTTPS_PROXY": users.url}) as proxy,
        unrecorded(),
        httpx.Client(proxy=proxy.url, verify=proxy.context, timeout=60) as client,
    ):
        client.post(f"https://localhost:{upstream.port}/v1/messages", content=question())

    assert len(upstream.bodies) == 1
    assert len(calls_in(home)) == 1


@pytest.mark.slow
def test_a_base_url_that_is_called_through_the_proxy_is_one_call(home: Home) -> None:
    """Some programs use HTTP_PROXY for loopback, too."""
    with serve_http1(None) as upstream:
        bases = {"OPENAI_BASE_URL": f"http://127.0.0.1:{upstream.port}/v1"}
        with running_proxy(home, bases=bases) as proxy, unrecorded():
            base = proxy.url.replace(":token@", "") + "/token.OPENAI_BASE_URL."
            for through in (None, proxy.url):
                with httpx.Client(proxy=through, trust_env=False, timeout=60) as client:
                    client.post(f"{base}/chat/completions", content=question())
    calls = calls_in(home)

    assert [call.request for call in calls] == upstream.bodies == [question()] * 2
    assert {call["url"] for call in calls} == {f"{bases['OPENAI_BASE_URL']}/chat/completions"}
