"""Large things: an answer beyond the bound, a long stream, a conversation that grows."""

from __future__ import annotations

import gc
import gzip
import json
import random
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import brotli
import httpx
import openai
import pytest
import requests

import vestige
from support.programs import RunProgram
from support.provider_answers import chat, chat_call
from support.provider_calls import calls_in
from support.provider_server import Reply, Seen, Server
from vestige.home import Home
from vestige.limits import BODY_CHUNK, BODY_MAX, MIB
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.wire.byte_buffer import ByteBuffer
from vestige.wire.content_encoding import decode

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": partial(brotli.compress, quality=1),
    "zstd": zstd.compress,
}

LARGE = """
    import hashlib, http.server, json, sys, threading
    import httpx, psutil
    import vestige

    SIZE, PIECE = 200 * 2**20, 2**16
    piece = bytes(range(256)) * (PIECE // 256)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            # Closing with a part of the request unread would be a reset.
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(SIZE))
            self.end_headers()
            for _ in range(SIZE // PIECE):
                self.wfile.write(piece)
        def log_message(self, *_): pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1/chat/completions"
    process = psutil.Process()

    def read():
        peak = count = 0
        with httpx.stream("POST", url, json={"messages": []}) as response:
            for chunk in response.iter_raw():
                count += len(chunk)
                peak = max(peak, process.memory_info().rss)
        return count, max(peak, process.memory_info().rss)

    vestige.default_recorder()
    _, bare = read()
    vestige.capture_http()
    count, peak = read()
    digest = hashlib.sha256(piece * (SIZE // PIECE)).hexdigest()
    print(json.dumps({"count": count, "grown": peak - bare, "sha256": digest}))
"""


@pytest.mark.full  # 200 MB over loopback
def test_an_answer_of_200_mb_costs_the_bound_and_no_more(
    home: Home, run_program: RunProgram
) -> None:
    """Its beginning is kept, the rest counted and hashed; the program gets all of it."""
    done = run_program(LARGE, timeout_s=90)
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    (call,) = calls_in(home)

    assert output["count"] == 200 * MIB
    # The bound itself, what a growing buffer reserves beyond it, and our modules.
    assert output["grown"] < 2 * BODY_MAX
    assert call["response.bytes"] == 200 * MIB
    assert call["response.sha256"] == output["sha256"]
    assert call.response.startswith(bytes(range(256)))
    assert BODY_MAX - 1024 < len(call.response) <= BODY_MAX
    assert call.span.output is not None and call.span.output.cut


def test_a_stream_of_single_bytes_costs_its_bytes() -> None:
    """Chunks are joined as they come; times are kept for the first ones only."""
    tape = ByteBuffer(data_max=1000)
    for number in range(100_000):
        tape.add(b"x", number)

    assert (tape.total, len(tape.data), tape.truncated) == (100_000, 1000, True)
    assert tape.time_of(1) == 0
    assert tape.time_of(500) == 499
    assert tape.time_of(100_000) is None


