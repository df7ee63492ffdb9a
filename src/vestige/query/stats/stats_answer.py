"""The `stats` command: counts, durations, errors, tokens and costs.

All numbers come from daily rollups, which outlive their spans. So statistics reach back further
than the stored runs, and their cost does not depend on the number of spans. Only `by="tool"`
also reads the latest runs, for the ranking by prompt cost (query/stats/cost_ranking.py).

    stats_answer(store, by="model", since=...)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from vestige.errors import UsageError
from vestige.providers.prices import NO_PRICES
from vestige.query import formatting
from vestige.query.stats.cost_ranking import Ranking, rank_tools
from vestige.query.stats.costs import Cost, Prices, format_unpriced, sum_costs
from vestige.query.stats.quantiles import format_quantile
from vestige.query.stats.user_prices import load_user_prices
from vestige.query.text_layout import CommandAnswer, columns, cost, fit
from vestige.query.token_budget import TOKENS_MAX, fit_lines
from vestige.store.histogram import quantile_ns
from vestige.store.protocol import GROUPS, ModelSum, Store, Sum

_BARS: Final = "▁▂▃▄▅▆▇█"
_NOTHING: Final = "–"


def stats_answer(store: Store, by: str = "name", since: int | None = None) -> StatsAnswer:
    """Return sums by name, model, tool, component, type or day.

    `since` is in nanoseconds, and rounded down to a day (UTC).
    """
    if by not in GROUPS:
        raise UsageError(
            f"--by: unknown value {formatting.single_line(by, 40)!r} "
            f"(expected {', '.join(GROUPS)})."
        )
    since_day = (formatting.timestamp(since) or "")[:10] if since is not None else None
    sums = store.sum_rollups(by, since_day)
    models = store.sum_models(by, since_day)
    ranking = rank_tools(store, since) if by == "tool" else None
    first = store.find_first_day()
    return StatsAnswer(by, sums, models, since_day, first, ranking, load_user_prices(store))


class StatsAnswer(CommandAnswer):
    """A table with one row per group."""

    verb: ClassVar[str] = "stats"
    budget: ClassVar[int] = 800

    def __init__(
        self,
        by: str,
        sums: Sequence[Sum],
        models: Sequence[ModelSum],
        since_day: str | None,
        first_day: str | None,
        ranking: Ranking | None,
        prices: Prices = NO_PRICES,
    ) -> None:
        self.by = by
        self.since_day = since_day
        self.first_day = first_day
        self.ranking = ranking
        self.costs, self.unknown = sum_costs(models, prices)
        self.sums = sorted(sums, key=self._sort_key)

    def _sort_key(self, total: Sum) -> tuple[Any, ...]:
        if self.by == "day":
            return (total.key,)
        if self.by == "model":
            dollars = self.costs.get(total.key) or 0.0
            return (-dollars, -(total.input_tokens + total.output_tokens), -total.count, total.key)
        return (-total.errors, -total.count, total.key)

    # --- as text --------------------------------------------------------------------------------

    def lines(self, budget: int) -> list[str]:
        if not self.sums and not (self.ranking and self.ranking.tools):
            since = f" since {self.since_day}" if self.since_day else ""
            return [f"No data by {self.by}{since}.", f"next: {self.command('list')}"]
        table = columns(
            self._rows(), right=range(1, len(_HEADINGS[self.by]) + 1), total=self.columns
        )
        head = [f"by {self.by}, {self._period()}", *table[:1]]
        ranked = self.ranking.lines() if self.ranking else []
        # The ranking is the main result by tool, so the table leaves it up to half of the budget.
        room = max(budget - cost(ranked), budget // 2) if ranked else budget
        lines = fit(head, table[1:], [], room, self._more("row", budget))
        lines += format_unpriced(sorted(set().union(*self.unknown.values())))
        if ranked:
            left = budget - cost(lines)
            lines += fit(ranked[:2], ranked[2:], [], left, self._more("line", budget))
        return fit_lines(lines, budget, self._more("line", budget))

    def _period(self) -> str:
        begin = max(self.since_day or "", self.first_day or "")
        orders = {"day": "oldest first", "model": "most expensive first"}
        return f"since {begin} (whole days, UTC), {orders.get(self.by, 'most errors first')}"

    def _more(self, noun: str, budget: int) -> Callable[[int], str]:
        def more(left_out: int) -> str:
            larger = min(TOKENS_MAX, budget * 4)
            option = f"--budget {larger}" if budget < TOKENS_MAX else "--json"
            command = self.command("stats", "--by", self.by, *option.split())
            if self.since_day:  # `--since` takes an age, and only its day is known here.
                command = f"the same command with {option}"
            return f"… {formatting.pluralize(left_out, f'more {noun}')}: {command}"

        return more

    def _rows(self) -> list[list[str]]:
        shown = _HEADINGS[self.by]
        rows = [[self.by, *shown]]
        most = max((total.count for total in self.sums), default=0)
        for total in self.sums:
            name = formatting.single_line(total.key, 40) if total.key else "(none)"
            cells = self._cells(total, most)
            rows.append([name, *(cells[heading] for heading in shown)])
        return rows

    def _cells(self, total: Sum, most: int) -> dict[str, str]:
        tokens = total.input_tokens or total.output_tokens
        # Some providers do not count cached tokens as input.
        input_tokens = max(total.input_tokens, total.cache_read_tokens + total.cache_write_tokens)
        return {
            "count": str(total.count),
            "runs": str(total.count),
            "errors": str(total.errors),
            "rate": _share(total.errors, total.count),
            "p50": format_quantile(total.histogram, 0.5),
            "p95": format_quantile(total.histogram, 0.95),
            "in": formatting.number(total.input_tokens) if tokens else _NOTHING,
            "out": formatting.number(total.output_tokens) if tokens else _NOTHING,
            "cached": _share(total.cache_read_tokens, input_tokens) if tokens else _NOTHING,
            "cost": self._cost(total.key),
            "": _BARS[total.count * 7 // most] if most and total.count else " ",
        }

    def _cost(self, key: str) -> str:
        if key not in self.costs:
            return _NOTHING
        return str(Cost(self.costs[key], tuple(self.unknown.get(key, ()))))

    # --- as data --------------------------------------------------------------------------------

    def data(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "by": self.by,
            "since_day": self.since_day,
            "rows": [self._row_data(total) for total in self.sums],
            "ranking": self.ranking.data() if self.ranking else None,
        }

    def _row_data(self, total: Sum) -> dict[str, Any]:
        return {
            "key": total.key,
            "count": total.count,
            "errors": total.errors,
            "duration_ns": total.duration_ns,
            "p50_ns": quantile_ns(total.histogram, 0.5),
            "p95_ns": quantile_ns(total.histogram, 0.95),
            "input_tokens": total.input_tokens,
            "output_tokens": total.output_tokens,
            "cache_read_tokens": total.cache_read_tokens,
            "cache_write_tokens": total.cache_write_tokens,
            "cost_usd": self.costs.get(total.key),
            "unpriced_models": sorted(self.unknown.get(total.key, ())),
        }


_PLAIN: Final = ("count", "errors", "rate", "p50", "p95", "in", "out", "cost")
_HEADINGS: Final[dict[str, tuple[str, ...]]] = {
    "name": _PLAIN,
    "model": ("count", "errors", "rate", "p50", "p95", "in", "out", "cached", "cost"),
    "tool": ("count", "errors", "rate", "p50", "p95"),
    "component": _PLAIN,
    "type": _PLAIN,
    "day": ("runs", "", "errors", "rate", "p50", "p95", "in", "out", "cost"),
}


def _share(part: int, total: int) -> str:
    return f"{part / total:.0%}" if total else _NOTHING
