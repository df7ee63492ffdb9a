"""What the model calls of a run used and cost, as `metrics.openwopCost` and `provider.usage` say it.

A cost that the program recorded counts before the table of prices. A model without a price has no
cost: a zero would be a lie.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vestige.providers.shapes import Usage
from vestige.record.run import SpanInfo
from vestige.record.types import Attributes

PRICED_MAX = 2_000
"""Calls of one model that are priced one by one; beyond, their sum is, in parts of that many."""


def usage_of(span: SpanInfo) -> Usage | None:
    """The tokens of a model call; None where it is none, or did not tell."""
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


def model_of(span: SpanInfo) -> tuple[str, str]:
    """(model, provider), in the one way in which providers are written there."""
    told = span.attributes
    model, provider = told.get("model"), told.get("provider")
    return (
        model if isinstance(model, str) and model else span.name or "unknown",
        provider.lower() if isinstance(provider, str) and provider else "unknown",
    )


def cost_of(span: SpanInfo, usage: Usage) -> float | None:
    recorded = span.attributes.get("cost_usd")
    if isinstance(recorded, (int, float)) and not isinstance(recorded, bool) and recorded >= 0:
        return float(recorded)
    model, provider = model_of(span)
    try:
        from vestige.providers.prices import price

        return price(model, None if provider == "unknown" else provider, usage)
    except ImportError:  # the table of prices is not installed
        return None


def total(spans: Iterable[SpanInfo]) -> dict[str, Any] | None:
    """The rollup over a run; None: it called no model. Model and provider are the last call's."""
    tokens = {"input": 0, "output": 0}
    dollars: float | None = None
    took_ns = calls = 0
    last: SpanInfo | None = None
    for span in spans:
        usage = usage_of(span)
        if usage is None:
            continue
        calls, last = calls + 1, span
        tokens["input"] += usage.input_tokens or 0
        tokens["output"] += usage.output_tokens or 0
        took_ns += span.duration_ns or 0
        spent = cost_of(span, usage)
        dollars = dollars if spent is None else (dollars or 0.0) + spent
    if last is None:
        return None
    model, provider = model_of(last)
    rollup: dict[str, Any] = {"tokens": tokens, "model": model, "provider": provider}
    rollup["duration_ms"] = took_ns // 1_000_000
    return rollup if dollars is None else {"usd": round(dollars, 10), **rollup}


def _count(attributes: Attributes, key: str) -> int | None:
    value = attributes.get(key)
    return value if type(value) is int and value >= 0 else None
