"""`vestige run` stays out of the way: exit code, signals and stdin are the command's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

import vestige
from support.programs import ReadRuns, RunProgram
from vestige.collector import run_supervisor
from vestige.collector.loop import catch_up, hold
from vestige.home import Home
from vestige.query.views.show import stamps
from vestige.record.run import Run
from vestige.recorder import Recorder
from vestige.store.protocol import RunFilter

VESTIGE_RUN = (sys.executable, "-m", "vestige", "run", "--")
PYTHON_RUN = (*VESTIGE_RUN, sys.executable)


def supervised(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vestige", "run", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        **more,  # type: ignore[call-overload]
    )


def the_command(runs: list[Run]) -> Run:
    """The run that `vestige run` opened for its command."""
    (run,) = [run for run in runs if any("command" in span.attributes for span in run.spans)]
    return run


AT_A_TERMINAL = """
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.execv(sys.argv[1], sys.argv[1:])
said = b""
while b"ready" not in said:
    said += os.read(terminal, 1000)
os.write(terminal, b"\\x03")
try:
    while more := os.read(terminal, 1000):
        said += more
except OSError:
    pass  # how a terminal says that nobody is there any more
os.waitpid(pid, 0)
print(said.decode())
"""
"""Runs its arguments at a terminal with the input redirected, and presses Ctrl-C."""

COUNTS_INTERRUPTS = """
import signal, time
heard = []
signal.signal(signal.SIGINT, lambda *_: heard.append(1))
print("ready", flush=True)
while not heard:
    time.sleep(0.01)  # a handler runs between two of them
time.sleep(0.5)  # a second one would be there by then
print("interrupted:", len(heard))
"""


@pytest.mark.parametrize(
    ("program", "code", "outcome"),
    [
        ("pass", 0, "ok"),
        ("raise SystemExit(7)", 7, "error"),
        ("raise ValueError('x')", 1, "error"),
        ("import os; os.kill(os.getpid(), 9)", 128 + 9, "interrupted"),
    ],
)
def test_the_exit_code_is_the_commands(
    home: Home, read_runs: ReadRuns, program: str, code: int, outcome: str
) -> None:
    """And 128 + n when signal n killed it, as a shell says it."""
    done = supervised("--", sys.executable, "-c", program)
    run = the_command(read_runs())
    root = run.spans[0]

    assert done.returncode == code
    assert run.info.outcome == outcome
    assert root.attributes.get("exit_code", root.attributes.get("signal")) == (
        "SIGKILL" if code > 128 else code
    )


def test_a_program_that_is_no_python_is_recorded_by_its_end(
    home: Home, read_runs: ReadRuns
) -> None:
    """Of any other program one gets how it ended."""
    done = supervised("--", "sh", "-c", "echo out; exit 4")
    run = the_command(read_runs())

    assert (done.returncode, done.stdout) == (4, "out\n")
    assert (run.info.outcome, run.spans[0].attributes["exit_code"]) == ("error", 4)


def test_stdin_and_output_pass_through(home: Home) -> None:
    """A filter stays a filter."""
    done = supervised("--", sys.executable, "-c", "print(input()[::-1])", input="abc\n")

    assert (done.stdout, done.stderr, done.returncode) == ("cba\n", "", 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_to_the_parent_reaches_the_command(
    home: Home, read_runs: ReadRuns, number: signal.Signals
) -> None:
    """A signal to `vestige run` reaches the program, which handles it in its own way."""
    program = (
        "import signal, sys\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(42))\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    parent = subprocess.Popen([*PYTHON_RUN, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    parent.stdout.readline()
    parent.send_signal(number)
    parent.communicate(timeout=120)

    assert parent.returncode == 42
    assert the_command(read_runs()).spans[0].attributes["exit_code"] == 42


TOLD_AT_ONCE = """
import os, signal, subprocess, sys
from vestige.cli.main import main

class SignalledPopen(subprocess.Popen):
    def __init__(self, command, **more):
        if WHEN == "before":
            os.kill(os.getpid(), signal.SIGTERM)
        super().__init__(command, **more)
        if WHEN == "after" and os.getpid() == ME:
            os.kill(ME, signal.SIGTERM)

