"""The collector's loop, and the one pass that every reading command makes before it reads.

One process at a time takes journals in, by the lock of the home. A reader that finds
the lock taken waits a moment until the one who has it has reached the present.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from vestige._runtime import clock, file_locks
from vestige.collector.crash_detection import stamp_dead, stamp_silent
from vestige.collector.journal_ingest import (
    IngestCounts,
    delete_leftovers,
    ingest_journals,
    read_spill,
)
from vestige.collector.rootless_traces import stamp_rootless
from vestige.errors import StoreError, UnreadableError, VestigeError
from vestige.home import Home
from vestige.limits import CATCH_UP_WAIT_S, MIB, PRUNE_INTERVAL_S, TICK_PAUSE_MAX_S, TICK_S
from vestige.settings import read_settings
from vestige.store.protocol import RetentionPolicy
from vestige.store.sqlite.sqlite_store import SqliteStore


class Collector:
    """Holds the home's lock and its store, and takes journals in. Made by `hold`."""

    def __init__(self, home: Home, store: SqliteStore) -> None:
        self.home = home
        self.store = store
        settings = read_settings(home)
        self.retention = RetentionPolicy(settings.retention_age_s, settings.retention_body_bytes)
        self._prune_at = 0.0

    def tick(self) -> IngestCounts:
        """Take in what is there, stamp what died, and now and then prune.

        OSError: something could not be read, and waits for the next tick; all else is done.
        """
        if not self.store.is_in_place():  # journals would be deleted, and their records nowhere
            raise StoreError(f"{self.store.path}: was deleted or replaced. Start again.")
        taken, failed = IngestCounts(), None
        try:
            taken = ingest_journals(self.home, self.store)
        except OSError as error:
            failed = error  # it may never be readable, and the others must not wait for it
        stamp_dead(self.home, self.store)
        stamp_silent(self.store, clock.SYSTEM.now_ns())
        stamp_rootless(self.store, clock.SYSTEM.now_ns())
        now = clock.monotonic()
        if now >= self._prune_at:
            if self._prune_at:
                self.store.prune(self.retention, clock.SYSTEM.now_ns())
                self.store.set_fact("pruned_ns", str(clock.SYSTEM.now_ns()))
                delete_leftovers(self.home, self.store)
            self._prune_at = now + PRUNE_INTERVAL_S
        if failed is not None:
            raise failed
        return taken

    def run(self, keep_on: Callable[[float], bool], say: Callable[[str], None]) -> None:
        """Tick until `keep_on(seconds)`, which waits, says no; then once more for the rest.

        A tick that fails (disk full, a locked store) is said and tried again later: the
        journals keep everything meanwhile. Only a store that is no longer there ends it.
        """
        said = ""
        pause_s = TICK_S
        while keep_on(pause_s):
            try:
                self.tick()
                said, pause_s = "", TICK_S
            except (VestigeError, OSError, sqlite3.Error) as error:
                if not self.store.is_in_place():
                    raise
                if str(error) != said:  # once, not at every tick
                    said = str(error)
                    say(f"collecting failed ({error}); will go on.")
                pause_s = min(2 * pause_s, TICK_PAUSE_MAX_S)
        self.tick()


@contextmanager
def hold(home: Home) -> Iterator[Collector | None]:
    """Become the one who takes journals in, or get None: somebody else is."""
    if home.capture.exists():
        # Its journal is the capture: taken in, no bundle could be made of it.
        raise UnreadableError(
            f"{home.root}: a debug bundle that is being captured (expected a home). If its process"
            " is dead: `vestige recover` makes the bundle."
        )
    home.make()
    fd = os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not file_locks.try_lock(fd):
            yield None
            return

        def spilled(writer: str, seq: int, info: object) -> bytes | None:
            return read_spill(home, writer, seq, info)  # type: ignore[arg-type]  # a BodyInfo

        with SqliteStore.open(home.store, read_spill=spilled) as store:
            yield Collector(home, store)
    finally:
        os.close(fd)


class StoreLag(NamedTuple):
    """A store that has not all that the journals of its home hold."""

    reason: str
    can_write: bool
    """False: nothing can be written to the home at all."""


def catch_up(home: Home) -> StoreLag | None:
    """Bring the store up to the journals: by ourselves, or by waiting for who is at it.

    What cannot be taken in is no reason to answer nothing: of a home that may only be read, or on a
    full disk, there is still what is stored.
    """
    deadline = clock.monotonic() + CATCH_UP_WAIT_S
    wanted: Mapping[tuple[str, int], int] | None = None
    while True:
        try:
            with hold(home) as collector:
                if collector is not None:
                    collector.tick()
                    return None
        except OSError as error:
            return StoreLag(error.strerror or str(error), error.errno not in _CANNOT_WRITE)
        except StoreError as error:
            reason = error.__cause__
            if getattr(reason, "sqlite_errorcode", 0) & 0xFF not in _STORE_CANNOT_WRITE:
                raise
            return StoreLag(_why_not_written(home, reason), False)
        if wanted is None:
            wanted = _sizes(home)
        if _has_reached(home, wanted) or clock.monotonic() >= deadline:
            return None
        clock.sleep(0.02)


_CANNOT_WRITE = frozenset((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT))
_STORE_CANNOT_WRITE = frozenset(
    (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN)
)


def _why_not_written(home: Home, reason: object) -> str:
    # SQLite calls it an I/O error where its files cannot grow.
    return "the disk is full" if shutil.disk_usage(home.root).free < MIB else str(reason)


def _sizes(home: Home) -> Mapping[tuple[str, int], int]:
    sizes = {}
    for writer, generation, path in home.journal_files():
        try:
            sizes[writer, generation] = path.stat().st_size
        except OSError:
            continue
    return sizes


def _has_reached(home: Home, wanted: Mapping[tuple[str, int], int]) -> bool:
    try:
        with SqliteStore.open(home.store, readonly=True) as store:
            positions = store.positions()
    except Exception:  # noqa: BLE001  # not there yet, or being made
        return False
    for (writer, generation), size in wanted.items():
        gone = not home.journal_file(writer, generation).exists()
        if not gone and positions.get((writer, generation), 0) < size:
            return False
    return True
