"""Find the runs of a group of `compare`: ids, or a filter as in `list`."""

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


def find_group(store: Store, group: Sequence[str], verb: str = "compare") -> tuple[list[str], bool]:
    """Return the ids of the runs, and whether more runs may match.

    A filter gives the newest runs that match, up to `compare_groups.RUNS_MAX`.
    """
    if not is_filter(group):
        return [resolve(store, run_id, "run").run.id for run_id in group], False
    text = " ".join(group)
    shown = formatting.single_line(text, 80)
    short_id = next((word for word in group if re.fullmatch(r"r\d+", word)), None)
    if short_id is not None:
        raise UsageError(
            f"{verb}: {short_id} is a run, and the rest of its group a filter ({shown})."
            " Give ids or filter terms, but not both."
        )
    terms = parse_filter(text, clock.SYSTEM.now_ns())
    runs, more = find_matching(store, terms, compare_groups.RUNS_MAX)
    if not runs:
        raise NotFoundError(
            f"{verb}: no run matches {shown!r} (expected at least one). Try it in `vestige list`."
        )
    return [run.id for run in runs], more
