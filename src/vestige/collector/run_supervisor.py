"""`vestige run`: run a command with recording on, collect live, and record how it ends.

The parent process is the collector: it imports journals while the command runs, and knows the exact
signal or exit status. The command has the terminal, its signals and its exit code. If the parent is
killed, the command continues, and the next reader imports its journal.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Self

from vestige._runtime.clock import SYSTEM, sleep
from vestige.collector.crash_detection import Exit
from vestige.collector.loop import hold
from vestige.collector.memory_limits import count_oom_kills, find_counters
from vestige.emit.span import Span
from vestige.errors import NotFoundError, UsageError, VestigeError
from vestige.home import Home
from vestige.limits import TERM_PASSED_S, TICK_S
from vestige.process_writer import PARENT_VARIABLE
from vestige.record.types import Status
from vestige.recorder import Recorder

_PYTHON = re.compile(r"(?:^|/)(?:python|pypy)[0-9.]*$")
_LAUNCHER_WORD = re.compile(r"run|exec|[0-9.]+[smhd]?|[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
"""Arguments of programs that start others: `uv run`, `timeout 60`, `env A=b`."""
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
FORWARDED = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT")


def run_command(
    home: Home,
    command: Sequence[str],
    env: Mapping[str, str],
    name: str | None = None,
    then: Callable[[str, bool], None] | None = None,
) -> int:
    """Run a command in `env`. Return its exit code, or 128 + the signal that killed it.

    `then(run_id, ok)` is called at the end, when the records of the command are imported.
    """
    if not command:
        raise UsageError("run: no command given. Write `vestige run -- COMMAND ...`.")
    # silence_s=0: this process waits, and only the stacks of the command are of interest.
    with Recorder(home, last_words=False, silence_s=0) as recorder:
        if not recorder.enabled:
            with _SignalForwarder() as forwarder:
                child = forwarder.set_child(_spawn(command, env))
                return _shell_code(child.wait())
        masked = recorder.redact_argv(command)
        run = recorder.run(
            name or _label(command, masked),
            attributes={"implicit": name is None, "command": masked},
            component="vestige",
        )
        child_env = {
            **env,
            "VESTIGE_HOME": str(home.root),
            "VESTIGE_SUPERVISOR": recorder.writer,
            PARENT_VARIABLE: f"{run.run_id}/{run.id}",
        }
        code = _supervise(home, command, child_env, run)
    if then is not None:
        then(run.run_id, code == 0)
    return _shell_code(code)


def _label(command: Sequence[str], masked: Sequence[str]) -> str:
    """Return the name of a run: agent.py for `python agent.py --fast` and for `uv run agent.py`.

    A word that contains a secret is never used.
    """
    at = next((at for at, word in enumerate(command) if _PYTHON.search(word)), 0)
    skip = False
    for word, shown in zip(command[at + 1 :], masked[at + 1 :], strict=True):
        if word in ("-c", "-"):
            break  # Code or arguments follow, not a name.
        is_name = not skip and not word.startswith("-") and word == shown
        skip = word in ("-W", "-X")
        if is_name and (_PYTHON.search(command[at]) or not _LAUNCHER_WORD.fullmatch(word)):
            return os.path.basename(word)
    return os.path.basename(command[at])


def _supervise(home: Home, command: Sequence[str], env: Mapping[str, str], run: Span) -> int:
    with _SignalForwarder() as forwarder:
        try:
            child = forwarder.set_child(_spawn(command, env))
        except VestigeError as error:
            run.end(error)
            raise
        counters = find_counters(os.getpid())  # The child is in the same control group.
        before = count_oom_kills(counters)
        _collect_until_exit(home, child)
    after = count_oom_kills(counters)
    ended = Exit(
        child.returncode,
        SYSTEM.now_ns(),
        oom_kills=(after or 0) - (before or 0),
        max_rss_bytes=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * _RSS_UNIT,
    )
    run.end(status=_status(ended.code), attributes={**ended.attributes, "pid": child.pid})
    _collect_rest(home)
    return ended.code


def _status(code: int) -> Status:
    if code == -signal.SIGINT:
        return "cancelled"  # Ctrl-C
    return "ok" if code == 0 else "interrupted" if code < 0 else "error"


def _spawn(command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        # Inherited files stay open for the child: `<(...)` of a shell, a socket of systemd. Our own
        # files are not inheritable.
        return subprocess.Popen(command, env=env, close_fds=False)
    except FileNotFoundError:
        raise NotFoundError(
            f"run: {command[0]}: command not found. Write a program and its arguments after `--`."
        ) from None
    except OSError as error:
        raise UsageError(f"run: {command[0]}: cannot be started ({error.strerror}).") from None


def _collect_until_exit(home: Home, child: subprocess.Popen[bytes]) -> None:
    """Collect while the command runs, unless another process does. Failures are reported."""
    reported = ""
    while not _has_exited(child):
        try:
            with hold(home) as collector:
                while collector is not None and not _has_exited(child):
                    collector.tick()
        except (VestigeError, OSError) as error:
            if str(error) != reported:  # once, not at every tick
                reported = str(error)
                message = f"vestige: collecting failed ({error}); will go on."
                print(message, file=sys.stderr)  # noqa: T201


def _has_exited(child: subprocess.Popen[bytes]) -> bool:
    try:
        child.wait(TICK_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _collect_rest(home: Home) -> None:
    """Import the last records and stamp dead writers, unless another collector will do it."""
    try:
        with hold(home) as collector:
            if collector is not None:
                collector.tick()
    except (VestigeError, OSError):
        pass  # It was reported during the run, and the next reader reports it again.


class _SignalForwarder:
    """Forwards signals to the child while it runs, also those that arrive before its start.

    Ctrl-C and Ctrl-\\ at a terminal go to the whole foreground group, including the child, and are
    not forwarded.
    """

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._previous: dict[int, object] = {}

    def __enter__(self) -> Self:
        # The child must inherit ignored signals (`nohup`), so these are handled after its start.
        self._install([name for name in FORWARDED if _handler(name) != signal.SIG_IGN])
        return self

    def set_child(self, child: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """Forward all signals to this child from now on, first those that came early."""
        self._child = child
        self._install([name for name in FORWARDED if _handler(name) == signal.SIG_IGN])
        for number in self._early:
            self._send(child, number)
        return child

    def _install(self, names: Sequence[str]) -> None:
        for name in names:
            number = getattr(signal, name)
            try:
                self._previous[number] = signal.signal(number, self._forward)
            except (ValueError, OSError):
                pass  # Not the main thread, or the signal cannot be caught here.

    def __exit__(self, *_: object) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)  # type: ignore[arg-type]  # what signal() gave us

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if self._child is None:
            self._early.append(number)
        elif number not in (signal.SIGINT, signal.SIGQUIT) or not _is_foreground():
            if number == signal.SIGTERM:
                # `timeout` and systemd signal the whole group: a second SIGTERM would interrupt the
                # child while it writes its stacks.
                sleep(TERM_PASSED_S)
            self._send(self._child, number)

    def _send(self, child: subprocess.Popen[bytes], number: int) -> None:
        try:
            child.send_signal(number)
        except OSError:
            pass


def _handler(name: str) -> object:
    return signal.getsignal(getattr(signal, name))


def _is_foreground() -> bool:
    """Return whether we are in the terminal's foreground group, also if a stream is redirected."""
    for fd in (0, 1, 2):
        try:
            if os.tcgetpgrp(fd) == os.getpgrp():
                return True
        except OSError:
            continue
    return False


def _shell_code(code: int) -> int:
    return code if code >= 0 else 128 - code
