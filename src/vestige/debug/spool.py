"""The spool: a private home in which one capture lives until it is a bundle.

    <home>/spool/<bundle id>/
      capture                locked while the process that captures lives
      journal/<writer>...    the capture as records: snapshots, their items, files, how it ended
      journal/logs-<writer>  the program's log lines; old generations go when logs are rotated
      bodies/                captured files, by the hash of their bytes; long items
      exported               the path of the bundle, when it has been written

Everything captured before a kill is in the journal, as with any recorder. A spool whose lock is
free was left by a dead process: `vestige store recover` makes a bundle of it (recover.py).

Elsewhere: debug/snapshot_writer.py writes the records, debug/spool_index.py reads them.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vestige._runtime import file_locks
from vestige._runtime.clock import Clock
from vestige._runtime.long_lived_files import OwnFile
from vestige.errors import UsageError
from vestige.home import Home, get_home
from vestige.journal.reader import read_lines
from vestige.journal.spill import write_spill
from vestige.journal.writer import JournalWriter
from vestige.limits import BODY_INLINE_MAX, JOURNAL_ROTATE_BYTES, LINE_MAX
from vestige.process_writer import Writer, get_process_writer
from vestige.record.codec import encode, parse_lines
from vestige.record.inline_or_chunked_body import LongBody, decode_chunks
from vestige.record.redaction.record_encoding import encode_redacted
from vestige.record.types import VERSION, BodyInfo, Log
from vestige.recorder import Recorder

LOGS: Final = "logs-"
"""The start of the name of a journal with log lines."""
COMPONENT: Final = "capture"
EXTRAS: Final = "extras"
"""Components beyond the wink format's, as in the bundle (debug/copy_recorded_run.py)."""
_TEMPORARY: Final = "vestige-spool-"
_LINE_OVERHEAD: Final = 60
"""Bytes by which a line in the journal is longer than in the bundle: it names writer and run."""
SEGMENT_DROPPED: Final = "log segment dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRotationConfig:
    """When to begin a new segment of log lines, and how many to keep, the current one included."""

    max_entries: int = 100_000
    max_bytes: int = 50_000_000
    """The approximate size of the lines in the bundle."""
    keep_rotations: int = 3

    def __post_init__(self) -> None:
        for name in ("max_entries", "max_bytes", "keep_rotations"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}: {getattr(self, name)!r} (expected at least 1).")


class Spool:
    """The folder and its lock. Removed when the last user of an exported bundle lets go of it."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.home = Home(folder)
        self._owner = os.getpid()
        self._lock = OwnFile(lock)
        self._finalizer = weakref.finalize(self, _let_go, folder, self._lock, self._owner)
        _alive.add(self)

    @property
    def id(self) -> str:
        return self.home.root.name

    def exported(self, target: Path) -> None:
        """Mark the spool as exported, so that it is not recovered."""
        if os.getpid() != self._owner:
            return  # a forked child's bundle ends with the fork; its parent captures on
        marker = self.home.exported
        unfinished = marker.with_name(f".{marker.name}")
        unfinished.write_text(str(target.absolute()), encoding="utf-8", errors="surrogateescape")
        os.replace(unfinished, marker)

    def close(self) -> None:
        """Let go now, rather than with the last reference."""
        self._finalizer()

    def _forked(self) -> None:
        """Detach a forked child from the spool, which belongs to the parent."""
        self._finalizer.detach()
        self._lock.close()


def create_spool(bundle_id: str, within: str | os.PathLike[str] | None) -> Spool:
    """Create a spool that is locked before others can see it; as a last resort in the temporary
    folder."""
    parent = Path(os.devnull)
    try:
        parent = Path(within) if within is not None else get_home().spool
        return _create(parent, bundle_id)
    except (OSError, UsageError):
        pass
    try:
        return _create(Path(tempfile.mkdtemp(prefix=_TEMPORARY)), bundle_id)
    except OSError:
        # The program continues, and its bundle has the number of lost records.
        return Spool(Path(os.path.abspath(parent / bundle_id)), -1)


def _create(parent: Path, bundle_id: str) -> Spool:
    unpublished, folder = parent / f".{bundle_id}", parent / bundle_id
    for above in (parent.parent, parent):  # perhaps the first thing that is put into this home
        above.mkdir(mode=0o700, parents=True, exist_ok=True)
    Home(unpublished).make()
    lock = os.open(Home(unpublished).capture, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not file_locks.try_lock(lock):
            raise OSError(f"{folder}: cannot be locked")
        os.rename(unpublished, folder)
    except OSError:
        os.close(lock)
        raise
    return Spool(Path(os.path.abspath(folder)), lock)


def adopt_spool(folder: Path) -> Spool | None:
    """Lock the spool of a dead process. Return None if another process has it."""
    try:
        lock = os.open(Home(folder).capture, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    if not file_locks.try_lock(lock) or not Home(folder).capture.exists():
        os.close(lock)
        return None
    return Spool(Path(os.path.abspath(folder)), lock)


def remove_spool(folder: Path) -> None:
    """Rename the spool, then delete it: a kill must not leave half a spool under its name."""
    hidden = folder.with_name(f".{folder.name}")
    try:
        os.rename(folder, hidden)
    except OSError:
        return
    shutil.rmtree(hidden, ignore_errors=True)


def _let_go(folder: Path, lock: OwnFile, owner: int) -> None:
    if os.getpid() != owner:
        return
    if Home(folder).exported.exists():
        remove_spool(folder)
        if folder.parent.name.startswith(_TEMPORARY):
            shutil.rmtree(folder.parent, ignore_errors=True)
    lock.close()


class _SpoolJournal(JournalWriter):
    """A forked child's may outlive the spool, which goes when its parent has the bundle, or when
    it was recovered: the child's later records are dropped, and must not create it again."""

    _of_a_child = False

    def restart(self, writer: str) -> None:
        self._of_a_child = True
        super().restart(writer)

    def _open_next(self) -> None:
        if not self._of_a_child or os.path.exists(self.home.capture):
            super()._open_next()
            return
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            self.last_error = error
            return
        try:
            self._write_to(nowhere)
        except OSError as error:
            self.last_error = error
        finally:
            os.close(nowhere)


