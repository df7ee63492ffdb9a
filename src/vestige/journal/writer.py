"""Write the journal: append one line with one write, and never raise.

What `write` returned from survives `kill -9`: the bytes are the kernel's. O_APPEND
makes writes of several threads line up without a lock of ours.

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
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from fcntl import F_DUPFD_CLOEXEC
from typing import TYPE_CHECKING, Literal

from vestige._runtime import file_locks
from vestige._runtime.syscalls import system
from vestige.home import Home
from vestige.journal.flush_thread import FlushThread
from vestige.limits import JOURNAL_ROTATE_BYTES, JOURNAL_TOTAL_MAX

if TYPE_CHECKING:
    from pathlib import Path

Fsync = Literal["none", "periodic", "record"]
FSYNC_MODES: tuple[Fsync, ...] = ("none", "periodic", "record")
DESCRIPTOR_MIN = 700
"""Above what programs open, below the 1024 that most systems allow."""
OPEN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class JournalWriter:
    """One process's journal. `on_check` is called about once a second, off the hot path."""

    def __init__(
        self,
        home: Home,
        writer: str,
        *,
        fsync: Fsync = "periodic",
        rotate_bytes: int = JOURNAL_ROTATE_BYTES,
        total_max: int = JOURNAL_TOTAL_MAX,
        on_check: Callable[[], None] = lambda: None,
    ) -> None:
        self.home = home
        self.writer = writer
        self.dropped = 0
        self.written_bytes = 0
        """Of this generation."""
        self.last_error: OSError | None = None
        self._write = system.write  # looked up once: it runs for every record
        self._fsync = fsync
        self._rotate_bytes = rotate_bytes
        self._total_max = total_max
        self._on_check = on_check
        self._generation = 0
        self._fd = -1
        self._stat: os.stat_result
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
        try:
            written = self._write(self._fd, line)
        except OSError as error:
            return self._drop(error)
        if written != len(line):
            return self._finish(line)
        # Of two threads one may lose its addition: then the next look comes a line later.
        self.written_bytes += written
        if self.written_bytes >= self._look_at:
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

    def _finish(self, line: bytes) -> bool:
        """A short write: end the torn line, then write the whole one again."""
        try:
            if system.write(self._fd, b"\n" + line) == len(line) + 1:
                return True
            system.write(self._fd, b"\n")
        except OSError as error:
            return self._drop(error)
        return self._drop(OSError("short write"))

    def _drop(self, error: OSError) -> bool:
        if self._fd < 0 and self._closed:
            self.dropped += 1
            return False  # closed: whoever comes now is late, and nothing is wrong with the file
        if self._fd < 0 and self.last_error is not None:
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
        if self._fd < 0:
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
        if self._fd < 0 or self._is_gone():
            with self._lock:
                self._open_next()
        elif self._fsync == "periodic" and self._synced_bytes != self.written_bytes:
            self._synced_bytes = self.written_bytes
            self._sync()

    def _sync(self) -> None:
        try:
            system.fsync(self._fd)
        except OSError as error:
            self.last_error = error

    def _is_gone(self) -> bool:
        """Was the file deleted under us, or its descriptor closed? Then what we write goes
        nowhere, or worse."""
        return not self._is_ours() or system.fstat(self._fd).st_nlink == 0

    def _is_ours(self) -> bool:
        """Is our descriptor still our file? A program that closes all it sees (a daemon) may
        since have got the same number for a file of its own."""
        try:
            return self._fd >= 0 and os.path.samestat(system.fstat(self._fd), self._stat)
        except OSError:
            return False

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
        if self._is_ours():
            system.dup2(fd, self._fd, inheritable=False)
        else:
            self._fd = duplicate_high(fd)
        self._stat = system.fstat(fd)
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

    def _look_after(self) -> None:
        try:
            self.check()
            self._on_check()
        except Exception as error:  # noqa: BLE001  # it must go on: nobody else syncs, or mends
            self.last_error = error if isinstance(error, OSError) else self.last_error

    def close(self) -> None:
        """Flush and let go of the lock: from now on the journal is finished."""
        self._closed = True
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.stop()
        self.check()
        with self._lock:
            self._let_go()

    def _let_go(self) -> None:
        ours = self._is_ours()
        fd, self._fd = self._fd, -1
        if ours:
            system.close(fd)

    def restart(self, writer: str) -> None:
        """In a forked child: the file and its thread are the parent's. Begin one of our own."""
        self._let_go()
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


def duplicate_high(fd: int) -> int:
    """A descriptor far above those that programs close in bulk, and get again when they open."""
    for least in (DESCRIPTOR_MIN, 3):
        with suppress(OSError):  # more than this process may have
            found: int = system.fcntl(fd, F_DUPFD_CLOEXEC, least)
            if found >= least:  # else a fake file system made it up: it may be anybody's
                return found
    return system.dup(fd)
