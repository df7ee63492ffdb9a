"""Import journals: store complete lines with the offset, then delete finished files.

    ingest_journals(home, store)

A kill at any point is harmless. Rows and offset are committed together, and a record that is read
twice is recognised by its identity. A power cut loses nothing either: a file is deleted only after
its records are synced to disk in the store.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vestige._runtime import file_locks
from vestige._runtime.gc_pause import pause_gc
from vestige.collector.outbox import bound_outbox, delete_or_outbox
from vestige.errors import ForeignRunError
from vestige.home import Home
from vestige.journal.reader import read_lines
from vestige.limits import BODY_MAX, MIB
from vestige.record.codec import parse_lines
from vestige.record.types import AnyRecord, BodyInfo, SpanOpen
from vestige.store.protocol import Position, Store


@dataclass(slots=True)
class IngestCounts:
    """The counts of one pass."""

    records: int = 0
    malformed: int = 0
    files_done: int = 0


COMMAND_WITHIN = 8
"""First records of a journal in which the run of a command is searched."""

OnJournal = Callable[[int, int], None]
"""Called with the number of journals that are imported, and of all."""


def ingest_journals(home: Home, store: Store, on_journal: OnJournal | None = None) -> IngestCounts:
    """Import the current content of all journals.

    A finished journal is deleted after its last line, or moved to the outbox. OSError is raised at
    the end if a journal could not be read: the next pass tries again.
    """
    counts = IngestCounts()
    positions = store.positions()
    files = home.journal_files()
    for writer, generation in positions.keys() - {(file[0], file[1]) for file in files}:
        # A pass deleted the file, and was killed before this.
        store.delete_position(writer, generation)
    failed: OSError | None = None
    for number, (writer, generation, path) in enumerate(files):
        if on_journal is not None:
            on_journal(number, len(files))
        offset = positions.get((writer, generation), 0)
        try:
            _ingest_file(home, store, Position(writer, generation, offset), path, counts)
        except OSError as error:
            failed = failed or error  # Other journals must not wait for this one.
    bound_outbox(home)
    if failed is not None:
        raise failed
    return counts


def _ingest_file(
    home: Home, store: Store, position: Position, path: Path, counts: IngestCounts
) -> None:
    # Checked before reading: a file that is finished now is then read to its end.
    finished = not file_locks.is_held(path)
    while True:
        data, after = read_lines(path, position.offset)
        if after == position.offset:
            break
        position = msgspec.structs.replace(position, offset=after)
        _ingest_lines(store, position, data, counts)
        _delete_spilled(home, store, position.writer)
    if finished:
        _finish(home, store, position, path, counts)


def _ingest_lines(store: Store, position: Position, data: bytes, counts: IngestCounts) -> None:
    with pause_gc():
        records, malformed = parse_lines(data)
        _move_command_first(records)
        refused: set[str] = set()
        while True:
            try:
                counts.records += store.append(records, position, malformed)
                break
            except ForeignRunError as error:
                # A local program joined a run of another tenant. Only that run is left out, so
                # that the others are stored.
                if error.run_id in refused:
                    raise
                refused.add(error.run_id)
                accepted = [record for record in records if record.run_id != error.run_id]
                malformed += len(records) - len(accepted)
                records = accepted
    counts.malformed += malformed


def _move_command_first(records: list[AnyRecord]) -> None:
    """Let the run of a command get its number before that of `vestige run` itself.

    Otherwise the number depends on which journal is imported first.
    """
    for at, record in enumerate(records[:COMMAND_WITHIN]):
        if isinstance(record, SpanOpen) and record.type == "run" and "command" in record.attributes:
            records.insert(0, records.pop(at))
            return


def _finish(home: Home, store: Store, position: Position, path: Path, counts: IngestCounts) -> None:
    """Delete a finished and imported journal. A torn last line is counted as malformed."""
    try:
        size_bytes = path.stat().st_size
    except OSError:
        return
    if size_bytes > position.offset:
        # The offset moves past it, so that a kill before the deletion does not count it twice.
        position = msgspec.structs.replace(position, offset=size_bytes)
        store.append([], position, malformed=1)
        counts.malformed += 1
    store.sync()
    delete_or_outbox(home, path)
    store.delete_position(position.writer, position.generation)
    counts.files_done += 1


def read_spill(home: Home, writer: str, seq: int, info: BodyInfo) -> bytes | None:
    """Read a spilled body. Return None if its file is missing or does not match its hash.

    OSError is raised if the file exists and cannot be read now (too many open files, a slow disk).
    Then its record must not be stored yet, or the body would be lost.
    """
    path = home.spilled_body(writer, seq)
    for candidate in (path, home.outbox / path.name):  # It may move to the outbox meanwhile.
        try:
            with open(candidate, "rb") as file:
                data = file.read(BODY_MAX + MIB)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
        return data if hashlib.sha256(data).hexdigest() == info.sha256 else None
    return None


def _delete_spilled(home: Home, store: Store, writer: str | None = None) -> None:
    """Delete spilled bodies whose record is stored."""
    try:
        names = os.listdir(home.bodies)
    except OSError:
        return
    for name in names:
        owner, _, number = name.partition("-")
        if not number.isdecimal() or (writer is not None and owner != writer):
            continue
        if store.has_seen(owner, int(number)):
            store.sync()
            delete_or_outbox(home, home.bodies / name)


def delete_leftovers(home: Home, store: Store) -> None:
    """Delete what killed processes left: stored bodies, and unfinished files."""
    _delete_spilled(home, store)
    alive = {writer for writer, _, path in home.journal_files() if file_locks.is_held(path)}
    for folder in (home.bodies, home.journal):
        for unfinished in folder.glob(".*"):
            writer = unfinished.name[1:].partition("-")[0].partition(".")[0]
            if writer not in alive and not file_locks.is_held(unfinished):
                unfinished.unlink(missing_ok=True)
