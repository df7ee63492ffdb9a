"""A secret that a stream spells in pieces is redacted as if it had come in one."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.sampling import every_third
from vestige.providers.parsing import parse_response
from vestige.record.redaction.redactor import Redactor
from vestige.record.redaction.stream_redaction import is_stream, redact_stream
from vestige.record.redaction.streams.text_edits import find_edits

OPENAI = "sk-proj-Zk3Jq8Lm2Np5Rt7Vx9Bc1Df4Gh6Jk8Lm0Qw"
GITHUB = "gh" + "p_Zk3Jq8Lm2Np5Rt7Vx9Bc1Df4Gh6Jk8Lm0Qw1"
AWS = "AK" + "IAZK3JQ8LM2NP5RT7V"
REGISTERED = "zebra-quilt-mango-4417"
ODD = 'pä"ss\\wörd/🦓 7'
"""Registered: with characters that JSON escapes, one of them outside the BMP."""
KEYED = '{"api_key": "hunter2-is-not-enough", "limit": 5}'
TEXTS = [
    f"The key is {OPENAI}, the other one {GITHUB}.",
    f"{AWS} and {REGISTERED}",
    f"note: {ODD} and again {ODD}!",
    KEYED,
    json.dumps({"path": "/tmp", "password": 'qu"ote', "pin": 1}),
    f"Authorization: Bearer {GITHUB}\nnext line",
    (
        "-----BEGIN PRIVATE KEY-----\n"
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----\ndone"
    ),
    f"{OPENAI}{GITHUB}",
]


def make_redactor() -> Redactor:
    redactor = Redactor()
    redactor.add_secrets([REGISTERED, ODD])
    _ = redactor.suspicious
    return redactor


REDACTOR = make_redactor()


# --- how providers stream -------------------------------------------------------------------------


def chat(piece: str) -> Any:
    return {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"content": piece}}]}


def chat_tool(piece: str) -> Any:
    call = {"index": 0, "function": {"arguments": piece}}
    return {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}


def claude(piece: str) -> Any:
    delta = {"type": "text_delta", "text": piece}
    return {"type": "content_block_delta", "index": 0, "delta": delta}


def claude_tool(piece: str) -> Any:
    delta = {"type": "input_json_delta", "partial_json": piece}
    return {"type": "content_block_delta", "index": 1, "delta": delta}


def responses(piece: str) -> Any:
    return {"type": "response.output_text.delta", "output_index": 0, "delta": piece}


def gemini(piece: str) -> Any:
    return {"candidates": [{"content": {"parts": [{"text": piece}], "role": "model"}}]}


def ollama(piece: str) -> Any:
    return {"model": "m", "message": {"role": "assistant", "content": piece}, "done": False}


def unknown(piece: str) -> Any:
    return {"seq": len(piece), "frames": [[{"said": piece, "ids": [1, len(piece)]}]]}


NUMBERS = count()


def counted(piece: str) -> Any:
    """Text Generation Inference numbers its tokens."""
    return {"index": next(NUMBERS), "token": {"text": piece, "special": False}}


MAKERS: list[Callable[[str], Any]] = [
    chat,
    chat_tool,
    claude,
    claude_tool,
    responses,
    gemini,
    ollama,
    unknown,
    counted,
]
KEYS = ("content", "arguments", "text", "partial_json", "delta", "said")


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in KEYS and isinstance(inner, str):
                yield inner
            else:
                yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def as_events(
    pieces: list[str], make: Callable[[str], Any], end: str = "\n", *, ascii_only: bool = True
) -> bytes:
    lines = [
        f"data: {json.dumps(make(piece), ensure_ascii=ascii_only)}{end}{end}" for piece in pieces
    ]
    return "".join(["event: x" + end, *lines, f"data: [DONE]{end}{end}"]).encode()


def as_json_lines(
    pieces: list[str], make: Callable[[str], Any], end: str = "\n", *, ascii_only: bool = True
) -> bytes:
    lines = (json.dumps(make(piece), ensure_ascii=ascii_only) + end for piece in pieces)
    return "".join(lines).encode()


def assemble(body: bytes) -> str:
    """What the events spell. Each of them must be valid JSON."""
    found = []
    for line in body.decode().splitlines():
        data = line.removeprefix("data:").strip()
        if data.startswith("{"):
            found.extend(strings(json.loads(data)))
    return "".join(found)


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted({place % (len(text) + 1) for place in places}), len(text)]
    return [text[low:high] for low, high in pairwise(edges)]


WORDS = st.lists(
    st.sampled_from(
        [*TEXTS, OPENAI, REGISTERED, ODD, " ", ", ", "so ", "ok\n", '"', "…", "🦓", "\\"]
    ),
    min_size=1,
    max_size=5,
).map("".join)


@pytest.mark.slow
@given(
    WORDS,
    st.lists(st.integers(0, 500), max_size=40),
    st.sampled_from(MAKERS),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.sampled_from([as_events, as_json_lines]),
)
@example(OPENAI, list(range(100)), chat, "\n", True, as_events)
@example(ODD, list(range(100)), claude, "\r\n", False, as_events)
def test_whatever_the_split_the_stored_stream_assembles_to_the_redacted_text(
    text: str, places: list[int], make: Callable[[str], Any], end: str, ascii_only: bool, frame: Any
) -> None:
    pieces = [*cut(text, places), *("", "")]
    body = frame(pieces, make, end, ascii_only=ascii_only)
    stored = redact_stream(body, REDACTOR)

    assert assemble(bytes(stored)) == REDACTOR.text(text)
    if REDACTOR.text(text) == text:
        assert stored is body


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("text", every_third(TEXTS))
def test_every_place_of_a_single_split_is_covered(text: str, make: Callable[[str], Any]) -> None:
    expected = REDACTOR.text(f"So: {text} So.")
    assert expected != f"So: {text} So."
    for place in range(len(text) + 1):
        pieces = ["So: ", text[:place], text[place:], " So."]
        stored = redact_stream(as_events(pieces, make), REDACTOR)
        assert assemble(bytes(stored)) == expected


@pytest.mark.parametrize("size", range(1, 50, 3))
@pytest.mark.parametrize("text", TEXTS)
def test_a_data_stream_of_the_ai_sdk_assembles_to_the_redacted_text(text: str, size: int) -> None:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    lines = [f"0:{json.dumps(piece)}\n" for piece in ["So: ", *pieces, " So.", ""]]
    body = "".join(['f:{"messageId":"m"}\n', *lines, 'd:{"finishReason":"stop"}\n']).encode()

    stored = bytes(redact_stream(body, REDACTOR))

    read = [json.loads(line[2:]) for line in stored.decode().splitlines() if line[0] == "0"]
    assert "".join(read) == REDACTOR.text(f"So: {text} So.") != f"So: {text} So."
    assert stored.count(b"\n") == body.count(b"\n")
    assert is_stream(body)


def test_choices_that_arrive_in_turns_are_separate_texts() -> None:
    events = [
        {"choices": [{"index": number, "delta": {"content": piece}}]}
        for pair in zip(OPENAI, GITHUB, strict=False)
        for number, piece in enumerate(pair)
    ]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
    stored = bytes(redact_stream(body, REDACTOR))
    read = [json.loads(line[6:])["choices"][0] for line in stored.decode().split("\n\n") if line]

    for number, secret in enumerate((OPENAI, GITHUB)):
        text = "".join(each["delta"]["content"] for each in read if each["index"] == number)
        assert text == REDACTOR.text(secret[: min(len(OPENAI), len(GITHUB))])
        assert "redacted" in text


def test_a_block_that_begins_in_one_type_of_event_goes_on_in_another() -> None:
    start = {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": OPENAI[:9]},
    }
    body = f"data: {json.dumps(start)}\n\n".encode() + as_events(list(OPENAI[9:]), claude)

    assert assemble(bytes(redact_stream(body, REDACTOR))) == REDACTOR.text(OPENAI)


def test_two_tool_calls_are_redacted_by_the_keys_of_their_arguments() -> None:
    texts = [KEYED, '{"token": "abcdef-ghijkl-mnopqr"}']
    events = []
    for place in range(0, max(map(len, texts)), 3):
        for number, text in enumerate(texts):
            call = {"index": number, "function": {"arguments": text[place : place + 3]}}
            events.append({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
    response = parse_response(bytes(redact_stream(body, REDACTOR)), "openai")

    assert response is not None
    assert [call.arguments for call in response.calls] == [REDACTOR.text(text) for text in texts]
    assert "hunter2" not in str(response.calls)


def test_the_event_that_repeats_the_whole_text_says_the_same() -> None:
    done = {"type": "response.output_text.done", "output_index": 0, "text": f"it is {OPENAI}"}
    body = as_events([*f"it is {OPENAI}"], responses) + f"data: {json.dumps(done)}\n\n".encode()
    stored = REDACTOR.text(bytes(redact_stream(body, REDACTOR)).decode())
    spelled = assemble(stored.encode())

    assert spelled == 2 * REDACTOR.text(f"it is {OPENAI}")


def test_json_over_several_data_lines_is_one_event() -> None:
    def pretty(piece: str) -> str:
        lines = json.dumps(chat(piece), indent=1).splitlines()
        return "".join(f"data: {line}\n" for line in lines) + "\n"

    stored = bytes(redact_stream("".join(map(pretty, OPENAI)).encode(), REDACTOR)).decode()
    events = ["\n".join(line[6:] for line in event.splitlines()) for event in stored.split("\n\n")]

    joined = "".join(text for event in events if event for text in strings(json.loads(event)))
    assert joined == REDACTOR.text(OPENAI)


def test_events_of_plain_text_are_redacted_as_one_text() -> None:
    body = "".join(f"data: {OPENAI[at : at + 5]}\n\n" for at in range(0, len(OPENAI), 5)).encode()
    stored = bytes(redact_stream(body, REDACTOR)).decode()

    text = "".join(line.removeprefix("data: ") for line in stored.splitlines())
    assert text == REDACTOR.text(OPENAI)


def test_a_truncated_last_event_is_redacted_with_the_rest() -> None:
    body = as_events([*OPENAI[:-4]], chat).removesuffix(b"data: [DONE]\n\n")
    body += b'data: {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"content": "m0Qw'
    stored = bytes(redact_stream(body, REDACTOR))

    assert stored.endswith(b'"content": "0Qw')
    assert assemble(stored[: stored.rindex(b"data:")]) == "sk-…redacted…"


def test_a_json_array_of_events_is_a_stream() -> None:
    body = json.dumps([gemini(piece) for piece in OPENAI], indent=1).encode()
    stored = bytes(redact_stream(body, REDACTOR))

    assert "".join(strings(json.loads(stored))) == REDACTOR.text(OPENAI)


def test_characters_and_bytes_that_are_split_or_broken_stay_as_they_are() -> None:
    events = [
        rb'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"%b"}}]}' % piece
        for piece in (
            b"\\ud83e",
            b"\\udd93",
            b"\xff\xfe",
            "é".encode()[:1],
            "é".encode()[1:],
            b"\\q",
            b" ",
        )
    ]
    clean = b"\n\n".join(events) + b"\n\n"
    spelled = b"".join(
        rb'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"%c"}}]}' % byte
        + b"\n\n"
        for byte in OPENAI.encode()
    )

    assert redact_stream(clean, REDACTOR) is clean
    stored = bytes(redact_stream(clean + spelled, REDACTOR))
    assert stored.startswith(clean)
    assert "redacted" in stored.decode(errors="replace")
    assert assemble(stored[len(clean) :]) == REDACTOR.text(OPENAI)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"data:",
        b"{}",
        b"[",
        b"[{",
        b"data: {\n\n",
        b'data: {"a\n\ndata: {"b"}\n\n',
        b":\n\n",
        b'{"password": "hunter2-is-not-enough"}',
        b"\x00\x00\x00\x10",
        b"event: x\rdata: {}\r\r",
        b'{"a": 1}\n{"a": \n',
        b"data: " + b"[" * 5000,
        b"data: " + b'{"a":' * 5000,
    ],
)
def test_what_is_no_stream_or_a_broken_one_stays_as_it_is(body: bytes) -> None:
    assert redact_stream(body, REDACTOR) is body or redact_stream(body, REDACTOR) == body


def test_more_shapes_than_are_remembered_are_read_all_the_same() -> None:
    events = [{f"key{n}": n, "said": piece} for n, piece in enumerate(OPENAI * 4)]
    body = "".join(json.dumps(event) + "\n" for event in events).encode()

    assert assemble(bytes(redact_stream(body, REDACTOR))) == REDACTOR.text(OPENAI * 4)


@pytest.mark.slow
def test_hostile_depth_and_width_are_bounded() -> None:
    """Each would take minutes if its cost grew with the square of its size."""
    deep = b"data: " + b'["a",' * 20_000 + b"\n\n"
    wide = b"data: [" + b",".join([b'"a"'] * 5_000) + b"]\n\n"
    shapes = b"".join(b'data: {"k%d": ["x"]}\n\n' % number for number in range(1_000))

    for body in (deep, wide * 3, shapes):
        assert redact_stream(body, REDACTOR) == body


def test_ids_and_names_that_all_events_repeat_are_not_joined() -> None:
    """Joined, `password=` and what follows it would look like a secret."""
    event = {"id": "password=x", "model": "the-model-of-a-long-name", "said": "a"}
    body = (json.dumps(event) + "\n").encode() * 20

    assert b"the-model-of-a-long-name" in redact_stream(body, REDACTOR)


# --- AWS event streams ----------------------------------------------------------------------------


def frame(payload: bytes) -> bytes:
    name, kind = b":event-type", b"contentBlockDelta"
    headers = bytes([len(name)]) + name + b"\x07" + struct.pack(">H", len(kind)) + kind
    sizes = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    data = sizes + struct.pack(">I", zlib.crc32(sizes)) + headers + payload
    return data + struct.pack(">I", zlib.crc32(data))


def payloads(body: bytes) -> Iterator[bytes]:
    while body:
        length, headers, crc = struct.unpack_from(">III", body)
        assert zlib.crc32(body[:8]) == crc
        assert zlib.crc32(body[: length - 4]) == struct.unpack_from(">I", body, length - 4)[0]
        yield body[12 + headers : length - 4]
        body = body[length:]


def test_frames_of_bedrock_are_redacted_and_framed_anew() -> None:
    pieces = [OPENAI[at : at + 4] for at in range(0, len(OPENAI), 4)]
    converse = b"".join(
        frame(json.dumps({"contentBlockIndex": 0, "delta": {"text": piece}}).encode())
        for piece in pieces
    )
    invoke = b"".join(
        frame(
            json.dumps(
                {"bytes": base64.b64encode(json.dumps(claude(p)).encode()).decode()}
            ).encode()
        )
        for p in pieces
    )

    stored = [json.loads(each) for each in payloads(bytes(redact_stream(converse, REDACTOR)))]
    assert "".join(strings(stored)) == REDACTOR.text(OPENAI)
    inner = [
        json.loads(base64.b64decode(json.loads(each)["bytes"]))
        for each in payloads(bytes(redact_stream(invoke, REDACTOR)))
    ]
    assert "".join(strings(inner)) == REDACTOR.text(OPENAI)
    clean = frame(b'{"delta": {"text": "hello"}}') * 3
    assert redact_stream(clean, REDACTOR) is clean


# --- edits ----------------------------------------------------------------------------------------


@given(WORDS)
def test_edits_make_the_redacted_text(text: str) -> None:
    cleaned = REDACTOR.text(text)
    made, done = "", 0
    for low, high, new in find_edits(text, cleaned) if cleaned != text else ():
        assert done <= low <= high
        made, done = made + text[done:low] + new, high
    assert made + text[done:] == cleaned


def test_a_stream_is_known_by_how_it_begins() -> None:
    assert is_stream(b"data: {}\n\n") and is_stream(b'{"a":1}\n{"a":2}\n') and is_stream("event: x")
    assert not is_stream(b'{"a": 1}') and not is_stream("hello") and not is_stream(b"")
