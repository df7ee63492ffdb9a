"""Model calls of clients that are not hooked are reported as missing, and recorded ones are not."""

from __future__ import annotations

import http.client
import io
import json
import threading
import urllib.request
from collections.abc import Callable

import pycurl
import pytest
import requests

import vestige
from support.programs import load
from support.provider_answers import chat
from support.provider_calls import calls_in
from support.provider_server import Server
from vestige.home import Home

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}).encode()
CHAT = "/v1/chat/completions"


def call_urllib(server: Server, path: str) -> None:
    request = urllib.request.Request(server.url + path, BODY, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        answer.read()


def call_http_client(server: Server, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.request("POST", path, BODY)
    connection.getresponse().read()
    connection.close()


def call_pycurl(server: Server, path: str) -> None:
    answer = io.BytesIO()
    curl = pycurl.Curl()
    curl.setopt(pycurl.URL, server.url + path)
    curl.setopt(pycurl.POSTFIELDS, BODY.decode())
    curl.setopt(pycurl.WRITEDATA, answer)
    curl.perform()
    curl.close()
    assert isinstance(curl, pycurl.Curl)
    assert answer.getvalue()


def find_reports(home: Home) -> list[str]:
    """The gaps that the runs of a home have."""
    return [
        str(log.attributes["gap"])
        for run in load(home)
        for log in run.logs
        if "gap" in log.attributes
    ]


@pytest.mark.parametrize(
    ("call", "client"),
    [(call_urllib, "http.client"), (call_http_client, "http.client"), (call_pycurl, "pycurl")],
)
def test_a_call_of_a_client_that_is_not_hooked_is_reported_on_its_run(
    home: Home, call: Callable[[Server, str], None], client: str
) -> None:
    with (
        Server([chat()]) as server,
        vestige.capture_http(),
        vestige.Recorder(home).run("agent"),
    ):
        call(server, CHAT)
    with vestige.open(home.root) as debugger:
        shown = str(debugger.check())

    report = f"a model call was not recorded: 127.0.0.1:{server.port} ({client})"
    assert find_reports(home) == [report]
    assert "a model call was not recorded: 127.0.0.1" in shown


def test_recorded_and_other_calls_are_not_reported(home: Home) -> None:
    recorder = vestige.Recorder(home)
    with (
        Server([chat(), chat(), chat()]) as server,
        vestige.capture_http(),
        recorder.run("agent"),
    ):
        requests.post(server.url + CHAT, data=BODY, timeout=120)
        call_urllib(server, "/orders")
        call_pycurl(server, "/orders")

    assert find_reports(home) == []
    assert len(calls_in(home)) == 1


def test_without_a_capture_nothing_is_reported(home: Home) -> None:
    recorder = vestige.Recorder(home)
    with vestige.capture_http():
        pass
    with Server([chat()]) as server, recorder.run("agent"):
        call_urllib(server, CHAT)

    assert find_reports(home) == []


def test_a_realtime_session_is_reported(home: Home) -> None:
    from websockets.sync.client import connect
    from websockets.sync.server import serve

    recorder = vestige.Recorder(home)
    with serve(lambda session: session.send("hello"), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        port = server.socket.getsockname()[1]
        try:
            with vestige.capture_http(), recorder.run("agent"):
                import websockets.sync.client as client

                with client.connect(f"ws://127.0.0.1:{port}/v1/realtime?model=m") as session:
                    assert session.recv() == "hello"
        finally:
            server.shutdown()
            thread.join()

    assert client.connect is connect
    assert find_reports(home) == ["a model call was not recorded: 127.0.0.1 (websockets)"]
