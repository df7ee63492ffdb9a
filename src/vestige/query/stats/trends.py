"""The `trends` command: runs, failures, tokens, costs and durations over time.

Days come from the rollups, which outlive the runs. Hours come from the latest runs. Empty
buckets are included, so a plot needs no gap filling.

    trends_answer(store, since_s=7 * 86400, now_ns=now)
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from vestige.errors import UsageError
from vestige.limits import SECONDS_MAX
from vestige.query import formatting
from vestige.query.stats.cost_ranking import Ranking, rank_tools
from vestige.query.stats.costs import format_dollars, format_unpriced, sum_costs
from vestige.query.stats.quantiles import format_quantile
from vestige.query.stats.user_prices import load_user_prices
from vestige.query.text_layout import CommandAnswer, columns, fit
from vestige.query.token_budget import TOKENS_MAX
from vestige.store.histogram import quantile_ns
from vestige.store.protocol import ModelSum, Store, Sum

BY: Final = ("day", "hour")
SINCE_S: Final = 30 * 86_400
HOURLY_UP_TO_S: Final = 3 * 86_400
"""Period up to which hours are the default."""
BUCKETS_MAX: Final = 800
"""Two years of days, or a month of hours."""

_BARS: Final = "▁▂▃▄▅▆▇█"
_STEPS: Final = {"day": 86_400, "hour": 3_600}


@dataclass(frozen=True, slots=True)
class Bucket:
    """The sums of one day or hour."""

    at: str
    sum: Sum
    cost: float | None
    """Dollars; None if there are costs, but no known price."""


@dataclass
class TrendsAnswer(CommandAnswer):
    """Days or hours, oldest first."""

    verb: ClassVar[str] = "trends"
    budget: ClassVar[int] = 800

    by: str
    since_s: float
    buckets: Sequence[Bucket]
    unpriced: Sequence[str]
    priced: bool
    """False if there are too many model calls to price by the hour."""
    ranking: Ranking

    def lines(self, budget: int) -> list[str]:
        shown = [bucket for bucket in self.buckets if bucket.sum.count or bucket.sum.input_tokens]
        total = self._totals()
        head = [
            f"by {self.by} (UTC), {self.buckets[0].at} to {self.buckets[-1].at}: "
            f"{formatting.pluralize(total['runs'], 'run')}, {total['errors']} failed",
        ]
        if not shown:
            return [*head, f"next: {self.command('list')}"]
        head += [f"runs   {self._bars([bucket.sum.count for bucket in self.buckets])}"]
        head += [f"failed {self._bars([bucket.sum.errors for bucket in self.buckets])}"]
        table = [[self.by, "runs", "failed", "p50", "p95", "in", "out", "cost"]]
        table += [self._cells(bucket) for bucket in reversed(shown)]
        titles, *rows = columns(table, right=range(1, 8))
        end = format_unpriced(self.unpriced)
        end += [
            f"next: {self.command('stats', '--by', 'tool')} | {self.command('list', 'is:failed')}"
        ]

        def more(left_out: int) -> str:
            since = f"{formatting.seconds(self.since_s)}s"
            command = self.command("trends", "--since", since, "--by", self.by)
            option = f"--budget {TOKENS_MAX}" if budget < TOKENS_MAX else "--json"
            return f"… {formatting.pluralize(left_out, 'more row')}: {command} {option}"

        return fit([*head, titles], rows, end, budget, more)

    def _bars(self, counts: Sequence[int]) -> str:
        """Return a bar per bucket, for the latest buckets that fit on a line."""
        shown = counts[-72:]
        most = max(shown, default=0)
        return "".join(_BARS[count * 7 // most] if count else "·" for count in shown)

    def _cells(self, bucket: Bucket) -> list[str]:
        total = bucket.sum
        tokens = total.input_tokens or total.output_tokens
        return [
            bucket.at,
            str(total.count),
            str(total.errors) if total.errors else "",
            format_quantile(total.histogram, 0.5),
            format_quantile(total.histogram, 0.95),
            formatting.number(total.input_tokens) if tokens else "–",
            formatting.number(total.output_tokens) if tokens else "–",
            "–" if bucket.cost is None else format_dollars(bucket.cost),
        ]

    def data(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "by": self.by,
            "since": self.buckets[0].at,
            "buckets": [
                {"at": bucket.at, **_numbers(bucket.sum, bucket.cost)} for bucket in self.buckets
            ],
            "totals": self._totals(),
            "priced": self.priced,
            "unpriced_models": list(self.unpriced),
            "tools": self.ranking.data(),
        }

    def _totals(self) -> dict[str, Any]:
        total = Sum("")
        for bucket in self.buckets:
            total.count += bucket.sum.count
            total.errors += bucket.sum.errors
            total.duration_ns += bucket.sum.duration_ns
            total.histogram.update(bucket.sum.histogram)
            for name in _TOKENS:
                setattr(total, name, getattr(total, name) + getattr(bucket.sum, name))
        costs = [bucket.cost for bucket in self.buckets if bucket.cost is not None]
        return _numbers(total, sum(costs) if costs else None)


_TOKENS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def _numbers(total: Sum, cost: float | None) -> dict[str, Any]:
    return {
        "runs": total.count,
        "errors": total.errors,
        **{name: getattr(total, name) for name in _TOKENS},
        "cost_usd": cost,
        "p50_ms": _ms(quantile_ns(total.histogram, 0.5)),
        "p95_ms": _ms(quantile_ns(total.histogram, 0.95)),
    }


def _ms(ns: int | None) -> float | None:
    return None if ns is None else round(ns / 1e6, 3)


def trends_answer(
    store: Store, now_ns: int, since_s: float = SINCE_S, by: str | None = None
) -> TrendsAnswer:
    if by is None:
        by = "hour" if since_s <= HOURLY_UP_TO_S else "day"
    if by not in BY:
        raise UsageError(
            f"--by: unknown value {formatting.single_line(by, 40)!r} (expected {' or '.join(BY)})."
        )
    step_s = _STEPS[by]
    count = min(int(min(since_s, SECONDS_MAX) // step_s) + 1, BUCKETS_MAX)
    last = now_ns // (step_s * 10**9)
    numbers = range(last - count + 1, last + 1)
    since_ns = numbers[0] * step_s * 10**9
    sums, models = _read_sums(store, by, since_ns)
    costs, unknown = sum_costs(models or [], load_user_prices(store))
    buckets = []
    for number in numbers:
        at = _format_time(number, by)
        key = str(number) if by == "hour" else at
        total = sums.get(key, Sum(key))
        buckets.append(Bucket(at, total, costs.get(key, 0.0 if models is not None else None)))
    unpriced = sorted({model or "(none)" for names in unknown.values() for model in names})
    return TrendsAnswer(
        by, since_s, buckets, unpriced, models is not None, rank_tools(store, since_ns)
    )


def _read_sums(
    store: Store, by: str, since_ns: int
) -> tuple[dict[str, Sum], Sequence[ModelSum] | None]:
    if by == "day":
        day = (formatting.timestamp(since_ns) or "")[:10]
        sums = {total.key: total for total in store.sum_rollups("day", day)}
        return sums, store.sum_models("day", day)
    found = {str(hour): total for hour, total in store.sum_hours(since_ns).items()}
    models = store.sum_hour_models(since_ns)
    for calls in models or []:
        total = found.get(calls.key)
        if total is not None:
            total.cache_read_tokens += calls.cache_read_tokens
            total.cache_write_tokens += calls.cache_write_tokens
    return found, models


def _format_time(number: int, by: str) -> str:
    when = datetime.datetime.fromtimestamp(number * _STEPS[by], datetime.UTC)
    return f"{when:%Y-%m-%d}" if by == "day" else f"{when:%Y-%m-%dT%H:00Z}"
