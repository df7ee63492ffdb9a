"""Fold the trace of a large suite: one event for each case that only passed.

A suite appends three events for a passing case (`case_start`, `assert_pass`, `case_end`), because
the start must be on disk before the case runs. Once the suite has ended, one `case_end` with
`folded: true` holds all three: its time, its duration and its span.

    write_folded(root / "trace/events.jsonl", out)
    for event in unfold(events): ...            # the three events again

Elsewhere: the suites that are folded are those above limits.ARTIFACT_CASES_LISTED_MAX.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from msgspec import UNSET

from vestige.formats.artifacts.file_structs import TraceEvent
from vestige.formats.artifacts.trace_events import parse_events
from vestige.limits import MIB

_LINES_PER_WRITE: Final = 4096
_encode = msgspec.json.Encoder().encode


def write_folded(trace: Path, out: BinaryIO) -> None:
    """Write the events of a finished trace to `out`, folded."""
    passed = _find_plain_passes(_read_events(trace))
    lines: list[bytes] = []
    for event in _fold(_read_events(trace), passed):
        lines.append(_encode(event) + b"\n")
        if len(lines) >= _LINES_PER_WRITE:
            out.write(b"".join(lines))
            lines.clear()
    out.write(b"".join(lines))


def _find_plain_passes(events: Iterable[TraceEvent]) -> set[int]:
    """Return the positions of `case_start` events whose case has only one pass and its end."""
    running: dict[str, tuple[int, int]] = {}
    found: set[int] = set()
    for position, event in enumerate(events):
        name = event.case
        if event.kind == "case_start":
            running[name] = (position, 0)
            if event.attempt is not UNSET or event.message:
                del running[name]
            continue
        start = running.get(name)
        if start is None:
            continue
        if event.kind == "assert_pass" and start[1] == 0 and not event.message:
            running[name] = (start[0], 1)
            continue
        del running[name]
        plain_end = event.kind == "case_end" and event.status == "pass" and not event.message
        if plain_end and start[1] == 1 and event.elapsed_ms is not UNSET:
            found.add(start[0])
    return found


def _fold(events: Iterable[TraceEvent], passed: set[int]) -> Iterator[TraceEvent]:
    starts: dict[str, TraceEvent] = {}
    for position, event in enumerate(events):
        if position in passed:
            starts[event.case] = event
            continue
        start = starts.get(event.case)
        if start is None:
            yield event
        elif event.kind == "case_end":
            del starts[event.case]
            event.span_id = start.span_id
            event.folded = True
            yield event


def _read_events(trace: Path) -> Iterator[TraceEvent]:
    with open(trace, "rb") as file:
        while lines := file.readlines(MIB):
            yield from parse_events(lines)


__all__ = ["write_folded"]
