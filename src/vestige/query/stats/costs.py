"""Costs of model calls in dollars.

A cost that the program recorded (`cost_usd`) comes first, then the price in the user's
config.toml (query/stats/user_prices.py), then the price table. Models without a price are
listed as unknown. The table takes 0.2 s to load, so costs are computed only on request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from vestige.providers.chat_types import Usage
from vestige.providers.prices import NO_PRICES, price
from vestige.query import formatting
from vestige.query.stats.user_prices import load_user_prices
from vestige.record.run import SpanInfo
from vestige.settings import ModelPrice
from vestige.store.protocol import USAGE_KEYS, ModelSum, RecordedSum, Store

PART_TOKENS: Final = 100_000
"""Tokens of a part of a sum. A price may rise with the length of a request, so a sum is priced
in parts of about the length of a request, never more parts than calls."""


Prices = Mapping[str, ModelPrice]
"""The user's prices, by model."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of model calls."""

    dollars: float | None
    """None if no call has a price."""
    unknown: tuple[str, ...]
    """Models without a price. Their calls are not in the sum."""
    calls: int = field(default=0, compare=False)
    """The number of model calls."""

    def __str__(self) -> str:
        if self.dollars is None:
            return "unknown"
        return format_dollars(self.dollars) + ("+" if self.unknown else "")


def run_costs(store: Store, run_ids: Sequence[str]) -> dict[str, Cost]:
    """Return costs by run id. Runs without model calls have no entry."""
    prices = load_user_prices(store)
    sums: dict[str, list[RecordedSum]] = {}
    for recorded_sum in store.sum_model_calls(run_ids):
        sums.setdefault(recorded_sum.calls.key, []).append(recorded_sum)
    return {run_id: _add_up(run_sums, prices) for run_id, run_sums in sums.items()}


def _add_up(sums: Sequence[RecordedSum], prices: Prices) -> Cost:
    dollars: float | None = None
    unknown = set()
    recorded_models = {calls.model for calls, recorded in sums if recorded is not None}
    for calls, recorded in sums:
        cost = recorded if recorded is not None else price_calls(calls, prices)
        if cost is not None:
            dollars = (dollars or 0.0) + cost
        elif calls.input_tokens or calls.output_tokens or calls.model not in recorded_models:
            # Failed attempts without tokens do not count: they cost nothing.
            unknown.add(calls.model or "?")
    return Cost(dollars, tuple(sorted(unknown)), sum(calls.count for calls, _ in sums))


def span_costs(calls: Iterable[SpanInfo], prices: Prices = NO_PRICES) -> Cost:
    """Return the cost of loaded model calls, computed as in `run_costs`."""
    calls = list(calls)
    with_usage = {
        (span.id, span.type)
        for span in calls
        if any(span.attributes.get(name) is not None for name in USAGE_KEYS)
    }
    sums: dict[tuple[str, bool], list[float]] = {}
    for span in calls:
        if (
            span.parent_id,
            span.type,
        ) in with_usage:  # The parent is the same call, as its client saw it.
            continue
        model, cost = span.attributes.get("model"), span.attributes.get("cost_usd")
        is_recorded = isinstance(cost, (int, float)) and not isinstance(cost, bool)
        key = (model if isinstance(model, str) else "", is_recorded)
        values = sums.setdefault(key, [0, 0, 0, 0, 0, 0])
        values[0] += 1
        for index, name in enumerate(_TOKENS, 1):
            tokens = span.attributes.get(name)
            values[index] += tokens if isinstance(tokens, int) else 0
        values[5] += cost if isinstance(cost, (int, float)) else 0
    return _add_up(
        [
            RecordedSum(
                ModelSum("", model, int(count), *map(int, tokens)), cost if is_recorded else None
            )
            for (model, is_recorded), (count, *tokens, cost) in sums.items()
        ],
        prices,
    )


_TOKENS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def format_dollars(dollars: float) -> str:
    """Format as `$0`, `$0.0042`, `$1.27` or `$340`."""
    if dollars == 0:
        return "$0"
    if dollars < 0.01:
        return f"${dollars:.4f}" if dollars >= 0.0001 else "<$0.0001"
    return f"${dollars:.2f}" if dollars < 100 else f"${dollars:,.0f}"


def format_unpriced(models: Sequence[str]) -> list[str]:
    """Return a line that names the models without a price, or no line if there are none."""
    if not models:
        return []
    shown = ", ".join(formatting.single_line(name or "(no model)", 40) for name in models[:5])
    more = f" and {len(models) - 5} more" if len(models) > 5 else ""
    return [f"no price known for {shown}{more} (not included in the cost)"]


def price_calls(calls: ModelSum, prices: Prices = NO_PRICES) -> float | None:
    """Return the price in dollars; None if the model is unknown."""
    if not calls.model:
        return None
    parts = max(1, min(calls.count, -(-calls.input_tokens // PART_TOKENS)))
    usage = Usage(
        input_tokens=round(calls.input_tokens / parts),
        output_tokens=round(calls.output_tokens / parts),
        cache_read_tokens=round(calls.cache_read_tokens / parts),
        cache_write_tokens=round(calls.cache_write_tokens / parts),
    )
    try:
        dollars = price(calls.model, None, usage, own=prices)
    except ImportError:  # The optional price table is not installed.
        return None
    return None if dollars is None else dollars * parts


def sum_costs(
    models: Sequence[ModelSum], prices: Prices = NO_PRICES
) -> tuple[dict[str, float | None], dict[str, set[str]]]:
    """Return the cost (None if unknown) and the models without a price, by group."""
    costs: dict[str, float | None] = {}
    unknown: dict[str, set[str]] = {}
    for calls in models:
        if not calls.input_tokens and not calls.output_tokens:
            continue
        dollars = price_calls(calls, prices)
        if dollars is None:
            unknown.setdefault(calls.key, set()).add(calls.model)
            costs.setdefault(calls.key, None)
        else:
            costs[calls.key] = (costs.get(calls.key) or 0.0) + dollars
    return costs, unknown
