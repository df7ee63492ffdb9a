"""Journals, taken in while the server runs: by a process beside it.

A process, not a thread: reading journals takes a core of its own, and readers should not feel
it. It ends with us, whatever ends us (its standard input closes), after a last pass. When
somebody else collects this home, that is as good: we look again now and then.
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
    """Make the home and its store, or bring the store to this version; unless it is not ours to."""
    try:
        with hold(home):
            pass
    except StoreError:
        behind = catch_up(home)  # raises what is wrong with the store itself
        if behind is None or behind.can_write:
            return
        _check_readable(home, behind.reason)
    except OSError:
        return  # a home that we may only read: what is stored is served


def _check_readable(home: Home, reason: str) -> None:
    """What is stored is served, where it can be read though nothing can be written beside it."""
    try:
        SqliteStore.open(home.store, readonly=True).close()
    except StoreError:
        raise StoreError(
            f"{home.root}: nothing can be written there ({reason}), so its store cannot be served."
            " Make room; until then `vestige ui` shows a copy."
        ) from None


class CollectorProcess:
    """The process beside us. `start` and `close` are for the server's start and end."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._stop = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name="vestige-collecting", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Let it take in the rest and go; offsets stay with the rows in the store."""
        self._stop.set()
        if self._thread.ident is None:
            return  # never started
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
        self._thread.join(DRAIN_S)
        if self._thread.is_alive() and self._process is not None:
            # To be told to end is what it does not hear. Nothing is lost: the journals are there.
            self._process.kill()
            self._thread.join()

    def _watch(self) -> None:
        pause_s = RESTART_BACKOFF_S
        while not self._stop.is_set():
            began = clock.monotonic()
            if not file_locks.is_held(self._home.lock):
                self._run()
            # One that cannot live is started ever more rarely; one that lived is started again soon.
            lived = clock.monotonic() - began > TICK_PAUSE_MAX_S
            pause_s = RESTART_BACKOFF_S if lived else min(pause_s * 2, RESTART_PAUSE_MAX_S)
            self._stop.wait(pause_s)

    def _run(self) -> None:
        command = [sys.executable, "-m", "vestige", "collect", "--home", str(self._home.root)]
        try:
            self._process = subprocess.Popen(
                [*command, "--until-eof"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the server, which then ends this one
            )
        except OSError:
            return
        if self._stop.is_set() and self._process.stdin is not None:
            self._process.stdin.close()  # asked to end while it began
        self._process.wait()
