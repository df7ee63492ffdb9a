"""The replacement of msgspec: the same lines and values, for records of any content."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vestige
from vestige._runtime import msgspec_fallback as pure
from vestige._runtime.re_compat import re, remove_possessive

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=20,
)


class Base(pure.Struct, tag_field="kind", omit_defaults=True):
    name: str
    count: int = 0
    facts: dict[str, Any] = {}


class Opened(Base, tag="open"):
    body: str | None = None


class TheirBase(msgspec.Struct, tag_field="kind", omit_defaults=True):
    name: str
    count: int = 0
    facts: dict[str, Any] = {}


class TheirOpened(TheirBase, tag="open"):
    body: str | None = None


@pytest.mark.slow
@given(TEXTS, st.integers(0, 2**62), st.dictionaries(TEXTS, VALUES), st.none() | TEXTS)
def test_structs_are_encoded_as_by_msgspec(
    name: str, count: int, facts: dict[str, Any], body: str | None
) -> None:
    ours = pure.json.Encoder().encode_lines([Opened(name, count, facts, body)])
    theirs = msgspec.json.Encoder().encode_lines([TheirOpened(name, count, facts, body)])
    assert json.loads(ours) == json.loads(theirs)
    assert list(json.loads(ours)) == list(json.loads(theirs))
    assert pure.json.decode(ours, type=Opened) == Opened(name, count, facts, body)


@pytest.mark.slow
@given(st.lists(VALUES), st.dictionaries(TEXTS, VALUES))
def test_raw_values_keep_their_bytes(items: list[Any], members: dict[str, Any]) -> None:
    array = json.dumps(items, indent=1).encode()
    parts = pure.json.Decoder(list[pure.Raw]).decode(array)
    assert parts == [bytes(raw) for raw in msgspec.json.decode(array, type=list[msgspec.Raw])]
    text = json.dumps(members).encode()
    found = pure.json.Decoder(dict[str, pure.Raw]).decode(text)
    assert {key: json.loads(raw) for key, raw in found.items()} == members
    assert pure.json.decode(pure.json.encode({"a": found})) == {"a": members}


@pytest.mark.parametrize("text", [b"", b"{", b"[1,]", b"nul", b"NaN", b'{"a":1}x', b"[Infinity]"])
def test_malformed_json_is_refused(text: bytes) -> None:
    for expected in (Any, pure.Raw, list[pure.Raw], dict[str, pure.Raw]):
        with pytest.raises(pure.DecodeError):
            pure.json.decode(text, type=expected)


@pytest.mark.parametrize("value", [{}, {"name": 1}, {"name": "a", "kind": "other"}, [], None])
def test_another_type_is_refused(value: Any) -> None:
    with pytest.raises(pure.ValidationError):
        pure.json.decode(json.dumps(value), type=Opened)


def test_infinities_are_null_and_other_objects_are_refused() -> None:
    assert pure.json.encode([float("nan"), float("inf")]) == b"[null,null]"
    with pytest.raises(TypeError):
        pure.json.encode(object())


def test_a_default_that_is_mutable_belongs_to_one_object() -> None:
    first, second = Opened("a"), Opened("b")
    first.facts["x"] = 1
    assert second.facts == {}


def test_a_frozen_struct_cannot_change_and_can_be_replaced() -> None:
    class Point(pure.Struct, frozen=True):
        x: int
        y: int = 0

    point = Point(1)
    with pytest.raises(AttributeError):
        point.x = 2
    assert pure.structs.replace(point, y=5) == Point(1, 5)
    assert hash(point) == hash(Point(1))
    with pytest.raises(TypeError):
        Point()


@pytest.mark.parametrize(
    ("pattern", "plain"),
    [
        (r"a*+b++c?+d{2,3}+", r"a*b+c?d{2,3}"),
        (r"[*+]+[^]+]\++(?>x)", r"[*+]+[^]+]\++(?:x)"),
        (rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', rb'"[^"\\]*(?:\\.[^"\\]*)*"'),
    ],
)
def test_possessive_quantifiers_become_plain_ones(pattern: Any, plain: Any) -> None:
    assert remove_possessive(pattern) == plain
    re.compile(plain)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'"AP8="', bytes),
        (b'{"a":"AA=="}', dict[str, bytes]),
        (b'["AA==",null]', list[bytes | None]),
        (b'["a",1]', tuple[str, int]),
        (b'["a","b"]', tuple[str, ...]),
        (b'[["a","b"]]', list[tuple[str, str]]),
        (b'["a"]', frozenset[str]),
        (b"3", float),
    ],
)
def test_values_are_converted_as_by_msgspec(text: bytes, expected: Any) -> None:
    assert pure.json.decode(text, type=expected) == msgspec.json.decode(text, type=expected)


@pytest.mark.parametrize(
    ("text", "expected"), [(b'"?"', bytes), (b"1", bytes), (b'["a"]', tuple[str, int])]
)
def test_values_that_msgspec_refuses_are_refused(text: bytes, expected: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=expected)
    with pytest.raises(pure.ValidationError):
        pure.json.decode(text, type=expected)


def test_a_hook_encodes_other_types_as_with_msgspec() -> None:
    value = {"path": Path("a"), "parts": [Path("b"), 1]}
    assert pure.json.encode(value, enc_hook=str) == msgspec.json.encode(value, enc_hook=str)

    with_raw = {"path": Path("a"), "raw": pure.Raw(b"[1]")}
    assert pure.json.encode(with_raw, enc_hook=str) == b'{"path":"a","raw":[1]}'


@pytest.mark.slow
def test_every_use_of_msgspec_in_the_recorder_works_with_the_replacement() -> None:
    """A missing argument is only noticed where msgspec cannot be imported."""
    for path, use in uses_of_msgspec():
        found: Any = pure
        called = use.func if isinstance(use, ast.Call) else use
        for name in ast.unparse(called).split(".")[1:]:
            found = getattr(found, name, None)
            assert found is not None, f"{path}:{use.lineno}: {ast.unparse(use)}"
        if isinstance(use, ast.Call) and inspect.isfunction(found):
            names = {word.arg: None for word in use.keywords if word.arg}
            inspect.signature(found).bind(*use.args, **names)


def uses_of_msgspec() -> Iterator[tuple[Path, ast.Attribute | ast.Call]]:
    """Yield the attributes and calls of msgspec in modules that an agent's process imports."""
    for path in Path(vestige.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "import msgspec\n" not in text or "msgspec_or_fallback import" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            called = node.func if isinstance(node, ast.Call) else node
            if isinstance(called, ast.Attribute) and is_of_msgspec(called):
                assert isinstance(node, (ast.Attribute, ast.Call))
                yield path, node


def is_of_msgspec(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id == "msgspec"
