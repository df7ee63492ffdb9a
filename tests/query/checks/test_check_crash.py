"""Processes that die in every way there is, for real: the kind, and the span in flight."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vestige
from support.planted_bugs import (
    all_findings,
    answer,
    call,
    evidence_of,
    findings,
    recording,
    span_named,
)
from support.programs import RunProgram
from vestige.home import Home
from vestige.query.checks.process import crash

VESTIGE_RUN = (sys.executable, "-m", "vestige", "run", "--", sys.executable)

PROGRAM = """
import ctypes, os, resource, signal, sys
import vestige

def die(how):
    if how == "SIGSEGV":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(3)
    elif how == "memory":
        used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, used + 2**26))
        bytearray(2**30)
    elif how == "uncaught":
        raise KeyError("no such order")
    elif how == "quit":
        sys.exit(4)
    elif how.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, how))
        signal.pause()

recorder = vestige.Recorder()
with recorder.run("agent") as run:
    with run.span("chat", type="llm") as done:
        pass
    with run.span("plan", type="step") as plan:
        with plan.span("search", type="tool") as search:
            if len(sys.argv) > 2:
                search.set_attributes(rss_bytes=int(sys.argv[2]))
            die(sys.argv[1])
"""

ALL = (crash.crash, crash.uncaught_exception, crash.in_flight_end)


@pytest.mark.parametrize(
    ("how", "kind", "word"),
    [
        ("SIGKILL", "crash/SIGKILL", "killed by SIGKILL"),
        ("SIGSEGV", "crash/SIGSEGV", "Segmentation fault"),
        ("SIGTERM", "crash/SIGTERM", "killed by SIGTERM"),
        ("exit", "crash/exit", "exit status 3"),
        ("memory", "crash/oom", "MemoryError"),
        ("uncaught", "crash/uncaught", "no such order"),
        ("quit", "crash/exit", "SystemExit: 4"),
    ],
)
def test_a_supervised_process_tells_how_it_died_and_where(
    home: Home, run_program: RunProgram, how: str, kind: str, word: str
) -> None:
    run_program(PROGRAM, how, command=VESTIGE_RUN)

    (found,) = findings(home, *ALL)

    search = span_named(home, "search")
    assert (found.kind, found.severity, found.cause) == (kind, "error", search.id)
    assert found.evidence == [
        search.id,
        span_named(home, "plan").id,
        span_named(home, "agent").id,
    ]
    assert word in found.message
    assert found.command == f"vestige span {search.short_id}"


@pytest.mark.parametrize(
    ("how", "kind"), [("SIGKILL", "crash/unknown"), ("SIGSEGV", "crash/SIGSEGV")]
)
def test_nobody_watched_but_that_it_died_is_known(
    home: Home, run_program: RunProgram, how: str, kind: str
) -> None:
    run_program(PROGRAM, how)

    (found,) = findings(home, *ALL)

    assert (found.kind, found.cause) == (kind, span_named(home, "search").id)


def test_a_kill_of_a_process_with_much_memory_is_probably_the_oom_killer(
    home: Home, run_program: RunProgram
) -> None:
    run_program(PROGRAM, "SIGKILL", str(3 * 2**30), command=VESTIGE_RUN)

    (found,) = findings(home, *ALL)

    assert (found.kind, found.basis, found.confidence) == ("crash/oom", "hypothesis", 0.6)


def test_a_kill_in_a_tool_that_only_the_model_call_knows_names_it(
    home: Home, run_program: RunProgram
) -> None:
    """A program that calls its tools in a plain loop has no span open while one runs."""
    answered = answer(call({"city": "Rome"}))
    run_program(
        f"""
        import os, signal, vestige
        with vestige.Recorder().run("agent") as run:
            run.child("chat", "llm", body="hello").end(body={answered!r})
            os.kill(os.getpid(), signal.SIGKILL)
        """,
        command=VESTIGE_RUN,
    )

    (found,) = findings(home, *ALL)

    chat = span_named(home, "chat")
    assert f"Its last model call ({chat.short_id}) requested weather, which never" in found.message


def test_a_process_that_ends_well_has_no_such_finding(home: Home, run_program: RunProgram) -> None:
    done = run_program(PROGRAM, "not at all", command=VESTIGE_RUN)

    assert done.returncode == 0, done.stderr
    assert all_findings(home) == []


def test_the_cause_of_an_exception_is_where_it_was_raised_last(home: Home) -> None:
    """The same error may have been raised, and caught, before."""
    with recording(home) as run:
        run.child("first try", "tool").end(ValueError("bad"))
        with run.child("plan") as plan, plan.child("second try", "tool"):
            raise ValueError("bad")

    (found,) = findings(home, *ALL)

    assert (found.kind, found.cause) == ("crash/uncaught", span_named(home, "second try").id)


def test_an_error_that_was_caught_is_none(home: Home) -> None:
    with recording(home) as run:
        run.child("first try", "tool").end(ValueError("bad"))

    assert findings(home, *ALL) == []


def test_a_span_that_the_run_left_open(home: Home) -> None:
    with recording(home) as run:
        run.child("done", "tool").end()
        left = run.child("left", "tool")
        run.end()
        (found,) = findings(home, *ALL)

    assert (found.kind, found.severity, found.cause) == ("in-flight/open", "hint", left.id)
    (found,) = findings(home, *ALL)  # the process has ended, too
    assert (found.kind, found.severity, found.cause) == ("in-flight/exited", "warning", left.id)


def test_a_run_that_goes_on_is_not_in_flight(home: Home) -> None:
    with recording(home) as run:
        run.child("busy", "tool")

        assert findings(home, *ALL) == []


def test_an_exception_in_a_thread_is_told_with_its_span(
    home: Home, run_program: RunProgram
) -> None:
    run_program(
        """
        import threading, vestige
        recorder = vestige.Recorder()
        with recorder.run("agent") as run:
            with run.span("fan out") as span:
                def work():
                    raise ValueError("lost in a thread")
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
        """
    )

    (found,) = findings(home, *ALL)

    assert (found.kind, found.cause) == ("crash/uncaught", span_named(home, "fan out").id)
    assert "lost in a thread" in found.message


REFUSED = """
import vestige
log = vestige.default_recorder().logger("agent")
for code, said in [(500, "broken"), (429, "You exceeded your current quota")]:
    with log.span("chat", type="llm", attributes={"status_code": code}) as span:
        span.set_attributes(**{"error.type": f"HTTP {code}", "error.message": said})
        span.end(status="error")
