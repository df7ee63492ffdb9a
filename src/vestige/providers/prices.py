"""Compute the cost of a response in US dollars, without network access.

The user's own prices are used first, then the table of the package genai-prices. A model is
looked up for its provider, then by its name alone (a compatible server may serve any model). A
name that is not in the table has no price. Tokens written to the cache are priced for the short
time to live; a request with an hour costs somewhat more.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from vestige.providers.chat_types import Usage
from vestige.settings import ModelPrice

MODELS_MAX = 1024
"""Models whose place in the table is remembered."""

PROVIDERS = {
    "openai-responses": "openai",
    "gemini": "google",
    "vertex": "google",
    "bedrock": "aws",
    "xai": "x-ai",
    "azure.ai.openai": "azure",
    "aws.bedrock": "aws",
    "mistral_ai": "mistral",
}
"""Our names, and those of OpenTelemetry, in the table's words; the others are the same."""

_MAKERS: Final = ("openai", "google", "cohere", "mistral")
"""Providers whose own embedding, image and speech models are found by name alone."""

LATEST = datetime(9998, 1, 1, 12, tzinfo=UTC)
"""The time of a call without one, so that the newest price applies.

The answer must not depend on today's clock."""


NO_PRICES: Final[Mapping[str, ModelPrice]] = MappingProxyType({})


def price(
    model: str,
    provider: str | None,
    usage: Usage,
    at_ns: int | None = None,
    own: Mapping[str, ModelPrice] = NO_PRICES,
) -> float | None:
    """US dollars; nothing for an unknown model, or without token counts. `at_ns`: when it was.
    `own`: what the user says that models cost, which counts first."""
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    if model in own:
        return _own_price(own[model], usage)
    found = _find_model(model, provider)
    if found is None:
        return None
    table_provider, table_model, table_usage = found
    cached = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    try:
        counts = table_usage(
            # A server that does not count cached tokens as input must not make it negative.
            input_tokens=max(usage.input_tokens or 0, sum(cached)),
            output_tokens=usage.output_tokens or 0,
            cache_read_tokens=cached[0],
            cache_write_tokens=cached[1],
        )
        when = LATEST if at_ns is None else datetime.fromtimestamp(at_ns / 1e9, UTC)
        cost = table_model.calc_price(counts, table_provider, genai_request_timestamp=when)
        return float(cost.total_price)
    except (LookupError, ValueError, OverflowError, OSError, ArithmeticError):
        return None


def _own_price(own: ModelPrice, usage: Usage) -> float:
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    fresh = max(0, (usage.input_tokens or 0) - read - written)
    dollars = fresh * own.input + (usage.output_tokens or 0) * own.output
    dollars += read * (own.input if own.cache_read is None else own.cache_read)
    dollars += written * (own.input if own.cache_write is None else own.cache_write)
    return dollars / 1e6


def context_window(model: str, provider: str | None = None) -> int | None:
    """Return the context window of a model in tokens; None if the table does not have it."""
    found = _find_model(model, provider)
    window = None if found is None else found[1].context_window
    return window if isinstance(window, int) and window > 0 else None


def load_table() -> None:
    """Load the price table now, so that the first price is quick. Without one, do nothing."""
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return
    get_snapshot()


@lru_cache(maxsize=MODELS_MAX)
def _find_model(model: str, provider: str | None) -> tuple[Any, Any, Any] | None:
    """Find a model in the table: as the provider's own, then as anyone's."""
    # Here, because it takes a fifth of a second.
    from genai_prices import Usage as TableUsage
    from genai_prices.data_snapshot import get_snapshot

    name = model.removeprefix("models/")
    table_id = PROVIDERS.get(provider, provider) if provider else None
    tries = [(name, table_id), (name, None)]
    if "/" in name:  # `anthropic/claude-…`: the way of OpenRouter and LiteLLM
        first, rest = name.split("/", 1)
        tries += [(rest, first), (rest, None)]
    if "." in name:  # `us.anthropic.claude-…-v1:0`: a Bedrock name, also behind a proxy
        tries.append((name, "aws"))
    if table_id is None:  # Names without a maker in them, such as text-embedding-3-small.
        tries += [(name, maker) for maker in _MAKERS]
    snapshot = get_snapshot()
    for ref, provider_id in tries:
        try:
            found = snapshot.find_provider_model(ref, None, provider_id, None)
        except LookupError:
            continue
        return (*found, TableUsage)
    return None
