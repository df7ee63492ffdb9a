"""The collector's loop, and the single pass that every reading command makes first.

The lock of the home allows one collector at a time. A reader that finds it locked waits a moment,
until that collector has imported the journals.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from vestige._runtime import clock, file_locks
from vestige.collector.crash_detection import stamp_dead, stamp_silent
from vestige.collector.journal_ingest import (
    IngestCounts,
    OnJournal,
    delete_leftovers,
    ingest_journals,
    read_spill,
)
from vestige.collector.rootless_traces import stamp_rootless
from vestige.errors import StoreError, StoreNotWritableError, UnreadableError, VestigeError
from vestige.home import Home
from vestige.limits import (
    CATCH_UP_WAIT_S,
    MIB,
    PRUNE_INTERVAL_S,
    PRUNE_READ_INTERVAL_S,
    PRUNE_RUNS_MAX,
    TICK_PAUSE_MAX_S,
    TICK_S,
)
from vestige.settings import find_store, read_settings
from vestige.store.open import is_server_address, open_store
from vestige.store.protocol import RetentionPolicy, Store


class Collector:
    """Imports journals, with the home's lock and store. Created by `hold`."""

    def __init__(self, home: Home, store: Store) -> None:
        self.home = home
        self.store = store
        settings = read_settings(home)
        self.retention = RetentionPolicy(
            settings.retention_age_s, settings.retention_body_bytes, PRUNE_RUNS_MAX
        )
        self._pruned_ns: int | None = None

    def tick(
        self, prune_interval_s: float = PRUNE_INTERVAL_S, on_journal: OnJournal | None = None
    ) -> IngestCounts:
        """Import journals, stamp dead writers, and prune when it is due.

        OSError is raised at the end if a journal could not be read: the next tick tries again.
        """
        if not self.store.is_in_place():  # Journals would be deleted without being stored.
            raise StoreError(f"{find_store(self.home)}: was deleted or replaced. Start again.")
        counts, failed = IngestCounts(), None
        try:
            counts = ingest_journals(self.home, self.store, on_journal)
        except OSError as error:
            failed = error  # The journal may never be readable: the rest must not wait for it.
        stamp_dead(self.home, self.store)
        stamp_silent(self.store, clock.SYSTEM.now_ns())
        stamp_rootless(self.store, clock.SYSTEM.now_ns())
        self._prune_if_due(clock.SYSTEM.now_ns(), prune_interval_s)
        if failed is not None:
            raise failed
        return counts

    def _prune_if_due(self, now_ns: int, interval_s: float) -> None:
        """Prune, unless this or another process did so within the interval.

        A new store is pruned after the first interval. A pass that reached its bound is continued
        by the next tick.
        """
        if self._pruned_ns is None:
            self._pruned_ns = int(self.store.get_fact("pruned_ns") or 0)
        if 0 <= now_ns - self._pruned_ns < interval_s * 1e9:
            return
        if self._pruned_ns:
            pruned = self.store.prune(self.retention, now_ns)
            delete_leftovers(self.home, self.store)
            if pruned.runs >= PRUNE_RUNS_MAX:
                return
        self._pruned_ns = now_ns
        self.store.set_fact("pruned_ns", str(now_ns))

    def run(self, keep_on: Callable[[float], bool], report: Callable[[str], None]) -> None:
        """Tick until `keep_on(seconds)`, which waits, returns False; then once more.

        A tick that fails (disk full, locked store) is reported and tried again later: the journals
        keep all records meanwhile. Only a missing store ends the loop.
        """
        reported = ""
        pause_s = TICK_S
        while keep_on(pause_s):
            try:
                self.tick()
                reported, pause_s = "", TICK_S
            except (VestigeError, OSError) as error:
                if not self.store.is_in_place():
                    raise
                if str(error) != reported:  # once, not at every tick
                    reported = str(error)
                    report(f"collecting failed ({error}); will go on.")
                pause_s = min(2 * pause_s, TICK_PAUSE_MAX_S)
        self.tick()


@contextmanager
def hold(home: Home) -> Iterator[Collector | None]:
    """Lock the home and yield its collector, or None if another process is the collector."""
    if home.capture.exists():
        # The journal is needed for the bundle. Importing would delete it.
        raise UnreadableError(
            f"{home.root}: a debug bundle that is being captured (expected a home). If its process"
            " is dead: `vestige store recover` makes the bundle."
        )
    home.make()
    fd = os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not file_locks.try_lock(fd):
            yield None
            return

        def spilled(writer: str, seq: int, info: object) -> bytes | None:
            return read_spill(home, writer, seq, info)  # type: ignore[arg-type]  # a BodyInfo

        delete_dead_proxies(home)
        location = find_store(home)
        home_id = _read_home_id(fd) if is_server_address(location) else ""
        with open_store(location, read_spill=spilled, home_id=home_id) as store:
            yield Collector(home, store)
    finally:
        os.close(fd)


def _read_home_id(fd: int) -> str:
    """Return the random id of a home, which its locked lock file contains."""
    if found := os.pread(fd, 100, 0).decode("ascii", "replace").strip():
        return found
    made = clock.random_bytes(8).hex()
    os.pwrite(fd, made.encode(), 0)
    return made


def delete_dead_proxies(home: Home) -> None:
    """Delete the folders of recording proxies that were killed. A living one holds its lock."""
    try:
        folders = list((home.root / "proxies").iterdir())
    except OSError:
        return
    for folder in folders:
        if not file_locks.is_held(folder / "lock"):
            shutil.rmtree(folder, ignore_errors=True)


class StoreLag(NamedTuple):
    """The reason why the store lacks records of the journals."""

    reason: str
    can_write: bool
    """False if the home is not writable at all."""


def catch_up(home: Home) -> StoreLag | None:
    """Import all journals, or wait for the collector that does.

    A home that is read-only or on a full disk is not an error: its stored runs can be read. The
    result is the reason why the store is behind.
    """
    if is_server_address(find_store(home)) and not home.journal_files():
        return None  # the servers of the store do all else
    deadline = clock.monotonic() + CATCH_UP_WAIT_S
    target: Mapping[tuple[str, int], int] | None = None
    while True:
        try:
            with hold(home) as collector:
                if collector is not None:
                    collector.tick(PRUNE_READ_INTERVAL_S)
                    return None
        except OSError as error:
            return StoreLag(error.strerror or str(error), error.errno not in _CANNOT_WRITE)
        except StoreNotWritableError as error:
            return StoreLag(_format_reason(home, error.reason), False)
        if target is None:
            target = _sizes(home)
        if _has_reached(home, target) or clock.monotonic() >= deadline:
            return None
        clock.sleep(0.02)


_CANNOT_WRITE = frozenset((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT))


def _format_reason(home: Home, reason: str) -> str:
    # SQLite reports an I/O error when its files cannot grow.
    return "the disk is full" if shutil.disk_usage(home.root).free < MIB else reason


def _sizes(home: Home) -> Mapping[tuple[str, int], int]:
    sizes = {}
    for writer, generation, path in home.journal_files():
        try:
            sizes[writer, generation] = path.stat().st_size
        except OSError:
            continue
    return sizes


def _has_reached(home: Home, target: Mapping[tuple[str, int], int]) -> bool:
    try:
        with open_store(find_store(home), readonly=True) as store:
            positions = store.positions()
    except Exception:  # noqa: BLE001  # missing, or just being created
        return False
    for (writer, generation), size in target.items():
        exists = home.journal_file(writer, generation).exists()
        if exists and positions.get((writer, generation), 0) < size:
            return False
    return True
