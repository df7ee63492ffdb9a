"""Why a cache missed: what changed in the shared prefix, where, and how."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.providers.chat_types import Request
from vestige.providers.parsing import parse_request
from vestige.providers.prompt_cache import (
    PrefixChange,
    cache_ttl_s,
    explain_change,
    fingerprint,
    first_difference,
)

MARK = {"cache_control": {"type": "ephemeral"}}
TOOLS = [
    {"name": f"tool_{n}", "input_schema": {"type": "object", "properties": {"a": {}, "b": {}}}}
    for n in range(3)
]


def block(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def turn(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def claude(messages: list[Any], system: Any = "You are a robot.", **more: Any) -> bytes:
    data = {"max_tokens": 9, "messages": messages, "model": "claude-x", "system": system}
    return json.dumps(data | {"tools": TOOLS} | more).encode()


def chat(*texts: str, **more: Any) -> bytes:
    messages = [{"role": "user", "content": text} for text in texts]
    return json.dumps({"model": "gpt-4o", "messages": messages} | more).encode()


def read(body: bytes) -> Request:
    request = parse_request(body)
    assert request is not None
    return request


def explain(before: bytes, after: bytes) -> PrefixChange | None:
    return explain_change(read(before), before, read(after), after)


A, B, C = block("first"), block("second"), block("third")


def test_a_history_that_grows_keeps_its_prefix() -> None:
    """More messages, another temperature, another place of the tools: the cache is used."""
    assert explain(chat("a", "b"), chat("a", "b", "c", temperature=1)) is None


def test_a_marker_that_moves_on_is_no_change() -> None:
    """A marker is not part of the cached text, and a marked string must be a block."""
    before = claude([turn("user", A | MARK)])
    moved = claude([turn("user", A), turn("assistant", B), turn("user", C | MARK)])
    text = [{"role": "user", "content": "first"}, turn("assistant", B), turn("user", C | MARK)]

    assert explain(before, moved) is None
    assert explain(before, claude(text)) is None


def test_the_first_difference_is_found_in_both_bodies() -> None:
    """The offset points at the very byte, behind a marker that was taken out, too."""
    before = claude([turn("user", A | MARK, B | MARK)])
    after = claude([turn("user", A, block("sEcond") | MARK)])

    change = explain(before, after)

    assert change is not None and change.before is not None and change.after is not None
    assert change.before.part.path == change.after.part.path == "messages[0]"
    assert (change.before.part.index, change.before.part.role) == (0, "user")
    assert before[change.before.offset :].startswith(b"econd")
    assert after[change.after.offset :].startswith(b"Econd")
    assert '"text": "second"' in change.before.excerpt
    assert not change.same_json
    assert not change.model_changed
    assert not change.breakpoint_moved


def test_a_changed_tool_or_system_prompt_is_found_though_it_stands_behind_the_messages() -> None:
    """The SDK writes `system` and `tools` last, the provider reads them first."""
    messages = [turn("user", A | MARK)]
    before = claude(messages)
    system = explain(before, claude(messages, system="You are a robot. It is 12:01."))
    tools = explain(before, claude(messages, tools=TOOLS[:2]))

    assert system is not None and system.after is not None
    assert system.after.part.path == "system"
    assert tools is not None and tools.before is not None and tools.after is not None
    assert (tools.before.part.path, tools.after.part.path) == ("tools[2]", "system")


def test_what_stands_behind_the_breakpoint_may_change() -> None:
    """Only what was cached must stay as it is."""
    system = [block("You.") | MARK, block("It is 12:00.")]
    later = [block("You.") | MARK, block("It is 12:01.")]

    assert explain(claude([turn("user", A)], system), claude([turn("user", B)], later)) is None


def test_the_same_json_in_other_bytes_is_told_apart() -> None:
    """Order of keys and blanks: the same to read, another prefix to cache."""
    messages = [turn("user", A | MARK)]
    swapped = [
        tool | {"input_schema": dict(reversed(tool["input_schema"].items()))} for tool in TOOLS
    ]  # type: ignore[attr-defined]

    change = explain(claude(messages), claude(messages, tools=swapped))

    assert change is not None and change.before is not None
    assert change.before.part.path == "tools[0]"
    assert change.same_json

    other = explain(claude(messages), claude([turn("user", B | MARK)], tools=swapped))
    assert other is not None
    assert not other.same_json


def test_a_change_of_model_is_a_field_of_its_own() -> None:
    change = explain(chat("a"), chat("a", "b", model="gpt-4o-mini"))

    assert change is not None
    assert change.model_changed
    assert (change.before, change.breakpoint_moved) == (None, False)


def test_a_breakpoint_that_is_lost_or_moves_back_is_told() -> None:
    """The prefix is the same, but nobody asked for it."""
    before = claude([turn("user", A), turn("assistant", B), turn("user", C | MARK)])
    lost = explain(before, claude([turn("user", A), turn("assistant", B), turn("user", C)]))
    back = explain(before, claude([turn("user", A | MARK), turn("assistant", B), turn("user", C)]))

    for change, paths in ((lost, []), (back, ["messages[0]"])):
        assert change is not None
        assert change.breakpoint_moved
        assert change.before is None
        assert change.breakpoints_before == ["messages[2]"]
        assert change.breakpoints_after == paths


def test_a_fingerprint_stands_for_the_cacheable_prefix() -> None:
    """What is behind the last breakpoint, and options, do not count; a byte before it does."""
    system = [block("You.") | MARK]
    one, same = claude([turn("user", A)], system), claude([turn("user", B)], system, top_k=3)
    other = claude([turn("user", A)], [block("Who.") | MARK])

    prints = [fingerprint(read(body), body) for body in (one, same, other)]

    assert prints[0] == prints[1] != prints[2]
    assert all(len(p) == 16 and int(p, 16) >= 0 for p in prints)


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        (claude([turn("user", A | MARK)]), 300),
        (claude([turn("user", A | {"cache_control": {"type": "ephemeral", "ttl": "1h"}})]), 3600),
        (claude([turn("user", A)], cache_control={"type": "ephemeral", "ttl": "1h"}), 3600),
        (chat("a"), 300),
        (chat("a", prompt_cache_retention="24h"), 86400),
    ],
)
def test_how_long_a_prefix_lives(body: bytes, seconds: int) -> None:
    assert cache_ttl_s(read(body), body) == seconds


@given(st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=40))
def test_the_first_difference_is_the_first(common: bytes, x: bytes, y: bytes) -> None:
    a, b = common + x, common + y
    plain = next((n for n, (p, q) in enumerate(zip(a, b, strict=False)) if p != q), None)

    assert first_difference(a, b) == plain
