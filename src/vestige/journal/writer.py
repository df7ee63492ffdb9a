"""Write the journal: append one line with one write, and never raise.

A line survives `kill -9` once `write` has returned, because the kernel has the bytes. O_APPEND
orders the writes of several threads without a lock.

Before each write the descriptor is compared with the file that we opened: a program that closes
descriptors in bulk may have reused the number for its own file (_runtime/long_lived_files.py).
Then the journal continues in a new file at once.

Rotation points the same file descriptor at the next file (`dup2`), so a thread that is about to
write never has a stale one. The lock of a generation is free exactly when no thread can write to
it any more, which is how a reader knows that it is finished.

When writing fails (disk full, read-only), the line waits in memory, and `check` tries again
(backlog.py). A small reserve on the disk is released at the end, for the last records and the
report of what was dropped. If the file is deleted, the next `check` opens a new one. A line that
was written only in part is ended with a newline, so that the next line starts clean.

System calls bypass the replacements of tests (_runtime/syscalls.py).
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
from vestige._runtime.long_lived_files import OPEN_FLAGS, OwnFile
from vestige._runtime.syscalls import system
from vestige.home import Home
from vestige.journal.backlog import Backlog, Loss
from vestige.journal.flush_thread import FlushThread
from vestige.limits import (
    BACKLOG_LAST_MAX,
    BACKLOG_MAX,
    JOURNAL_RESERVE_BYTES,
    JOURNAL_ROTATE_BYTES,
    JOURNAL_TOTAL_MAX,
)

if TYPE_CHECKING:
    from pathlib import Path

Fsync = Literal["none", "periodic", "record"]
FSYNC_MODES: tuple[Fsync, ...] = ("none", "periodic", "record")


class JournalWriter:
    """The journal of one process.

    `on_check` is called about once a second, off the hot path. `on_lost` is called when the program
    has closed our descriptors, `on_deleted` when the file was deleted and a new one is open.
    """

    def __init__(
        self,
        home: Home,
        writer: str,
        *,
        fsync: Fsync = "periodic",
        rotate_bytes: int = JOURNAL_ROTATE_BYTES,
        total_max: int = JOURNAL_TOTAL_MAX,
        backlog_max: int = BACKLOG_MAX,
        on_check: Callable[[], None] = lambda: None,
        on_lost: Callable[[], None] = lambda: None,
        on_deleted: Callable[[], None] = lambda: None,
    ) -> None:
        self.home = home
        self.writer = writer
        self.written_bytes = 0
        """Bytes written to this generation."""
        self.last_error: OSError | None = None
        self._lseek, self._pwrite = system.lseek, system.pwrite  # They run for every record.
        self._fsync = fsync
        self._rotate_bytes = rotate_bytes
        self._total_max = total_max
        self._on_check, self._on_lost, self._on_deleted = on_check, on_lost, on_deleted
        self._generation = 0
        self._file = OwnFile()
        self._synced_bytes = 0
        self._maintain_at = 0
        self._backlog_max = backlog_max
        """0: a line that cannot be written is dropped at once, and no space is reserved."""
        self._backlog = Backlog(backlog_max)
        self._warned = False
        self._is_ending = False
        # Reentrant: a signal handler may write while this thread holds the lock.
        self._lock = threading.RLock()
        self._closed = False
        self._flush_thread: FlushThread | None = None
        with self._lock:
            self._open_next()
            self._make_reserve()

    @property
    def dropped(self) -> int:
        """Records that are not written: dropped, or waiting until writing works again."""
        return self._backlog.dropped + self._backlog.waiting

    # --- the hot path -------------------------------------------------------------------

    def write(self, line: bytes) -> bool:
        """Append a line. Return False if it was dropped, which is counted."""
        file = self._file
        fd = file.fd
        try:
            if self._lseek(fd, 0, 1) != file.mark:
                return self._write_slowly(line)
            written = self._pwrite(fd, line, 0)  # O_APPEND: the offset is ignored.
        except OSError as error:
            return self._write_slowly(line, error)
        if written != len(line):
            return self._finish(line)
        # Two threads may race, and one addition be lost: maintenance then runs a line later.
        self.written_bytes = total = self.written_bytes + written
        if total >= self._maintain_at:
            self._maintain()
        return True

    def _maintain(self) -> None:
        """Sync, start the thread or rotate: due when `written_bytes` reaches `_maintain_at`."""
        if self._fsync == "record":
            self._sync()
        if self._flush_thread is None:
            self._start_flush_thread()
        if self.written_bytes >= self._rotate_bytes:
            self.rotate()
        self._maintain_at = 0 if self._fsync == "record" else self._rotate_bytes

    # --- failures -----------------------------------------------------------------------

    def _write_slowly(self, line: bytes, error: OSError | None = None) -> bool:
        """Write when the fast comparison fails: the file cannot be marked, or is not ours."""
        if self._file.is_ours() and error is not None:
            return self._hold_back(line, error)
        self._open_lost()
        failed = self._append(line)
        if failed is not None:
            has_file = error is None or self._file.fd >= 0
            return self._hold_back(line, failed if has_file else error or failed)
        self.written_bytes += len(line)
        if self.written_bytes >= self._maintain_at:
            self._maintain()
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
        """Write a line again that was written in part."""
        error = self._append(b"\n" + line)
        return True if error is None else self._hold_back(line, error)

    def _append(self, line: bytes) -> OSError | None:
        """Append a complete line. Return the error; a part that was written is ended."""
        try:
            if self._file.append(line) == len(line):
                return None
            self._file.append(b"\n")
        except OSError as error:
            return error
        return OSError("short write")

    def _hold_back(self, line: bytes, error: OSError) -> bool:
        """Let a line wait until writing works again."""
        if self._file.fd < 0 and self._closed:
            self._backlog.dropped += 1
            return False  # A record after `close` is late. The file has no error.
        if self._file.fd < 0 and self.last_error is not None:
            error = self.last_error  # the reason why no file is open
        self.last_error = error
        with self._lock:
            self._backlog.add(line, error.strerror or str(error))
            first, self._warned = not self._warned, True
        if first:
            self._warn(error)
        if self._flush_thread is None:
            self._start_flush_thread()
        return False

    def _write_backlog(self) -> None:
        """Write the lines that wait."""
        if self._backlog.waiting and self._file.fd >= 0:
            with self._lock:
                error = self._backlog.write_out(self._append)
            self.last_error = error or self.last_error

    def _warn(self, error: OSError) -> None:
        """Print one warning for the person who runs the program."""
        try:
            sys.stderr.write(
                f"vestige: {self.path}: cannot write ({error}). Recording continues once writing"
                " works; records that are dropped meanwhile are counted.\n"
            )
        except Exception:  # noqa: BLE001  # stderr may be closed or replaced
            pass

    def take_losses(self) -> Counter[Loss]:
        """Return and reset the losses, once writing works, so that they can be reported."""
        with self._lock:
            if self._file.fd < 0 or (self._backlog.waiting and not self._is_ending):
                return Counter()
            losses, self._backlog.losses = self._backlog.losses, Counter()
        return losses

    def check(self) -> None:
        """Sync, and recover after a failed write. Called off the hot path."""
        if self._recover() and self._fsync == "periodic":
            self._sync_new()
        self._write_backlog()

    def _recover(self) -> bool:
        """Open a file if there is none, and return whether there was one."""
        self._open_lost()
        if self._file.fd < 0 or self._is_deleted():
            had_file, generation = self._file.fd >= 0, self._generation
            with self._lock:
                self._open_next()
                self._make_reserve()
            if had_file and self._generation > generation:
                self._on_deleted()
            return False
        return True

    def prepare_end(self) -> None:
        """Make room for the last records, which the program writes before it closes the journal.

        If the disk is still full, only the newest of the waiting lines are kept. Nothing is synced
        yet: a pool ends its workers with SIGTERM, perhaps while they wait for the disk.
        """
        self._recover()
        self._write_backlog()
        self._is_ending = True
        if self._backlog.waiting:
            with self._lock:
                self._backlog.trim(BACKLOG_LAST_MAX)
            self._release_reserve()

    def _sync_new(self) -> None:
        if self._synced_bytes != self.written_bytes:
            self._synced_bytes = self.written_bytes
            self._sync()

    def _sync(self) -> None:
        try:
            if self._file.is_ours():
                system.fsync(self._file.fd)
        except OSError as error:
            self.last_error = error

    def _is_deleted(self) -> bool:
        """Return whether the file was deleted, so that records are not stored."""
        try:
            return system.fstat(self._file.fd).st_nlink == 0
        except OSError:
            return True

    # --- files ----------------------------------------------------------------------------

    def rotate(self, now: bool = False) -> None:
        """Continue in the next generation if this one is full, or if `now` is true."""
        with self._lock:
            if now or self.written_bytes >= self._rotate_bytes:
                self._open_next()
                self._bound_total()

    def _open_next(self) -> None:
        """Create, lock and then publish the next file, so that a reader never sees it unlocked.

        On failure the old file, if any, stays in use.
        """
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
            if not file_locks.try_lock(fd):
                raise OSError(f"{path}: another process has this journal")
            system.rename(unpublished, path)
            self._write_to(fd)
            self._generation = generation
        except OSError as error:
            self.last_error = error
        finally:
            system.close(fd)

    def _write_to(self, fd: int) -> None:
        """Write to this file from now on. The descriptor keeps its number if it is still ours."""
        self._file.point_to(fd)
        self.written_bytes = self._synced_bytes = 0

    def _bound_total(self) -> None:
        """Delete the oldest finished generations over the total bound, and count the loss."""
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
            reason = "bytes of old journals deleted: over the total bound"
            self._backlog.losses[Loss(reason)] += lost

    def _make_reserve(self) -> None:
        """Allocate a little space that is released when the disk is full at the end."""
        if self._file.fd < 0 or not self._backlog_max:
            return
        with suppress(OSError):
            path = str(self.home.reserve_file(self.writer))
            fd = system.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                system.write(fd, b"." * JOURNAL_RESERVE_BYTES)
            finally:
                system.close(fd)

    def _release_reserve(self) -> None:
        with suppress(OSError):
            system.unlink(str(self.home.reserve_file(self.writer)))

    # --- the flush thread ---------------------------------------------------------------

    def _start_flush_thread(self) -> None:
        with self._lock:
            if self._flush_thread is None and not self._closed:
                # RuntimeError: the interpreter is shutting down, or cannot start more threads.
                with suppress(RuntimeError):
                    self._flush_thread = FlushThread(self._run_check)
                    _with_thread.add(self)

    def _run_check(self) -> None:
        try:
            self.check()
            self._on_check()
        except Exception as error:  # noqa: BLE001  # only this thread syncs and recovers
            self.last_error = error if isinstance(error, OSError) else self.last_error

    def pause_flush_thread(self) -> None:
        """Stop the thread before a fork. The next record starts it again, if nothing else does."""
        thread, self._flush_thread = self._flush_thread, None
        self._maintain_at = 0
        if thread is not None:
            thread.stop_before_fork()

    def close(self) -> None:
        """Flush, and release the lock: the journal is finished."""
        self._closed = True
        thread, self._flush_thread = self._flush_thread, None
        if thread is not None:
            thread.stop()
        self.check()
        with self._lock:
            self._file.close()
        self._release_reserve()

    def restart(self, writer: str) -> None:
        """Begin a new journal in a forked child: the file and its thread are the parent's."""
        self._file.close()
        self.writer = writer
        self.written_bytes = self._maintain_at = self._generation = 0
        self._backlog, self._warned, self._is_ending = Backlog(self._backlog_max), False, False
        # A thread that does not exist in the child may have held the lock.
        self._lock, self._closed, self._flush_thread = threading.RLock(), False, None
        with self._lock:
            self._open_next()
            self._make_reserve()

    @property
    def path(self) -> Path:
        return self.home.journal_file(self.writer, self._generation)


# --- fork -----------------------------------------------------------------------------------

_with_thread: weakref.WeakSet[JournalWriter] = weakref.WeakSet()
_paused: list[JournalWriter] = []


def _before_fork() -> None:
    """Stop our threads: Python 3.12 warns about a fork in a process with several."""
    _paused[:] = [journal for journal in _with_thread if journal._flush_thread is not None]
    for journal in _paused:
        journal.pause_flush_thread()


def _after_fork_in_parent() -> None:
    paused = _paused.copy()
    _paused.clear()
    if sys.version_info[:2] == (3, 13):
        return  # 3.13 counts threads after this hook. The next record starts the thread.
    for journal in paused:
        journal._start_flush_thread()


if sys.version_info >= (3, 12):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent)
