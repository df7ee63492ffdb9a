"""A traceback as its frames: where it was raised, and from where in the program's own code."""

from __future__ import annotations

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.programs import RunProgram
from vestige import Recorder
from vestige.home import Home
from vestige.query.failures.faulthandler_dump import format_dump, format_threads
from vestige.query.failures.traceback_parsing import (
    FRAMES_SHOWN,
    format_frames,
    format_location,
    parse_frames,
)
from vestige.transfer import open_path

FOREIGN = (
    "Traceback (most recent call last):\n"
    '  File "/app/agent.py", line 17, in main\n'
    "    answer = client.ask(question)\n"
    "             ^^^^^^^^^^^^^^^^^^^^\n"
    '  File "/venv/lib/python3.11/site-packages/shop/client.py", line 4, in ask\n'
    "    raise TimeoutError()\n"
    "TimeoutError\n"
)


RECORDED = FOREIGN.replace(
    '  File "/venv/lib',
    '  File "/src/vestige/wire/httpx_hook.py", line 45, in handle_request\n'
    "    call(transport, request)\n"
    '  File "/venv/lib',
)

DUMP = """Thread 0x00007f1 (most recent call first):
  File "/app/agent.py", line 8 in one
  File "/usr/lib/python3.11/threading.py", line 975 in run

Thread 0x00007f2 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/src/vestige/journal/writer.py", line 258 in _keep

Current thread 0x00007f3 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 1132 in _wait_for_tstate_lock
  File "/app/agent.py", line 14 in <module>
"""


def test_our_own_frames_are_no_program_s() -> None:
    """Wherever Vestige is installed: what called from there is the program."""
    assert format_location(RECORDED) == format_location(FOREIGN)


def test_of_a_dump_each_thread_is_told_but_the_journal_s() -> None:
    """The innermost first; where it stood is the program's own line."""
    assert format_threads(DUMP) == "agent.py:8 in one; agent.py:14 in <module>"
    assert format_dump(DUMP) == [
        "thread at agent.py:8 in one < threading.py:975 in run",
        "thread at threading.py:1132 in _wait_for_tstate_lock < agent.py:14 in <module>",
    ]
    assert (format_threads(""), format_dump("no dump")) == ("", [])


def failing(depth: int) -> str:
    def dig(left: int) -> None:
        if left:
            again(left)  # by turns: Python prints a repeated line only three times
        raise KeyError("index")

    def again(left: int) -> None:
        dig(left - 1)

    try:
        dig(depth)
    except KeyError as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError


def test_the_frames_are_python_s_own() -> None:
    """File, line, function and code of each, whatever marks Python puts below it."""
    frames = parse_frames(failing(1))

    assert [frame.function for frame in frames] == ["failing", "dig", "again", "dig"]
    assert frames[-1].code == 'raise KeyError("index")'
    assert str(frames[-1]) == format_location(failing(1))
    assert str(frames[-1]) == f"test_stacks.py:{frames[-1].line} in dig"


def test_of_a_library_s_error_the_program_s_line_is_told_too() -> None:
    assert format_location(FOREIGN) == "shop/client.py:4 in ask, called from agent.py:17 in main"


POOLS = """
    import multiprocessing, sys
    from concurrent.futures import ProcessPoolExecutor

    def work(number):
        return {}[number]

    if __name__ == "__main__":
        if sys.argv[1] == "pool":
            multiprocessing.Pool(1).map(work, [1])
        else:
            ProcessPoolExecutor(1).submit(work, 1).result()
"""


@pytest.mark.parametrize("pool", ["pool", "futures"])
def test_what_a_worker_of_a_pool_raised_is_told_with_the_worker_s_line(
    home: Home, run_program: RunProgram, pool: str
) -> None:
    """The line where the pool raises it again is of no use."""
    stack = run_program(POOLS, pool).stderr

    assert "RemoteTraceback" in stack
    assert format_location(stack) == "program.py:6 in work"
    assert parse_frames(stack)[0].function == "<module>"


def test_of_chained_exceptions_the_last_counts() -> None:
    """The one that nobody caught."""
    try:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error
    except ValueError as error:
        text = "".join(traceback.format_exception(error))

    (frame,) = parse_frames(text)

    assert frame.code.startswith("raise ValueError")


def test_a_deep_stack_is_told_from_its_inner_end() -> None:
    lines = format_frames(failing(40))

    assert len(lines) == FRAMES_SHOWN + 1
    assert lines[0] == "… 77 outer frames"
    assert lines[-1].endswith('raise KeyError("index")')


@given(st.text("File \"/a.py, line 3in\n ^|+'", max_size=300))
def test_any_text_is_read(text: str) -> None:
    assert len(parse_frames(text)) <= text.count("File")
    assert all(map(str, format_frames(text)))


def test_a_long_text_made_to_hurt_is_read_in_linear_time() -> None:
    """Nothing backtracks: quadratic work on this much text would take many minutes."""
    for part in (
        '  File "',
        '  File "a", line 1, in b\n',
        " ",
        "  |  ",
        '  File "a", line 1\n    ',
    ):
        parse_frames(part * (300_000 // len(part)))


def test_the_proof_of_a_crash_shows_where_it_was(home: Home) -> None:
    """In the finding, in the span that proves it, and from the run alone."""
    with (
        pytest.raises(KeyError),
        Recorder(home, last_words=False) as recorder,
        recorder.run("agent") as run,
        run.span("search", type="tool"),
    ):
        raise KeyError("index")

    with open_path(home) as debugger:
        finding = debugger.check().text(None)
        why = debugger.why().text(None)
        span = debugger.span("r2.s2").text(None)

    assert "raised in search at test_stacks.py:" in finding
    assert why.startswith("r2.s2 tool search")
    assert "  error.stack:\n    test_stacks.py:" in span
    assert 'raise KeyError("index")' in span


def test_the_log_lines_of_a_span_that_are_shown_are_the_bad_and_the_last(home: Home) -> None:
    with Recorder(home, last_words=False) as recorder, recorder.run("agent") as run:
        run.log.warn("odd")
        for number in range(20):
            run.log.info(f"step {number}")
        run.log.error("no index", error=KeyError("a-17"))

    with open_path(home) as debugger:
        text = debugger.span("r2.s1").text(None)

    assert [line for line in text.splitlines() if line.startswith(("warn", "info", "error:"))] == [
        'warn: "odd"',
        *(f'info: "step {number}"' for number in range(14, 20)),
        'error: "no index"',
    ]
    assert "  KeyError: 'a-17'" in text
    assert "… 14 more log lines" in text
