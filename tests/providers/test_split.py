"""Bodies are cut where messages end, and pieces always rebuild the body."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vestige.limits import PIECE_MIN, PIECES_MAX
from vestige.providers.message_split import TEXT_MIN, _Cutter, find_cuts, split

Request = dict[str, Any] | list[Any]
TOOLS = [{"type": "function", "name": f"tool_{n}", "description": "d" * 200} for n in range(10)]


def text(n: int) -> str:
    return f"message {n}: " + "word " * 30 + str(n)


def openai_chat(n: int) -> Request:
    messages = [{"role": "user", "content": text(i)} for i in range(n)]
    return {"messages": messages, "model": "gpt", "tools": TOOLS, "stream": True}


def openai_responses(n: int) -> Request:
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text(i)}]}
        for i in range(n)
    ]
    return {"model": "gpt", "input": items, "instructions": "be brief " * 200}


def anthropic(n: int) -> Request:
    messages = [{"role": "user", "content": [{"type": "text", "text": text(i)}]} for i in range(n)]
    return {"model": "m", "system": "you are " * 300, "tools": TOOLS, "messages": messages}


def gemini(n: int) -> Request:
    contents = [{"role": "user", "parts": [{"text": text(i)}]} for i in range(n)]
    return {"systemInstruction": {"parts": [{"text": "s" * 2000}]}, "contents": contents}


def wrapped(n: int) -> Request:
    return {"project": "p", "request": gemini(n), "user": "u"}


def bare_list(n: int) -> Request:
    return [{"role": "user", "content": text(i)} for i in range(n)]


def unknown_key(n: int) -> Request:
    return {"history": [{"role": "user", "content": text(i)} for i in range(n)], "k": 1}


SHAPES = [openai_chat, openai_responses, anthropic, gemini, wrapped, bare_list, unknown_key]
STYLES: list[dict[str, Any]] = [{}, {"separators": (",", ":")}, {"indent": 2}]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.binary(max_size=2000))
def test_any_bytes_are_rebuilt_by_their_pieces(data: bytes) -> None:
    """Split never raises, and never changes a byte."""
    assert b"".join(split(data)) == data


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # json is slow to invent
@given(
    st.sampled_from(["messages", "input", "contents", "system", "tools", "x"]),
    st.lists(st.dictionaries(st.sampled_from(["role", "content", "a"]), json_values), max_size=4),
    st.sampled_from(["", "é" * 3000, '"\\\n' * 2000]),
    st.sampled_from(STYLES),
    st.booleans(),
)
def test_any_json_is_rebuilt_by_its_pieces(
    key: str, messages: list[Any], large: str, style: dict[str, Any], ascii_only: bool
) -> None:
    """Whitespace, escapes, unicode and large strings included."""
    request = {"before": large, key: [*messages, {"content": large}], "after": [large]}
    data = json.dumps(request, ensure_ascii=ascii_only, **style).encode()

    for body in (data, b" \n" + data + b"\n ", data[:-1], data[1:], data + data):
        assert b"".join(split(body)) == body
        assert all(a < b for a, b in pairwise([0, *find_cuts(body), len(body)]) if body)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("shape", SHAPES)
def test_appending_messages_leaves_all_earlier_pieces_as_they_are(
    shape: Callable[[int], Request], style: dict[str, Any]
) -> None:
    """Between turns only the new messages are new: the head, the history and the end recur."""
    shorter = split(json.dumps(shape(10), **style).encode())
    longer = split(json.dumps(shape(12), **style).encode())

    assert set(shorter) <= set(longer)
    assert len(set(longer) - set(shorter)) == 2
    assert len(longer) == len(shorter) + 2


@pytest.mark.parametrize("shape", SHAPES)
def test_each_message_is_a_piece(shape: Callable[[int], Request]) -> None:
    """The text of a message, and of no other, is in its piece."""
    pieces = split(json.dumps(shape(10)).encode())

    for n in range(10):
        (piece,) = [p for p in pieces if text(n).encode() in p]
        assert piece.count(b"message ") == 1


def test_a_changed_setting_does_not_touch_the_large_members() -> None:
    """A system prompt and the tools are their own pieces, however short what varies is."""
    before = anthropic(3)
    assert isinstance(before, dict)
    after = {"model": "other", "temperature": 0.1} | {
        k: v for k, v in before.items() if k != "model"
    }

    shared = set(split(json.dumps(before).encode())) & set(split(json.dumps(after).encode()))

    assert any(b'"system"' in piece for piece in shared)
    assert any(b'"tools"' in piece for piece in shared)


def test_a_moved_cache_marker_does_not_touch_a_large_text() -> None:
    """The marker sits on the last message only, so each message is sent with it and without it."""
    block = {"type": "text", "text": "result " * 1000}
    marked = block | {"cache_control": {"type": "ephemeral"}}
    bodies = [
        json.dumps({"messages": [{"role": "user", "content": [b]}]}).encode()
        for b in (block, marked)
    ]

    shared = set(split(bodies[0])) & set(split(bodies[1]))

    assert json.dumps(block["text"]).encode() in shared


def test_tiny_messages_wait_for_the_next() -> None:
    """A piece shorter than the minimum would be smaller than its row."""
    messages = [{"role": "user", "content": str(n)} for n in range(100)]
    pieces = split(json.dumps({"messages": messages}).encode())

    assert all(len(piece) >= PIECE_MIN for piece in pieces[:-2])
    assert pieces[-1] == b"]}"


def test_rows_that_are_not_messages_stay_together() -> None:
    """A tool's table is not cut into crumbs that would not compress."""
    rows = [{"id": n, "price": n * 3} for n in range(1000)]
    pieces = split(json.dumps({"rows": rows}).encode())

    assert 1 < len(pieces) < 12


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"plain text " * 100,
        b"[" * 100_000,
        b'{"messages":' * 50_000,
        b'{"messages":[{"role":"user","content":"' + b"x" * 500,
        b'{"a":[NaN],"messages":[{"role":"user","content":"' + b"x" * 500 + b'"}]}',
        b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n' * 50,
        b'{"k\xff":' + b'"' + b"x" * 500 + b'"}',
        b"[" + b"1," * 1000 + b"1]",
        b'"' + b"x" * 5000 + b'"',
        json.dumps(
            {"messages": [{"role": "user", "content": "x" * 60}] * (PIECES_MAX + 1)}
        ).encode(),
    ],
)
def test_what_is_no_request_stays_whole(body: bytes) -> None:
    """Not JSON, cut off, deep, of scalars, or with too many messages."""
    assert split(body) == [body]


