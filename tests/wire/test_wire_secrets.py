"""API keys in headers, query strings, cookies and bodies: a grep of every byte of the home finds
none.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import zipfile
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import httpx
import openai
import pytest
import requests

import vestige
from support.provider_answers import chat, claude, gemini
from support.provider_calls import calls_in
from support.provider_server import Reply, Server
from vestige.debug import (
    AgentInfo,
    DebugBundleBuilder,
    MemoryFilesystem,
    Session,
    archive_filesystem,
)
from vestige.home import Home
from vestige.limits import BODY_CHUNK, BODY_INLINE_MAX, HEADER_SECRETS_MAX
from vestige.wire.header_redaction import header_secrets, masked_headers, masked_url

# No known shape: only registering it helps.
KEYS = {
    "openai": "CANARY1openai7Zq4Xw9Tb2Lk8",
    "anthropic": "CANARY2anthropic5Hj8Qp2Wd6",
    "query": "CANARY3query4Zt7Kq9Bw3Lm6",
    "cookie": "CANARY4cookieQ7Xw4Z2Ab",
    "azure": "CANARY5azure8Kd3Lw0Zx7Qv5",
    "user": "CANARY6userPassw0rd99",
    "proxy": "CANARY7custom5Ty6Ui7Op",
}


def leaks(home: Home) -> list[str]:
    found = []
    for path in sorted(Path(home.root).rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            found += [
                f"{name} in {path}" for name, key in KEYS.items() if key[6:-4].encode() in data
            ]
    return found


def echo(reply: Reply, key: str) -> Reply:
    """A provider that answers with the key: error messages of some do."""
    body = json.loads(reply.body)
    body["echo"] = f"you sent {key}"
    reply.body = json.dumps(body).encode()
    return reply


@pytest.mark.slow
def test_no_key_reaches_our_bytes_whatever_carries_it(home: Home) -> None:
    """Before and after collection; known from a header, they are masked in bodies too."""
    hello: Any = [{"role": "user", "content": f"my keys are {' and '.join(KEYS.values())}"}]
    with (
        vestige.capture_http(http=True),
        Server(lambda seen: echo(chat(), seen.headers.get("authorization", ""))) as server,
        Server(lambda seen: echo(claude(), KEYS["anthropic"])) as other,
        Server(lambda seen: gemini()) as third,
        vestige.Recorder(home).run("agent"),
    ):
        for name, headers in (
            ("cookie", {"Cookie": f"session={KEYS['cookie']}; theme=dark"}),
            ("azure", {"api-key": KEYS["azure"]}),
            ("proxy", {"X-Proxy-Secret": KEYS["proxy"]}),
        ):
            requests.post(f"{server.url}/{name}", json={"a": 1}, headers=headers, timeout=120)
        httpx.get(f"{third.url}/health?key={KEYS['query']}&page=2")
        httpx.get(f"http://me:{KEYS['user']}@127.0.0.1:{third.port}/health")
        sdk = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEYS["openai"])
        claudes = anthropic.Anthropic(base_url=other.url, api_key=KEYS["anthropic"])
        claudes.messages.create(
            model="m", max_tokens=5, messages=[{"role": "user", "content": "x"}]
        )
        sdk.chat.completions.create(model="m", messages=hello)
        asyncio.run(_post(f"{third.url}/x?api_key={KEYS['query']}"))
    before = leaks(home)
    calls = calls_in(home)

    assert (before, leaks(home)) == ([], [])
    assert len(calls) == 8
    chat_call = next(call for call in calls if call["model"] == "m" and b"my keys" in call.request)
    assert chat_call.request.count("…redacted…".encode()) == len(KEYS)
    assert json.loads(chat_call["request.headers"])["authorization"] == "Bearer CAN…redacted…Lk8"
    assert "page=2" in next(call["url"] for call in calls if "health?" in str(call["url"]))


@pytest.mark.slow
def test_every_recorder_learns_the_keys_that_its_calls_carry(tmp_path: Path) -> None:
    """Also one that is made where a former one stood in memory."""
    found = []
    for number in range(4):
        place = Home(tmp_path / str(number))
        with (
            vestige.capture_http(),
            Server(lambda seen: echo(chat(), KEYS["openai"])) as server,
            vestige.Recorder(place) as recorder,
            recorder.run("agent"),
        ):
            sdk = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEYS["openai"])
            sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
        del recorder
        gc.collect()
        found += leaks(place)

    assert found == []


def test_a_key_of_known_shape_is_masked_in_base64_too(home: Home) -> None:
    """Its shape does not show there: it must have been learned."""
    key = "sk-proj-CANARY8shape4Zt7Kq9Bw3Lm6Xw9Tb2Lk8"
    hidden = base64.b64encode(f"user:{key}".encode())
    with (
        vestige.capture_http(),
        Server(lambda seen: echo(chat(), hidden.decode())) as server,
        vestige.Recorder(home).run("agent"),
    ):
        sdk = openai.OpenAI(base_url=f"{server.url}/v1", api_key=key)
        sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
    (call,) = calls_in(home)

    assert hidden[8:-4] not in call.response
    assert b"you sent" in call.response


@pytest.mark.parametrize("where", ["request", "response", "bundle", "archive"])
def test_a_secret_is_masked_where_a_letter_of_it_lies_across_two_chunks(
    home: Home, tmp_path: Path, where: str
) -> None:
    """A long body is written in steps, and a step may end in the middle of a letter."""
    secret = "geheimnisvölle-wörter"
    split = secret.encode().index("ö".encode()) + 1
    body = b"x" * (BODY_CHUNK - split) + secret.encode() + b" " + b"y" * BODY_INLINE_MAX
    vestige.default_recorder().secret(secret)
    files = MemoryFilesystem({"long": body})
    if where == "bundle":
        made = DebugBundleBuilder(session=Session(), agent=AgentInfo("a", "b", "c"))
        made.add_filesystem(files)
        written = made.finalize().read_file("workspace/long")
    elif where == "archive":
        with zipfile.ZipFile(archive_filesystem(files, tmp_path)) as archive:
            written = archive.read("long")
    else:
        answer = Reply(body=body if where == "response" else b"{}")
        with vestige.capture_http(), Server([answer]) as server:
            sent = body if where == "request" else b"{}"
            httpx.post(server.url + "/v1/chat/completions", content=sent, timeout=120)
        (call,) = calls_in(home)
        written = call.request + call.response

    assert len(written) > BODY_INLINE_MAX
    assert secret.encode() not in written


@pytest.mark.slow
def test_the_secrets_that_are_learned_are_bounded_and_counted(home: Home) -> None:
    recorder = vestige.Recorder(home)
    learn = recorder._emitter.register_secret
    for number in range(HEADER_SECRETS_MAX + 2):
        learn(f"renewed-token-{number:04d}-Zt7Kq9")

    assert recorder.faults == {"wire: too many secrets": 2}
    recorder.close()


async def _post(url: str) -> None:
    async with aiohttp.ClientSession() as session, session.post(url, data=b"{}") as response:
        await response.read()


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("https://a.b/c?d=e", "https://a.b/c?d=e"),
        (
            "https://a.b/v1?key=AbcdefghijklmnopQRS&alt=sse",
            "https://a.b/v1?key=Abc…redacted…QRS&alt=sse",
        ),
        ("https://u:p@a.b/c", "https://…redacted…@a.b/c"),
        (
            "https://a.b/?X-Amz-Signature=0123456789abcdef",
            "https://a.b/?X-Amz-Signature=012…redacted…def",
        ),
        ("https://a.b/?page_token=2", "https://a.b/?page_token=2"),
    ],
)
def test_secrets_of_a_url_are_masked_and_the_rest_stays(url: str, masked: str) -> None:
    """Byte for byte around them."""
    assert masked_url(url) == masked


def test_secret_headers_are_masked_by_their_names() -> None:
    """Cookies one by one: their names say which changed."""
    headers = masked_headers(
        [
            ("Authorization", "Bearer abcdefghijklmnop"),
            ("Cookie", "a=0123456789abcd; b=2"),
            ("Content-Type", "application/json"),
            ("X-Goog-Api-Key", "0123456789abcdef"),
        ]
    )

    assert headers == {
        "authorization": "Bearer abc…redacted…nop",
        "cookie": "a=012…redacted…bcd; b=…redacted…",
        "content-type": "application/json",
        "x-goog-api-key": "012…redacted…def",
    }


@pytest.mark.parametrize("key", ["EMPTY", "ollama", "not-needed", "lm-studio", "x"])
def test_a_key_that_is_no_secret_is_not_masked_everywhere(key: str) -> None:
    """Local servers are given a word; masking it would destroy what is recorded."""
    assert list(header_secrets([("authorization", f"Bearer {key}")], "http://a/")) == []


def test_a_signature_of_one_request_is_masked_and_not_remembered() -> None:
    """Bedrock's differ with each call: a few hundred would crowd out the keys."""
    signed = (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260101/us-east-1/bedrock/aws4_request, "
        "Signature=5d672d79c15b13162d9279b0"
    )
    headers = [("Authorization", signed), ("X-Amz-Security-Token", "FQoGZXIvYXdzEBYaD7Q2")]

    assert list(header_secrets(headers, "https://a.b/c")) == ["FQoGZXIvYXdzEBYaD7Q2"]
    assert "Signature" not in masked_headers(headers)["authorization"]
