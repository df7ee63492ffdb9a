"""Parsed values of bytes that occur again."""

from __future__ import annotations

import json

from vestige.providers.parse_cache import GENERATION_BYTES, RAW_MAX, RecentValues
from vestige.providers.parsing import parse_request


def test_equal_bytes_are_parsed_once():
    parsed: list[str] = []
    values = RecentValues(lambda item: parsed.append(item) or item.upper())
    assert values.get(b"a", "a") == values.get(b"a", "a") == "A"
    assert parsed == ["a"]


def test_long_and_unknown_bytes_are_parsed_each_time():
    parsed: list[int] = []
    values = RecentValues(lambda item: parsed.append(item) or item)
    for raw in (b"", b"x" * (RAW_MAX + 1)):
        assert values.get(raw, 1) == values.get(raw, 1) == 1
    assert len(parsed) == 4


def test_old_values_are_dropped_and_used_ones_stay(monkeypatch):
    parsed: list[int] = []
    values = RecentValues(lambda item: parsed.append(item) or item)
    size = 10_000
    for number in range(4 * GENERATION_BYTES // size):
        values.get(b"%09d" % number + b"x" * (size - 9), number)
        values.get(b"used", -1)
    assert parsed.count(-1) == 1
    assert len(values._new) + len(values._old) < 2 * GENERATION_BYTES // size + 10
    values.get(b"%09d" % 0 + b"x" * (size - 9), 0)
    assert parsed.count(0) == 2


def test_a_repeated_message_has_its_own_offsets_and_problems():
    message = {"role": "robot", "content": "move"}
    for before in ([], [{"role": "user", "content": "hello"}]):
        body = json.dumps({"model": "m", "messages": [*before, message, message]})
        request = parse_request(body)
        assert request is not None
        for index in (-2, -1):
            found = request.messages[index]
            assert json.loads(body.encode()[found.begin : found.end]) == message
        places = [problem.partition(":")[0] for problem in request.problems if "robot" in problem]
        assert places == [f"messages[{len(before)}]", f"messages[{len(before) + 1}]"]
