"""Totals of the runs that match a filter: count, failures, tokens, cost, durations."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vestige.query import formatting
from vestige.query.stats.costs import Cost, format_dollars
from vestige.record.run import NOT_FAILED, RunInfo

BUCKETS_MAX: Final = 60
"""Parts of a time range that are added up; of a longer one, a part is several days."""
HOURLY_UP_TO_S: Final = 3 * 86_400


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Sums over runs."""

    runs: int
    failed: int
    running: int
    tokens: int
    cost: Cost
    p50_ns: int | None
    p95_ns: int | None
    """Quantiles of the durations of finished runs."""
    complete: bool
    """False if more runs match than were added up."""

    def data(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "failed": self.failed,
            "running": self.running,
            "tokens": self.tokens,
            "cost_usd": self.cost.dollars,
            "unpriced_models": list(self.cost.unknown),
            "model_calls": self.cost.calls,
            "p50_ms": _ms(self.p50_ns),
            "p95_ms": _ms(self.p95_ns),
            "complete": self.complete,
        }

    def line(self) -> str:
        """Return the totals for the end of a list on a terminal."""
        parts = [f"{self.runs}{'' if self.complete else '+'} runs"]
        parts += [f"{self.failed} failed"] if self.failed else []
        parts += [f"{formatting.number(self.tokens)} tokens"] if self.tokens else []
        if self.cost.dollars is not None:
            plus = "+" if self.cost.unknown else ""
            parts.append(f"{format_dollars(self.cost.dollars)}{plus}")
        if self.p50_ns is not None:
            parts.append(f"median {formatting.duration(self.p50_ns)}")
        return " · ".join(parts)


def add_up_runs(runs: Sequence[RunInfo], costs: Mapping[str, Cost], complete: bool) -> RunTotals:
    """Return the totals of runs."""
    dollars = [cost.dollars for cost in costs.values() if cost.dollars is not None]
    unknown = sorted({model for cost in costs.values() for model in cost.unknown})
    calls = sum(cost.calls for cost in costs.values())
    took = sorted(run.duration_ns for run in runs if run.duration_ns is not None)
    return RunTotals(
        runs=len(runs),
        failed=sum(run.outcome not in NOT_FAILED for run in runs),
        running=sum(run.outcome == "running" for run in runs),
        tokens=sum(run.tokens for run in runs),
        cost=Cost(sum(dollars) if dollars else None, tuple(unknown), calls),
        p50_ns=_quantile(took, 0.5),
        p95_ns=_quantile(took, 0.95),
        complete=complete,
    )


@dataclass(frozen=True, slots=True)
class TotalsBucket:
    """The totals of the runs that started in a part of a time range."""

    at: str
    """Its beginning, in UTC."""
    totals: RunTotals

    def data(self) -> dict[str, Any]:
        return {"at": self.at, **self.totals.data()}


def add_up_by_time(
    runs: Sequence[RunInfo],
    costs: Mapping[str, Cost],
    range_ns: tuple[int, int] | None = None,
) -> list[TotalsBucket]:
    """Return the totals of runs by hour or day, without gaps.

    `range_ns` is the first and the last moment; without it, those of the runs.
    """
    if not runs:
        return []
    starts = [run.started_ns for run in runs]
    first_ns, last_ns = range_ns or (min(starts), max(starts))
    first_ns, last_ns = min(first_ns, *starts), max(last_ns, *starts)
    hourly = last_ns - first_ns <= HOURLY_UP_TO_S * 10**9
    unit_ns = (3_600 if hourly else 86_400) * 10**9
    begin = first_ns // unit_ns
    size_ns = unit_ns * (-(-(last_ns // unit_ns - begin + 1) // BUCKETS_MAX))
    begin_ns = begin * unit_ns
    parts: list[list[RunInfo]] = [[] for _ in range((last_ns - begin_ns) // size_ns + 1)]
    for run in runs:
        parts[(run.started_ns - begin_ns) // size_ns].append(run)
    return [
        TotalsBucket(
            _format_time(begin_ns + at * size_ns, hourly),
            add_up_runs(part, {run.id: costs[run.id] for run in part if run.id in costs}, True),
        )
        for at, part in enumerate(parts)
    ]


def _format_time(ns: int, hourly: bool) -> str:
    when = datetime.datetime.fromtimestamp(ns // 10**9, datetime.UTC)
    return f"{when:%Y-%m-%dT%H:00Z}" if hourly else f"{when:%Y-%m-%d}"


def _quantile(sorted_ns: Sequence[int], share: float) -> int | None:
    return sorted_ns[min(len(sorted_ns) - 1, int(share * len(sorted_ns)))] if sorted_ns else None


def _ms(ns: int | None) -> float | None:
    return None if ns is None else round(ns / 1e6, 3)
