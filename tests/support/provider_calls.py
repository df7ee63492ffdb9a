"""What was captured in a home: the calls' spans and their exact bodies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.record.run import BodyRef, SpanInfo
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore


@dataclass
class Call:
    """One captured call."""

    span: SpanInfo
    request: bytes
    response: bytes

    def __getitem__(self, name: str) -> Any:
        return self.span.attributes.get(name)


def calls_in(home: Home, *types: str) -> list[Call]:
    """Captured calls of every run, in order."""
    catch_up(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        runs = [store.load_run(info.id) for info in store.list_runs(RunFilter(with_implicit=True))]
        found = [
            Call(span, _read(store, span.input), _read(store, span.output))
            for run in runs
            for span in run.spans
            if span.type in (types or ("llm", "http"))
        ]
    return sorted(found, key=lambda call: call.span.started_ns)


def spans_in(home: Home) -> dict[str, SpanInfo]:
    """Every span by its id."""
    catch_up(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        runs = [store.load_run(info.id) for info in store.list_runs(RunFilter(with_implicit=True))]
    return {span.id: span for run in runs for span in run.spans}


def _read(store: SqliteStore, ref: BodyRef | None) -> bytes:
    if ref is None or ref.id is None:
        return b""
    return store.read_body(ref.id, 0, ref.size_bytes)
