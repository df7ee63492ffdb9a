"""Stack snapshots of a process: its threads, its tasks, and when they are written by themselves."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vestige._runtime.clock import FakeClock
from vestige.emit.process import stack_snapshot
from vestige.emit.process.stack_snapshot import StackSnapshot, capture_stacks
from vestige.emit.process.stall_watch import StackRequest, StallWatch

SECOND = 10**9
HERE = Path(__file__).name


# --- stacks ---------------------------------------------------------------------------------------


@pytest.fixture
def stuck() -> Iterator[Callable[..., None]]:
    """Starts threads that wait in a function, until the test is over."""
    over = threading.Event()
    threads = []

    def start(name: str, function: Callable[[threading.Event], object]) -> None:
        ready = threading.Event()

        def run() -> None:
            ready.set()
            function(over)

        thread = threading.Thread(target=run, name=name)
        threads.append(thread)
        thread.start()
        ready.wait()

    yield start
    over.set()
    for thread in threads:
        thread.join()


def wait_deep(over: threading.Event, depth: int = 150) -> None:
    if depth:
        wait_deep(over, depth - 1)
    else:
        over.wait()


def settled(condition: Callable[[StackSnapshot], bool]) -> StackSnapshot:
    """A thread that was started needs a moment to come to where it waits."""
    for _ in range(1000):
        found = capture_stacks()
        if condition(found):
            return found
        threading.Event().wait(0.01)
    raise AssertionError(found.text)


def test_a_thread_is_told_with_the_line_it_waits_in(stuck: Callable[..., None]) -> None:
    """As a Python traceback; a library's frames are there, the program's own is named."""
    stuck("searcher", wait_deep)

    found = settled(lambda seen: "over.wait()" in seen.text)

    assert "Thread searcher (most recent call last):" in found.text
    assert f'in wait_deep\n    over.wait()\n  File "{threading.__file__}"' in found.text
    assert f"{HERE}:" in found.at and "in wait_deep" in found.at
    assert found.text.startswith("Thread MainThread (")


def test_deep_recursion_is_told_once_and_bounded(stuck: Callable[..., None]) -> None:
    stuck("deep", wait_deep)

    found = settled(lambda seen: "over.wait()" in seen.text)

    stack = found.text[found.text.index("Thread deep") :]
    assert "[repeated 96 more times]" in stack
    assert stack.count("in wait_deep") == 2


def test_threads_that_stand_alike_are_told_once(stuck: Callable[..., None]) -> None:
    for number in range(8):
        stuck(f"pool-{number}", threading.Event.wait)

    found = settled(lambda seen: "and 3 more" in seen.text)

    assert found.text.count("Threads pool-0, ") == 1
    assert found.threads >= 9


def test_our_own_threads_are_left_out(stuck: Callable[..., None]) -> None:
    name = "-".join(("vestige", "journal"))
    stuck(name, threading.Event.wait)

    assert name not in capture_stacks().text


def test_a_task_is_told_with_all_that_it_awaits() -> None:
    """The thread below is in its event loop, which shows nothing: its tasks do."""

    async def fetch(over: asyncio.Event) -> None:
        await over.wait()

    async def plan(over: asyncio.Event) -> None:
        await fetch(over)

    async def main() -> StackSnapshot:
        over = asyncio.Event()
        tasks = [asyncio.create_task(plan(over), name=f"plan-{n}") for n in range(3)]
        await asyncio.sleep(0)
        found = await asyncio.to_thread(capture_stacks)
        over.set()
        await asyncio.gather(*tasks)
        return found

    found = asyncio.run(main())

    stack = found.text[found.text.index("Tasks plan-") :]
    assert stack.index("in plan\n    await fetch(over)") < stack.index(
        "in fetch\n    await over.wait()"
    )
    assert found.tasks == 4
    assert "in fetch (3 times)" in found.at and "in main" in found.at


def test_what_a_program_keeps_in_self_is_not_touched(stuck: Callable[..., None]) -> None:
    """Only asyncio's frames are looked into: `self` of others may be anything."""
    touched = []

    class Loop:
        def run(self, over: threading.Event) -> None:
            over.wait()

        def __getattr__(self, name: str) -> object:
            touched.append(name)
            raise AttributeError(name)

    stuck("loop", Loop().run)

    settled(lambda seen: "in run\n" in seen.text)
    assert touched == []


