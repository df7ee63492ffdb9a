"""The collector as a child process of the server.

A process and not a thread: ingesting journals can occupy a core, which would slow down readers.
The child ends after a last pass when its standard input closes, whatever ends the server. While
another process collects the same home, none is started; the lock is checked again now and then.
"""

from __future__ import annotations

import subprocess
import sys
import threading

from vestige._runtime import clock, file_locks
from vestige.collector.loop import catch_up, hold
from vestige.errors import StoreError
from vestige.home import Home
from vestige.limits import DRAIN_S, RESTART_BACKOFF_S, RESTART_PAUSE_MAX_S, TICK_PAUSE_MAX_S
from vestige.store.sqlite.sqlite_store import SqliteStore


def prepare(home: Home) -> None:
    """Create the home and its store, or migrate the store, where the home is writable."""
    try:
        with hold(home):
            pass
    except StoreError:
        lag = catch_up(home)  # raises if the store itself is unusable
        if lag is None or lag.can_write:
            return
        _check_readable(home, lag.reason)
    except OSError:
        return  # a read-only home: the stored runs are served


def _check_readable(home: Home, reason: str) -> None:
    """Raise StoreError if a store beside which nothing can be written cannot be read either."""
    try:
        SqliteStore.open(home.store, readonly=True).close()
    except StoreError:
        raise StoreError(
            f"{home.root}: not writable ({reason}), so its store cannot be served."
            " Free up space; until then `vestige ui` shows a copy."
        ) from None


class CollectorProcess:
    """The child process, restarted when it ends. Started and closed with the server."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._stop = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name="vestige-collecting", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Let it ingest the rest and end. Offsets are stored together with the rows."""
        self._stop.set()
        if self._thread.ident is None:
            return  # never started
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
        self._thread.join(DRAIN_S)
        if self._thread.is_alive() and self._process is not None:
            # It does not react to the closed input. Nothing is lost: the journals remain.
            self._process.kill()
            self._thread.join()

    def _watch(self) -> None:
        pause_s = RESTART_BACKOFF_S
        while not self._stop.is_set():
            started = clock.monotonic()
            if not file_locks.is_held(self._home.lock):
                self._run()
            # Back off while it keeps failing at once; restart soon after it ran for a while.
            ran = clock.monotonic() - started > TICK_PAUSE_MAX_S
            pause_s = RESTART_BACKOFF_S if ran else min(pause_s * 2, RESTART_PAUSE_MAX_S)
            self._stop.wait(pause_s)

    def _run(self) -> None:
        command = [sys.executable, "-m", "vestige", "collect", "--home", str(self._home.root)]
        try:
            self._process = subprocess.Popen(
                [*command, "--until-eof"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches only the server, which ends the child
            )
        except OSError:
            return
        if self._stop.is_set() and self._process.stdin is not None:
            self._process.stdin.close()  # `close` was called during the start
        self._process.wait()
