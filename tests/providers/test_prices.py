"""Prices come from a table, offline; what is not in it has none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vestige.providers.chat_types import Usage
from vestige.providers.prices import _find_model, price

MILLION = Usage(input_tokens=1_000_000, output_tokens=0)
SOME = Usage(input_tokens=1000, output_tokens=100)


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("gpt-4o", "openai"),
        ("gpt-4o-2024-08-06", None),
        ("gpt-4o", "openai-responses"),
        ("claude-sonnet-4-5-20250929", "anthropic"),
        ("gemini-2.5-flash", "gemini"),
        ("models/gemini-2.5-flash", "google"),
        ("openai/gpt-4o", "openai"),
        ("claude-sonnet-4-5", "openai"),
        ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", "openai"),
        ("anthropic.claude-3-5-sonnet-20241022-v2:0", None),
    ],
)
def test_a_known_model_has_a_price(model: str, provider: str | None) -> None:
    """By our names of providers, by the model alone, and as proxies write it."""
    cost = price(model, provider, SOME)

    assert cost is not None
    assert 0 < cost < 1


@pytest.mark.parametrize(
    ("model", "provider"), [("my-llama", "openai"), ("my.llama", None), ("", None), ("nope", "x")]
)
def test_an_unknown_model_has_none(model: str, provider: str | None) -> None:
    assert price(model, provider, SOME) is None


def test_cached_tokens_are_part_of_the_input_and_cheaper() -> None:
    """Input is all input: a million of which all is cached costs less, not more."""
    cached = Usage(input_tokens=1_000_000, output_tokens=0, cache_read_tokens=1_000_000)
    fresh, warm = price("gpt-4o", "openai", MILLION), price("gpt-4o", "openai", cached)

    assert fresh is not None and warm is not None
    assert fresh == pytest.approx(2.5)
    assert 0 < warm < fresh


def test_without_counts_there_is_no_price_and_odd_counts_do_not_raise() -> None:
    """A server that leaves cached tokens out of the input must not break the sum."""
    assert price("gpt-4o", "openai", Usage()) is None
    assert price("gpt-4o", "openai", Usage(input_tokens=1, cache_read_tokens=50)) is not None


def test_the_table_is_loaded_only_when_a_price_is_asked_for() -> None:
    """It takes a fifth of a second, which no other command should pay."""
    code = "import sys, vestige.providers.prices; print('genai_prices' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert out.stdout.strip() == "False"


@pytest.mark.parametrize(
    "model", ["text-embedding-3-small", "embed-v4.0", "mistral-embed", "gemini-embedding-001"]
)
def test_embedding_models_have_a_price_without_a_provider(model: str) -> None:
    """Sums of a run know the model only."""
    assert price(model, None, Usage(input_tokens=1000, output_tokens=0))


def test_a_model_is_searched_in_the_table_once() -> None:
    usage = Usage(input_tokens=10, output_tokens=1)
    price("a-model-of-nobody", None, usage)
    hits = _find_model.cache_info().hits

    price("a-model-of-nobody", None, usage)

    assert _find_model.cache_info().hits == hits + 1