ME, WHEN = os.getpid(), sys.argv.pop(1)
subprocess.Popen = SignalledPopen
main()
"""
"""`vestige` that gets a signal right before or right after it starts a command."""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_signal_that_comes_while_the_command_is_started_reaches_it(
    home: Home, read_runs: ReadRuns, when: str
) -> None:
    """Else the parent would die, and leave a program running that nobody waits for."""
    done = subprocess.run(
        [sys.executable, "-c", TOLD_AT_ONCE, when, "run", "--", "sleep", "60"], timeout=50
    )

    assert done.returncode == 128 + signal.SIGTERM
    assert the_command(read_runs()).spans[0].attributes["signal"] == "SIGTERM"


def test_what_vestige_was_started_to_ignore_the_command_ignores_too(home: Home) -> None:
    """`nohup vestige run -- ...` outlives its terminal."""
    program = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
    done = subprocess.run(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *PYTHON_RUN, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.stdout == "True\n"


def test_ctrl_c_comes_once_also_where_the_input_is_redirected(home: Home) -> None:
    """The terminal signals the command itself. A second signal would interrupt its cleanup."""
    done = subprocess.run(
        [sys.executable, "-c", AT_A_TERMINAL, *PYTHON_RUN, "-c", COUNTS_INTERRUPTS],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert "interrupted: 1" in done.stdout


def test_files_that_were_open_are_open_for_the_command(home: Home) -> None:
    """A shell's `<(...)`, a socket of systemd, the pipe of a `make`: handed on as without us."""
    reading, writing = os.pipe()
    os.write(writing, b"seven")
    os.close(writing)

    done = supervised("--", "cat", f"/dev/fd/{reading}", pass_fds=(reading,))
    os.close(reading)

    assert (done.returncode, done.stdout) == (0, "seven")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are listed there")
def test_no_file_of_ours_is_open_in_the_command(home: Home) -> None:
    """Journals, the store and the lock are the supervisor's: a command that lives on must not."""
    program = (
        "import os; files = map(os.path.realpath, os.scandir('/proc/self/fd'));"
        "print([file for file in files if file.startswith(os.environ['VESTIGE_HOME'])])"
    )

    done = supervised("--", sys.executable, "-S", "-c", program)

    assert done.stdout == "[]\n"


def test_a_command_that_does_not_exist_is_a_usage_error(home: Home) -> None:
    """Exit 2 and one line. Nothing was run, so there is no run."""
    done = supervised("--", "no-such-program-here")

    assert done.returncode == 2
    assert done.stderr.startswith("vestige: run: no-such-program-here: command not found")
    assert len(done.stderr.splitlines()) == 1
    assert not home.root.exists()


def test_an_unknown_option_is_not_taken_for_a_command(home: Home) -> None:
    done = supervised("--nme", "x", "--", "true")

    assert done.returncode == 2
    assert "No such option '--nme'. (Did you mean" in done.stderr
    assert not home.root.exists()


def test_a_file_that_cannot_be_executed_is_a_usage_error(home: Home, tmp_path: Path) -> None:
    """Neither a traceback nor a hang."""
    (tmp_path / "plain.txt").write_text("no program")

    done = supervised("--", str(tmp_path / "plain.txt"))

    assert done.returncode == 2
    assert "cannot be started" in done.stderr


def test_the_run_is_called_after_the_program_or_as_asked(home: Home, read_runs: ReadRuns) -> None:
    """`--name` wins; else the script, since the interpreter says nothing."""
    supervised("--name", "nightly", "--", sys.executable, "-c", "pass")
    supervised("--", "sh", "/dev/null")

    assert {run.info.name for run in read_runs()} >= {"nightly", "null"}


