"""A collector as a child process, of `Recorder(collect=True)` and of the server.

The process imports journals until our end of its pipe closes: in `drain`, or when this process
dies. If the collector dies, it is started again, after a pause that grows while it keeps failing.
It resumes where it stopped, and the journal keeps all records meanwhile.

It needs no thread: the owner calls `check` about once a second.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from vestige._runtime import file_locks
from vestige._runtime.clock import SYSTEM
from vestige._runtime.long_lived_files import OwnFile
from vestige.home import Home
from vestige.limits import (
    DRAIN_S,
    RESTART_BACKOFF_S,
    RESTART_PAUSE_MAX_S,
    RESTARTS_MAX,
    TICK_PAUSE_MAX_S,
)


class CollectorProcess:
    """The child process of one home.

    `restarts_max`: how often it is started again; None: always. `quiet`: its messages are
    discarded. `exclusive`: none is started while another process collects the home.
    """

    def __init__(
        self,
        home: Home,
        restarts_max: int | None = RESTARTS_MAX,
        *,
        quiet: bool = True,
        exclusive: bool = False,
    ) -> None:
        self._home = home
        self._restarts_max = restarts_max
        self._quiet = quiet
        self._exclusive = exclusive
        self.restarts = 0
        self._stop = threading.Event()
        self._pause_s = RESTART_BACKOFF_S
        self._started_ns = 0
        self._restart_ns: int | None = None
        """When to start it again. None while it runs."""
        self._input = OwnFile()
        """Our end of its standard input."""
        self._process = self._start()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def drain(self, timeout_s: float = DRAIN_S) -> None:
        """Let it import the rest and exit. The next reader imports what is left after that."""
        self._stop.set()
        process = self._process
        if process is None:
            return
        self._input.close()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()  # nothing is lost: offsets are stored together with the rows
            process.wait()

    def check(self) -> None:
        """Start the process again if it has ended, after a pause that grows each time."""
        if self._stop.is_set() or self._is_running() or self._is_given_up():
            return
        now_ns = SYSTEM.monotonic_ns()
        if self._restart_ns is None:
            if now_ns - self._started_ns > TICK_PAUSE_MAX_S * 1e9:
                self._pause_s = RESTART_BACKOFF_S  # it ran for a while
            self._restart_ns = now_ns + int(self._pause_s * 1e9)
        if now_ns < self._restart_ns:
            return
        self._restart_ns = None
        self._pause_s = min(2 * self._pause_s, RESTART_PAUSE_MAX_S)
        self.restarts += 1
        self._process = self._start()
        if self._stop.is_set():
            self._input.close()  # `drain` was called during the start.

    def _is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _is_given_up(self) -> bool:
        if self._restarts_max is None:
            return False
        return self._process is None or self.restarts >= self._restarts_max

    def _start(self) -> subprocess.Popen[bytes] | None:
        self._started_ns = SYSTEM.monotonic_ns()
        if self._exclusive and file_locks.is_held(self._home.lock):
            return None
        command = [sys.executable, "-m", "vestige", "collect", "--home", str(self._home.root)]
        self._input.close()
        theirs = -1
        try:
            theirs, ours = os.pipe()
            self._input = OwnFile(ours)
            return subprocess.Popen(
                [*command, "--until-eof"],
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL if self._quiet else None,
                start_new_session=True,  # Ctrl-C must not stop the collector
            )
        except OSError:
            return None
        finally:
            if theirs >= 0:
                os.close(theirs)
