"""Index of the traces in a file, so that one can be read without the others.

    file = open_trace_file(path)
    file.traces["4bf92f3577b34da6a3ce929d0e0e4736"]     # its documents, its root span
    for ref, document in file.documents(trace): ...     # one line at a time

A file has one request per line (a collector's file exporter), or is one JSON document. Exports of
other tools (exports/) are converted to requests. Each line is decoded twice, once for the index
and once to read it. The index of the latest file is cached until the file changes, because its
traces are usually read one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.errors import UnreadableError
from vestige.formats.otlp.any_value import Object, as_objects, get_field
from vestige.formats.otlp.exports import SIGNATURES as EXPORT_SIGNATURES
from vestige.formats.otlp.exports import to_otlp
from vestige.formats.otlp.parse_span import (
    get_trace_id,
    ignore_problem,
    is_pending,
    iter_raw_log_records,
    iter_raw_spans,
    parse_log_record,
    parse_span,
)
from vestige.formats.otlp.root_span import RootFinder
from vestige.formats.otlp.to_records import is_own
from vestige.formats.protocol import Problem
from vestige.limits import FOREIGN_RUNS_MAX, OTLP_BRACKETS_MAX, OTLP_LINE_MAX, PROBLEMS_MAX

TRACE_SEPARATOR: Final = "#"
_REQUEST_FIELDS: Final = ("resourceSpans", "resourceLogs", "resourceMetrics", "resourceProfiles")


class TraceRef(msgspec.Struct, frozen=True, gc=False):
    """Position of a document with spans or log records: a line of a file, or the entire file."""

    number: int
    """Line number; 0 means the entire file."""
    offset: int
    size: int

    def __str__(self) -> str:
        return f"line {self.number}" if self.number else ""


class Trace(msgspec.Struct, gc=False):
    """Index entry of one trace."""

    refs: list[TraceRef]
    root_finder: RootFinder
    own: bool = False
    """Vestige exported it."""
    log_records: int = 0


class TraceFile:
    """A file and the index of its traces, which is built on creation."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.traces: dict[str, Trace] = {}
        self._decoded: tuple[TraceRef, Any] | None = None
        for ref, document in self._iter_documents():
            self._decoded = (ref, document)
            self._index(ref, document)

    def documents(self, trace: Trace) -> Iterator[tuple[TraceRef, Any]]:
        """Yield the documents that contain parts of a trace.

        The latest decoded document is cached: often it contains the next trace, too.
        """
        try:
            with open(self.path, "rb") as file:
                for ref in trace.refs:
                    if self._decoded is None or self._decoded[0] != ref:
                        file.seek(ref.offset)
                        self._decoded = (ref, _decode_any(file.read(ref.size)))
                    yield self._decoded
        except OSError as error:
            raise UnreadableError(f"{self.path}: cannot be read ({error.strerror}).") from None
        except DecodeError as error:
            raise UnreadableError(
                f"{self.path}: changed while it was being read ({error}). Try again."
            ) from None

    def _add_problem(
        self,
        location: str,
        rule: str,
        message: str,
        severity: Literal["error", "warning"] = "error",
    ) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(str(self.path), location, rule, message, "", severity))

    def _iter_documents(self) -> Iterator[tuple[TraceRef, Any]]:
        try:
            with open(self.path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                document = _read_single_document(file, size)
                if document is not None:
                    yield TraceRef(0, 0, size), document
                    return
                file.seek(0)
                yield from self._iter_lines(file)
        except OSError as error:
            raise UnreadableError(f"{self.path}: cannot be read ({error.strerror}).") from None

    def _iter_lines(self, file: BinaryIO) -> Iterator[tuple[TraceRef, Any]]:
        offset = number = 0
        while line := file.readline(OTLP_LINE_MAX + 1):
            number += 1
            size = len(line)
            ended = line.endswith(b"\n")
            if size > OTLP_LINE_MAX and not ended:
                self._add_problem(
                    f"line {number}",
                    "line-too-long",
                    f"longer than {OTLP_LINE_MAX} bytes; skipped.",
                )
                del line
                size += _skip_line(file)
            elif line.strip():
                ref = TraceRef(number, offset, size)
                try:
                    yield ref, _decode_any(line)
                except DecodeError as error:
                    if ended:
                        self._add_problem(str(ref), "line-unreadable", f"{error}; skipped.")
                    else:
                        self._add_problem(
                            str(ref),
                            "torn-line",
                            "incomplete last line: still being written, or its writer died.",
                            "warning",
                        )
            offset += size

    def _index(self, ref: TraceRef, document: Any) -> None:
        items = document if isinstance(document, list) else [document]
        requests = as_objects(items)
        if len(requests) < len(items) or not all(map(_is_request, requests)):
            self._add_problem(
                str(ref),
                "not-otlp",
                "not an OTLP request (expected resourceSpans or resourceLogs); skipped.",
            )

        def report(rule: str, message: str, severity: Literal["error", "warning"]) -> None:
            self._add_problem(str(ref), rule, message, severity)

        for raw, resource, scope in iter_raw_spans(document):
            span = parse_span(raw, resource, scope, ignore_problem)
            if span is None:
                # The span belongs to no trace, so its problems are reported for the file.
                parse_span(raw, resource, scope, report)
            elif not is_pending(span):
                trace = self._get_trace(span.trace_id, ref)
                if trace is not None:
                    trace.root_finder.add(span)
                    trace.own = trace.own or is_own(span)
        for raw, resource, scope in iter_raw_log_records(document):
            if parse_log_record(raw, resource, scope, report) is not None:
                trace = self._get_trace(get_trace_id(raw) or "", ref)
                if trace is not None:
                    trace.log_records += 1

    def _get_trace(self, trace_id: str, ref: TraceRef) -> Trace | None:
        trace = self.traces.get(trace_id)
        if trace is None:
            if len(self.traces) >= FOREIGN_RUNS_MAX:
                self._add_problem(
                    "",
                    "too-many-traces",
                    f"more than {FOREIGN_RUNS_MAX} traces; the rest are skipped.",
                )
                return None
            trace = self.traces[trace_id] = Trace([], RootFinder())
        if not trace.refs or trace.refs[-1] != ref:
            trace.refs.append(ref)
        return trace


def _is_request(request: Object) -> bool:
    return not request or any(get_field(request, name) is not None for name in _REQUEST_FIELDS)


class DecodeError(ValueError):
    """The bytes are not JSON, or have too many objects and arrays."""


def decode(data: bytes) -> Any:
    if data.count(b"{") + data.count(b"[") > OTLP_BRACKETS_MAX:
        raise DecodeError(f"more than {OTLP_BRACKETS_MAX} objects and arrays")
    try:
        return msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except RecursionError:
        raise DecodeError("JSON nested too deeply") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise DecodeError(f"not JSON ({str(error)[:100]})") from None


def _decode_any(data: bytes) -> Any:
    """Decode a request, or an export of another tool as a request."""
    document = decode(data)
    if any(signature in data for signature in EXPORT_SIGNATURES):
        return to_otlp(document) or document
    return document


def _read_single_document(file: BinaryIO, size: int) -> Any:
    """Return the file as one JSON document, or None if it has a document per line.

    The first line of an indented document is only an opening bracket.
    """
    first = file.readline(1024)
    has_lines = first.endswith(b"\n") and first.strip() not in (b"{", b"[", b"[{", b"")
    if size > OTLP_LINE_MAX or has_lines:
        return None
    file.seek(0)
    try:
        return _decode_any(file.read(OTLP_LINE_MAX + 1))
    except DecodeError:
        return None


def _skip_line(file: BinaryIO) -> int:
    """Read to the end of the line; return the number of bytes."""
    size = 0
    while part := file.readline(1024 * 1024):
        size += len(part)
        if part.endswith(b"\n"):
            break
    return size


def find_trace_paths(path: Path) -> Iterator[Path]:
    """Yield the file itself, or `FILE#trace-id` for each of its traces."""
    traces = open_trace_file(path).traces
    if len(traces) <= 1:
        yield path
    else:
        for trace_id in traces:
            yield path.with_name(f"{path.name}{TRACE_SEPARATOR}{trace_id}")


def split_trace_path(path: Path) -> tuple[Path, str | None]:
    """Return the file and the trace id of `FILE#trace-id`."""
    if not path.exists():
        name, _, trace_id = path.name.rpartition(TRACE_SEPARATOR)
        if name and len(trace_id) == 32:
            return path.with_name(name), trace_id
    return path, None


def open_trace_file(path: Path) -> TraceFile:
    try:
        state = path.stat()
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read ({error.strerror}).") from None
    if not path.is_file():
        raise UnreadableError(f"{path}: not a regular file.")
    return _open(path, state.st_ino, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=1)
def _open(path: Path, inode: int, size: int, modified_ns: int) -> TraceFile:
    return TraceFile(path)
