"""Runs that were read from the logs of coding agents, for tests of their formats."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vestige.formats import get_format
from vestige.record.run import Run, SpanInfo
from vestige.record.types import KnownRecord
from vestige.store.open import open_store
from vestige.store.protocol import RunFilter, Store
from vestige.transfer import import_path

DATA = Path(__file__).parents[1] / "data"
PROMPT = "Add a subtract function to calc.py, and a test."


@contextmanager
def imported(tmp_path: Path, *paths: Path) -> Iterator[Store]:
    """Import paths into a new store."""
    with open_store(tmp_path / "store.db") as store:
        for path in paths:
            for result in import_path(store, path):
                assert result.run_id is not None, result.problems
        yield store


def load_runs(store: Store) -> list[Run]:
    """Return the stored runs, oldest first."""
    return [store.load_run(info.id) for info in reversed(store.list_runs(RunFilter(limit=1000)))]


def find_session(store: Store, name: str = PROMPT) -> Run:
    """Return the run with this name that counts most tokens."""
    found = [run for run in load_runs(store) if name in run.info.name]
    return max(found, key=lambda run: run.info.input_tokens)


def read_records(format: str, path: Path) -> list[KnownRecord]:
    return list(get_format(format).read_run(path).records)


def of_type(run: Run, type: str) -> list[SpanInfo]:
    return [span for span in run.spans if span.type == type]


def find_tool(run: Run, text: str, store: Store) -> SpanInfo:
    """Return the tool whose arguments contain a text."""
    for span in of_type(run, "tool"):
        if span.input is not None and text in body(store, span.input).decode():
            return span
    raise AssertionError(f"no tool with {text!r}")


def body(store: Store, ref: Any) -> bytes:
    assert ref is not None and ref.id is not None
    return store.read_body(ref.id)


def read_truth(folder: str) -> list[dict[str, Any]]:
    """Return what the scripted model counted when the sample was made."""
    value: list[dict[str, Any]] = json.loads((DATA / folder / "truth.json").read_text())
    return value
