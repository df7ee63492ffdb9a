"""The only door to time, ids and randomness.

Everything else is handed a clock, so a test can hand it `FakeClock` and see
1, 2, 3. The methods are bare functions where that is possible: they run twice
for every span. Chance comes from `posix`: tests put something of their own into `os.urandom`, and ids would be the same.
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
    """Time and identity, as the emitting side needs them."""

    @property
    def now_ns(self) -> Now:
        """Wall clock, UTC, nanoseconds since 1970."""

    @property
    def monotonic_ns(self) -> Now:
        """A clock that never steps back: for durations."""

    def span_id(self) -> str:
        """16 lowercase hex digits (W3C trace context)."""

    def run_id(self) -> str:
        """A UUIDv4."""

    def writer_id(self) -> str:
        """16 lowercase hex digits, unique across a fleet."""


class SystemClock:
    """The real one."""

    def __init__(self) -> None:
        self.now_ns: Now = time.time_ns
        self.monotonic_ns: Now = time.monotonic_ns
        generator = _random.Random(int.from_bytes(posix.urandom(16), "big"))
        bits = generator.getrandbits
        # A closure over a C function: no attribute look-ups, and atomic between threads.
        self.fraction: Callable[[], float] = generator.random
        """From 0 to 1: to spread what many machines would else do at once."""
        self.span_id: Callable[[], str] = lambda: bits(64).to_bytes(8).hex()  # big-endian
        # A forked child must not repeat its parent's ids.
        os.register_at_fork(
            after_in_child=lambda: generator.seed(int.from_bytes(posix.urandom(16), "big"))
        )

    def keep_time(self) -> Callable[[], None]:
        """From now on the time goes on from here, whatever tests make of `time.time_ns` (time-machine): what they
        record would be too old to keep, or newer than all else for years. Returns what ends that."""
        before, monotonic_ns = self.now_ns, self.monotonic_ns
        ahead_ns = before() - monotonic_ns()
        self.now_ns = lambda: monotonic_ns() + ahead_ns

        def end() -> None:
            self.now_ns = before

        return end

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
    """Time that moves one step a look, and ids that count: for tests that compare whole outputs."""

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
        """Let time pass."""
        self._now_ns += ns
        self._monotonic_ns += ns


def uuid_text(raw: bytes | bytearray) -> str:
    """16 bytes as a UUID is written (the `uuid` module would cost its import)."""
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


SYSTEM = SystemClock()

random_bytes = posix.urandom
"""For what nobody may guess: keys, and names that a query must not know."""

sleep = time.sleep
monotonic = time.monotonic
