"""The runs that a group of `compare` means: ids, or a filter as `list` takes it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vestige._runtime import clock
from vestige.errors import NotFoundError, UsageError
from vestige.query import formatting
from vestige.query.diff import compare_groups
from vestige.query.ids.resolve import resolve
from vestige.query.search.filters import is_filter, parse_filter
from vestige.query.search.run_list import find_matching
from vestige.store.protocol import Store


def find_group(store: Store, group: Sequence[str]) -> tuple[list[str], bool]:
    """Ids of its runs; of a filter those of the newest, and whether it wants more."""
    if not is_filter(group):
        return [resolve(store, each, "run").run.id for each in group], False
    text = " ".join(group)
    named = next((word for word in group if re.fullmatch(r"r\d+", word)), None)
    if named is not None:
        raise UsageError(
            f"compare: {named} is a run, and the rest of its group a filter"
            f" ({formatting.single_line(text, 80)}). Give ids, or terms, but not both."
        )
    found, more = find_matching(
        store, parse_filter(text, clock.SYSTEM.now_ns()), compare_groups.RUNS_MAX
    )
    if not found:
        raise NotFoundError(
            f"compare: no run is wanted by {formatting.single_line(text, 80)!r} (expected at least one)."
            f" Try it with `vestige list`."
        )
    return [run.id for run in found], more
