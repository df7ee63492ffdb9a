"""Write the journal: append one line with one write, and never raise.

What `write` returned from survives `kill -9`: the bytes are the kernel's. O_APPEND
makes writes of several threads line up without a lock of ours.

Before each write the descriptor is compared with the file that we opened: a program that closes
descriptors in bulk may have got the number for a file of its own (_runtime/owned_file.py). Then the
journal continues in a new file at once.

Rotation points the same file descriptor at the next file (`dup2`), so a thread that
is about to write never holds a stale one. A generation's lock is free exactly when
nobody can write to it any more: that is how a reader knows it is finished.

When writing fails (disk full, read-only, home deleted) the line is dropped and
counted, and the next `check` tries again from scratch. A line that was written only
in part is ended with a newline, so that the next one starts clean.

Calls of the system are made past whatever a test has put in their place (_runtime/syscalls.py).
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from vestige._runtime import file_locks
from vestige._runtime.owned_file import OPEN_FLAGS, OwnFile
from vestige._runtime.syscalls import system
from vestige.home import Home
from vestige.journal.flush_thread import FlushThread
from vestige.limits import JOURNAL_ROTATE_BYTES, JOURNAL_TOTAL_MAX

if TYPE_CHECKING:
    from pathlib import Path

Fsync = Literal["none", "periodic", "record"]
FSYNC_MODES: tuple[Fsync, ...] = ("none", "periodic", "record")


class JournalWriter:
    """One process's journal. `on_check` is called about once a second, off the hot path;
    `on_lost` when the program has closed our descriptors."""

    def __init__(
        self,
        home: Home,
        writer: str,
        *,
        fsync: Fsync = "periodic",
        rotate_bytes: int = JOURNAL_ROTATE_BYTES,
        total_max: int = JOURNAL_TOTAL_MAX,
        on_check: Callable[[], None] = lambda: None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.home = home
        self.writer = writer
        self.dropped = 0
        self.written_bytes = 0
        """Of this generation."""
        self.last_error: OSError | None = None
        self._lseek, self._pwrite = system.lseek, system.pwrite  # They run for every record.
        self._fsync = fsync
        self._rotate_bytes = rotate_bytes
        self._total_max = total_max
        self._on_check, self._on_lost = on_check, on_lost
        self._generation = 0
        self._file = OwnFile()
        self._synced_bytes = 0
        self._look_at = 0
        self._losses: Counter[str] = Counter()
        # Reentrant: a signal's last words may come while this very thread holds it.
        self._lock = threading.RLock()
        self._closed = False
        self._keeper: FlushThread | None = None
        with self._lock:
            self._open_next()

    # --- the hot path -------------------------------------------------------------------

    def write(self, line: bytes) -> bool:
        """Append a line. False: it was dropped, and counted."""
        file = self._file
        fd = file.fd
        try:
            if self._lseek(fd, 0, 1) != file.mark:
                return self._write_slowly(line)
            written = self._pwrite(fd, line, 0)  # It appends, whatever the offset.
        except OSError as error:
            return self._write_slowly(line, error)
        if written != len(line):
            return self._finish(line)
        # Of two threads one may lose its addition: then the next look comes a line later.
        self.written_bytes = total = self.written_bytes + written
        if total >= self._look_at:
            self._look()
        return True

    def _look(self) -> None:
        """What a write must see to now and then; `_look_at` says when, in written bytes."""
        if self._fsync == "record":
            self._sync()
        if self._keeper is None:
            self._start_keeper()
        if self.written_bytes >= self._rotate_bytes:
            self.rotate()
        self._look_at = 0 if self._fsync == "record" else self._rotate_bytes

    # --- when it does not go well ---------------------------------------------------------

    def _write_slowly(self, line: bytes, error: OSError | None = None) -> bool:
        """Write where the quick comparison does not hold: the file cannot be marked, or is lost."""
        if self._file.is_ours() and error is not None:
            return self._drop(error)
        self._open_lost()
        try:
            if self._file.append(line) != len(line):
                return self._finish(line)
        except OSError as failed:
            return self._drop(failed if error is None or self._file.fd >= 0 else error)
        self.written_bytes += len(line)
        if self.written_bytes >= self._look_at:
            self._look()
        return True

    def _open_lost(self) -> None:
        """Continue in a new file if the program has closed ours."""
        with self._lock:
            if self._file.fd < 0 or self._file.is_ours():
                return
            self._file.close()
            if not self._closed:
                self._open_next()
        self._on_lost()

    def _finish(self, line: bytes) -> bool:
        """A short write: end the torn line, then write the whole one again."""
        try:
            if self._file.append(b"\n" + line) == len(line) + 1:
                return True
            self._file.append(b"\n")
        except OSError as error:
            return self._drop(error)
        return self._drop(OSError("short write"))

    def _drop(self, error: OSError) -> bool:
        if self._file.fd < 0 and self._closed:
            self.dropped += 1
            return False  # closed: whoever comes now is late, and nothing is wrong with the file
        if self._file.fd < 0 and self.last_error is not None:
            error = self.last_error  # why there is no file, which says more than its absence
        self.last_error = error
        with self._lock:
            self.dropped += 1
            self._losses[f"records dropped: {error.strerror or error}"] += 1
            first = self.dropped == 1
        if first:
            self._warn(error)
        if self._keeper is None:
            self._start_keeper()
        return False

    def _warn(self, error: OSError) -> None:
        """Once, to a person: a recorder that cannot record should not be silent about it."""
        try:
            sys.stderr.write(
                f"vestige: {self.path}: cannot write ({error}). Records are dropped and counted; "
                "recording goes on by itself once writing works.\n"
            )
        except Exception:  # noqa: BLE001  # stderr may be closed, or anything
            pass

    def take_losses(self) -> Counter[str]:
        """What was lost since the last call, by reason; only once it can be told."""
        if self._file.fd < 0:
            return Counter()
        with self._lock:
            losses, self._losses = self._losses, Counter()
        return losses

    def return_losses(self, what: str, count: int) -> None:
        """It could not be told after all."""
        with self._lock:
            self._losses[what] += count

    def check(self) -> None:
        """Now and then, off the hot path: fsync, and get back on our feet after a loss."""
        self._open_lost()
        if self._file.fd < 0 or self._is_deleted():
            with self._lock:
                self._open_next()
        elif self._fsync == "periodic" and self._synced_bytes != self.written_bytes:
            self._synced_bytes = self.written_bytes
            self._sync()

    def _sync(self) -> None:
        try:
            if self._file.is_ours():
                system.fsync(self._file.fd)
        except OSError as error:
            self.last_error = error

    def _is_deleted(self) -> bool:
        """Return whether the file was deleted under us: what we write goes nowhere."""
        try:
            return system.fstat(self._file.fd).st_nlink == 0
        except OSError:
            return True

    # --- files ----------------------------------------------------------------------------

    def rotate(self, now: bool = False) -> None:
        """Go on in the next generation, if this one is full, or `now`."""
        with self._lock:
            if now or self.written_bytes >= self._rotate_bytes:
                self._open_next()
                self._bound_total()

    def _open_next(self) -> None:
        """Create, lock, then publish the next file: a reader never sees one that is unlocked
        and alive. On failure the old file, if any, stays in use."""
        generation = self._generation + 1
        path = self.home.journal_file(self.writer, generation)
        unpublished = path.with_name("." + path.name)
        try:
            self.home.make()
            fd = system.open(unpublished, OPEN_FLAGS, 0o600)
        except OSError as error:
            self.last_error = error
            return
        try:
            if not file_locks.hold(fd):
                raise OSError(f"{path}: another process has this journal")
            system.rename(unpublished, path)
            self._write_to(fd)
            self._generation = generation
        except OSError as error:
            self.last_error = error
        finally:
            system.close(fd)

    def _write_to(self, fd: int) -> None:
        """From here on. Our descriptor keeps its number, if it is still ours."""
        self._file.point_to(fd)
        self.written_bytes = self._synced_bytes = 0

    def _bound_total(self) -> None:
        """No collector for weeks: the oldest finished generations go, and that is said."""
        files = []
        for writer, generation, path in self.home.journal_files():
            try:
                stat = path.stat()
            except OSError:
                continue
            files.append((stat.st_mtime_ns, writer, generation, path, stat.st_size))
        total = sum(size for *_, size in files)
        lost = 0
        for *_, path, size in sorted(files):
            if total <= self._total_max:
                break
            if not file_locks.is_held(path):
                path.unlink(missing_ok=True)
                total -= size
                lost += size
        if lost:
            self._losses["bytes of old journals deleted: over the total bound"] += lost

    # --- the keeper ---------------------------------------------------------------------

    def _start_keeper(self) -> None:
        with self._lock:
            if self._keeper is None and not self._closed:
                # None: the interpreter is shutting down, or may have no more.
                with suppress(RuntimeError):
                    self._keeper = FlushThread(self._look_after)
                    _with_keeper.add(self)

    def _look_after(self) -> None:
        try:
            self.check()
            self._on_check()
        except Exception as error:  # noqa: BLE001  # it must go on: nobody else syncs, or mends
            self.last_error = error if isinstance(error, OSError) else self.last_error

    def pause_keeper(self) -> None:
        """End the thread before a fork. It starts again with the next record, if not before."""
        keeper, self._keeper = self._keeper, None
        self._look_at = 0
        if keeper is not None:
            keeper.stop_before_fork()

    def close(self) -> None:
        """Flush and let go of the lock: from now on the journal is finished."""
        self._closed = True
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.stop()
        self.check()
        with self._lock:
            self._file.close()

    def restart(self, writer: str) -> None:
        """In a forked child: the file and its thread are the parent's. Begin one of our own."""
        self._file.close()
        self.writer = writer
        self.dropped = self.written_bytes = self._look_at = self._generation = 0
        self._losses = Counter()
        # Locks and events may have been held by threads that do not exist here.
        self._lock, self._closed, self._keeper = threading.RLock(), False, None
        with self._lock:
            self._open_next()

    @property
    def path(self) -> Path:
        return self.home.journal_file(self.writer, self._generation)


# --- fork -----------------------------------------------------------------------------------

_with_keeper: weakref.WeakSet[JournalWriter] = weakref.WeakSet()
_paused: list[JournalWriter] = []


def _before_fork() -> None:
    """A process with one thread only can fork safely, and Python 3.12 does not warn of it."""
    _paused[:] = [journal for journal in _with_keeper if journal._keeper is not None]
    for journal in _paused:
        journal.pause_keeper()


def _after_fork_in_parent() -> None:
    paused = _paused.copy()
    _paused.clear()
    if sys.version_info[:2] == (3, 13):
        return  # It counts threads after this: the next record starts the thread again.
    for journal in paused:
        journal._start_keeper()


if sys.version_info >= (3, 12):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent)