raise RuntimeError("Error code: 500 - try later")
"""


def test_an_exception_about_a_model_call_names_that_call(
    home: Home, run_program: RunProgram
) -> None:
    """What an SDK raises says the status code, and not which of the calls it was."""
    run_program(REFUSED, command=VESTIGE_RUN)

    (found,) = findings(home, crash.uncaught_exception, name="program.py")

    first = span_named(home, "chat", run="program.py")
    assert f"try later, after llm chat ({first.short_id}) failed, at program.py:" in found.message
    assert (found.cause, found.evidence) == (first.id, [first.id])


WRAPPED = """
import vestige
log = vestige.default_recorder().logger("agent")
try:
    with log.span("chat", type="llm"):
        try:
            raise EOFError("peer closed the connection")
        except EOFError as error:
            raise ConnectionError("incomplete read") from error
except ConnectionError as error:
    raise RuntimeError("Connection error.") from error
"""


def test_an_exception_that_wraps_a_model_call_s_names_that_call(
    home: Home, run_program: RunProgram
) -> None:
    """SDKs wrap what the client wrapped: the two have the innermost in common, and nothing else."""
    run_program(WRAPPED, command=VESTIGE_RUN)

    (found,) = findings(home, crash.uncaught_exception, name="program.py")

    assert found.cause == span_named(home, "chat", run="program.py").id
    assert "RuntimeError: Connection error., after llm chat" in found.message


STOPPED = """
import os, signal, vestige
with vestige.default_recorder().logger("agent").span("wait", type="tool"):
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()
"""


def test_ctrl_c_is_no_crash(home: Home, run_program: RunProgram) -> None:
    """The run is cancelled, as the documents say; its position is shown."""
    done = run_program(STOPPED, command=VESTIGE_RUN)

    (found,) = findings(home, *ALL, name="program.py")
    with evidence_of(home, "program.py") as evidence:
        outcome = evidence.run.info.outcome
        ends = {span.type: span.status for span in evidence.run.spans}

    assert done.returncode == 128 + signal.SIGINT
    assert outcome == "cancelled"
    assert ends == {"run": "cancelled", "process": "cancelled", "tool": "cancelled"}
    assert (found.kind, found.severity) == ("stopped/keyboard", "warning")
    assert (
        "stopped from the keyboard: KeyboardInterrupt, raised in wait at program.py:"
        in found.message
    )
    assert "program.py:" in found.message


DEADLOCK = """
import os, signal, threading, vestige

