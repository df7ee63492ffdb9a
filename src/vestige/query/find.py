"""Find a run by what a person has at hand: an id, its beginning, a short id, or nothing."""

from __future__ import annotations

import difflib

from vestige.errors import AmbiguousIdError, NotFoundError
from vestige.query import words
from vestige.record.run import RunInfo
from vestige.store.base import RunFilter, Store


def find_run(store: Store, text: str | None) -> RunInfo:
    """The one run that `text` means; without text, the latest. Never a guess."""
    if text is None:
        latest = store.list_runs(RunFilter(limit=1)) or store.list_runs(
            RunFilter(limit=1, with_implicit=True)
        )
        if not latest:
            raise NotFoundError("no runs recorded yet. Record one: `vestige run -- COMMAND`.")
        return latest[0]
    found = store.find_runs(text)
    if len(found) == 1:
        return found[0]
    if found:
        shown = [f"{run.short_id} {run.id} {words.one_line(run.name, 40)}" for run in found]
        raise AmbiguousIdError(
            f"{text!r}: {len(found)} runs begin so. Give more characters:\n  " + "\n  ".join(shown),
            [run.id for run in found],
        )
    raise NotFoundError(f"{words.one_line(text, 80)!r}: no such run. {_nearest(store, text)}")


def _nearest(store: Store, text: str) -> str:
    ids = store.run_ids()
    if not ids:
        return "No runs are recorded yet."
    near = difflib.get_close_matches(text.lower(), [*ids, *(run[:8] for run in ids)], 3, 0.5)
    if near:
        return f"Nearest: {', '.join(near)}."
    return "See `vestige list` for what there is."
