"""Hand a run out in another format: read from the store, written all or nothing."""

from __future__ import annotations

from pathlib import Path

from vestige.formats import get_format
from vestige.formats.base import RunToWrite
from vestige.record.run import RunInfo
from vestige.record.types import Attributes
from vestige.store.base import Store


def export_run(store: Store, run_id: str, format: str, target: Path) -> Path:
    """Write a stored run to, or into, a path; the path that was made."""
    writer = get_format(format)
    run = store.load_run(run_id)
    told = RunToWrite(run, store.read_body, _process(store, run.info), store.notes(run_id))
    return writer.write(told, target)


def _process(store: Store, run: RunInfo) -> Attributes:
    """The process that recorded a run describes itself in a run of its own."""
    if run.process_run is None or not store.has_run(run.process_run):
        return {}
    for span in store.load_run(run.process_run).spans:
        if span.type == "process":
            return span.attributes
    return {}