taken = threading.Lock()
taken.acquire()

def wait_for_ever(ready):
    ready.set()
    taken.acquire()

with vestige.Recorder().run("agent"):
    ready = threading.Event()
    threading.Thread(target=wait_for_ever, args=(ready,), daemon=True).start()
    ready.wait()
    os.kill(os.getpid(), signal.SIGTERM)
"""


def test_of_a_program_that_hung_until_it_was_stopped_is_told_where_it_stood(
    home: Home, run_program: RunProgram
) -> None:
    """Each of its threads, in its own code; and `span` shows what is around that."""
    run_program(DEADLOCK)

    (found,) = findings(home, crash.crash)
    with vestige.open(home.root) as debugger:
        shown = str(debugger.span(found.cause))

    assert found.kind == "crash/SIGTERM"
    assert "It was at program.py:" in found.message
    assert "in wait_for_ever; program.py:" in found.message
    assert "thread at program.py:" in shown


CALL = """
import vestige
vestige.default_recorder().logger("agent").span("charge", type="tool").end()
"""

STOPS_ITS_CHILD = """
import multiprocessing, signal, vestige

def work(ready):
    if BUSY:
        vestige.default_recorder().logger("child").span("charge", type="tool")
    ready.send(True)
    signal.pause()

here, there = multiprocessing.Pipe()
child = multiprocessing.get_context("fork").Process(target=work, args=(there,))
child.start()
here.recv()
child.terminate()
child.join()
"""


@pytest.mark.parametrize("busy", [False, True])
def test_a_child_that_its_parent_stops_crashed_only_if_it_was_busy(
    home: Home, run_program: RunProgram, busy: bool
) -> None:
    """Every `with Pool()` ends its idle workers with SIGTERM."""
    done = run_program(STOPS_ITS_CHILD.replace("BUSY", str(busy)), command=VESTIGE_RUN)

    found = findings(home, crash.crash, name="program.py")

    assert done.returncode == 0, done.stderr
    assert [(each.kind, each.severity) for each in found] == [("crash/SIGTERM", "error")] * busy


@pytest.mark.parametrize(("work", "severity"), [("pass", "hint"), (CALL, "error")])
def test_a_service_without_work_of_its_own_that_is_stopped_is_a_hint(
    home: Home, run_program: RunProgram, work: str, severity: str
) -> None:
    """Servers finish their requests at SIGTERM, then let the signal end them."""
    stop = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)"

    run_program(f"{work}\n{stop}", command=VESTIGE_RUN)

    (found,) = findings(home, crash.crash, name="program.py")
    assert (found.kind, found.severity) == ("crash/SIGTERM", severity)


CLEAN = """
import multiprocessing, os, subprocess, sys, time
import vestige

def square(number):
    return number * number

def pool(method):
    with multiprocessing.get_context(method).Pool(2) as workers:
        assert workers.map(square, range(4)) == [0, 1, 4, 9]

def fork():
    for number in range(2):
        pid = os.fork()
        if pid == 0:
            vestige.default_recorder().logger("child").info("works", number=number)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0

def helper(stop):
    source = "import vestige, sys; vestige.default_recorder(); "
    source += "print(1, flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", source], stdin=-1, stdout=-1)
    child.stdout.readline()
    stop(child)
    child.wait()

WAYS = {
    "pool, fork": lambda: pool("fork"),
    "pool, spawn": lambda: pool("spawn"),
    "pool, forkserver": lambda: pool("forkserver"),
    "fork": fork,
    "terminate": lambda: helper(lambda child: child.terminate()),
    "kill": lambda: helper(lambda child: child.kill()),
}

if __name__ == "__main__":
    with vestige.Recorder().run("agent"):
        WAYS[sys.argv[1]]()
"""


@pytest.mark.parametrize(
    "way", ["pool, fork", "pool, spawn", "pool, forkserver", "fork", "terminate", "kill"]
)
@pytest.mark.parametrize("command", [(sys.executable,), VESTIGE_RUN])
def test_a_program_that_stops_its_children_in_the_usual_ways_has_no_error(
    home: Home, run_program: RunProgram, way: str, command: tuple[str, ...]
) -> None:
    """Also where it has a run of its own, in which the children then are."""
    done = run_program(CLEAN, way, command=command)

    assert done.returncode == 0, done.stderr
    assert [found.kind for found in all_findings(home) if found.severity == "error"] == []


CRASHES = """
import ctypes, os, signal, subprocess, sys, time
import vestige

