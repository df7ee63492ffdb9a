"""Start the proxy of a run, at once or when a child process needs it, and end it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from vestige._runtime import file_locks
from vestige._runtime.clock import SYSTEM, monotonic, sleep
from vestige._runtime.proxy_folder import FOLDER_VARIABLE, MISSING, VARIABLES
from vestige.boot.child_proxy import (
    REQUEST_FILE,
    join_parent,
    needs_proxy,
    read_variables,
    with_variables,
)
from vestige.emit.span import Span
from vestige.home import Home
from vestige.process_writer import PARENT_VARIABLE
from vestige.proxy.program_streams import ProgramStreams
from vestige.proxy.upstream import find_parent, parse_parent
from vestige.settings import find_home
from vestige.wire.replaying.response_player import SCRIPT_VARIABLE

_START_S = 30.0
_END_S = 60.0
_RELAY_S = 0.5
"""Seconds to wait for the exit of a proxy that has recorded everything."""

MODULES = ("h11", "h2", "wsproto", "cryptography")

_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "fish", "env", "make", "time", "timeout", "nice"))


class RunProxy:
    """The proxy of one `vestige run`."""

    def __init__(self, home: Home, env: Mapping[str, str], *, prints: bool = False) -> None:
        self._home, self._env = home, dict(env)
        self._prints = prints
        self._output: ProgramStreams | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._lock = -1
        self._pid = 0
        self._reason = ""
        self.gap_without_children = ""
        """A gap to record if the command, which makes no calls itself, has no recorded child."""

    def prepare(self, run: Span, command: Sequence[str], env: dict[str, str]) -> dict[str, str]:
        """Return the environment for the command. Start the proxy if the command needs it."""
        self._reason = self._find_obstacle()
        needed = needs_proxy(command[0], env)
        if self._reason:
            if needed:
                reason = f"model calls of {os.path.basename(command[0])} were not recorded"
                gap = f"{reason}: {self._reason}"
                if os.path.basename(command[0]) in _SHELLS:
                    self.gap_without_children = gap
                else:
                    run.log.warn(gap, gap=gap, count=1)
            return {**env, FOLDER_VARIABLE: MISSING}
        folder = self._home.root / "proxies" / SYSTEM.writer_id()
        try:
            folder.parent.mkdir(mode=0o700, exist_ok=True)
            folder.mkdir(mode=0o700)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return env  # A full disk: the recorder reports it.
        self._folder = folder
        file_locks.try_lock(self._lock)
        self._env[PARENT_VARIABLE] = env[PARENT_VARIABLE]
        self._env["VESTIGE_HOME"] = env["VESTIGE_HOME"]
        self._env["VESTIGE_SUPERVISOR"] = env["VESTIGE_SUPERVISOR"]
        if SCRIPT_VARIABLE in env:
            self._env[SCRIPT_VARIABLE] = env[SCRIPT_VARIABLE]
        env = {**env, FOLDER_VARIABLE: str(folder)}
        if needed:
            if self._prints:
                self._output = ProgramStreams()
            self._start()
            self._wait()
            variables = read_variables(str(folder))
            if variables is not None:
                return with_variables(env, variables, join_parent(run, run.name))
            if self._output is not None:
                self._output.close_for_program()
            gap = "model calls were not recorded: the proxy did not start"
            run.log.warn(gap, gap=gap, count=1)
        return env

    def _find_obstacle(self) -> str:
        """Return why there can be no proxy, or nothing."""
        missing = [name for name in MODULES if find_spec(name) is None]
        if missing:
            return "the proxy is not installed. Run `pip install 'vestige[proxy]'`"
        try:
            for scheme in ("http", "https"):
                parse_parent(find_parent(self._env, scheme))
        except ValueError as error:
            return f"{error} is set, which the proxy does not support"
        return ""

    def _start(self) -> None:
        assert self._folder is not None
        output = self._output
        arguments, files = ([], []) if output is None else (output.arguments, output.inherited)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "vestige.proxy.process", str(self._folder), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._env,
            start_new_session=True,
            pass_fds=[self._lock, *files],
        )
        if output is not None:
            output.close_for_proxy()
        self._send(f"pid {self._pid}\n")

    def _wait(self) -> None:
        assert self._folder is not None and self._process is not None
        deadline = monotonic() + _START_S
        while not (self._folder / VARIABLES).exists() and monotonic() < deadline:
            if self._process.poll() is not None:
                break
            sleep(0.005)

    @property
    def streams(self) -> Mapping[int, int]:
        """The files that replace the command's stdout and stderr, by their numbers."""
        return {} if self._output is None else self._output.for_program

    def started(self, pid: int) -> None:
        """Remember the command, which the proxy serves as long as it lives."""
        self._pid = pid
        if self._output is not None:
            self._output.close_for_program()
        self._send(f"pid {pid}\n")

    def poll(self) -> None:
        """Start the proxy if a child process of the command waits for it."""
        if (
            self._process is None
            and self._folder is not None
            and (self._folder / REQUEST_FILE).exists()
        ):
            self._start()

    def _send(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            try:
                self._process.stdin.write(line.encode())
                self._process.stdin.flush()
            except OSError:
                pass

    def _has_recorded(self) -> bool:
        """Wait until the proxy has recorded everything: it closes its standard output then.

        It may live on, for children of the command that are left behind: it relays what they print
        and their connections.
        """
        import select

        assert self._process is not None and self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _END_S)
        self._process.stdout.close()
        try:
            self._process.wait(_RELAY_S)
        except subprocess.TimeoutExpired:
            pass
        return bool(ready)

    def end(self, status: str = "ok") -> None:
        """End the proxy, after it has recorded what it observed. It deletes its folder.

        `status`: how the command ended.
        """
        import shutil

        if self._output is not None:
            self._output.close_for_program()  # If the command could not be started.
        if self._process is not None and self._process.stdin is not None:
            self._send(f"end {status}\n")
            try:
                self._process.stdin.close()
            except OSError:
                pass
            if not self._has_recorded():
                self._process.kill()
                self._process.wait()
        if self._folder is not None:
            if self._process is None or self._process.poll() is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
            os.close(self._lock)
            self._folder = None


def make_proxy(home: Home, *, prints: bool = True) -> RunProxy | None:
    """Return the proxy for programs that are not Python, unless the settings turn it off."""
    _, settings = find_home(home)
    if not settings.wire or not settings.proxy:
        return None
    return RunProxy(home, os.environ, prints=prints and settings.prints)
