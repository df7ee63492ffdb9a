"""The directory of a live run: `runs/<run_id>/events.jsonl` and `run.json`.

Each event is one write to a file opened with O_APPEND, so it survives `kill -9`. The lock of
events.jsonl is held until the run ends, for whatever reason: a reader distinguishes an idle run
from a dead one by it.

Never raises. Events that cannot be written are dropped and counted, and reported once on stderr.
"""

from __future__ import annotations

import os

from vestige._runtime import file_locks
from vestige._runtime.long_lived_files import OPEN_FLAGS, LostError, OwnFile
from vestige._runtime.syscalls import make_folder, system
from vestige.agentdbg.settings import warn_once
from vestige.formats.agentdbg.file_structs import EVENTS_FILE, RUN_FILE


class RunDirectory:
    """Made when a run opens; `close` when it ends."""

    def __init__(self, data_dir: str | None, run_id: str) -> None:
        self.dropped = 0
        self.written_bytes = 0
        self.path = os.path.join(data_dir or "", "runs", run_id)
        self._events = os.path.join(self.path, EVENTS_FILE)
        self._file = OwnFile()
        if data_dir is not None:
            try:
                self._open()
            except Exception as error:  # noqa: BLE001  # wherever it points, the program goes on
                self._warn(error)

    def append(self, line: bytes) -> bool:
        """Write one event's line."""
        try:
            if self._file.fd < 0:
                raise OSError("not open")
            try:
                written = self._file.append(line)
            except LostError:
                self._open_again()
                written = self._file.append(line)
            if written != len(line):
                # The disk is full: end the torn line, so that the next one starts clean.
                written += self._file.append(b"\n" + line)
        except OSError as error:
            self.dropped += 1
            if self._file.fd >= 0:
                self._warn(error)
            return False
        self.written_bytes += written
        return True

    def write_run(self, text: bytes) -> None:
        """Replace run.json, all or nothing."""
        if self._file.fd < 0:
            return
        unfinished = os.path.join(self.path, f".{RUN_FILE}.{system.getpid()}")
        try:
            fd = system.open(
                unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
            )
            try:
                system.write(fd, text)
            finally:
                system.close(fd)
            system.rename(unfinished, os.path.join(self.path, RUN_FILE))
        except OSError as error:
            self._warn(error)

    def others_wrote(self) -> bool:
        """Check whether another process, such as a forked child, wrote events."""
        try:
            size: int = system.stat(self._events).st_size
        except OSError:
            return False
        return self._file.fd >= 0 and size != self.written_bytes

    def close(self) -> None:
        """Let go of the lock: the run is over."""
        self._file.close()

    def _open(self) -> None:
        make_folder(self.path, 0o700)
        # The lock before run.json, without which a directory is not a run yet: no reader sees a
        # living run whose lock is free.
        fd = system.open(self._events, OPEN_FLAGS, 0o600)
        file_locks.try_lock(fd)
        self._file = OwnFile(fd)

    def _open_again(self) -> None:
        """Open the same file: the program has closed our descriptor, and may use its number."""
        self._file.close()
        self._open()

    def _warn(self, error: Exception) -> None:
        # Of the folder, not of the run: a service has thousands of runs, and one full disk.
        reason = getattr(error, "strerror", None) or error
        warn_once(
            f"{os.path.dirname(self.path)}: cannot write ({reason}). The program goes on without."
        )
