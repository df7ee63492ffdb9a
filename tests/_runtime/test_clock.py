"""Time and ids come from one door, in their promised shapes, and never twice."""

from __future__ import annotations

import os
import re
import time
import uuid

from vestige._runtime.clock import SYSTEM, FakeClock, uuid_text


def test_ids_have_their_shapes() -> None:
    """span and writer: 16 lowercase hex digits; run: a UUIDv4."""
    for _ in range(200):
        assert re.fullmatch("[0-9a-f]{16}", SYSTEM.span_id())
        assert re.fullmatch("[0-9a-f]{16}", SYSTEM.writer_id())
        run = uuid.UUID(SYSTEM.run_id())
        assert (run.version, run.variant) == (4, uuid.RFC_4122)


def test_ids_do_not_repeat() -> None:
    """Not in one process."""
    assert len({SYSTEM.span_id() for _ in range(10_000)}) == 10_000


def test_a_forked_child_does_not_repeat_its_parents_ids() -> None:
    """The generator gets a new seed."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, SYSTEM.span_id().encode())
        os._exit(0)
    os.waitpid(pid, 0)
    theirs = os.read(reader, 16).decode()
    os.close(reader)
    os.close(writer)

    assert theirs != SYSTEM.span_id()


def test_the_system_clock_is_the_system_s() -> None:
    """Nanoseconds, UTC."""
    assert abs(SYSTEM.now_ns() - time.time_ns()) < 10**9
    assert SYSTEM.monotonic_ns() <= SYSTEM.monotonic_ns()


def test_the_fake_clock_moves_one_step_a_look() -> None:
    """And further when it is advanced."""
    clock = FakeClock(start_ns=100, step_ns=10)

    assert (clock.now_ns(), clock.now_ns(), clock.monotonic_ns()) == (110, 120, 10)
    clock.advance(1_000)
    assert (clock.now_ns(), clock.monotonic_ns()) == (1_130, 1_020)
    assert (clock.span_id(), clock.writer_id()) == (f"{1:016x}", f"{2:016x}")
    assert uuid.UUID(clock.run_id()).version == 4


def test_uuid_text_is_as_the_standard_library_writes_it() -> None:
    """Without its import."""
    raw = bytes(range(16))

    assert uuid_text(raw) == str(uuid.UUID(bytes=raw))
