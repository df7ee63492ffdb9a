"""What model calls cost, in dollars, from the table of prices; unknown models are said to be unknown.

What a program recorded itself (`cost_usd`) counts first, then what the user's config.toml says
(query/stats/user_prices.py), then the table. The table takes a fifth of
a second to load, so nothing here runs unless money is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from vestige.providers.models import Usage
from vestige.providers.prices import NO_PRICES, price
from vestige.query import formatting
from vestige.query.stats.user_prices import own_prices
from vestige.record.run import SpanInfo
from vestige.settings import ModelPrice
from vestige.store.protocol import Store
from vestige.store.sqlite.read.reports import USAGE_KEYS, ModelSum, connection_of, sum_model_calls

PRICED_AT_ONCE: Final = 100_000
"""Tokens. A price may rise with the length of a request, so that sums are priced in parts of a
request's usual length: in parts of this many, and never more parts than there were calls."""


Prices = Mapping[str, ModelPrice]
"""The user's own, by model."""

Part = tuple[ModelSum, float | None]
"""Calls to one model, and what the program says that they cost."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run."""

    dollars: float | None
    """None: nothing is known of it."""
    unknown: tuple[str, ...]
    """Models without a price; their calls are not in the sum."""

    def __str__(self) -> str:
        if self.dollars is None:
            return "unknown"
        return money(self.dollars) + ("+?" if self.unknown else "")


def run_costs(store: Store, run_ids: Sequence[str]) -> dict[str, Cost]:
    """By run id; runs without model calls have no entry."""
    prices = own_prices(store)
    parts: dict[str, list[Part]] = {}
    for part, recorded in sum_model_calls(connection_of(store), run_ids):
        parts.setdefault(part.key, []).append((part, recorded))
    return {run: _add_up(own, prices) for run, own in parts.items()}


def _add_up(parts: Sequence[Part], prices: Prices) -> Cost:
    dollars: float | None = None
    unknown = set()
    told = {part.model for part, recorded in parts if recorded is not None}
    for part, recorded in parts:
        spent = recorded if recorded is not None else price_of(part, prices)
        if spent is not None:
            dollars = (dollars or 0.0) + spent
        elif part.input_tokens or part.output_tokens or part.model not in told:
            unknown.add(part.model or "?")  # an attempt that took nothing hides no price
    return Cost(dollars, tuple(sorted(unknown)))


def span_costs(calls: Iterable[SpanInfo], prices: Prices = NO_PRICES) -> Cost:
    """Of model calls at hand, by model; the same sum as `run_costs` has."""
    calls = list(calls)
    telling = {
        span.id for span in calls if any(span.attributes.get(n) is not None for n in USAGE_KEYS)
    }
    sums: dict[tuple[str, bool], list[float]] = {}
    for span in calls:
        if span.parent_id in telling:
            continue
        model, told = span.attributes.get("model"), span.attributes.get("cost_usd")
        is_told = isinstance(told, (int, float)) and not isinstance(told, bool)
        key = (model if isinstance(model, str) else "", is_told)
        own = sums.setdefault(key, [0, 0, 0, 0, 0, 0])
        own[0] += 1
        for place, name in enumerate(_TOKENS, 1):
            value = span.attributes.get(name)
            own[place] += value if isinstance(value, int) else 0
        own[5] += told if isinstance(told, (int, float)) else 0
    return _add_up(
        [
            (ModelSum("", model, int(count), *map(int, tokens)), spent if is_told else None)
            for (model, is_told), (count, *tokens, spent) in sums.items()
        ],
        prices,
    )


_TOKENS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def money(dollars: float) -> str:
    """`$0`, `$0.0042`, `$1.27`, `$340`."""
    if dollars == 0:
        return "$0"
    if dollars < 0.01:
        return f"${dollars:.4f}" if dollars >= 0.0001 else "<$0.0001"
    return f"${dollars:.2f}" if dollars < 100 else f"${dollars:,.0f}"


def format_unpriced(models: Sequence[str]) -> list[str]:
    """One line about the models whose price is not known; none, if there are none."""
    if not models:
        return []
    shown = ", ".join(formatting.single_line(name or "(no model named)", 40) for name in models[:5])
    more = f" and {len(models) - 5} more" if len(models) > 5 else ""
    return [f"no price is known for {shown}{more}: not in the sums"]


def price_of(part: ModelSum, prices: Prices = NO_PRICES) -> float | None:
    """In dollars; None where the model is unknown."""
    if not part.model:
        return None
    parts = max(1, min(part.count, -(-part.input_tokens // PRICED_AT_ONCE)))
    usage = Usage(
        input_tokens=round(part.input_tokens / parts),
        output_tokens=round(part.output_tokens / parts),
        cache_read_tokens=round(part.cache_read_tokens / parts),
        cache_write_tokens=round(part.cache_write_tokens / parts),
    )
    try:
        spent = price(part.model, None, usage, own=prices)
    except ImportError:  # the table of prices is not installed
        return None
    return None if spent is None else spent * parts


def sum_costs(
    models: Sequence[ModelSum], prices: Prices = NO_PRICES
) -> tuple[dict[str, float | None], dict[str, set[str]]]:
    """By group: what is known of its cost (None: nothing is), and the models without a price."""
    costs: dict[str, float | None] = {}
    unknown: dict[str, set[str]] = {}
    for part in models:
        if not part.input_tokens and not part.output_tokens:
            continue
        spent = price_of(part, prices)
        if spent is None:
            unknown.setdefault(part.key, set()).add(part.model)
            costs.setdefault(part.key, None)
        else:
            costs[part.key] = (costs.get(part.key) or 0.0) + spent
    return costs, unknown