class SpoolRecorder(Recorder):
    """A recorder into a spool: apart from the program's own, with log lines in files of their
    own."""

    ignores_disabled = True

    def __init__(self, home: Home, rotation: LogRotationConfig | None) -> None:
        super().__init__(home, level="debug", sample=1.0, crash_hooks=False)
        self.run_id = ""
        """The run of the capture, to which its log lines belong."""
        self._rotation = rotation
        self._rotating = threading.RLock()  # a signal's handler may log meanwhile
        self._entries = self._bytes = 0
        # A kill costs nothing either way; syncing for power cuts would double what a line costs.
        self._lane = _SpoolJournal(
            home,
            LOGS + self.writer,
            fsync="none",
            total_max=sys.maxsize,
            backlog_max=0,
            # A generation is a segment: only `_count` may say that one is full.
            rotate_bytes=JOURNAL_ROTATE_BYTES if rotation is None else sys.maxsize,
        )
        _recorders.add(self)

    @property
    def losses(self) -> int:
        """Return a count that grows with every record that could not be written."""
        return self._writer.journal.dropped + sum(self._emitter.faults.values())

    @property
    def unwritten(self) -> tuple[int, int]:
        """Return how many records of states and files, and how many log lines, could not be
        written."""
        return self._writer.journal.dropped, self._lane.dropped

    @property
    def secrets(self) -> int:
        """Return a count that grows with every value that is registered as a secret."""
        assert self._redactor is not None
        return self._redactor.registered

    def fault(self, what: str) -> None:
        self._emitter.fault(what)

    def write_item(self, run_id: str, span_id: str, name: str, number: int, text: str) -> None:
        """Write one item of a snapshot's slice, which later snapshots refer to by number."""
        self._emit(
            Log(0, "", 0, 0, run_id, COMPONENT, "debug", name, span_id, {"item": number}), text
        )

    def write_fact(self, run_id: str, message: str, attributes: Mapping[str, object]) -> None:
        """Record a fact about the capture itself."""
        flat = self._emitter.attributes(attributes)
        self._emit(Log(0, "", 0, 0, run_id, COMPONENT, "info", message, None, flat), None)

    def _emit(self, record: Log, body: str | None) -> None:
        emitter = self._emitter
        record.v, record.writer, record.seq = VERSION, emitter.writer, next(emitter.seq)
        record.time_ns = emitter.now_ns()
        if body is not None:
            record.body, record.body_info = emitter.prepare_body(body, record.seq)
        emitter.send(record)

    def write_file(self, chunks: Iterable[bytes]) -> tuple[BodyInfo, dict[str, int]]:
        """Keep a file's bytes, whole however long, secrets masked; what was masked by which
        rule."""
        counts: dict[str, int] = {}
        assert self._redactor is not None
        masked = self._redactor.stream(decode_chunks(chunks), counts)
        unfinished = self.home.bodies / f"file-{self._emitter.span_id()}"
        info = write_spill(
            unfinished, (text.encode(errors="surrogateescape") for text in masked), sys.maxsize
        )
        os.replace(unfinished, self.home.bodies / str(info.sha256))
        return info, counts

    def redact(self, text: str) -> str:
        assert self._redactor is not None
        return self._redactor.text(text)

    def _spill(self, body: LongBody, seq: int) -> BodyInfo:
        assert self._redactor is not None
        texts = self._redactor.stream(body.texts)
        path = self.home.spilled_body(self._emitter.writer, seq)
        steps = (text.encode(errors=body.errors) for text in texts)
        return write_spill(path, steps, sys.maxsize)  # state is never cut

    # --- log lines --------------------------------------------------------------------------

    def write_log(
        self,
        component: str,
        level: str,
        message: str,
        time_ns: int,
        attributes: dict[str, str | int | float | bool | None],
        body: str | None,
    ) -> bool:
        """Write a line of the program's log to its own files.

        Return False if it is too long or cannot be encoded: call again with a body.
        """
        emitter = self._emitter
        record = Log(
            VERSION,
            emitter.writer,
            next(emitter.seq),
            time_ns,
            self.run_id,
            component,
            level,
            message,
            None,
            attributes,
        )
        if body is not None:
            record.body, record.body_info = self._prepare_body(body, record.seq)
        if body is None and not _fits_inline(record):
            return False
        stored, line = encode_redacted(record, self._scanner, self._redactor)
        if self._rotation is not None:
            assert isinstance(stored, Log)
            spilled = stored.body_info.spilled_bytes if stored.body_info is not None else None
            self._count(self._rotation, len(line) - _LINE_OVERHEAD + (spilled or 0))
        self._lane.write(line)
        return True

    def _count(self, rotation: LogRotationConfig, size: int) -> None:
        if self._entries >= rotation.max_entries or self._bytes >= rotation.max_bytes:
            with self._rotating:
                if self._entries >= rotation.max_entries or self._bytes >= rotation.max_bytes:
                    self._entries = self._bytes = 0
                    self._lane.rotate(now=True)
                    self._drop_segments(rotation.keep_rotations)
        self._entries += 1
        self._bytes += size

    def _drop_segments(self, keep: int) -> None:
        own = [path for writer, _, path in self.home.journal_files() if writer == self._lane.writer]
        for path in own[:-keep]:
            entries, size, bodies = self._measure(path)
            # Write the fact before deleting the file: a reader that misses the file needs it.
            self.write_fact(
                "", SEGMENT_DROPPED, {"segment": path.name, "entries": entries, "size_bytes": size}
            )
            path.unlink(missing_ok=True)
            for body in bodies:
                body.unlink(missing_ok=True)

    def _measure(self, segment: Path) -> tuple[int, int, list[Path]]:
        """Count the lines and bytes of a segment, and list the files of its long bodies."""
        lines = size = offset = 0
        bodies: list[Path] = []
        while True:
            data, after = read_lines(segment, offset, LINE_MAX + 1)
            if after == offset:
                return lines, size, bodies
            lines += data.count(b"\n")
            size += after - offset
            if b'"spilled_bytes"' in data:
                for record in parse_lines(data)[0]:
                    info = getattr(record, "body_info", None)
                    if isinstance(record, Log) and info is not None and info.spilled_bytes:
                        size += info.spilled_bytes
                        bodies.append(self.home.spilled_body(record.writer, record.seq))
            offset = after

    # --- its end ------------------------------------------------------------------------------

    def _join(self, clock: Clock) -> Writer:
        def open_journal(joined: Writer) -> JournalWriter:
            return _SpoolJournal(
                joined.home,
                joined.id,
                total_max=sys.maxsize,
                backlog_max=0,  # The bundle is made from the files: nothing is written late.
                on_check=lambda: joined.self_reporter.report(),
            )

        return get_process_writer(self.home, clock, open_journal, private=True)

    def close(self) -> None:
        if not self._closed:
            self._lane.close()
        super().close()

    def _forked(self) -> None:
        self._lane.restart(LOGS + self.writer)


_alive: weakref.WeakSet[Spool] = weakref.WeakSet()
_recorders: weakref.WeakSet[SpoolRecorder] = weakref.WeakSet()


def _after_fork() -> None:
    # After the writers' own hook, which was registered before: they have their new names.
    for recorder in list(_recorders):
        if not recorder._closed:
            recorder._forked()
    for spool in list(_alive):
        try:
            spool._forked()
        except OSError:
            continue
    _alive.clear()


os.register_at_fork(after_in_child=_after_fork)


def _fits_inline(record: Log) -> bool:
    try:
        return len(encode((record,))) <= BODY_INLINE_MAX
    except Exception:  # noqa: BLE001  # lone surrogates, huge numbers
        return False
