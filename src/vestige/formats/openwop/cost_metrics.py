"""Usage and cost of the model calls of a run, as `metrics.openwopCost` and `provider.usage`.

A cost that the program recorded counts before the table of prices. A model without a price has no
cost: a zero would be a lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from vestige.providers.chat_types import Usage
from vestige.providers.prices import price
from vestige.record.run import SpanInfo
from vestige.record.types import Attributes
from vestige.settings import ModelPrice

Prices = Mapping[str, ModelPrice]
"""The user's own, which count before the table."""

PRICED_ALONE_MAX: Final = 200
"""Calls of one model that are priced one by one: of many, that takes longer than all the rest."""

PRICED_AT_ONCE: Final = 100_000
"""Tokens. The sum of more calls is priced in parts of a request's usual length: a price may rise
with it."""


@dataclass(slots=True)
class _Spent:
    """The usage of one model whose cost the program did not record."""

    usages: list[Usage]

    def dollars(self, model: str, provider: str, prices: Prices) -> float | None:
        usages, times = self.usages, 1
        if len(usages) > PRICED_ALONE_MAX:
            read = sum(each.input_tokens or 0 for each in usages)
            times = max(1, min(len(usages), read // PRICED_AT_ONCE))
            usages = [_part(usages, times)]
        found = [
            cost for each in usages if (cost := _price(model, provider, each, prices)) is not None
        ]
        return sum(found) * times if found else None


def usage_of(span: SpanInfo) -> Usage | None:
    """Return the tokens of a model call; None for other spans or without usage."""
    if span.type != "llm":
        return None
    read, written = (_count(span.attributes, key) for key in ("input_tokens", "output_tokens"))
    if read is None and written is None:
        return None
    return Usage(
        input_tokens=read or 0,
        output_tokens=written or 0,
        cache_read_tokens=_count(span.attributes, "cache_read_tokens"),
        cache_write_tokens=_count(span.attributes, "cache_write_tokens"),
    )


def has_usage(span: SpanInfo) -> bool:
    """Return whether `usage_of` would find usage, without building it."""
    if span.type != "llm":
        return False
    return any(
        _count(span.attributes, key) is not None for key in ("input_tokens", "output_tokens")
    )


def model_of(span: SpanInfo) -> tuple[str, str]:
    """Return (model, provider), with the provider in OpenWOP's spelling."""
    attributes = span.attributes
    model, provider = attributes.get("model"), attributes.get("provider")
    return (
        model if isinstance(model, str) and model else span.name or "unknown",
        provider.lower() if isinstance(provider, str) and provider else "unknown",
    )


def cost_of(span: SpanInfo, usage: Usage, prices: Prices) -> float | None:
    recorded = _recorded(span)
    return recorded if recorded is not None else _price(*model_of(span), usage, prices)


def total(spans: Iterable[SpanInfo], prices: Prices) -> dict[str, Any] | None:
    """Return the sums of a run; None if it called no model.

    Model and provider are those of the last call.
    """
    tokens = {"input": 0, "output": 0}
    dollars: float | None = None
    took_ns = 0
    last: tuple[str, str] | None = None
    unpriced: dict[tuple[str, str], _Spent] = {}
    for span in spans:
        usage = usage_of(span)
        if usage is None:
            continue
        last = model_of(span)
        tokens["input"] += usage.input_tokens or 0
        tokens["output"] += usage.output_tokens or 0
        took_ns += span.duration_ns or 0
        recorded = _recorded(span)
        if recorded is None:
            unpriced.setdefault(last, _Spent([])).usages.append(usage)
        else:
            dollars = (dollars or 0.0) + recorded
    for (model, provider), spent in unpriced.items():
        cost = spent.dollars(model, provider, prices)
        dollars = dollars if cost is None else (dollars or 0.0) + cost
    if last is None:
        return None
    rollup: dict[str, Any] = {"tokens": tokens, "model": last[0], "provider": last[1]}
    rollup["duration_ms"] = took_ns // 1_000_000
    return rollup if dollars is None else {"usd": round(dollars, 10), **rollup}


def _recorded(span: SpanInfo) -> float | None:
    value = span.attributes.get("cost_usd")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e15:
        return float(value)
    return None


def _price(model: str, provider: str, usage: Usage, prices: Prices) -> float | None:
    try:
        return price(model, None if provider == "unknown" else provider, usage, own=prices)
    except ImportError:  # the table of prices is not installed
        return None


def _part(usages: list[Usage], parts: int) -> Usage:
    return Usage(
        input_tokens=sum(each.input_tokens or 0 for each in usages) // parts,
        output_tokens=sum(each.output_tokens or 0 for each in usages) // parts,
        cache_read_tokens=sum(each.cache_read_tokens or 0 for each in usages) // parts,
        cache_write_tokens=sum(each.cache_write_tokens or 0 for each in usages) // parts,
    )


def _count(attributes: Attributes, key: str) -> int | None:
    value = attributes.get(key)
    return value if type(value) is int and value >= 0 else None
