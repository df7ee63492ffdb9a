"""The trace of a suite: events appended while it runs, each on disk before the suite goes on.

    trace = TraceWriter(folder / "trace/events.jsonl", "checkout", "20260210_170000", clock)
    trace.event("case_start", case="pays")

One write with `O_APPEND` per call, so a killed suite shows which case was running. The writer
holds the lock of its file, so no other process finishes a suite that still runs.

Nothing here raises into a test. Events that could not be written are counted in `lost`, and such a
suite does not end as valid. System calls bypass functions that a test has replaced
(_runtime/syscalls.py).

Elsewhere: formats/artifacts/trace_events.py reads the events.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from vestige._runtime.clock import Clock
from vestige._runtime.file_locks import try_lock
from vestige._runtime.long_lived_files import OPEN_FLAGS, LostError, OwnFile
from vestige._runtime.syscalls import system
from vestige.formats.artifacts.file_structs import Counts, TraceEvent
from vestige.record.line_template import GAP, NUMBER, line_template

TRACE_VERSION = 1
"""Every era of the schema accepts it; later ones know a 2 that adds nothing which we need."""

_encode = msgspec.json.Encoder().encode
_SECOND_NS = 1_000_000_000

_forks = 0
"""The number of forks between the first process and this one."""


def _after_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_after_fork)


json_of: Callable[[str], bytes] = _encode
"""A clean text as JSON."""


class Stopwatch:
    """Wall time that never steps back: the clock is read once, then monotonic time is added."""

    def __init__(self, clock: Clock) -> None:
        self.now_ns = clock.monotonic_ns
        """This moment, in monotonic time."""
        self._ahead_ns = clock.now_ns() - clock.monotonic_ns()
        self._second_ns = -_SECOND_NS
        self._text = b""

    def render(self, moment_ns: int) -> bytes:
        """Return a time as JSON: `"2026-02-10T17:00:05.123456Z"`.

        All have one length, so that texts sort like times.
        """
        # A small number, which Python divides and writes several times quicker than the whole one.
        rest_ns = moment_ns - self._second_ns
        if not 0 <= rest_ns < _SECOND_NS:
            second, rest_ns = divmod(moment_ns + self._ahead_ns, _SECOND_NS)
            self._second_ns = moment_ns - rest_ns
            self._text = f'"{render_time(second)[:-1]}.'.encode()
        return b'%b%06dZ"' % (self._text, rest_ns // 1000)

    def stamp(self) -> str:
        """Return the current time as text."""
        return self.render(self.now_ns())[1:-1].decode()


def render_time(epoch_s: int) -> str:
    """Format as RFC 3339 in UTC, to the second."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def reason(error: Exception) -> str:
    """Return the reason of a failed write in a few words."""
    return getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"


class TraceWriter:
    """Appends the events of one process to one file."""

    def __init__(self, path: Path, suite: str, timestamp: str, clock: Clock) -> None:
        self.watch = Stopwatch(clock)
        self.lost = 0
        self.why_lost = ""
        """The reason of the first loss."""
        self.total = self.passed = self.failed = self.skipped = 0
        self.last_ts = ""
        """The time of the last rendered event that is not about a case."""
        self._suite = suite
        self._timestamp = timestamp
        line = TraceEvent(
            TRACE_VERSION,
            suite,
            timestamp,
            GAP,
            GAP,
            GAP,
            GAP,
            Counts(NUMBER, NUMBER, NUMBER, NUMBER),
        )
        self._begin = line_template(_encode(line)).removesuffix(b"}\n") + b"%b}\n"
        """The template of a start: time, kind, case, message, counters, and optional fields."""
        line.elapsed_ms = NUMBER
        self._go_on = line_template(_encode(line)).removesuffix(b"}\n") + b"%b}\n"
        """The template of later events, which also have the duration."""
        passed, ended = (
            msgspec.structs.replace(line, kind=kind, message="", **more)
            for kind, more in (
                ("assert_pass", {"assertion_id": "a1"}),
                ("case_end", {"status": "pass"}),
            )
        )
        self._pass_and_end = line_template(_encode(passed)) + line_template(_encode(ended))
        """Template of a passing case's last two lines: time, name, counters, duration; twice."""
        self._forks = _forks
        self._path = str(path)
        self._file = OwnFile()
        self._open()

    def event(self, kind: str, case: str = "", message: str = "", **more: Any) -> None:
        """Write one event. It is on disk when this returns."""
        self.write(self.render(kind, case, message, **more))

    def render(self, kind: str, case: str = "", message: str = "", **more: Any) -> bytes:
        """Return an event as a line with the current counters. Count the event first."""
        self.last_ts = self.watch.stamp()
        event = TraceEvent(
            TRACE_VERSION,
            self._suite,
            self._timestamp,
            self.last_ts,
            kind,
            case,
            message,
            self.counts(),
            **more,
        )
        return _encode(event) + b"\n"

    def counts(self) -> Counts:
        return Counts(self.total, self.passed, self.failed, self.skipped)

    def case_line(
        self,
        kind: bytes,
        case: bytes,
        at_ns: int,
        begun_ns: int | None = None,
        message: bytes = b'""',
        more: bytes = b"",
    ) -> bytes:
        """Render a case's line like `render`, faster: structs took half of a test's time.
        Texts are JSON already; so is `more`, which begins with a comma. `begun_ns`: of the case, if
        it has begun."""
        stamp = self.watch.render(at_ns)
        if begun_ns is None:
            return self._begin % (
                stamp,
                kind,
                case,
                message,
                self.total,
                self.passed,
                self.failed,
                self.skipped,
                more,
            )
        return self._go_on % (
            stamp,
            kind,
            case,
            message,
            self.total,
            self.passed,
            self.failed,
            self.skipped,
            (at_ns - begun_ns) // 1_000_000,
            more,
        )

    def pass_and_end(self, case: bytes, begun_ns: int, passed_ns: int, ended_ns: int) -> bytes:
        """Render the pass and the end of a case that only passed."""
        render = self.watch.render
        counts = self.total, self.passed, self.failed, self.skipped
        return self._pass_and_end % (
            render(passed_ns),
            case,
            *counts,
            (passed_ns - begun_ns) // 1_000_000,
            render(ended_ns),
            case,
            *counts,
            (ended_ns - begun_ns) // 1_000_000,
        )

    @property
    def is_own(self) -> bool:
        """Return whether this process started the suite: a forked child must not write."""
        return _forks == self._forks

    def write(self, lines: bytes) -> None:
        """Append complete lines with one write."""
        if _forks != self._forks:
            return
        try:
            try:
                written = self._file.append(lines)
            except LostError:
                if self._file.fd < 0:
                    raise
                self._open()  # A test has closed our descriptor, and may use its number.
                written = self._file.append(lines)
            while written < len(lines):
                lines = lines[written:]
                written = self._file.append(lines)
        except OSError as error:
            self.lose(error)

    def lose(self, error: Exception) -> None:
        """Record that something is missing in the trace, with the reason."""
        self.lost += 1
        self.why_lost = self.why_lost or reason(error)

    def close(self) -> None:
        if self.is_own:
            self._file.close()

    def _open(self) -> None:
        fd = system.open(self._path, OPEN_FLAGS, 0o644)
        try_lock(fd)
        self._file.point_to(fd)
        system.close(fd)
