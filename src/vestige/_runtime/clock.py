"""The only source of time, ids and randomness.

All other code receives a clock, so a test can pass `FakeClock` and see 1, 2, 3.
The methods are bare functions where possible, because they run twice per span.
Random bytes come from `posix`: tests replace `os.urandom`, and ids would repeat.
"""

from __future__ import annotations

import _random  # the C generator alone: `random` costs 5 ms of imports that we do not need
import os
import posix
import time
from collections.abc import Callable
from typing import Protocol

Now = Callable[[], int]


class Clock(Protocol):
    """The time and the ids that the emitting side needs."""

    @property
    def now_ns(self) -> Now:
        """Wall clock, UTC, nanoseconds since 1970."""

    @property
    def monotonic_ns(self) -> Now:
        """A clock that never goes back, for durations."""

    def span_id(self) -> str:
        """16 lowercase hex digits (W3C trace context)."""

    def run_id(self) -> str:
        """A UUIDv4."""

    def writer_id(self) -> str:
        """16 lowercase hex digits, unique across a fleet."""


class SystemClock:
    """The time and the random numbers of the operating system."""

    def __init__(self) -> None:
        self.now_ns: Now = time.time_ns
        self.monotonic_ns: Now = time.monotonic_ns
        generator = _random.Random(int.from_bytes(posix.urandom(16), "big"))
        bits = generator.getrandbits
        # A closure over a C function: no attribute look-ups, and atomic between threads.
        self.fraction: Callable[[], float] = generator.random
        """A random number from 0 to 1, to spread work that many machines would do at once."""
        self.span_id: Callable[[], str] = lambda: bits(64).to_bytes(8, "big").hex()
        # A forked child must not repeat its parent's ids.
        os.register_at_fork(
            after_in_child=lambda: generator.seed(int.from_bytes(posix.urandom(16), "big"))
        )

    def ignore_time_travel(self) -> Callable[[], None]:
        """Derive the time from the monotonic clock, and return a function that undoes it.

        Tests replace `time.time_ns` (time-machine). Their records would be too old for retention,
        or newer than all others for years.
        """
        before, monotonic_ns = self.now_ns, self.monotonic_ns
        offset_ns = before() - monotonic_ns()
        self.now_ns = lambda: monotonic_ns() + offset_ns

        def restore() -> None:
            self.now_ns = before

        return restore

    @staticmethod
    def run_id() -> str:
        raw = bytearray(posix.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        return uuid_text(raw)

    @staticmethod
    def writer_id() -> str:
        return posix.urandom(8).hex()


class FakeClock:
    """Time that advances one step per call, and sequential ids, for tests of complete outputs."""

    def __init__(self, start_ns: int = 1_700_000_000_000_000_000, step_ns: int = 1_000_000) -> None:
        self._now_ns = start_ns
        self._monotonic_ns = 0
        self._step_ns = step_ns
        self._ids = 0

    def now_ns(self) -> int:
        self._now_ns += self._step_ns
        return self._now_ns

    def monotonic_ns(self) -> int:
        self._monotonic_ns += self._step_ns
        return self._monotonic_ns

    def span_id(self) -> str:
        self._ids += 1
        return f"{self._ids:016x}"

    def run_id(self) -> str:
        self._ids += 1
        return f"00000000-0000-4000-8000-{self._ids:012x}"

    def writer_id(self) -> str:
        self._ids += 1
        return f"{self._ids:016x}"

    def advance(self, ns: int) -> None:
        self._now_ns += ns
        self._monotonic_ns += ns


def uuid_text(raw: bytes | bytearray) -> str:
    """Format 16 bytes as a UUID, without the cost of importing `uuid`."""
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


SYSTEM = SystemClock()

random_bytes = posix.urandom
"""Unguessable bytes, for keys and for names that a query must not know."""

sleep = time.sleep
monotonic = time.monotonic
