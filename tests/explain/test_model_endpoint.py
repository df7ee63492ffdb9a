"""The address, API and key of a model."""

from __future__ import annotations

from typing import Any

import pytest

from vestige.errors import UsageError
from vestige.explain.model_endpoint import Endpoint, parse_endpoint

KEYS = {
    "OPENAI_API_KEY": "key-of-openai",
    "ANTHROPIC_API_KEY": "key-of-anthropic",
    "VESTIGE_MODEL_KEY": "",
}


def parse(text: str, api: str | None = None, plain: bool = False, **environ: str) -> Endpoint:
    known: Any = api
    return parse_endpoint(text, known, plain_http=plain, environ={**KEYS, **environ})


@pytest.mark.parametrize(
    ("text", "api", "url", "model"),
    [
        ("openai/gpt-5", "openai", "https://api.openai.com/v1/chat/completions", "gpt-5"),
        ("anthropic/c", "anthropic", "https://api.anthropic.com/v1/messages", "c"),
        (
            "https://api.anthropic.com/v1/c",
            "anthropic",
            "https://api.anthropic.com/v1/messages",
            "c",
        ),
        (
            "http://127.0.0.1:11434/v1/qwen3:8b",
            "openai",
            "http://127.0.0.1:11434/v1/chat/completions",
            "qwen3:8b",
        ),
        ("http://localhost:8000/m", "openai", "http://localhost:8000/v1/chat/completions", "m"),
        (
            "http://localhost/api/v1/meta/llama",
            "openai",
            "http://localhost/api/v1/chat/completions",
            "meta/llama",
        ),
        (
            "http://localhost/v1beta/openai/gemini",
            "openai",
            "http://localhost/v1beta/openai/chat/completions",
            "gemini",
        ),
        ("http://[::1]:1/anthropic/m", "anthropic", "http://[::1]:1/anthropic/v1/messages", "m"),
    ],
)
def test_an_address_and_a_name_are_parsed(text: str, api: str, url: str, model: str) -> None:
    found = parse(text)

    assert (found.api, found.url, found.model) == (api, url, model)


def test_the_key_of_a_provider_is_sent_only_to_that_provider() -> None:
    assert parse("openai/m").key == "key-of-openai"
    assert parse("https://api.openai.com/v1/m").key == "key-of-openai"
    assert parse("anthropic/m").key == "key-of-anthropic"
    assert parse("http://localhost/v1/m").key is None
    assert parse("http://localhost/v1/m", VESTIGE_MODEL_KEY="own").key == "own"
    assert parse("openai/m", VESTIGE_MODEL_KEY="own").key == "own"
    proxy = {"OPENAI_BASE_URL": "https://proxy.example/v1"}
    assert parse("openai/m", **proxy).url == "https://proxy.example/v1/chat/completions"
    assert parse("openai/m", **proxy).key == "key-of-openai"
    for text in ("https://evil.example/v1/m", "https://api.openai.com.evil.example/v1/m"):
        with pytest.raises(UsageError, match="VESTIGE_MODEL_KEY"):
            parse(text)
    assert "key-of-openai" not in repr(parse("openai/m"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gpt-5", "is not a model"),
        ("openai/", "is not a model"),
        ("https://host.example/", "no valid model name"),
        ("ftp://host.example/v1/m", "is not a model"),
        ("file:///etc/passwd", "is not a model"),
        ("https://user:secret@host.example/v1/m", "VESTIGE_MODEL_KEY"),
        ("https://host.example/v1/m?key=x", "too many parts"),
        ("https://host.example:x/v1/m", "not a valid URL"),
        ("http://host.example/v1/m", "plain HTTP"),
        ("http://127.0.0.1.evil.example/v1/m", "plain HTTP"),
        ("https://host.example/v1/a b", "invalid path"),
    ],
)
def test_an_invalid_address_says_what_is_expected(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match="--model") as error:
        parse(text)
    assert problem in str(error.value)


def test_plain_http_to_another_machine_is_possible_on_request() -> None:
    found = parse("http://10.0.0.7:8000/v1/m", plain=True, VESTIGE_MODEL_KEY="own")

    assert found.url == "http://10.0.0.7:8000/v1/chat/completions"