def test_without_source_the_places_are_still_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is imported to look: the thread that hangs may hold the lock of that import."""
    monkeypatch.delitem(sys.modules, "linecache")
    monkeypatch.delitem(sys.modules, "asyncio")

    found = capture_stacks()

    assert "linecache" not in sys.modules
    assert f'{HERE}", line' in found.text and "look()" not in found.text


def test_many_stacks_are_bounded(
    monkeypatch: pytest.MonkeyPatch, stuck: Callable[..., None]
) -> None:
    monkeypatch.setattr(stack_snapshot, "SNAPSHOT_STACKS_MAX", 2)
    stuck("one", threading.Event.wait)
    stuck("two", wait_deep)
    stuck("three", lambda over: over.wait())

    assert capture_stacks().text.endswith("more")


# --- when -----------------------------------------------------------------------------------------


@pytest.fixture
def ask_file(tmp_path: Path) -> Path:
    return tmp_path / "w1"


def test_a_silence_is_told_when_it_lasts_and_then_twice_as_long(ask_file: Path) -> None:
    clock = FakeClock(step_ns=0)
    watch = StallWatch(clock, 30, ask_file)
    reports = []
    for second in range(300):
        due = watch.due(7)
        if due is not None:
            reports.append((second, due.reason))
        clock.advance(SECOND)

    assert reports == [(n, f"nothing was recorded for {n} s") for n in (30, 60, 120, 240)]


def test_a_record_ends_a_silence_and_what_we_say_does_not(ask_file: Path) -> None:
    clock = FakeClock(step_ns=0)
    watch = StallWatch(clock, 30, ask_file)
    watch.due(100)
    clock.advance(29 * SECOND)
    assert watch.due(200) is None  # a record
    clock.advance(29 * SECOND)
    assert watch.due(200) is None
    clock.advance(SECOND)
    assert watch.due(200) == StackRequest("nothing was recorded for 30 s")
    watch.ignore_until(300)
    clock.advance(30 * SECOND)
    assert watch.due(300) == StackRequest("nothing was recorded for 60 s")


def test_a_service_that_often_waits_says_so_a_few_times(ask_file: Path) -> None:
    """A request a minute for a day, and not one line more for it than for one silence."""
    clock = FakeClock(step_ns=0)
    watch = StallWatch(clock, 30, ask_file)
    reports = 0
    for second in range(0, 86_400, 10):
        reports += watch.due(second // 60) is not None
        clock.advance(10 * SECOND)

    assert reports == 1


def test_zero_is_never(ask_file: Path) -> None:
    clock = FakeClock(step_ns=0)
    watch = StallWatch(clock, 0, ask_file)
    watch.due(1)
    clock.advance(10**6 * SECOND)

    assert watch.due(1) is None


@pytest.mark.parametrize(
    ("question", "due"),
    [
        ("run-1 k7", ("run-1", "k7")),
        ("", ("", "")),
        ("run-1", ("run-1", "")),
        ("a b c d", ("a", "b")),
        ("x" * 10_000, ("x" * 200, "")),
    ],
)
def test_a_question_is_taken_once_whatever_it_says(
    ask_file: Path, question: str, due: tuple[str, str]
) -> None:
    ask_file.write_text(question)
    watch = StallWatch(FakeClock(), 30, ask_file)

    assert watch.due(1) == StackRequest("stacks requested", *due)
    assert watch.due(1) is None
    assert not ask_file.exists()
