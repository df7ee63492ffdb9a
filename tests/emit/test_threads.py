"""The ambient span goes along into threads, pools and tasks, and nowhere else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import vestige
from vestige.testing import FakeRecorder


def current_id() -> str:
    return vestige.current_span().id


def test_a_thread_starts_in_the_span_that_started_it() -> None:
    """Plain threads, subclasses and timers."""
    seen: list[str] = []

    class Worker(threading.Thread):
        def run(self) -> None:
            seen.append(current_id())

    with FakeRecorder() as recorder, recorder.run("r") as run:
        threads = [
            threading.Thread(target=lambda: seen.append(current_id())),
            Worker(),
            threading.Timer(0, lambda: seen.append(current_id())),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert seen == [run.id] * 3
    assert all("run" not in thread.__dict__ for thread in threads)


def test_a_thread_started_outside_has_no_span() -> None:
    """As before."""
    seen: list[str] = []

    with FakeRecorder() as recorder:
        thread = threading.Thread(target=lambda: seen.append(current_id()))
        thread.start()
        thread.join()
        assert recorder.spans == []

    assert seen == [""]


def test_a_pool_runs_each_call_in_its_callers_span() -> None:
    """submit and map; and a thread of the pool keeps no span of an earlier call."""
    with FakeRecorder() as recorder, ThreadPoolExecutor(1) as pool:
        with recorder.run("first") as first:
            in_first = pool.submit(current_id).result()
            mapped = list(pool.map(lambda _: current_id(), range(2)))
        with recorder.run("second") as second:
            in_second = pool.submit(current_id).result()
        outside = pool.submit(current_id).result()

    assert (in_first, mapped) == (first.id, [first.id, first.id])
    assert (in_second, outside) == (second.id, "")


def test_a_pool_call_gives_the_same_result_and_error() -> None:
    """Arguments, keywords, return values and exceptions pass through."""

    def divide(a: int, *, by: int) -> float:
        return a / by

    with FakeRecorder() as recorder, recorder.run("r"), ThreadPoolExecutor(1) as pool:
        good = pool.submit(divide, 6, by=3)
        bad = pool.submit(divide, 6, by=0)

        assert good.result() == 2
        assert isinstance(bad.exception(), ZeroDivisionError)


def test_executors_and_tasks_of_asyncio_carry_the_span() -> None:
    """run_in_executor, to_thread, create_task, call_soon."""
    seen: dict[str, str] = {}

    async def in_task() -> None:
        seen["task"] = current_id()

    async def agent(recorder: FakeRecorder) -> str:
        loop = asyncio.get_running_loop()
        with recorder.run("r") as run:
            seen["executor"] = await loop.run_in_executor(None, current_id)
            seen["to_thread"] = await asyncio.to_thread(current_id)
            await asyncio.create_task(in_task())
            loop.call_soon(lambda: seen.setdefault("soon", current_id()))
            await asyncio.sleep(0)
        seen["after"] = await loop.run_in_executor(None, current_id)
        return run.id

    with FakeRecorder() as recorder:
        run_id = asyncio.run(agent(recorder))

    assert seen == {
        "executor": run_id,
        "to_thread": run_id,
        "task": run_id,
        "soon": run_id,
        "after": "",
    }


def test_the_last_recorder_out_restores_what_was_there() -> None:
    """Thread.start and submit are themselves again, however many came and went."""
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    with FakeRecorder():
        with FakeRecorder():
            assert threading.Thread.start is not start
        assert threading.Thread.start is not start

    assert threading.Thread.start is start
    assert ThreadPoolExecutor.submit is submit


def test_what_somebody_wrapped_after_us_stays() -> None:
    """We take away only what is ours."""
    original = threading.Thread.start
    recorder = FakeRecorder()
    ours = threading.Thread.start

    def theirs(self: threading.Thread) -> None:
        ours(self)

    threading.Thread.start = theirs  # type: ignore[method-assign]
    try:
        recorder.close()

        assert threading.Thread.start is theirs
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
    finally:
        threading.Thread.start = original  # type: ignore[method-assign]


_LATE = """
import sys
from vestige.testing import FakeRecorder

with FakeRecorder() as recorder, recorder.run("r") as run:
    assert "concurrent.futures.thread" not in sys.modules
    from concurrent.futures import ThreadPoolExecutor
    import vestige
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: vestige.current_span().id).result() == run.id
assert not hasattr(ThreadPoolExecutor.submit, "_vestige")
assert not any("vestige" in type(finder).__module__ for finder in sys.meta_path)
"""


def test_a_pool_that_is_imported_later_carries_spans_too() -> None:
    """A recorder does not load what the program may never need; nothing of ours stays behind."""
    done = subprocess.run([sys.executable, "-c", _LATE], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
