"""The origin of a run that `vestige replay` made: the replayed run, and where a fork began."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vestige.errors import VestigeError
from vestige.query.ids.resolve import resolve
from vestige.record.run import Run
from vestige.store.protocol import Store

if TYPE_CHECKING:
    from vestige.query.text_layout import CommandAnswer

RUN, SPAN, SET = "replay.run", "replay.span", "replay.set"
"""Attributes of a run: its origin, the call at which it was forked, and the changes."""


@dataclass(frozen=True)
class Lineage:
    """The origin of a run."""

    run_id: str
    run: str | None
    """Short id of the origin. None: it is not in this store."""
    span_id: str | None = None
    """The call of the origin at which the run was forked. None: the run is a plain replay."""
    span: str | None = None

    def line(self, answer: CommandAnswer, short_id: str) -> str:
        """Render the origin, and the command that compares the two runs."""
        run = self.run or f"{self.run_id} (not in this store)"
        text = f"replay of {run}"
        if self.span_id is not None:
            text = f"forked from {run} at {self.span or self.span_id}"
        return text if self.run is None else f"{text}: {answer.command('diff', self.run, short_id)}"

    def data(self) -> dict[str, Any]:
        return {
            "run": self.run or self.run_id,
            "run_id": self.run_id,
            "forked_at": self.span or self.span_id,
            "forked_at_id": self.span_id,
        }


def find_lineage(store: Store, run: Run) -> Lineage | None:
    """Return the origin of a run. None: it was not replayed or forked."""
    root = next((span for span in run.spans if span.parent_id is None), None)
    run_id = None if root is None else root.attributes.get(RUN)
    if root is None or not isinstance(run_id, str):
        return None
    span_id = root.attributes.get(SPAN)
    span_id = span_id if isinstance(span_id, str) else None
    try:
        origin = resolve(store, run_id, "run").run
    except VestigeError:
        return Lineage(run_id, None, span_id)
    span = None if span_id is None else _find_short_id(store, span_id)
    return Lineage(run_id, origin.short_id, span_id, span)


def is_replay(run: Run) -> bool:
    """Return whether a run is a replay or a fork of another."""
    return any(span.parent_id is None and RUN in span.attributes for span in run.spans)


def _find_short_id(store: Store, span_id: str) -> str | None:
    """Return the short id of a span, which may be in a run that the origin started."""
    try:
        run_id = resolve(store, span_id, "span").run.id
    except VestigeError:
        return None
    spans = store.load_run(run_id).spans
    return next((span.short_id for span in spans if span.id == span_id), None)
