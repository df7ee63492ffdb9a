"""Below `vestige run` what a program prints is recorded, and nothing of its printing changes."""

from __future__ import annotations

import sys

from support.programs import load, run_in
from vestige._runtime.clock import FakeClock
from vestige.emit.hooks.stdout_capture import Prints
from vestige.home import Home
from vestige.limits import PRINT_MAX, PRINTS_AT_ONCE
from vestige.record.run import LogInfo

RUN = (sys.executable, "-m", "vestige", "run", "--", sys.executable)


def printed(home: Home) -> list[LogInfo]:
    return [log for run in load(home) for log in run.logs if log.component in ("stdout", "stderr")]


def test_what_a_program_prints_is_recorded_and_printed_as_before(home: Home) -> None:
    """Each print once, as it would stand on a screen, with its place in the code."""
    agent = """
        import sys, threading

        print("found", 3, "pages")
        print("\\x1b[31mred\\x1b[0m and \\x1b]8;;http://x\\x07a link\\x1b]8;;\\x07")
        print("two\\nlines", file=sys.stderr)
        for token in ("a ", "stream ", "of tokens"):
            print(token, end="", flush=True)
        print()
        for percent in range(0, 101, 20):
            sys.stderr.write(f"\\r{percent}%")
        print("\\r\\n", end="", file=sys.stderr)
        sys.stdout.writelines(["written\\r\\n", "at once\\n"])
        print("   ")
        print("ünïcode", "\\N{SNOWMAN}")
        thread = threading.Thread(target=print, args=("in a thread",))
        thread.start()
        thread.join()
        print(type(sys.stdout).__name__, sys.stdout.isatty(), sys.stdout.encoding)
        try:
            sys.stdout.write(1)
        except TypeError as error:
            print(error)
        print("begun", end="")
    """
    bare = run_in(home, agent, env={"VESTIGE_DISABLED": "1"})
    recorded = run_in(home, agent, command=RUN)
    lines = printed(home)

    assert (recorded.stdout, recorded.stderr) == (bare.stdout, bare.stderr)
    assert [log.message for log in lines if log.component == "stdout"] == [
        "found 3 pages",
        "red and a link",
        "a stream of tokens",
        "written",
        "at once",
        "ünïcode ☃",
        "in a thread",
        "TextIOWrapper False utf-8",
        "write() argument must be str, not int",
        "begun",
    ]
    assert [log.message for log in lines if log.component == "stderr"] == ["two\nlines", "100%"]
    assert {log.level for log in lines} == {"info"}
    assert str(lines[0].attributes["code.file"]).endswith("program.py:4")


def test_a_print_belongs_to_the_span_it_was_made_in(home: Home) -> None:
    agent = """
        import vestige

        with vestige.traced_run("agent") as run:
            with run.span("search", type="tool"):
                print("looking")
    """
    run_in(home, agent, command=RUN)

    (run,) = [run for run in load(home) if run.info.name == "agent"]
    (search,) = [span for span in run.spans if span.name == "search"]
    assert [(log.message, log.span_id) for log in run.logs] == [("looking", search.id)]


def test_what_is_told_already_is_not_told_again(home: Home) -> None:
    """What `logging` writes is a log line, and what nobody caught is in the last words."""
    agent = """
        import logging, sys

        logging.basicConfig(level="INFO", stream=sys.stdout)
        logging.getLogger("shop").info("stock is low")
        raise ValueError("no stock")
    """
    recorded = run_in(home, agent, command=RUN)

    assert "INFO:shop:stock is low" in recorded.stdout
    assert "ValueError: no stock" in recorded.stderr
    assert printed(home) == []


def test_a_printed_traceback_is_one_error(home: Home) -> None:
    """A search for errors finds an exception that the program has swallowed."""
    agent = """
        import traceback

        try:
            {}["index"]
        except KeyError:
            traceback.print_exc()
        print("went on")
    """
    run_in(home, agent, command=RUN)
    error, after = printed(home)

    assert (error.component, error.level, error.message) == ("stderr", "error", "KeyError: 'index'")
    assert error.attributes["error.type"] == "KeyError"
    assert "program.py" in str(error.attributes["error.stack"])
    assert (after.level, after.message) == ("info", "went on")


def test_a_listener_that_prints_and_a_program_that_forks(home: Home) -> None:
    """Telling does not tell of itself, and what a parent has begun is not its child's."""
    agent = """
        import os, sys, vestige

        vestige.default_recorder().on_any(lambda record: print("heard", file=sys.stderr))
        print("begun, ", end="", flush=True)
        child = os.fork()
        print("child" if child == 0 else "parent")
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    """
    run_in(home, agent, command=RUN)

    lines = printed(home)
    on_stdout = sorted(log.message for log in lines if log.component == "stdout")
    assert on_stdout == ["begun, parent", "child"]
    # The listener also got records that are not prints, but not those that it caused.
    assert len(lines) < 10


def test_it_can_be_switched_off(home: Home) -> None:
    run = [sys.executable, "-m", "vestige", "run", "--no-prints", "--", sys.executable]

    assert run_in(home, "print('hello')", command=run).stdout == "hello\n"
    assert printed(home) == []


def test_a_program_that_prints_all_the_time_is_told_of_in_part(home: Home) -> None:
    """The first ones, then some a second; how many were left out is said."""
    run_in(home, f"for number in range({PRINTS_AT_ONCE * 3}): print(number)", command=RUN)
    lines = printed(home)

    numbers = [int(log.message) for log in lines if log.level == "info"]
    left_out = sum(int(str(log.attributes.get("left_out", 0))) for log in lines)
    assert numbers[:PRINTS_AT_ONCE] == list(range(PRINTS_AT_ONCE))
    assert len(numbers) + left_out == PRINTS_AT_ONCE * 3


def test_after_a_rest_it_tells_again() -> None:
    clock = FakeClock(step_ns=0)
    prints = Prints("stdout", len, clock.monotonic_ns)
    allowance = prints._allowance
    for _ in range(PRINTS_AT_ONCE):
        assert allowance.take()

    assert not allowance.take()
    clock.advance(10**9)
    allowance.count_skipped()
    assert not allowance.is_spent
    assert allowance.take()
    assert allowance.pop_left_out() == 2


def test_a_long_print_is_cut_and_that_is_said(home: Home) -> None:
    run_in(home, f"print('x' * {PRINT_MAX * 3})", command=RUN)
    (log,) = printed(home)

    assert len(log.message) <= PRINT_MAX
    assert log.attributes["printed_chars"] == PRINT_MAX * 3 + 1


def test_no_secret_gets_through(home: Home) -> None:
    """Also one that comes in pieces."""
    secret = "sk-ant-api03-" + "a1B2c3D4e5F6g7H8" * 5 + "-AAAA"
    source = f"""
        import sys
        text = "{secret[:40]}" + "{secret[40:]}"
        sys.stdout.write("key " + text[:20])
        sys.stdout.write(text[20:] + "\\n")
    """
    recorded = run_in(home, source, command=RUN)
    (log,) = printed(home)

    assert secret in recorded.stdout
    assert log.message.startswith("key ")
    assert secret not in log.message
