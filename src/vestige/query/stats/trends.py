"""`trends`: how runs, failures, tokens, money and durations went over time; and which tools cost what.

By day from the rollups, which outlive the runs; by hour from the runs of the last days. Every
bucket is there, the empty ones too, so that a plot needs no thought.

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
from vestige.query.budget import TOKENS_MAX
from vestige.query.stats.cost_ranking import Ranking, rank
from vestige.query.stats.costs import format_unpriced, money, sum_costs
from vestige.query.stats.user_prices import own_prices
from vestige.query.text_layout import CommandAnswer, columns, fit
from vestige.store.protocol import Store
from vestige.store.sqlite.ingest.rollups import quantile_ns
from vestige.store.sqlite.read import hourly, reports
from vestige.store.sqlite.read.reports import ModelSum, Sum

BY: Final = ("day", "hour")
SINCE_S: Final = 30 * 86_400
HOURLY_UP_TO_S: Final = 3 * 86_400
"""Younger than this: by the hour, unless told otherwise."""
BUCKETS_MAX: Final = 800
"""Two years of days, a month of hours: what fits on a screen."""

_BARS: Final = "▁▂▃▄▅▆▇█"
_STEPS: Final = {"day": 86_400, "hour": 3_600}


@dataclass(frozen=True, slots=True)
class Bucket:
    """One day or hour."""

    at: str
    sum: Sum
    cost: float | None
    """Dollars; None: there is something that has no known price, and nothing that has one."""


@dataclass
class TrendsAnswer(CommandAnswer):
    """Buckets, oldest first."""

    verb: ClassVar[str] = "trends"
    budget: ClassVar[int] = 800

    by: str
    since_s: float
    buckets: Sequence[Bucket]
    unpriced: Sequence[str]
    priced: bool
    """False: too many model calls to price by the hour."""
    ranking: Ranking

    def lines(self, budget: int) -> list[str]:
        told = [bucket for bucket in self.buckets if bucket.sum.count or bucket.sum.input_tokens]
        total = self._totals()
        head = [
            f"by {self.by} (UTC), {self.buckets[0].at} to {self.buckets[-1].at}: "
            f"{formatting.pluralize(total['runs'], 'run')}, {total['errors']} failed",
        ]
        if not told:
            return [*head, f"next: {self.command('list')}"]
        head += [f"runs   {self._bars([bucket.sum.count for bucket in self.buckets])}"]
        head += [f"failed {self._bars([bucket.sum.errors for bucket in self.buckets])}"]
        table = [[self.by, "runs", "failed", "p50", "p95", "in", "out", "cost"]]
        table += [self._row(bucket) for bucket in reversed(told)]
        titles, *rows = columns(table, right=range(1, 8))
        end = format_unpriced(self.unpriced)
        end += [
            f"next: {self.command('stats', '--by', 'tool')} | {self.command('list', 'is:failed')}"
        ]
        again = self.command(
            "trends", "--since", f"{formatting.seconds(self.since_s)}s", "--by", self.by
        )
        how = f"--budget {TOKENS_MAX}" if budget < TOKENS_MAX else "--json"
        return fit(
            [*head, titles],
            rows,
            end,
            budget,
            lambda left: f"… {formatting.pluralize(left, 'more row')}: {again} {how}",
        )

    def _bars(self, counts: Sequence[int]) -> str:
        """The latest that fit on a line."""
        shown = counts[-72:]
        most = max(shown, default=0)
        return "".join(_BARS[count * 7 // most] if count else "·" for count in shown)

    def _row(self, bucket: Bucket) -> list[str]:
        total = bucket.sum
        tokens = total.input_tokens or total.output_tokens
        return [
            bucket.at,
            str(total.count),
            str(total.errors) if total.errors else "",
            formatting.duration(quantile_ns(total.histogram, 0.5)) or "–",
            formatting.duration(quantile_ns(total.histogram, 0.95)) or "–",
            formatting.number(total.input_tokens) if tokens else "–",
            formatting.number(total.output_tokens) if tokens else "–",
            "–" if bucket.cost is None else money(bucket.cost),
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
        whole = Sum("")
        for bucket in self.buckets:
            part = bucket.sum
            whole.count += part.count
            whole.errors += part.errors
            whole.duration_ns += part.duration_ns
            whole.histogram.update(part.histogram)
            for name in _TOKENS:
                setattr(whole, name, getattr(whole, name) + getattr(part, name))
        known = [bucket.cost for bucket in self.buckets if bucket.cost is not None]
        return _numbers(whole, sum(known) if known else None)


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
            f"--by: {formatting.single_line(by, 40)!r} is not known (expected {' or '.join(BY)})."
        )
    step_s = _STEPS[by]
    count = min(int(min(since_s, SECONDS_MAX) // step_s) + 1, BUCKETS_MAX)
    last = now_ns // (step_s * 10**9)
    places = range(last - count + 1, last + 1)
    since_ns = places[0] * step_s * 10**9
    sums, models = _read(store, by, since_ns)
    costs, unknown = sum_costs(models or [], own_prices(store))
    buckets = []
    for place in places:
        at = _at(place, by)
        key = str(place) if by == "hour" else at
        total = sums.get(key, Sum(key))
        buckets.append(Bucket(at, total, costs.get(key, 0.0 if models is not None else None)))
    unpriced = sorted({model or "(none)" for each in unknown.values() for model in each})
    return TrendsAnswer(by, since_s, buckets, unpriced, models is not None, rank(store, since_ns))


def _read(store: Store, by: str, since_ns: int) -> tuple[dict[str, Sum], list[ModelSum] | None]:
    connection = reports.connection_of(store)
    if by == "day":
        day = (formatting.timestamp(since_ns) or "")[:10]
        sums = {total.key: total for total in reports.sum_rollups(connection, "day", day)}
        return sums, reports.sum_models(connection, "day", day)
    found = {str(hour): total for hour, total in hourly.sum_hours(connection, since_ns).items()}
    models = hourly.sum_hour_models(connection, since_ns)
    for part in models or []:
        total = found.get(part.key)
        if total is not None:
            total.cache_read_tokens += part.cache_read_tokens
            total.cache_write_tokens += part.cache_write_tokens
    return found, models


def _at(place: int, by: str) -> str:
    when = datetime.datetime.fromtimestamp(place * _STEPS[by], datetime.UTC)
    return f"{when:%Y-%m-%d}" if by == "day" else f"{when:%Y-%m-%dT%H:00Z}"
