"""`vestige run`: run a command with recording on, collect live, and record how it ends.

The parent process is the collector: it imports journals while the command runs, and knows the exact
signal or exit status. The command has the terminal, its signals and its exit code. If the parent is
killed, the command continues, and the next reader imports its journal.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Protocol, Self

from vestige._runtime.clock import SYSTEM, monotonic, sleep
from vestige.collector.crash_detection import Exit
from vestige.collector.loop import hold
from vestige.collector.oom_kills import count_oom_kills, find_counters
from vestige.collector.process_signals import GRACE_S
from vestige.collector.stop_reason import StopReason, record_stop
from vestige.emit.span import Span
from vestige.errors import NotFoundError, UsageError, VestigeError
from vestige.home import Home
from vestige.limits import GUARD_TICK_S, SIGTERM_DELAY_S, TICK_S
from vestige.process_writer import PARENT_VARIABLE
from vestige.record.types import Status
from vestige.recorder import Recorder
from vestige.settings import find_store
from vestige.store.open import open_store

_PYTHON = re.compile(r"(?:^|/)(?:python|pypy)[0-9.]*$")
_LAUNCHER_WORD = re.compile(r"run|exec|[0-9.]+[smhd]?|[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
"""Arguments of programs that start others: `uv run`, `timeout 60`, `env A=b`."""
_VENDORS = frozenset({"claude", "codex", "gemini", "opencode", "curl"})
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.0005, 0.05
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
FORWARDED = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT")

Guard = Callable[[str], StopReason | None]
"""Returns why the command of a run must end, or None. Called after each import of records."""


class Proxy(Protocol):
    """The recording proxy of a run (proxy/launch.py)."""

    gap_without_children: str

    def prepare(self, run: Span, command: Sequence[str], env: dict[str, str]) -> dict[str, str]: ...

    @property
    def streams(self) -> Mapping[int, int]: ...

    def started(self, pid: int) -> None: ...

    def poll(self) -> None: ...

    def end(self, status: str = "ok") -> None: ...


class _Child(subprocess.Popen[bytes]):
    """The command. Its peak memory is known once `wait_for_exit` returned True.

    The memory of RUSAGE_CHILDREN would be that of the largest child which this process ever had.
    """

    max_rss_bytes = 0
    poll_proxy: Callable[[], None] | None = None

    def wait_for_exit(self, seconds: float) -> bool:
        """Return whether the command has exited within this time."""
        pause_s = _PAUSE_MIN_S
        waited_s = 0.0
        while self.returncode is None:
            try:
                pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            except ChildProcessError:  # SIGCHLD is ignored, so the kernel has reaped it.
                self.returncode = 0
                break
            if pid == self.pid:
                self.max_rss_bytes = usage.ru_maxrss * _RSS_UNIT
                self.returncode = os.waitstatus_to_exitcode(status)
            elif waited_s >= seconds:
                return False
            else:
                if self.poll_proxy is not None:
                    self.poll_proxy()
                sleep(pause_s)
                waited_s += pause_s
                pause_s = min(pause_s * 2, _PAUSE_MAX_S)
        return True


def run_command(
    home: Home,
    command: Sequence[str],
    env: Mapping[str, str],
    name: str | None = None,
    then: Callable[[str, bool], None] | None = None,
    guard: Guard | None = None,
    attributes: Mapping[str, str] | None = None,
    proxy: Proxy | None = None,
) -> int:
    """Run a command in `env`. Return its exit code, or 128 + the signal that killed it.

    `then(run_id, ok)` is called at the end, when the records of the command are imported.
    `attributes` are added to the run.
    """
    if not command:
        raise UsageError("run: no command given. Write `vestige run -- COMMAND ...`.")
    is_path = os.sep in command[0] and os.path.exists(command[0])
    if not is_path and shutil.which(command[0], path=env.get("PATH")) is None:
        raise _build_not_found(command)  # Nothing was run, so nothing is recorded.
    # silence_s=0: this process waits, and only the stacks of the command are of interest.
    with Recorder(home, crash_hooks=False, silence_s=0) as recorder:
        if not recorder.enabled:
            with _SignalForwarder() as forwarder:
                child = forwarder.set_child(_spawn(command, env))
                return _shell_code(child.wait())
        masked = recorder.redact_argv(command)
        run = recorder.run(
            name or _label(command, masked),
            attributes={**(attributes or {}), "implicit": name is None, "command": masked},
            component="vestige",
        )
        child_env = {
            **env,
            "VESTIGE_HOME": str(home.root),
            "VESTIGE_SUPERVISOR": recorder.writer,
            PARENT_VARIABLE: f"{run.run_id}/{run.id}",
        }
        code = _supervise(home, command, child_env, recorder, run, guard, proxy)
    if then is not None:
        then(run.run_id, code == 0)
    return _shell_code(code)


def _label(command: Sequence[str], masked: Sequence[str]) -> str:
    """Return the name of a run: agent.py for `python agent.py --fast` and for `uv run agent.py`.

    A word that contains a secret is never used.
    """
    if os.path.basename(command[0]) in _VENDORS:
        return os.path.basename(command[0])  # The next word would be a prompt.
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


def _supervise(
    home: Home,
    command: Sequence[str],
    env: dict[str, str],
    recorder: Recorder,
    run: Span,
    guard: Guard | None,
    proxy: Proxy | None,
) -> int:
    with _SignalForwarder() as forwarder:
        try:
            if proxy is not None:
                env = proxy.prepare(run, command, env)
            streams = {} if proxy is None else proxy.streams
            child = forwarder.set_child(_spawn(command, env, streams))
        except VestigeError as error:
            if proxy is not None:
                proxy.end()
            run.end(error)
            raise
        if proxy is not None:
            proxy.started(child.pid)
            child.poll_proxy = proxy.poll
        counters = find_counters(os.getpid())  # The child is in the same control group.
        before = count_oom_kills(counters)
        guarded = None if guard is None else _Guarded(guard, recorder, run, child)
        _collect_until_exit(home, child, guarded)
    if proxy is not None:
        if proxy.gap_without_children and not _has_recorded_child(home, run.run_id):
            gap = proxy.gap_without_children
            run.log.warn(gap, gap=gap, count=1)
        proxy.end(_status(child.returncode))
    if guarded is not None:
        _collect_rest(home)
        guarded.check_ended()
    after = count_oom_kills(counters)
    ended = Exit(
        child.returncode,
        SYSTEM.now_ns(),
        oom_kills=(after or 0) - (before or 0),
        max_rss_bytes=child.max_rss_bytes,
        stopped=guarded.reason if guarded is not None else "",
    )
    run.end(status=_status(ended.code), attributes={**ended.attributes, "pid": child.pid})
    _collect_rest(home)
    return ended.code


def _status(code: int) -> Status:
    if code == -signal.SIGINT:
        return "cancelled"  # Ctrl-C
    return "ok" if code == 0 else "interrupted" if code < 0 else "error"


def _spawn(
    command: Sequence[str], env: Mapping[str, str], streams: Mapping[int, int] | None = None
) -> _Child:
    """Start the command. `streams` replace its stdout and stderr."""
    stdout, stderr = ((streams or {}).get(fd) for fd in (1, 2))
    try:
        # Inherited files stay open for the child: `<(...)` of a shell, a socket of systemd. Our own
        # files are not inheritable.
        return _Child(command, env=env, close_fds=False, stdout=stdout, stderr=stderr)
    except FileNotFoundError:
        raise _build_not_found(command) from None
    except OSError as error:
        raise UsageError(f"run: {command[0]}: cannot be started ({error.strerror}).") from None


def _build_not_found(command: Sequence[str]) -> NotFoundError:
    return NotFoundError(
        f"run: {command[0]}: command not found. Write a program and its arguments after `--`."
    )


def _collect_until_exit(home: Home, child: _Child, guarded: _Guarded | None) -> None:
    """Collect while the command runs, unless another process does. Failures are reported."""
    reported = ""
    tick_s = TICK_S if guarded is None else GUARD_TICK_S
    while not child.wait_for_exit(tick_s):
        try:
            with hold(home) as collector:
                while collector is not None and not child.wait_for_exit(tick_s):
                    collector.tick()
                    if guarded is not None:
                        guarded.check()
            if guarded is not None:  # Another process collects.
                guarded.check()
        except (VestigeError, OSError) as error:
            if str(error) != reported:  # once, not at every tick
                reported = str(error)
                message = f"vestige: collecting failed ({error}); will go on."
                print(message, file=sys.stderr)  # noqa: T201


class _Guarded:
    """Ends a command that breaks a rule: SIGTERM, then SIGKILL after a grace period."""

    def __init__(self, guard: Guard, recorder: Recorder, run: Span, child: _Child) -> None:
        self._guard, self._recorder, self._run, self._child = guard, recorder, run, child
        self._kill_at: float | None = None
        self.reason = ""

    def check(self) -> None:
        if self._child.returncode is not None:
            return
        if self._kill_at is not None:
            if monotonic() >= self._kill_at:
                self._send(signal.SIGKILL)
            return
        reason = self._guard(self._run.run_id)
        if reason is not None:
            self._send(signal.SIGTERM)
            self._kill_at = monotonic() + GRACE_S
            self.reason = reason.text
            runs = [self._run.run_id, *([reason.run_id] if reason.run_id else [])]
            record_stop(self._recorder, runs, "vestige run", reason)
            print(f"vestige: stopped: {reason.text}", file=sys.stderr)  # noqa: T201

    def check_ended(self) -> None:
        """Report a rule that the command broke right before it ended by itself."""
        try:
            reason = None if self.reason else self._guard(self._run.run_id)
        except (VestigeError, OSError):
            return  # The store cannot be read, which was reported while the command ran.
        if reason is not None:
            text = f"rule broken, found after the end of the command: {reason.text}"
            self._run.log.error(text)
            print(f"vestige: rule broken: {reason.text}", file=sys.stderr)  # noqa: T201

    def _send(self, number: int) -> None:
        try:
            os.kill(self._child.pid, number)
        except OSError:
            pass  # It has just ended.


def _collect_rest(home: Home) -> None:
    """Import the last records and stamp dead writers, unless another collector will do it."""
    try:
        with hold(home) as collector:
            if collector is not None:
                collector.tick()
    except (VestigeError, OSError):
        pass  # It was reported during the run, and the next reader reports it again.


def _has_recorded_child(home: Home, run_id: str) -> bool:
    """Return whether the run has more than its root span."""
    _collect_rest(home)
    try:
        with open_store(find_store(home), readonly=True) as store:
            return any(run.span_count > 1 for run in store.find_runs(run_id))
    except VestigeError:
        return False


class _SignalForwarder:
    """Forwards signals to the child while it runs, also those that arrive before its start.

    Ctrl-C and Ctrl-\\ at a terminal go to the whole foreground group, including the child, and are
    not forwarded.
    """

    def __init__(self) -> None:
        self._child: _Child | None = None
        self._early: list[int] = []
        self._previous: dict[int, object] = {}

    def __enter__(self) -> Self:
        # The child must inherit ignored signals (`nohup`), so these are handled after its start.
        self._install([name for name in FORWARDED if _handler(name) != signal.SIG_IGN])
        return self

    def set_child(self, child: _Child) -> _Child:
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
                sleep(SIGTERM_DELAY_S)
            self._send(self._child, number)

    def _send(self, child: _Child, number: int) -> None:
        # Not `send_signal`: it may reap the child, and its memory would not be known.
        if child.returncode is None:
            try:
                os.kill(child.pid, number)
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
