"""Hand a run out in another format: read from the store, written all or nothing."""

from __future__ import annotations

from pathlib import Path

from vestige.formats import get_format
from vestige.formats.base import RunToWrite
from vestige.store.base import Store


def export_run(store: Store, run_id: str, format: str, target: Path) -> Path:
    """Write a stored run to, or into, a path; the path that was made."""
    writer = get_format(format)
    return writer.write(RunToWrite(store.load_run(run_id), store.read_body), target)