def test_child_processes_are_recorded_in_the_same_run(
    run_program: RunProgram, read_runs: ReadRuns
) -> None:
    """Children of subprocess and multiprocessing are writers under the span that started them."""
    done = run_program(
        """
        import multiprocessing, subprocess, sys
        import vestige

        def work(number):
            with vestige.default_recorder().logger("worker").span(f"work {number}"):
                pass

        if __name__ == "__main__":
            with vestige.traced_run("agent") as run:
                subprocess.run(
                    [sys.executable, "-c",
                     "import vestige; vestige.default_recorder().logger('sub').info('hello')"],
                    check=True,
                )
                for method in ("fork", "spawn"):
                    child = multiprocessing.get_context(method).Process(target=work, args=(method,))
                    child.start()
                    child.join()
        """,
        command=PYTHON_RUN,
    )
    runs = read_runs()
    (run,) = [run for run in runs if run.info.name == "agent"]
    statuses = Counter(span.status for found in runs for span in found.spans)

    assert done.returncode == 0, done.stderr
    assert {span.name for span in run.spans} >= {"work fork", "work spawn"}
    assert "hello" in [log.message for log in run.logs]
    assert len({span.writer for span in run.spans}) >= 4
    assert set(statuses) == {"ok"}
    assert [stamp for found in runs for stamp in stamps(found)] == []


