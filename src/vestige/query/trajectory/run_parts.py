"""Parts of a very long run: a page of its transcript builds the steps of one part only.

    parts = evidence.once(RunParts)
    parts.count                         # 1 for almost every run: the part is the run itself
    parts.open(parts.find("s71234.2"))  # the evidence of the part with a cursor

A part begins with a model call, so that its tool calls are in the same part. The runs and agents
around it are in it, too. A history that is sent again is compared within a part.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import Final

import msgspec

from vestige.limits import TRAJECTORY_SPANS_MAX
from vestige.query.evidence import Evidence
from vestige.record.run import SpanInfo

_SPAN_CURSOR: Final = re.compile(r"s(?P<number>\d+)\.(?:\d+|end)")
_LOG_CURSOR: Final = re.compile(r"l(?P<seq>\d+)-(?P<writer>.+)\.0")


class RunParts:
    """The parts of a run, in order of time."""

    def __init__(self, evidence: Evidence, spans_max: int | None = None) -> None:
        self._evidence = evidence
        self._spans_max = spans_max or TRAJECTORY_SPANS_MAX
        self._calls = [evidence.places[span.id] for span in evidence.model_calls]
        self._begins = self._split()
        self._open: tuple[int, Evidence] | None = None

    def _split(self) -> list[int]:
        """Return the index of the first span of each part."""
        count = len(self._evidence.run.spans)
        begins = [0]
        while count - begins[-1] > self._spans_max:
            begin = begins[-1] + self._spans_max
            call = bisect_left(self._calls, begin)
            if call < len(self._calls) and self._calls[call] - begin < self._spans_max:
                begin = self._calls[call]
            begins.append(begin)
        return begins

    @property
    def count(self) -> int:
        return len(self._begins)

    def open(self, index: int) -> Evidence:
        """Return the evidence of a part. Only the latest one is cached, which bounds the memory."""
        if self.count == 1:
            return self._evidence
        if self._open is None or self._open[0] != index:
            self._open = None
            self._open = index, self._build(index)
        return self._open[1]

    def _build(self, index: int) -> Evidence:
        run = self._evidence.run
        begin, end = self._begins[index], self._end(index)
        spans = run.spans[begin:end]
        inside = {span.id for span in spans}
        around: dict[int, SpanInfo] = {}
        for span in spans:
            parent = self._evidence.spans.get(span.parent_id or "")
            while parent is not None and parent.id not in inside:
                inside.add(parent.id)
                if parent.type in ("run", "agent"):
                    around[self._evidence.places[parent.id]] = parent
                parent = self._evidence.spans.get(parent.parent_id or "")
        times = [log.time_ns for log in run.logs]
        first = bisect_left(times, run.spans[begin].started_ns) if index else 0
        last = (
            len(times) if end == len(run.spans) else bisect_left(times, run.spans[end].started_ns)
        )
        part = self._evidence.part(
            msgspec.structs.replace(
                run,
                spans=[*(around[place] for place in sorted(around)), *spans],
                logs=run.logs[first:last],
            )
        )
        part.first_step = self.first_step(index)
        return part

    def _end(self, index: int) -> int:
        return self._begins[index + 1] if index + 1 < self.count else self._span_count

    @property
    def _span_count(self) -> int:
        return len(self._evidence.run.spans)

    # --- steps ----------------------------------------------------------------------------------

    def first_step(self, index: int) -> int:
        """Return the number of a part's first step, from the model calls before it."""
        begin = self._begins[index]
        return 1 + (bisect_left(self._calls, begin) if self._calls else begin)

    @property
    def step_count(self) -> int:
        """About the number of steps of the run, without building them."""
        return len(self._calls) or self._span_count

    # --- the part of a place --------------------------------------------------------------------

    def find_step(self, number: int) -> int:
        """Return the index of the part with a step."""
        firsts = [self.first_step(index) for index in range(self.count)]
        return max(0, bisect_right(firsts, number) - 1)

    def find(self, cursor: str) -> int:
        """Return the index of the part with a cursor or a span; 0 if it is not known."""
        if self.count == 1:
            return 0
        place = self._find_place(cursor.strip())
        return 0 if place is None else bisect_right(self._begins, place) - 1

    def _find_place(self, cursor: str) -> int | None:
        if found := _LOG_CURSOR.fullmatch(cursor):
            key = (int(found["seq"]), found["writer"])
            for log in self._evidence.run.logs:
                if (log.seq, log.writer) == key:
                    return bisect_right(self._times, log.time_ns) - 1
            return None
        found = _SPAN_CURSOR.fullmatch(cursor)
        end = f".s{found['number']}" if found else cursor
        if found and cursor.endswith(".end"):
            return self._span_count - 1
        for place, span in enumerate(self._evidence.run.spans):
            if span.short_id.endswith(end) and (found or span.short_id == cursor):
                return place
        return None

    @cached_property
    def _times(self) -> list[int]:
        return [span.started_ns for span in self._evidence.run.spans]
