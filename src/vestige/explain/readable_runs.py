"""The runs that an investigation may read: the run, and those that belong to it.

Only exact ids are accepted. A model cannot reach other runs of the store, whatever a recorded
text asks for.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

from vestige.errors import NotFoundError
from vestige.query.debugger import Debugger
from vestige.query.evidence import Evidence, open_run
from vestige.query.formatting import single_line
from vestige.query.search.last_good_run import find_last_good
from vestige.record.run import RunInfo, SpanInfo
from vestige.store.protocol import RunFilter

RUNS_MAX: Final = 8
"""Runs beside the investigated one: the last good one, those of its process, and linked ones."""

_SPAN: Final = re.compile(r"(?:(r\d+)\.)?(s\d+)")


class Scope:
    """The runs of an investigation, with their spans by id."""

    def __init__(self, debugger: Debugger, run_id: str) -> None:
        self.debugger = debugger
        self._open: dict[str, Evidence] = {}
        self.evidence = self.open(run_id)
        self.run: RunInfo = self.evidence.run.info

    def open(self, run_id: str) -> Evidence:
        if run_id not in self._open:
            self._open[run_id] = open_run(self.debugger.store, run_id)
        return self._open[run_id]

    @cached_property
    def runs(self) -> dict[str, RunInfo]:
        """The runs by short id, the investigated one first."""
        store = self.debugger.store
        last_good = find_last_good(store, self.evidence, self.open)
        process = RunFilter(of_process=self.run.id, with_implicit=True)
        found = [self.run, *([] if last_good is None else [last_good]), *store.list_runs(process)]
        linked = [link.target_run for link in self.evidence.run.links]
        for span in self.evidence.run.spans:
            if span.type in ("run", "process", "test"):  # it may have started other runs
                linked += [ref.run_id for ref, _ in store.links_to(self.run.id, span.id)]
        for run_id in list(dict.fromkeys(linked))[:RUNS_MAX]:
            if run_id is not None and store.has_run(run_id):
                found += store.find_runs(run_id)
        return dict(list({each.short_id: each for each in found}.items())[: RUNS_MAX + 1])

    def find_run(self, id: str) -> RunInfo | None:
        by_id = {each.id: each for each in self.runs.values()}
        return self.runs.get(id) or by_id.get(id)

    def find_span(self, id: str) -> tuple[Evidence, SpanInfo] | None:
        """Return the span of a short or recorded id; `s12` is one of the investigated run."""
        parsed = _SPAN.fullmatch(id)
        if parsed is not None:
            run = self.runs.get(parsed[1] or self.run.short_id)
            runs = [] if run is None else [run]
            short_id = "" if run is None else f"{run.short_id}.{parsed[2]}"
        else:
            runs, short_id = list(self.runs.values()), ""
        for each in runs:
            evidence = self.open(each.id)
            if not short_id and id in evidence.spans:
                return evidence, evidence.spans[id]
            for span in evidence.run.spans if short_id else ():
                if span.short_id == short_id:
                    return evidence, span
        return None

    def get_id(self, text: str) -> str:
        """Return the id of a run or span of this scope, in its short form."""
        name = text.strip()
        run = self.find_run(name)
        if run is not None:
            return run.short_id
        found = self.find_span(name)
        if found is not None:
            return found[1].short_id
        raise NotFoundError(f"{single_line(name, 60)!r}: not found. {self.describe()}")

    def describe(self) -> str:
        """Return the valid ids, for the message of an error."""
        count = len(self.evidence.run.spans)
        run = self.run.short_id
        others = [each for each in self.runs if each != run]
        also = f", and of {', '.join(others)}" if others else ""
        return f"Valid ids: {run}, {run}.s1 to {run}.s{count}{also}."
