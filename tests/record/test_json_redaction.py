"""Redaction of JSON documents: strings change, keys and structure never do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_patterns import SHAPES

from vestige.limits import SECRET_LENGTH_MAX
from vestige.record.redaction.masking import MARK
from vestige.record.redaction.redactor import Redactor

REDACTOR = Redactor()
SCANNING = Redactor()
SCANNING.suspicious(b"")

words = st.sampled_from(
    [
        *("refresh-token", "x-api-key", "authorization", "Cookie", "status", "name", "value"),
        *("password", "token=", "Password:", "it's token='", "secrets", "--token", "a", ""),
        *("Bearer abcdef1234567890", "Authorization: ", "cookies", '{"password": "hunter2"}'),
    ]
)
texts = words | st.text(max_size=8) | st.lists(words, max_size=3).map("".join)
# A key that is itself a secret is the one that may change.
keys = texts.filter(lambda text: "Bearer" not in text)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 9999) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


def assert_same_shape(before: Any, after: Any) -> None:
    if isinstance(before, dict):
        assert isinstance(after, dict)
        assert list(before) == list(after)
        for key in before:
            assert_same_shape(before[key], after[key])
    elif isinstance(before, list):
        assert isinstance(after, list)
        assert len(before) == len(after)
        for one, other in zip(before, after, strict=True):
            assert_same_shape(one, other)
    elif before != after:
        assert isinstance(after, str)
        assert MARK in after


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(values, max_size=3) | st.dictionaries(keys, values, max_size=4), st.booleans())
def test_a_redacted_document_has_the_same_keys_and_shape(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)

    for redactor in (REDACTOR, SCANNING):
        assert_same_shape(value, json.loads(redactor.text(text)))
        nested = json.dumps({"body": text})
        assert_same_shape(value, json.loads(json.loads(redactor.text(nested))["body"]))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.dictionaries(keys, values, min_size=1, max_size=4), st.integers(100, 5000))
def test_a_long_document_in_pieces_keeps_its_keys_and_shape(value: Any, step: int) -> None:
    document = [value, "x" * SECRET_LENGTH_MAX, value, {"text": "y " * SECRET_LENGTH_MAX}, value]
    text = json.dumps(document)

    pieces = (text[at : at + step] for at in range(0, len(text), step))

    assert_same_shape(document, json.loads("".join(SCANNING.stream(pieces))))


LONG = "y " * (2 * SECRET_LENGTH_MAX)


@pytest.mark.parametrize(
    "document",
    [
        {"note": LONG, "password": "correct-horse-9"},
        {"cookies": {"note": LONG, "plain": LONG, "sid": "correct-horse-9"}},
        {"password": [LONG, "correct-horse-9"]},
        {"name": "API_KEY", "note": LONG, "value": "correct-horse-9"},
        {"a": [{"b": LONG + '\\"]}'}, [[]], {"c": {}}], "password": "correct-horse-9"},
    ],
    ids=["a key", "a container", "a list", "a name", "after other containers"],
)
def test_what_encloses_a_part_of_a_long_document_counts_in_later_parts(document: Any) -> None:
    text = json.dumps(document)

    assert "correct-horse" not in REDACTOR.text(text)
    for step in (100, 1000, 1001, 4096):
        pieces = (text[at : at + step] for at in range(0, len(text), step))
        found = "".join(SCANNING.stream(pieces))
        assert "correct-horse" not in found
        assert_same_shape(document, json.loads(found))


def test_a_key_at_the_end_of_a_piece_is_not_taken_for_a_value() -> None:
    text = json.dumps({"note": LONG, '{"password": "hunter2"}': None, "pin": "x"})
    end = text.index('": null') + 1

    assert "".join(SCANNING.stream((text[:end], text[end:]))) == text


@pytest.mark.parametrize("end", ["correct-hor", 'correct-horse-9"', 'correct-horse-9"}'])
def test_the_last_secret_of_a_truncated_document_is_masked(end: str) -> None:
    text = '{"note": "' + LONG + '", "password": "' + end

    assert "correct" not in REDACTOR.text(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"workflow":"refresh-token","status":"done"}',
        '{"in":"header","name":"x-api-key","required":true}',
        '["Accept","Authorization","Content-Type"]',
        '{"label": "Password:", "next": "x"}',
        '{"prompt_tokens": 12, "token_count": 3, "tokenizer": "cl100k", "author": "me"}',
    ],
)
def test_a_value_that_looks_like_a_header_or_a_label_changes_nothing(text: str) -> None:
    assert REDACTOR.text(text) == text
    assert SCANNING.text(json.dumps({"body": text})) == json.dumps({"body": text})


@pytest.mark.parametrize(
    "text",
    [
        'headers ["x-api-key", "required": true, "in": "header"',
        '..."name": ["authorization","token2use": 1},{"x":',
        r"[\"x-api-key\", \"required2\": true, ",
    ],
)
def test_a_key_after_the_name_of_a_header_stays_in_a_fragment(text: str) -> None:
    """A fragment does not parse as JSON: the colon after the string shows that it is a key."""
    assert REDACTOR.text(text) == text
    pair = text[: text.index(":")] + "]"
    value = pair.rsplit('"', 2)[1].rstrip("\\")

    assert value not in REDACTOR.text(pair.replace(value, "hunter2" + "hunter2"))


def test_a_key_is_masked_only_if_it_is_itself_a_secret() -> None:
    secret = SHAPES["openai"]

    found = json.loads(REDACTOR.text(json.dumps({secret: 1, "password": "correct-horse"})))

    assert list(found) == [secret[:3] + MARK + secret[-3:], "password"]


def test_the_rest_of_a_document_stays_byte_for_byte() -> None:
    text = '{ "a" : 1.50,\n "password": "hunter2hunter2",\t"b":"\\u00e9\\/", "c": [ ] }'

    assert REDACTOR.text(text) == text.replace("hunter2hunter2", f"hun{MARK}er2")


@pytest.mark.parametrize(
    "arguments",
    [
        ["curl", "-u", "me:swordfish", "https://h"],
        ["sshpass", "-p", "swordfish", "ssh", "h"],
        ["mysql", "-pswordfish", "app"],
    ],
)
@pytest.mark.parametrize("nested", [False, True], ids=["a list", "JSON in a string"])
def test_a_list_of_arguments_is_read_as_a_command_line(arguments: list[str], nested: bool) -> None:
    body: object = {"command": arguments}
    if nested:
        body = {"arguments": json.dumps(body)}
    text = json.dumps(body)

    redacted = REDACTOR.text(text)

    assert "swordfish" not in redacted
    assert REDACTOR.suspicious(text.encode()), "the scanner would not have asked"
    parsed = json.loads(redacted)
    parsed = json.loads(parsed["arguments"]) if nested else parsed
    assert len(parsed["command"]) == len(arguments)
    assert parsed["command"][0] == arguments[0]


def test_a_list_without_a_command_stays() -> None:
    text = '{"lines": ["- buy milk", "- ask for the token"], "command": ["ls", "-la", "/tmp"]}'

    assert REDACTOR.text(text) == text
