"""The order of a list of runs: by a column of the store, or by cost and model calls.

Costs are not stored. A list by cost prices the newest `PRICED_MAX` runs that match, so the most
expensive of them come first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, get_args

from msgspec.structs import replace

from vestige.errors import UsageError
from vestige.query.stats.costs import Cost, run_costs
from vestige.record.run import RunInfo
from vestige.store.protocol import RunFilter, RunSort, Store

PRICED_MAX: Final = 10_000
_PRICED_STEP: Final = 1_000
"""Runs in one query of the store."""

COLUMNS: Final[tuple[RunSort, ...]] = get_args(RunSort)
BY_COST: Final = ("cost", "calls")
SORTS: Final[tuple[str, ...]] = (*COLUMNS, *BY_COST)
_ASCENDING: Final = ("name", "outcome")
"""Columns whose usual order is ascending."""


def apply_order(run_filter: RunFilter, sort: str | None, reverse: bool) -> RunFilter:
    """Return the filter in an order of the store. Orders by cost are left to `sort_by_cost`."""
    if sort is not None and sort not in SORTS:
        raise UsageError(f"sort: {sort[:40]!r} is unknown (expected one of {', '.join(SORTS)}).")
    ascending = (sort in _ASCENDING) is not reverse
    for column in COLUMNS:
        if column == sort:
            return replace(run_filter, sort=column, ascending=ascending)
    return run_filter if sort is not None else replace(run_filter, ascending=reverse)


def price_runs(store: Store, runs: Sequence[RunInfo]) -> dict[str, Cost]:
    """Return costs by run id."""
    costs: dict[str, Cost] = {}
    for start in range(0, len(runs), _PRICED_STEP):
        batch = runs[start : start + _PRICED_STEP]
        costs |= run_costs(store, [run.id for run in batch])
    return costs


def sort_by_cost(
    runs: Sequence[RunInfo], costs: Mapping[str, Cost], sort: str, reverse: bool
) -> list[RunInfo]:
    """Return runs, the most expensive first. Runs without a known cost come last."""

    def key(run: RunInfo) -> tuple[bool, float]:
        cost = costs.get(run.id)
        value = None if cost is None else cost.dollars if sort == "cost" else cost.calls
        return value is None, (value or 0) * (1 if reverse else -1)

    return sorted(runs, key=key)
