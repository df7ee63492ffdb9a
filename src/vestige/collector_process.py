"""The collector process that `Recorder(collect=True)` keeps beside a long-lived program.

Spawned first, drained last. It takes journals in until our end of its pipe closes,
which happens when we ask (`drain`) and also when we die in whatever way. If it dies
itself it is started again, with a growing pause and at most so often: it resumes where
it stopped, and the journal keeps everything meanwhile.
"""

from __future__ import annotations

import subprocess
import sys
import threading

from vestige.home import Home
from vestige.limits import DRAIN_S, RESTART_BACKOFF_S, RESTARTS_MAX


class CollectorProcess:
    """One supervised collector."""

    def __init__(self, home: Home, restarts_max: int = RESTARTS_MAX) -> None:
        self._home = home
        self._restarts_max = restarts_max
        self.restarts = 0
        self._stop = threading.Event()
        self._process = self._start()
        self._thread = threading.Thread(target=self._watch, name="vestige-companion", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def drain(self, timeout_s: float = DRAIN_S) -> None:
        """Let it take in the rest and go. What it cannot do in time, the next reader does."""
        self._stop.set()
        process = self._process
        if process is None:
            return
        self._close_input(process)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.terminate()

    @staticmethod
    def _close_input(process: subprocess.Popen[bytes]) -> None:
        """What it takes for a request to end."""
        if process.stdin is not None:
            try:
                process.stdin.close()
            except OSError:
                pass

    def _start(self) -> subprocess.Popen[bytes] | None:
        command = [sys.executable, "-m", "vestige", "collect", "--home", str(self._home.root)]
        try:
            return subprocess.Popen(
                [*command, "--until-eof"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the program, not for its recorder
            )
        except OSError:
            return None

    def _watch(self) -> None:
        pause_s = RESTART_BACKOFF_S
        while self._process is not None:
            self._process.wait()
            if self._stop.is_set() or self.restarts >= self._restarts_max:
                return
            if self._stop.wait(pause_s):
                return
            pause_s *= 2
            self.restarts += 1
            self._process = self._start()
            if self._stop.is_set() and self._process is not None:
                self._close_input(self._process)  # asked to end while it began
