"""Merge the traces of the processes of a suite into one, in time order.

Each process appends to a file of its own (`trace/worker-gw0.jsonl`), because a case must be on
disk before it runs and no process knows the counters of the others. At the end they become
`trace/events.jsonl`, with new counters. The trace of a killed suite is completed the same way.

A trace with a `suite_end` is complete. Files of workers beside it are left over from a process
that died between two steps, and are not merged again.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import UNSET

from vestige._runtime.file_locks import try_lock
from vestige._runtime.long_lived_files import OwnFile
from vestige.artifacts.suite_trace_writer import TRACE_VERSION
from vestige.formats.artifacts import constants
from vestige.formats.artifacts.file_structs import Counts, TraceEvent
from vestige.limits import KIB

WORKER_PREFIX = "worker-"
_COUNTED = {"case_start": 0, "assert_pass": 1, "assert_fail": 2, "assert_skip": 3}
_PART = f"{constants.TRACE}.part"
_FLUSH = 4096
_BLOCK = 64 * KIB
"""Bytes of each trace in memory while several are merged."""
_encode = msgspec.json.Encoder().encode


class Merged(msgspec.Struct):
    """Facts collected while a trace is merged."""

    suite: str = ""
    timestamp: str = ""
    first_ts: str = ""
    last_ts: str = ""
    complete: bool = False
    fixture_ids: list[str] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    running: dict[str, TraceEvent] = msgspec.field(default_factory=dict)
    """Cases that began and did not end."""
    lock: OwnFile | None = None
    """The file of a trace that was rebuilt, whose lock is held until `release`."""

    def release(self) -> None:
        """Release the lock: the suite is finished, or left to another process."""
        if self.lock is not None:
            self.lock.close()
            self.lock = None

    def take(self, event: TraceEvent) -> None:
        self.suite = self.suite or event.suite
        self.timestamp = self.timestamp or event.run_timestamp
        self.first_ts = self.first_ts or event.ts
        self.last_ts = max(self.last_ts, event.ts)
        if event.kind == "case_start":
            self.running[event.case] = event
        elif event.kind == "case_end":
            self.running.pop(event.case, None)
        elif event.kind == "fixture":
            self.fixture_ids.append(event.message)
        elif event.kind == "note":
            self.notes.append(event.message)
        elif event.kind == "suite_end":
            self.complete = True


def worker_files(folder: Path) -> list[Path]:
    """Return the traces of workers that are not merged yet."""
    return sorted((folder / "trace").glob(f"{WORKER_PREFIX}*.jsonl"))


def read_trace(folder: Path) -> Merged:
    """Return the facts of a folder's trace without changing it."""
    merged = Merged()
    for event in _read(folder / constants.TRACE):
        merged.take(event)
    return merged


def drop_leftovers(folder: Path) -> None:
    """Delete partial files of a process that died while it finished this folder."""
    for path in (folder / _PART, folder / f"{constants.BUNDLE}.part"):
        path.unlink(missing_ok=True)


def rebuild_trace(
    folder: Path, end_ts: str = "", default: tuple[str, str, str] = ("", "", "")
) -> Merged:
    """Write all events to one file, in order, with new counters. Open cases become unknown.

    `default`: suite, timestamp and time, for a trace in which there is nothing.
    """
    before = read_trace(folder)
    workers = worker_files(folder)
    sources = [] if before.complete else workers
    merged = Merged(suite=before.suite or default[0], timestamp=before.timestamp or default[1])
    events = heapq.merge(
        *(_read(path) for path in (folder / constants.TRACE, *sources)), key=_by_time
    )
    with open(folder / _PART, "wb") as out:
        try_lock(out.fileno())  # before it is in place: the suite is not finished yet
        counters = [0, 0, 0, 0]
        lines: list[bytes] = []
        for event in _complete_events(events, merged, end_ts, default[2]):
            place = _COUNTED.get(event.kind)
            if place is not None and not (place == 0 and _again(event)):
                counters[place] += 1
            event.counters = Counts(*counters)
            lines.append(_encode(event) + b"\n")
            if len(lines) >= _FLUSH:
                out.write(b"".join(lines))
                lines.clear()
        out.write(b"".join(lines))
        out.flush()
        os.replace(folder / _PART, folder / constants.TRACE)
        merged.lock = OwnFile(os.dup(out.fileno()))
    for path in workers:
        path.unlink()
    return merged


def fold_trace(folder: Path, merged: Merged) -> None:
    """Write the trace of a large suite with one event for each case that only passed."""
    from vestige.formats.artifacts.compact_trace import write_folded

    with open(folder / _PART, "wb") as out:
        try_lock(out.fileno())  # before it is in place: the suite is not finished yet
        write_folded(folder / constants.TRACE, out)
        out.flush()
        os.replace(folder / _PART, folder / constants.TRACE)
        merged.release()
        merged.lock = OwnFile(os.dup(out.fileno()))


def _complete_events(
    events: Iterable[TraceEvent], merged: Merged, end_ts: str, default_ts: str
) -> Iterator[TraceEvent]:
    """Yield the events, with a start and an end of the suite if they are missing."""
    begun = False
    for event in events:
        if not begun and event.kind != "suite_start":
            yield _event(merged, "suite_start", event.ts, tool="vestige")
        begun = True
        merged.take(event)
        if event.kind != "suite_end":
            yield event
    end_ts = max(merged.last_ts, end_ts) or default_ts
    if not begun:
        merged.first_ts = end_ts
        yield _event(merged, "suite_start", end_ts, tool="vestige")
    for case, start in merged.running.items():
        message = f"it was running when the suite was killed (since {start.ts})"
        yield _event(merged, "case_end", end_ts, case=case, message=message, status="unknown")
    merged.last_ts = end_ts
    yield _event(merged, "suite_end", end_ts)


def _event(
    merged: Merged, kind: str, ts: str, case: str = "", message: str = "", **more: str
) -> TraceEvent:
    return TraceEvent(
        TRACE_VERSION,
        merged.suite,
        merged.timestamp,
        ts,
        kind,
        case,
        message,
        Counts(0, 0, 0, 0),
        **more,  # type: ignore[arg-type]  # `tool` or `status`
    )


def _again(event: TraceEvent) -> bool:
    return event.attempt is not UNSET and event.attempt > 1


def _by_time(event: TraceEvent) -> str:
    return event.ts


def _read(path: Path) -> Iterator[TraceEvent]:
    """Return the events of a file, without a line that a crash left incomplete."""
    try:
        file = open(path, "rb")  # noqa: SIM115  # closed below
    except FileNotFoundError:
        return
    from vestige.formats.artifacts.trace_events import (
        parse_events,  # where something is to be merged
        unfold,
    )

    with file:
        while lines := file.readlines(_BLOCK):
            yield from unfold(parse_events(lines))
