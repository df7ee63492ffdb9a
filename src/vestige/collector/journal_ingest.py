"""Take journals in: complete lines into the store, with the offset, then let go of the file.

    take(home, store)          # everything that the journals hold now

A kill at any point is harmless. Before the commit nothing has happened; after it the
offset has moved with the rows; and should the offset be lost, a record that is read
twice is known by its identity. Nor is a power cut worse than it was without us: what is
deleted was on disk in the store before.
"""

from __future__ import annotations

import hashlib
import os
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
from vestige.record.types import BodyInfo
from vestige.store.protocol import Position, Store


@dataclass(slots=True)
class IngestCounts:
    """What one pass brought."""

    records: int = 0
    malformed: int = 0
    files_done: int = 0


def ingest_journals(home: Home, store: Store) -> IngestCounts:
    """Take in what the journals hold now. A finished journal is deleted once it is empty, or
    kept for a ship. OSError: one could not be read, and waits for the next pass."""
    taken = IngestCounts()
    positions = store.positions()
    files = home.journal_files()
    for writer, generation in positions.keys() - {(file[0], file[1]) for file in files}:
        # Deleted by a pass that was killed before it could say so.
        store.delete_position(writer, generation)
    failed: OSError | None = None
    for writer, generation, path in files:
        offset = positions.get((writer, generation), 0)
        try:
            _take_file(home, store, Position(writer, generation, offset), path, taken)
        except OSError as error:
            failed = failed or error  # what others wrote is not held up by it
    bound_outbox(home)
    if failed is not None:
        raise failed
    return taken


def _take_file(
    home: Home, store: Store, position: Position, path: Path, taken: IngestCounts
) -> None:
    # Asked before reading: a file that nobody can write to any more is read to its end.
    finished = not file_locks.is_held(path)
    while True:
        data, after = read_lines(path, position.offset)
        if after == position.offset:
            break
        position = msgspec.structs.replace(position, offset=after)
        _take_lines(store, position, data, taken)
        _delete_spilled(home, store, position.writer)
    if finished:
        _finish(home, store, position, path, taken)


def _take_lines(store: Store, position: Position, data: bytes, taken: IngestCounts) -> None:
    with pause_gc():
        records, malformed = parse_lines(data)
        refused: set[str] = set()
        while True:
            try:
                taken.records += store.append(records, position, malformed)
                break
            except ForeignRunError as error:
                # A program here that joined a run which another tenant brought: that one run is
                # left out, so that the others are not held up.
                if error.run_id in refused:
                    raise
                refused.add(error.run_id)
                kept = [record for record in records if record.run_id != error.run_id]
                malformed += len(records) - len(kept)
                records = kept
    taken.malformed += malformed


def _finish(home: Home, store: Store, position: Position, path: Path, taken: IngestCounts) -> None:
    """The writer is done with this file, and so are we. A torn last line is lost, and counted."""
    try:
        size_bytes = path.stat().st_size
    except OSError:
        return
    if size_bytes > position.offset:
        # With the offset behind it, so that a kill before the deletion does not count it twice.
        position = msgspec.structs.replace(position, offset=size_bytes)
        store.append([], position, malformed=1)
        taken.malformed += 1
    store.sync()
    delete_or_outbox(home, path)
    store.delete_position(position.writer, position.generation)
    taken.files_done += 1


def read_spill(home: Home, writer: str, seq: int, info: BodyInfo) -> bytes | None:
    """A body that was too long for its line; None if its file is gone or not what was written.

    OSError: it is there and cannot be read now (too many files are open, the disk does not answer).
    Then its record is not to be taken in, or the body would be lost for good.
    """
    path = home.spilled_body(writer, seq)
    for place in (path, home.outbox / path.name):  # in this order, as it moves so
        try:
            with open(place, "rb") as file:
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
    """What a kill left behind: stored bodies, and files that were never finished."""
    _delete_spilled(home, store)
    alive = {writer for writer, _, path in home.journal_files() if file_locks.is_held(path)}
    for folder in (home.bodies, home.journal):
        for unfinished in folder.glob(".*"):
            writer = unfinished.name[1:].partition("-")[0].partition(".")[0]
            if writer not in alive and not file_locks.is_held(unfinished):
                unfinished.unlink(missing_ok=True)