@pytest.mark.slow
@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate", "gzip, gzip", "br, zstd"])
def test_a_bomb_is_undone_up_to_the_bound(coding: str) -> None:
    """A few kilobytes that would be a gigabyte, and no more memory than the bound asks for: brotli
    and zstd are denser than gzip, and a coding may be upon another.
    """
    bomb = bytes(64 * MIB)
    for name in coding.split(", "):
        bomb = CODERS[name](bomb)
    tracemalloc.start()
    try:
        plain = decode(bomb, coding, MIB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert plain is not None
    assert (len(plain.data), plain.complete) == (MIB, False)
    assert peak < 8 * MIB


@pytest.mark.slow
@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate", "gzip, gzip", "br, zstd"])
@pytest.mark.parametrize("size", [0, BODY_CHUNK - 1, BODY_CHUNK, 2 * BODY_CHUNK, 3 * MIB + 1])
def test_what_is_undone_in_steps_is_undone_to_the_last_byte(coding: str, size: int) -> None:
    """Also where a step ends exactly with the bytes that a decoder had taken in."""
    for body in (bytes(size), random.Random(size).randbytes(size // 2) * 2):
        coded = body
        for name in coding.split(", "):
            coded = CODERS[name](coded)
        plain = decode(coded, coding, 4 * MIB)

        assert plain is not None
        assert (plain.data == body, plain.complete) == (True, True)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_frames_that_follow_each_other_are_one_body(coding: str) -> None:
    """Clients join them: what a program was given is recorded, wherever the chunks were cut."""
    first, second = CODERS[coding](b"data: {}\n\n"), CODERS[coding](b"data: [DONE]\n\n")
    coded = first + second
    for cut in range(len(coded)):
        plain = decode(coded, coding, MIB, [cut])

        assert plain is not None
        assert plain.complete
        assert plain.data == b"data: {}\n\ndata: [DONE]\n\n"


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_very_many_empty_frames_are_not_all_undone(coding: str) -> None:
    """They give nothing, so no bound on the size would ever stop them."""
    plain = decode(CODERS[coding](b"x") + CODERS[coding](b"") * 50_000, coding, MIB)

    assert plain is not None
    assert not plain.complete
    assert plain.data == b"x"


def test_more_codings_than_anybody_sends_are_not_undone() -> None:
    """Each would have a window of its own."""
    assert decode(b"x", ", ".join(["gzip"] * 1000), MIB) is None


@pytest.mark.slow
def test_a_conversation_of_fifty_turns_is_stored_15_times_smaller_than_gzip(home: Home) -> None:
    """Captured from the real SDK: tool calls, results of 5 KB, a growing history; read back byte
    for byte.
    """
    numbers = iter(range(1000))

    def answer(seen: Seen) -> Any:
        number = next(numbers)
        arguments = json.dumps({"path": f"src/module_{number}.py", "lines": _text(number)[:80]})
        return chat(calls=[chat_call(f"call_{number}", "read_file", arguments)])

    with vestige.capture_http(), Server(answer) as server, vestige.Recorder(home).run("agent"):
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-test-47114711471147")
        messages: list[Any] = [{"role": "system", "content": _text(0, 1200)}]
        for turn in range(50):
            messages.append({"role": "user", "content": f"turn {turn}: {_text(turn)[:200]}"})
            made = client.chat.completions.create(model="m", messages=messages, tools=_tools())
            message = made.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            call_id = message.tool_calls[0].id  # type: ignore[index]
            messages.append(
                {"role": "tool", "tool_call_id": call_id, "content": _text(turn + 99, 800)}
            )
    calls = calls_in(home)

    assert [call.request for call in calls] == [seen.body for seen in server.seen]
    assert [call.response for call in calls] == [seen.sent for seen in server.seen]
    packed = sum(
        len(gzip.compress(data)) for call in calls for data in (call.request, call.response)
    )
    with SqliteStore.open(home.store, readonly=True) as store:
        stored = store.sizes().body_bytes
    assert packed / stored >= 15


def _words() -> tuple[list[str], list[float]]:
    """Made-up words, few of them frequent: text that compresses as prose does."""
    chance = random.Random(1)
    syllables = [a + b + c for a in "bcdfglmnprst" for b in "aeiou" for c in ("", "n", "r", "st")]
    words = ["".join(chance.choices(syllables, k=chance.choice((1, 2, 2, 3)))) for _ in range(6000)]
    return words, [1 / (rank + 3) for rank in range(6000)]


WORDS, WEIGHTS = _words()


def _text(seed: int, words: int = 400) -> str:
    return " ".join(random.Random(seed).choices(WORDS, WEIGHTS, k=words))


def _tools() -> Any:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    return [
        {
            "type": "function",
            "function": {"name": f"tool_{n}", "description": _text(n)[:900], "parameters": schema},
        }
        for n in range(12)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("get", [requests.post, httpx.post])
def test_a_response_that_a_program_keeps_does_not_keep_its_bytes_twice(
    home: Home, get: Callable[..., Any]
) -> None:
    """Once a call is over, what was recorded of it is on disk, and no longer in memory."""
    size = 8 * MIB
    with vestige.capture_http(), Server(lambda _: Reply(body=b"x" * size)) as server:
        url = server.url + "/v1/chat/completions"
        get(url, json={"model": "m", "messages": []})  # what is made once is made
        tracemalloc.start()
        responses = [get(url, json={"model": "m", "messages": []}) for _ in range(3)]
        gc.collect()
        traced, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert len(calls_in(home)) == 4
    # The server keeps what it sent, the program what it got.
    assert traced < (2 * len(responses) + 1) * size