def test_a_repeated_key_costs_sharing_and_nothing_else() -> None:
    """Which value a parser keeps is its own business: we keep the bytes."""
    long = json.dumps([{"role": "user", "content": text(n)} for n in range(5)])
    body = f'{{"messages":{long},"model":"a","messages":[1],"model":"ab"}}'.encode()

    assert split(body) == [body]


def test_escaped_keys_do_not_mislead_the_walk() -> None:
    """A key may contain quotes, colons and braces."""
    request = {'a"\\:{[': "x", "é\u2028": "y" * 2000, **dict(openai_chat(5))}
    for ascii_only in (True, False):
        body = json.dumps(request, ensure_ascii=ascii_only).encode()

        assert b"".join(split(body)) == body
        assert len(split(body)) > 5


def test_millions_of_parts_are_not_looked_at() -> None:
    """A hostile body costs time in proportion to its size, and no gigabytes."""
    body = b'[{"role":"user"},' + b"1," * 1_000_000 + b"1]"

    assert split(body) == [body]


_NAMES = st.sampled_from(
    ["a", "messages", "input", "role", "system", "contents", "slices", "tools"]
)
_SMALL = st.recursive(
    st.text(max_size=60) | st.integers(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(_NAMES, inner, max_size=6),
    max_leaves=20,
)


@pytest.mark.slow
@settings(deadline=None)
@given(value=_SMALL)
def test_a_short_body_that_is_passed_over_at_a_glance_has_nothing_to_cut(value: Any) -> None:
    """The glance only saves the walk: a body is cut alike however it is found."""
    body = json.dumps(value).encode()
    walk = _Cutter(body)
    if len(body) >= TEXT_MIN and body[:1] in (b"{", b"["):
        walk.cut_value("", 0, len(body), 0)

    assert find_cuts(body) == walk.cuts
