"""The traces of a file: where each is, so that one can be read without the others.

    file = open_file(path)
    file.traces["4bf92f3577b34da6a3ce929d0e0e4736"]     # its lines, its shape
    for place, document in file.documents(trace): ...   # one line at a time

A file is lines with a request each (a collector's file exporter), or one JSON document. Lines are
decoded one at a time, once to learn what is in them and once to read it; a file that was looked at
is remembered while it stays as it is, as its traces are read one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import msgspec

from vestige.errors import UnreadableError
from vestige.formats.otlp.any_value import get, objects_of
from vestige.formats.otlp.parse_span import (
    is_pending,
    parse_line,
    parse_span,
    raw_lines,
    raw_spans,
    trace_of,
    unheard,
)
from vestige.formats.otlp.root_span import Shape
from vestige.formats.otlp.to_records import is_own
from vestige.formats.protocol import Problem
from vestige.limits import FOREIGN_RUNS_MAX, OTLP_BRACKETS_MAX, OTLP_LINE_MAX, PROBLEMS_MAX

MARK: Final = "#"
_KNOWN: Final = ("resourceSpans", "resourceLogs", "resourceMetrics", "resourceProfiles")


class TraceRef(msgspec.Struct, frozen=True, gc=False):
    """A line of a file, or all of it."""

    number: int
    """0: all of it."""
    offset: int
    size: int

    def __str__(self) -> str:
        return f"line {self.number}" if self.number else ""


class Trace(msgspec.Struct, gc=False):
    """What a file has of one trace."""

    places: list[TraceRef]
    shape: Shape
    own: bool = False
    """We wrote it."""
    first_span: str = ""
    lines: int = 0


class TraceFile:
    """A file that was looked through once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.traces: dict[str, Trace] = {}
        self._decoded: tuple[TraceRef, Any] | None = None
        for place, document in self._all():
            self._decoded = (place, document)
            self._look(place, document)

    def documents(self, trace: Trace) -> Iterator[tuple[TraceRef, Any]]:
        """The lines that have something of a trace. The last one is remembered: it may have more."""
        try:
            with open(self.path, "rb") as file:
                for place in trace.places:
                    if self._decoded is None or self._decoded[0] != place:
                        file.seek(place.offset)
                        self._decoded = (place, decode(file.read(place.size)))
                    yield self._decoded
        except OSError as error:
            raise UnreadableError(f"{self.path}: cannot be read: {error.strerror}.") from None
        except DecodeError as error:
            raise UnreadableError(
                f"{self.path}: has changed while it was read ({error})."
            ) from None

    def tell(
        self, place: str, rule: str, message: str, severity: Literal["error", "warning"] = "error"
    ) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(str(self.path), place, rule, message, "", severity))

    # --- looking ------------------------------------------------------------------------------

    def _all(self) -> Iterator[tuple[TraceRef, Any]]:
        try:
            with open(self.path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                whole = _whole(file, size)
                if whole is not None:
                    yield TraceRef(0, 0, size), whole
                    return
                file.seek(0)
                yield from self._lines(file)
        except OSError as error:
            raise UnreadableError(f"{self.path}: cannot be read: {error.strerror}.") from None

    def _lines(self, file: BinaryIO) -> Iterator[tuple[TraceRef, Any]]:
        offset = number = 0
        while line := file.readline(OTLP_LINE_MAX + 1):
            number += 1
            size = len(line)
            ended = line.endswith(b"\n")
            if size > OTLP_LINE_MAX and not ended:
                self.tell(
                    f"line {number}",
                    "line-too-long",
                    f"longer than {OTLP_LINE_MAX} bytes: passed over.",
                )
                del line
                size += _skip(file)
            elif line.strip():
                place = TraceRef(number, offset, size)
                try:
                    yield place, decode(line)
                except DecodeError as error:
                    if ended:
                        self.tell(str(place), "line-unreadable", f"{error}: passed over.")
                    else:
                        self.tell(
                            str(place),
                            "torn-line",
                            "ends in the middle: it is being written, or its writer died.",
                            "warning",
                        )
            offset += size

    def _look(self, place: TraceRef, document: Any) -> None:
        told = document if isinstance(document, list) else [document]
        requests = objects_of(told)
        if len(requests) < len(told) or not all(
            any(get(each, name) is not None for name in _KNOWN) for each in requests if each
        ):
            self.tell(
                str(place),
                "not-otlp",
                "no request of OTLP (expected resourceSpans or resourceLogs): passed over.",
            )
        for raw, resource, scope in raw_spans(document):
            span = parse_span(raw, resource, scope, unheard)
            if span is None:
                self._tell_faults(str(place), raw, resource, scope)
            elif not is_pending(span):
                trace = self._trace(span.trace_id, place)
                if trace is not None:
                    trace.shape.add(span)
                    trace.first_span = trace.first_span or span.id
                    trace.own = trace.own or is_own(span)
        for raw, resource, scope in raw_lines(document):
            if parse_line(raw, resource, scope, self._telling(str(place))) is not None:
                trace = self._trace(trace_of(raw) or "", place)
                if trace is not None:
                    trace.lines += 1

    def _tell_faults(self, place: str, raw: Any, resource: Any, scope: str) -> None:
        """Of a span that cannot be placed in any trace, or at any time."""
        parse_span(raw, resource, scope, self._telling(place))

    def _telling(self, place: str) -> Any:
        return lambda rule, message, severity: self.tell(place, rule, message, severity)

    def _trace(self, trace_id: str, place: TraceRef) -> Trace | None:
        trace = self.traces.get(trace_id)
        if trace is None:
            if len(self.traces) >= FOREIGN_RUNS_MAX:
                self.tell(
                    "",
                    "too-many-traces",
                    f"more than {FOREIGN_RUNS_MAX} traces: the rest is passed over.",
                )
                return None
            trace = self.traces[trace_id] = Trace([], Shape())
        if not trace.places or trace.places[-1] != place:
            trace.places.append(place)
        return trace


class DecodeError(ValueError):
    """Bytes that are no JSON, or more of it than we decode."""


def decode(data: bytes) -> Any:
    if data.count(b"{") + data.count(b"[") > OTLP_BRACKETS_MAX:
        raise DecodeError(f"more than {OTLP_BRACKETS_MAX} objects and arrays")
    try:
        return msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except RecursionError:
        raise DecodeError("JSON nested too deeply") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise DecodeError(f"not JSON ({str(error)[:100]})") from None


def _whole(file: BinaryIO, size: int) -> Any:
    """The file as one document; None: it has lines. An indented document has a short first line
    that is nothing by itself."""
    first = file.readline(1024)
    if size > OTLP_LINE_MAX or (first.endswith(b"\n") and len(first.strip()) > 2):
        return None
    file.seek(0)
    try:
        return (
            decode(file.read(OTLP_LINE_MAX + 1))
            if not first.endswith(b"\n") or first.strip() in (b"{", b"[", b"[{", b"")
            else None
        )
    except DecodeError:
        return None


def _skip(file: BinaryIO) -> int:
    size = 0
    while part := file.readline(1024 * 1024):
        size += len(part)
        if part.endswith(b"\n"):
            break
    return size


# --- places -----------------------------------------------------------------------------------


def places(path: Path) -> Iterator[Path]:
    """The file, or a place for each of its traces."""
    traces = open_file(path).traces
    if len(traces) <= 1:
        yield path
    else:
        for trace_id in traces:
            yield path.with_name(f"{path.name}{MARK}{trace_id}")


def split_place(place: Path) -> tuple[Path, str | None]:
    """The file and the trace of a place."""
    if not place.exists():
        name, _, trace_id = place.name.rpartition(MARK)
        if name and len(trace_id) == 32:
            return place.with_name(name), trace_id
    return place, None


def open_file(path: Path) -> TraceFile:
    try:
        state = path.stat()
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}.") from None
    if not path.is_file():
        raise UnreadableError(f"{path}: not a regular file.")
    return _open(path, state.st_ino, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=1)
def _open(path: Path, inode: int, size: int, modified_ns: int) -> TraceFile:
    return TraceFile(path)
