"""Replay: the agent runs again offline, on the recorded answers; differences are reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import vestige
from support.programs import run_in
from support.provider_answers import chat, chat_stream, claude, refusal
from support.provider_calls import calls_in
from support.provider_server import Reply, Seen, Server
from vestige.home import Home
from vestige.wire import call_selection
from vestige.wire.replaying.response_player import (
    Answer,
    Line,
    Player,
    digest,
    read_report,
    target_of,
    write_script,
)

AGENT = """
import asyncio, os, sys
import aiohttp, anthropic, httpx, openai, requests

url, word = sys.argv[1:3]
hello = [{"role": "user", "content": f"say {word}"}]
key = os.environ.get("KEY", "CANARYkey4711")
client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=1)
print(client.chat.completions.create(model="m", messages=hello).choices[0].message.content)
for event in client.chat.completions.create(model="m", messages=hello, stream=True):
    if event.choices:
        print(repr(event.choices[0].delta.content), end=" ")
claude = anthropic.Anthropic(base_url=url, api_key="CANARYkey4712")
print(claude.messages.create(model="m", max_tokens=9, messages=hello).content[0].text)
body = {"model": "m", "messages": hello}
print(requests.post(url + "/v1/chat/completions", json={**body, "by": "requests"}).json()["model"])
chat = url + "/v1/chat/completions"
with requests.post(chat, json={**body, "stream": True}, stream=True) as answer:
    print(len(list(answer.iter_lines())))

async def main():
    async with aiohttp.ClientSession() as session:
        async with session.post(chat, json={**body, "by": "aiohttp"}) as answer:
            print(answer.status, (await answer.json())["error"]["message"])
        async with session.post(chat, json={**body, "stream": True}) as answer:
            print(len(await answer.read()))
    async with httpx.AsyncClient() as client:
        answer = await client.post(url + "/v1/chat/completions", json={**body, "by": "httpx"})
        print(answer.json()["model"])
    try:
        async with httpx.AsyncClient(timeout=httpx.Timeout(120, read=0.3)) as client:
            await client.post(url + "/v1/chat/completions", json={**body, "by": "nobody"})
    except httpx.ReadTimeout as error:
        print("timed out")

asyncio.run(main())
sys.exit(7)
"""


def provider(seen: Seen) -> Reply:
    if b'"nobody"' in seen.body:
        import threading

        return Reply(gate=threading.Event())
    if seen.path == "/v1/messages":
        return claude()
    if b'"aiohttp"' in seen.body:
        return refusal(429, "slow down")
    if b'"stream":true' in seen.body or b'"stream": true' in seen.body:
        return chat_stream(["Hel", "lo"])
    return refusal(500) if seen.headers.get("x-stainless-retry-count") == "0" else chat()


def vestige_command(home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vestige", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "VESTIGE_HOME": str(home.root), "KEY": "another key"},
        cwd=home.root.parent,
    )


@pytest.mark.slow
def test_an_agent_runs_again_offline_and_a_changed_request_is_shown(home: Home) -> None:
    """Every client, whole and streamed, errors too: the same output and exit code with the server
    gone. A request that differs gets status 400, and the first is shown as a diff.
    """
    run = (sys.executable, "-m", "vestige", "run", "--", sys.executable)
    with Server(provider) as server:
        first = run_in(home, AGENT, server.url, "hello", command=run)
    recorded = len(calls_in(home))
    program = str(home.root.parent / "program.py")
    again = vestige_command(
        home, "replay", "r1", "--", sys.executable, program, server.url, "hello"
    )
    other = vestige_command(home, "replay", "r1", "--", sys.executable, program, server.url, "bye")

    assert (first.returncode, again.returncode) == (7, 7), first.stderr + again.stderr
    assert "timed out" in first.stdout
    assert again.stdout == first.stdout
    assert f"replayed {recorded} of {recorded} recorded calls" in again.stderr
    assert other.returncode == 1
    assert "this request differs from span" in other.stderr
    assert "[-hello-]{+bye+}" in other.stderr
    assert f"replayed 0 of {recorded}" in other.stderr


@pytest.mark.slow
def test_an_answer_with_very_long_headers_is_replayed(home: Home) -> None:
    """They are cut in the recording; those before the cut are served, and nothing fails."""
    agent = (
        "import httpx, sys; print(httpx.post(sys.argv[1] + "
        "'/v1/chat/completions', json={'messages': []}).json())"
    )
    run = (sys.executable, "-m", "vestige", "run", "--", sys.executable)
    reply = chat()
    reply.headers["x-policy"] = "a" * 40_000
    with Server(lambda _: reply) as server:
        first = run_in(home, agent, server.url, command=run)
    program = str(home.root.parent / "program.py")
    again = vestige_command(home, "replay", "r1", "--", sys.executable, program, server.url)

    assert again.returncode == 0, again.stderr
    assert again.stdout == first.stdout


def test_lines_are_served_in_order_and_once(tmp_path: Path) -> None:
    """Two equal requests get their two answers; a third finds nothing left."""
    from vestige.wire.outgoing_request import OutgoingRequest

    path = str(tmp_path / "script")
    body = b'{"a": 1}'
    lines = [
        Line(f"s{n}", "POST", "/v1/x?key=…redacted…", digest(body), Answer(200, {}, b"%d" % n))
        for n in range(2)
    ]
    write_script(path, lines)
    player = Player(path)
    ask = OutgoingRequest("POST", "https://h/v1/x?key=abc", "h", "/v1/x", [], body)
    answers = [player.answer(ask, str) for _ in range(3)]

    assert [answer.body for answer in answers[:2]] == [b"0", b"1"]
    assert answers[2].status == 400
    assert b"no further call" in answers[2].body
    assert [entry.differs for entry in read_report(path)] == [False, False, True]
    assert oct(Path(path).stat().st_mode)[-3:] == "600"


@pytest.mark.slow
def test_a_masked_body_matches_a_request_in_clear(home: Home, tmp_path: Path) -> None:
    """The request passes the same redaction before it is compared."""
    import httpx

    secret = "sk-proj-CANARY7Zq4Xw9Tb2Lk8Mv5Rn3"
    body = {"messages": [{"role": "user", "content": f"use {secret}"}]}
    with vestige.capture_http():
        with Server([chat()]) as server:
            httpx.post(f"{server.url}/v1/chat/completions", json=body)
        (call,) = calls_in(home)
        path = str(tmp_path / "script")
        answer = Answer(200, {"content-type": "application/json"}, call.response)
        line = Line("s", "POST", target_of(call["url"]), digest(call.request), answer)
        write_script(path, [line])
        call_selection.player = Player(path)
        try:
            again = httpx.post(f"{server.url}/v1/chat/completions", json=body)
        finally:
            call_selection.player = None

    assert secret.encode() not in call.request
    assert again.content == call.response