how = sys.argv[1]
run = vestige.Recorder().run("agent").__enter__()
pid = os.fork()
if pid == 0:
    if how == "SIGSEGV":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(3)
    elif how == "uncaught":
        raise KeyError("no such order")
    elif how == "busy":
        with run.span("charge", type="tool"):
            os.kill(os.getpid(), signal.SIGKILL)
    else:
        os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(pid, 0)
if how == "both":
    os.kill(os.getpid(), signal.SIGKILL)
run.end()
"""


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("SIGSEGV", "crash/SIGSEGV"),
        ("exit", "crash/exit"),
        ("uncaught", "crash/uncaught"),
        ("busy", "crash/unknown"),
        ("both", "crash/unknown"),
    ],
)
def test_a_child_that_really_died_is_an_error(
    home: Home, run_program: RunProgram, how: str, kind: str
) -> None:
    """Its parent lives on, or died too."""
    run_program(CRASHES, how)

    found = [one for one in all_findings(home) if one.severity == "error"]

    assert kind in {one.kind for one in found}


def test_leaving_by_os_exit_is_known_without_a_supervisor(
    home: Home, run_program: RunProgram
) -> None:
    done = run_program(PROGRAM, "exit")

    (found,) = findings(home, *ALL)

    assert done.returncode == 3
    assert (found.kind, found.cause) == ("crash/exit", span_named(home, "search").id)
    assert "It called os._exit(3)." in found.message


def test_os_exit_does_what_it_always_did(run_program: RunProgram) -> None:
    """Whatever it is given, in whichever thread, and again after the recorder is closed."""
    done = run_program(
        """
        import os, threading, vestige
        plain = os._exit
        recorder = vestige.Recorder()
        assert os._exit is not plain
        for wrong in ("x", None):
            try:
                os._exit(wrong)
            except TypeError as error:
                print(type(error).__name__)
        recorder.close()
        assert os._exit is plain
        vestige.Recorder().run("agent")
        thread = threading.Thread(target=os._exit, args=(7,))
        thread.start()
        thread.join()
        """
    )

    assert (done.returncode, done.stdout.split()) == (7, ["TypeError", "TypeError"]), done.stderr


@pytest.mark.parametrize(
    ("raising", "named"),
    [
        ("raise RuntimeError('wrapped') from error", "ValueError: planted at program.py:5"),
        (
            "raise ExceptionGroup('many', [error, KeyError('b')])",
            "ValueError: planted at program.py:5",
        ),
    ],
)
def test_the_innermost_cause_of_an_exception_is_named_with_its_place(
    home: Home, run_program: RunProgram, raising: str, named: str
) -> None:
    """Every SDK wraps what went wrong."""
    run_program(
        f"""
        import vestige

        def deep():
            raise ValueError("planted")

        with vestige.Recorder().run("agent"):
            try:
                deep()
            except ValueError as error:
                {raising}
        """
    )

    (found,) = findings(home, crash.uncaught_exception)
    with vestige.open(home.root) as debugger:
        shown = str(debugger.span(found.cause))
        why = str(debugger.why(found.cause))

    assert f"Caused by {named}" in found.message
    assert "error.cause.stack" in shown
    assert named in why


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A control group with 300 MB, of either version; its list of processes."""
    for parent, limit in (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", "memory.max"),
    ):
        group = Path(parent) / f"vestige-test-{os.getpid()}"
        if not Path(parent, "cgroup.procs").exists():
            continue
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(300_000_000))
            yield group / "cgroup.procs"
            return
        except OSError:
            continue
        finally:
            group.rmdir()
    pytest.skip("no control group with a memory limit can be made here")


def test_a_process_that_the_oom_killer_killed_is_out_of_memory(
    home: Home, run_program: RunProgram, small_memory: Path
) -> None:
    enter = f'echo $$ > {small_memory}; exec {" ".join(VESTIGE_RUN)} "$@"'
    done = run_program(
        """
        import vestige
        with vestige.Recorder().run("agent") as run:
            with run.span("eat", type="tool"):
                eaten = []
                while True:
                    eaten.append(b"x" * 20_000_000)
        """,
        command=("sh", "-c", enter, "sh"),
    )

    (found,) = findings(home, *ALL)

    assert done.returncode == 128 + signal.SIGKILL, done.stderr
    assert (found.kind, found.basis) == ("crash/oom", "measured")
    assert found.cause == span_named(home, "eat").id
    assert "OOM killer: out of memory" in found.message
    assert "MB at most" in found.message
