"""`stats`: how often, how long, how well, how dear; from the daily sums alone.

The rollups outlive the spans they were made of, so this reaches back further than any run,
and costs the same whether a store holds a thousand spans or a million. Only `by="tool"` also
looks at the latest runs, for the ranking by standing cost (query/stats/cost_ranking.py).

    stats_answer(store, by="model", since_ns=...)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from vestige.errors import UsageError
from vestige.providers.prices import NO_PRICES
from vestige.query import formatting
from vestige.query.budget import TOKENS_MAX, fit_lines
from vestige.query.stats.cost_ranking import Ranking, rank
from vestige.query.stats.costs import Prices, format_unpriced, money, sum_costs
from vestige.query.stats.user_prices import own_prices
from vestige.query.text_layout import CommandAnswer, columns, cost, fit
from vestige.store.protocol import Store
from vestige.store.sqlite.ingest.rollups import quantile_ns
from vestige.store.sqlite.read import reports
from vestige.store.sqlite.read.reports import ModelSum, Sum

_BARS: Final = "▁▂▃▄▅▆▇█"
_NOTHING: Final = "–"


def stats_answer(store: Store, by: str = "name", since: int | None = None) -> StatsAnswer:
    """Sums by name, model, tool, component, type or day. `since`: in ns; whole days, UTC."""
    if by not in reports.BY:
        raise UsageError(
            f"--by: {formatting.single_line(by, 40)!r} is not known (expected {', '.join(reports.BY)})."
        )
    connection = reports.connection_of(store)
    since_day = (formatting.timestamp(since) or "")[:10] if since is not None else None
    sums = reports.sum_rollups(connection, by, since_day)
    models = reports.sum_models(connection, by, since_day)
    ranking = rank(store, since) if by == "tool" else None
    first = reports.first_day(connection)
    return StatsAnswer(by, sums, models, since_day, first, ranking, own_prices(store))


class StatsAnswer(CommandAnswer):
    """A table, one row for each group."""

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
        self.sums = sorted(sums, key=self._order)

    def _order(self, total: Sum) -> tuple[Any, ...]:
        if self.by == "day":
            return (total.key,)
        if self.by == "model":
            spent = self.costs.get(total.key) or 0.0
            return (-spent, -(total.input_tokens + total.output_tokens), -total.count, total.key)
        return (-total.errors, -total.count, total.key)

    # --- as text ----------------------------------------------------------------------------------

    def lines(self, budget: int) -> list[str]:
        if not self.sums and not (self.ranking and self.ranking.tools):
            since = f" since {self.since_day}" if self.since_day else ""
            return [f"nothing to add up by {self.by}{since}.", f"next: {self.command('list')}"]
        table = columns(self._rows(), right=range(1, len(_HEADINGS[self.by]) + 1))
        head = [f"by {self.by}, {self._period()}", *table[:1]]
        ranked = self.ranking.lines() if self.ranking else []
        # The ranking is why one asks by tool: it gets what the table leaves, and half at least.
        room = max(budget - cost(ranked), budget // 2) if ranked else budget
        told = fit(head, table[1:], [], room, self._more("row", budget))
        told += self._notes()
        if ranked:
            left = budget - cost(told)
            told += fit(ranked[:2], ranked[2:], [], left, self._more("line", budget))
        return fit_lines(told, budget, self._more("line", budget))

    def _period(self) -> str:
        begin = max(self.since_day or "", self.first_day or "")
        order = {"day": "oldest first", "model": "dearest first"}.get(self.by, "most errors first")
        return f"since {begin} (whole days, UTC), {order}"

    def _more(self, thing: str, budget: int) -> Any:
        def more(left_out: int) -> str:
            how = f"--budget {min(TOKENS_MAX, budget * 4)}" if budget < TOKENS_MAX else "--json"
            command = self.command("stats", "--by", self.by, *how.split())
            if self.since_day:  # an age, of which only the day is known here
                command = f"the same command with {how}"
            return f"… {formatting.pluralize(left_out, f'more {thing}')}: {command}"

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
        # Some providers do not count what was cached as input.
        given = max(total.input_tokens, total.cache_read_tokens + total.cache_write_tokens)
        return {
            "count": str(total.count),
            "runs": str(total.count),
            "errors": str(total.errors),
            "rate": _share(total.errors, total.count),
            "p50": formatting.duration(quantile_ns(total.histogram, 0.5)) or _NOTHING,
            "p95": formatting.duration(quantile_ns(total.histogram, 0.95)) or _NOTHING,
            "in": formatting.number(total.input_tokens) if tokens else _NOTHING,
            "out": formatting.number(total.output_tokens) if tokens else _NOTHING,
            "cached": _share(total.cache_read_tokens, given) if tokens else _NOTHING,
            "cost": self._money(total.key),
            "": _BARS[total.count * 7 // most] if most and total.count else " ",
        }

    def _money(self, key: str) -> str:
        if key not in self.costs:
            return _NOTHING
        spent = self.costs[key]
        if spent is None:
            return "unknown"
        return money(spent) + ("+?" if key in self.unknown else "")

    def _notes(self) -> list[str]:
        return format_unpriced(
            sorted({model for models in self.unknown.values() for model in models})
        )

    # --- as data ------------------------------------------------------------------------------------

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


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else _NOTHING
