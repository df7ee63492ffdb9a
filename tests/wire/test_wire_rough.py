"""Rough weather: processes that die or fork in a call, servers that lie, bytes that are no text,
nowhere to write.
"""

from __future__ import annotations

import sys
from pathlib import Path

import httpx
import pytest
import requests

import vestige
from support.programs import run_in
from support.provider_answers import chat, chat_stream
from support.provider_calls import calls_in
from support.provider_server import Reply, Server
from vestige.home import Home

CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}

FORKING = """
import os, sys
import vestige
vestige.capture_http()
import httpx
body = {"model": "parent", "messages": [{"role": "user", "content": "hi"}]}
with vestige.default_recorder().run("agent"):
    with httpx.stream("POST", sys.argv[1], json=body) as response:
        chunks = response.iter_raw()
        next(chunks)
        child = os.fork()
        if child == 0:
            httpx.post(sys.argv[1], json={**body, "model": "child"})
            sys.exit()
        os.waitpid(child, 0)
        print(len(b"".join(chunks)))
"""

KILLED = """
import os, signal, sys
import vestige
vestige.capture_http()
import httpx
body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
with httpx.stream("POST", sys.argv[1], json=body) as response:
    next(response.iter_raw())
    os.kill(os.getpid(), signal.SIGKILL)
"""

LEFT = """
import sys
import httpx
client = httpx.Client()
body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
kept = []
for word in sys.argv[2:]:
    response = client.send(client.build_request("POST", sys.argv[1], json=body), stream=True)
    chunks, came = response.iter_raw(), b""
    while word.encode() not in came:
        came += next(chunks)
    kept.append((response, chunks))
"""

PLAIN = """
import sys
import vestige
capture = vestige.capture_http()
import httpx
with vestige.default_recorder().run("agent"), vestige.warm():
    request = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    answer = httpx.post(sys.argv[1], json=request)
print(answer.status_code, len(answer.content))
capture.remove()
"""


@pytest.mark.slow
def test_a_child_that_is_forked_in_a_call_leaves_it_to_its_parent(home: Home) -> None:
    """The parent's call is recorded once and completely; the child's own call is the child's."""
    with Server(lambda seen: chat_stream(["Hel", "lo"])) as server:
        done = run_in(home, FORKING, server.url + CHAT)
    calls = {call["model"]: call for call in calls_in(home)}

    assert done.returncode == 0, done.stderr
    assert len(calls) == len(calls_in(home)) == 2
    assert calls["parent"].span.status == calls["child"].span.status == "ok"
    assert calls["parent"].response == calls["child"].response == server.seen[0].sent


@pytest.mark.slow
def test_of_a_process_killed_in_a_stream_the_request_and_the_status_are_known(home: Home) -> None:
    with Server(lambda seen: chat_stream(["Hel", "lo"])) as server:
        done = run_in(home, KILLED, server.url + CHAT)
    (call,) = calls_in(home)

    assert done.returncode == -9
    assert (call.span.status, call["status_code"]) == ("interrupted", 200)
    assert call.request == server.seen[0].body


@pytest.mark.slow
def test_of_a_stream_that_is_left_open_at_the_end_is_kept_what_came(home: Home) -> None:
    """A program reads as far as it likes and ends: one read as far as the model spoke was whole,
    and nothing is said on the program's stderr.
    """
    command = [sys.executable, "-m", "vestige", "run", "--", sys.executable]
    with Server(lambda seen: chat_stream(["Hel", "lo"])) as server:
        done = run_in(home, LEFT, server.url + CHAT, '"stop"', "Hel", command=command)
    complete, half = calls_in(home)

    assert (done.returncode, done.stderr) == (0, "")
    assert (complete.span.status, complete["finish_reason"]) == ("ok", "stop")
    assert (half.span.status, half["response.partial"]) == ("cancelled", True)
    assert b"Hel" in half.response
    assert b'"stop"' not in half.response


@pytest.mark.slow
@pytest.mark.parametrize("where", ["disabled", "nowhere"])
def test_a_program_goes_on_where_nothing_can_be_recorded(
    home: Home, tmp_path: Path, where: str
) -> None:
    """Switched off, or with a home that cannot be written."""
    (tmp_path / "file").touch()
    env = {"VESTIGE_DISABLED": "1"} if where == "disabled" else {}
    env |= {"VESTIGE_HOME": str(tmp_path / "file" / "home")} if where == "nowhere" else {}
    with Server([chat()]) as server:
        done = run_in(home, PLAIN, server.url + CHAT, env=env)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["200", str(len(chat().body))]
    assert "Traceback" not in done.stderr


def test_bytes_that_are_no_text_come_back_exactly(home: Home) -> None:
    """Requests and answers in another encoding, or in none."""
    sent = b'{"model": "m", "messages": [{"role": "user", "content": "caf\xe9 \xff\xfe"}]}'
    answer = Reply(body=b"\x00\xff caf\xe9 \xed\xa0\x80", type="text/plain; charset=latin-1")
    with vestige.capture_http(), Server([answer, answer]) as server:
        with vestige.Recorder(home) as recorder, recorder.run("agent"):
            httpx.post(server.url + CHAT, content=sent)
            requests.post(server.url + CHAT, data=sent, timeout=120)
        faults = recorder.faults
    calls = calls_in(home)

    assert [call.request for call in calls] == [sent, sent]
    assert [call.response for call in calls] == [answer.body, answer.body]
    assert faults == {}


def test_headers_may_be_huge_or_no_text(home: Home) -> None:
    """Long secrets among them: those too are masked, and the next call is recorded as ever."""
    secret = "Zq4Xw9Tb2Lk8" * 1_000
    with vestige.capture_http(), Server([chat(), chat(), chat()]) as server:
        with vestige.Recorder(home) as recorder, recorder.run("agent"):
            httpx.post(
                server.url + CHAT, json=BODY, headers={"x-api-key": secret, "x-a": "y" * 40_000}
            )
            httpx.post(server.url + CHAT, json=BODY, headers={b"x-latin": b"caf\xe9"})
            requests.post(
                server.url + CHAT, json=BODY, headers={b"X-Api-Key": b"Hj8Qp2Wd6Kx1"}, timeout=5
            )
        faults = recorder.faults
    stored = b"".join(path.read_bytes() for path in Path(home.root).rglob("*") if path.is_file())

    assert faults == {}
    assert [call.span.status for call in calls_in(home)] == ["ok", "ok", "ok"]
    assert secret[40:80].encode() not in stored
    assert b"Hj8Qp2Wd6Kx1" not in stored


@pytest.mark.parametrize("more", [50, -20])
def test_a_server_that_lies_about_the_length_is_told_as_the_client_saw_it(
    home: Home, more: int
) -> None:
    """Too long a promise is an error with the part that came; too short a one cuts the body."""
    content = chat().body
    headers = {"Content-Length": str(len(content) + more), "Connection": "close"}
    with (
        vestige.capture_http(),
        Server([Reply(raw=content, headers=headers)]) as server,
        vestige.Recorder(home) as recorder,
        recorder.run("agent"),
    ):
        try:
            seen: bytes | None = httpx.post(server.url + CHAT, json=BODY).content
        except httpx.RemoteProtocolError:
            seen = None
    (call,) = calls_in(home)

    assert (seen is None) == (more > 0)
    assert call.span.status == ("error" if more > 0 else "ok")
    assert call.response == content[: len(content) + min(more, 0)]