def test_a_sitecustomize_of_the_environment_still_runs(
    home: Home, read_runs: ReadRuns, tmp_path: Path
) -> None:
    """Ours enters by that name and then gives way."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.theirs = 'ran'\n")
    program = (
        "import sys, vestige.process_writer; print(sys.theirs, len(vestige.process_writer._alive))"
    )

    done = supervised(
        "--", sys.executable, "-c", program, env={**os.environ, "PYTHONPATH": str(tmp_path)}
    )

    assert done.stdout == "ran 1\n"
    assert any(span.type == "process" for span in the_command(read_runs()).spans)


def test_disabled_runs_the_command_and_records_nothing(home: Home) -> None:
    """VESTIGE_DISABLED=1 makes `vestige run` a plain exec, as far as one can see."""
    program = "import vestige; vestige.Recorder().run('x').end(); raise SystemExit(6)"

    done = supervised(
        "--", sys.executable, "-c", program, env={**os.environ, "VESTIGE_DISABLED": "1"}
    )

    assert (done.returncode, done.stdout, done.stderr) == (6, "", "")
    assert not home.root.exists()


def test_an_unreadable_store_is_not_the_commands_problem(home: Home) -> None:
    """The program runs to its end and its code comes through; its journal waits."""
    home.make()
    home.store.write_bytes(b"this is not a database " * 500)
    # Some ticks of the collector long, so that it meets the store while the program runs.
    program = "import time; time.sleep(0.6); print('done'); raise SystemExit(5)"

    done = supervised("--", sys.executable, "-c", program)

    assert (done.returncode, done.stdout) == (5, "done\n")
    assert done.stderr.count("collecting failed") == 1
    assert "Traceback" not in done.stderr
    assert home.journal_files() != []


def test_a_reader_at_the_wrong_moment_does_not_cost_the_signal(
    home: Home, read_runs: ReadRuns
) -> None:
    """Another process ingests journals just as the command dies: the supervisor waits."""
    program = "import os; print('up', flush=True); input(); os.kill(os.getpid(), 9)"
    with hold(home) as reader:
        assert reader is not None
        parent = subprocess.Popen(
            [*PYTHON_RUN, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdout.readline()
        (child,) = psutil.Process(parent.pid).children()
        parent.stdin.write("\n")
        parent.stdin.flush()
        psutil.wait_procs([child], timeout=120)
        reader.tick()
    parent.communicate(timeout=120)
    found = [stamp for run in read_runs() for stamp in stamps(run)]

    assert parent.returncode == 137
    assert found == ["process python exited unexpectedly (killed by SIGKILL)"]


def test_a_run_goes_on_as_long_as_its_program(home: Home, read_runs: ReadRuns) -> None:
    """`vestige run` is killed; the program is not, and ends by itself."""
    program = "print('up', flush=True); input()"
    parent = subprocess.Popen(
        [*PYTHON_RUN, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdin is not None and parent.stdout is not None
    parent.stdout.readline()
    (child,) = psutil.Process(parent.pid).children()
    parent.kill()
    parent.wait(timeout=120)
    (running,) = (run for run in read_runs() if run.info.name == "python")
    parent.stdin.write("\n")
    parent.stdin.close()
    psutil.wait_procs([child], timeout=120)
    (ended,) = (run for run in read_runs() if run.info.name == "python")

    assert (running.info.outcome, stamps(running)) == ("running", [])
    assert ended.info.outcome == "interrupted"


def test_a_secret_in_the_command_line_is_masked(home: Home, read_runs: ReadRuns) -> None:
    """What `vestige run` writes down of its command has passed the redactor."""
    secret = "sk-ant-api03-" + "Zq7" * 12

    supervised("--", sys.executable, "-c", "pass", "--api-key", secret)

    assert all(secret not in str(span.attributes) for run in read_runs() for span in run.spans)


def test_a_secret_argument_does_not_become_the_run_s_name(home: Home, read_runs: ReadRuns) -> None:
    """Its first word that is not an option may be the value of one."""
    supervised("--", "/bin/echo", "--password", "hunter2secret", "words")

    run = the_command(read_runs())
    assert run.info.name == "words"


def test_signals_reach_the_command_of_a_run_that_is_not_recorded(home: Home) -> None:
    """VESTIGE_DISABLED turns off the recording, and nothing else."""
    program = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(9));"
        "print('ready', flush=True); signal.pause()"
    )
    process = subprocess.Popen(
        [*PYTHON_RUN, "-c", program],
        stdout=subprocess.PIPE,
        env={**os.environ, "VESTIGE_DISABLED": "1"},
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    code = process.wait(120)
    process.stdout.close()

    assert code == 9


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python agent.py --fast", "agent.py"),
        ("/venv/bin/python3.12 -X dev -W error src/agent.py x", "agent.py"),
        ("python -m agent x", "agent"),
        ("python -c text x", "python"),
        ("python - x y", "python"),
        ("uv run agent.py", "agent.py"),
        ("poetry run python agent.py", "agent.py"),
        ("env A=b timeout 60 python3 -u agent.py", "agent.py"),
        ("uv run my-agent serve", "my-agent"),
        ("./agent.sh 3", "agent.sh"),
        ("bash agent.sh", "agent.sh"),
    ],
)
def test_a_run_is_named_after_the_program_and_not_after_what_starts_it(
    command: str, name: str
) -> None:
    words = command.split()

    assert run_supervisor._label(words, words) == name


@pytest.mark.parametrize("options", [(), ("--name", "live watch")])
@pytest.mark.parametrize(("code", "outcome"), [("0", "ok"), ("1 / 0", "error")])
def test_a_program_that_opens_its_run_is_one_entry_in_the_list(
    home: Home, tmp_path: Path, options: tuple[str, ...], code: str, outcome: str
) -> None:
    """Also if it prints outside of its run."""
    program = tmp_path / "live.py"
    program.write_text(
        "import vestige\nprint('outside')\n"
        f"with vestige.Recorder().run('live watch') as run:\n    run.log.info('x')\n    {code}\n"
    )
    supervised(*options, "--", sys.executable, str(program))

    with hold(home) as collector:
        assert collector is not None
        collector.tick()
        listed = collector.store.list_runs(RunFilter())

    assert [(run.name, run.outcome, run.component) for run in listed] == [
        ("live watch", outcome, "agent")
    ]


def test_the_run_of_a_command_is_listed_if_its_program_worked_outside_of_its_runs(
    home: Home, tmp_path: Path
) -> None:
    program = tmp_path / "live.py"
    program.write_text(
        "import vestige\nrecorder = vestige.Recorder()\n"
        "with recorder.logger('c').span('outside', type='tool'):\n    pass\n"
        "with recorder.run('inside'):\n    pass\n"
    )
    supervised("--", sys.executable, str(program))

    with hold(home) as collector:
        assert collector is not None
        collector.tick()
        listed = collector.store.list_runs(RunFilter())

    assert {run.name for run in listed} == {"inside", "live.py"}


def test_the_run_of_the_command_is_numbered_before_that_of_vestige_run(home: Home) -> None:
    """Whichever journal is imported first: the guides name r1."""
    with Recorder(home, crash_hooks=False) as recorder:
        run = recorder.run("agent.py", attributes={"command": ["python", "agent.py"]})
        run.end()
    catch_up(home)

    with vestige.open(home) as debugger:
        listed = {each.id: each.short_id for each in debugger.list(everything=True).runs}
    assert listed[run.run_id] == "r1" and len(listed) == 2
