"""requests and urllib3: each attempt captured, streaming and chunked reads too."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import urllib3
from requests.adapters import HTTPAdapter

import vestige
from support.provider_answers import chat, chat_stream, refusal
from support.provider_calls import calls_in
from support.provider_server import Reply, Seen, Server
from vestige.home import Home

BODY = {"model": "m", "messages": [{"role": "user", "content": "Grüße"}]}
CHAT = "/v1/chat/completions"


@pytest.fixture(autouse=True)
def _capture(home: Home) -> Iterator[None]:
    with vestige.capture_http():
        yield


def test_a_call_of_requests_is_captured_byte_for_byte(home: Home) -> None:
    """One span, under the span that made it."""
    with Server([chat()]) as server, vestige.Recorder(home).run("agent") as run:
        answer = requests.post(server.url + CHAT, json=BODY, timeout=120)
    (call,) = calls_in(home)

    assert answer.json()["model"] == "gpt-5-mini"
    assert call.request == server.seen[0].body
    assert call.response == server.seen[0].sent
    assert (call.span.parent_id, call.span.status) == (run.id, "ok")
    assert (call["model"], call["input_tokens"], call["status_code"]) == ("m", 12, 200)
    assert call["url"] == server.url + CHAT


@pytest.mark.parametrize("read", ["lines", "content", "raw", "chunks of five"])
def test_a_stream_of_requests_is_captured_however_it_is_read(home: Home, read: str) -> None:
    """Chunked coding is undone, nothing else."""
    with Server([chat_stream(["Hel", "lo"])]) as server:
        answer = requests.post(server.url + CHAT, json=BODY, stream=True, timeout=120)
        got = {
            "lines": lambda: b"\n".join(answer.iter_lines()),
            "content": lambda: answer.content,
            "raw": lambda: answer.raw.read(),
            "chunks of five": lambda: b"".join(answer.iter_content(5)),
        }[read]()
    (call,) = calls_in(home)

    assert got.strip().endswith(b"data: [DONE]")
    assert call.response == server.seen[0].sent
    assert (call.span.status, call["output_tokens"]) == ("ok", 2)
    assert call["first_token_ns"] <= call.span.duration_ns


def test_retries_inside_urllib3_are_attempts(home: Home) -> None:
    """The same bytes after a failure, from the same parent."""
    session = requests.Session()
    retry = urllib3.Retry(3, status_forcelist=[429, 500], allowed_methods=None, backoff_factor=0)
    session.mount("http://", HTTPAdapter(max_retries=retry))
    with Server([refusal(429), refusal(500), chat()]) as server:
        session.post(server.url + CHAT, json=BODY, timeout=120)
    calls = calls_in(home)

    assert [call["attempt"] for call in calls] == [1, 2, 3]
    assert [call.span.status for call in calls] == ["error", "error", "ok"]
    assert [call.response for call in calls] == [seen.sent for seen in server.seen]


def test_a_gzip_answer_is_stored_plain(home: Home) -> None:
    """urllib3 returns the encoded bytes; we decode them ourselves."""
    import gzip

    packed = gzip.compress(chat().body)
    with Server([Reply(body=packed, headers={"Content-Encoding": "gzip"})]) as server:
        answer = requests.post(server.url + CHAT, json=BODY, timeout=120)
    (call,) = calls_in(home)

    assert answer.json()["object"] == "chat.completion"
    assert call.response == chat().body
    assert call["response.wire_bytes"] == len(packed)


@pytest.mark.parametrize("kind", ["generator", "file", "text file"])
def test_a_body_that_is_read_as_it_is_sent_is_captured(home: Home, kind: str) -> None:
    """Consumed once, by urllib3."""
    text = '{"model": "m", "messages": [{"role": "user", "content": "Grüße"}]}'
    body: Any = {
        "generator": lambda: (part for part in [text[:9].encode(), text[9:].encode()]),
        "file": lambda: io.BytesIO(text.encode()),
        "text file": lambda: io.StringIO(text),
    }[kind]()
    with Server([chat()]) as server:
        urllib3.PoolManager().request("POST", server.url + CHAT, body=body)
    (call,) = calls_in(home)

    assert call.request == server.seen[0].body == text.encode()
    assert (call["request.streamed"], call["model"]) == (True, "m")


def test_a_timeout_is_told_as_one(home: Home) -> None:
    """requests raises what it raises without us."""
    gate = threading.Event()
    with Server([Reply(gate=gate)]) as server:
        with pytest.raises(requests.ReadTimeout):
            requests.post(server.url + CHAT, json=BODY, timeout=(120, 0.1))
        gate.set()
    (call,) = calls_in(home)

    assert (call.span.status, call["error.type"]) == (
        "timeout",
        "urllib3.exceptions.ReadTimeoutError",
    )


def test_a_response_that_is_closed_early_keeps_its_part(home: Home) -> None:
    """Cancelled, partial."""
    gate = threading.Event()
    with Server([chat_stream(["Hel", "lo"], gate=gate)]) as server:
        answer = requests.post(server.url + CHAT, json=BODY, stream=True, timeout=120)
        first = next(answer.iter_lines())
        answer.close()
        gate.set()
    (call,) = calls_in(home)

    assert first.startswith(b"data: ")
    assert (call.span.status, call["response.partial"]) == ("cancelled", True)
    assert call.response == chat_stream(["Hel"]).chunks[0]  # type: ignore[index]


@pytest.mark.slow
def test_a_connection_that_is_reset_keeps_what_came(home: Home) -> None:
    """An error, with the part that arrived."""
    with Server([chat_stream(["Hel", "lo"], reset_after=2)]) as server:
        answer = requests.post(server.url + CHAT, json=BODY, stream=True, timeout=120)
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            list(answer.iter_content(None))
    (call,) = calls_in(home)

    assert (call.span.status, call["response.partial"]) == ("error", True)
    assert call.response == b"".join(chat_stream(["Hel", "lo"]).chunks[:2])  # type: ignore[index]


def test_other_calls_are_recorded_only_if_asked_for(home: Home) -> None:
    """As spans of type http, with a name that says where."""
    with Server(lambda seen: Reply(body=b'{"ok": 1}')) as server:
        requests.post(server.url + "/orders?page=2", json={"a": 1}, timeout=120)
        with vestige.capture_http(http=True):
            requests.post(server.url + "/orders?page=2", json={"a": 1}, timeout=120)
            requests.get(server.url + "/health", timeout=120)
    post, get = calls_in(home)

    assert (post.span.type, post.span.name) == ("http", f"POST 127.0.0.1:{server.port}/orders")
    assert (post.request, post.response) == (b'{"a": 1}', b'{"ok": 1}')
    assert (get["method"], get.request) == ("GET", b"")


def test_a_body_that_comes_from_another_response_is_not_the_answer(home: Home) -> None:
    """A request is sent piece by piece while another, unrecorded response is read for it."""

    def answer(seen: Seen) -> Reply:
        return chat() if seen.method == "POST" else Reply(body=json.dumps(BODY).encode())

    with Server(answer) as server:
        source = requests.get(server.url + "/prompt", stream=True, timeout=120)
        requests.post(server.url + CHAT, data=source.iter_content(10), timeout=120)
    (call,) = calls_in(home)

    assert call.request == json.dumps(BODY).encode()
    assert call.response == server.seen[1].sent
    assert (call.span.status, call["model"]) == ("ok", "m")
