"""The index of a spool: the entries of its journal and their offsets.

    index = read_index(home)            # one pass; a few dozen bytes an entry
    record = read_record(index.recipes[3])

Only entries that a kill or a full disk prevented are missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import msgspec

from vestige.debug.capture_facts import FAILED, FILE_SKIPPED, Ending, Opening, error_of
from vestige.debug.spool import COMPONENT, LOGS, SEGMENT_DROPPED
from vestige.formats.wink.manifest import Skipped
from vestige.home import Home
from vestige.journal.reader import read_lines
from vestige.limits import CAPTURE_SKIPPED_MAX, LINE_MAX
from vestige.record.codec import BadLineError, parse_line
from vestige.record.types import BodyInfo, KnownRecord, Log, SpanClose, SpanOpen

T = TypeVar("T")
_SHA256: Final = re.compile("[0-9a-f]{64}")
BATCH: Final = LINE_MAX + 1
"""Bytes of a journal in memory at a time; one line always fits."""


@dataclass(frozen=True, slots=True)
class JournalOffset:
    """A line of a journal."""

    path: Path
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class CapturedFile:
    size_bytes: int
    sha256: str
    redacted: bool


@dataclass(slots=True)
class Index:
    """The entries of the journal and their offsets."""

    opening: Opening | None = None
    ending: Ending | None = None
    failure: dict[str, Any] | None = None
    recipes: list[JournalOffset] = field(default_factory=list)
    items: dict[int, JournalOffset] = field(default_factory=dict)
    files: dict[str, CapturedFile] = field(default_factory=dict)
    open_files: dict[str, str] = field(default_factory=dict)
    open_snapshots: set[str] = field(default_factory=set)
    skipped: list[Skipped] = field(default_factory=list)
    skipped_more: int = 0
    dropped: dict[str, tuple[int, int]] = field(default_factory=dict)
    last_ns: int = 0
    last: str = "its beginning"


def read_index(home: Home) -> Index:
    """Return the entries of a spool, except the program's log lines."""
    index = Index()
    for writer, _, path in home.journal_files():
        if not writer.startswith(LOGS):
            for place, record in _records(path):
                _note(index, place, record, home)
    return index


def _note(index: Index, place: JournalOffset, record: KnownRecord, home: Home) -> None:
    index.last_ns = max(index.last_ns, record.time_ns)
    if isinstance(record, SpanOpen):
        if record.component == COMPONENT:
            _note_open(index, record, home)
    elif isinstance(record, SpanClose):
        _note_close(index, place, record, home)
    elif isinstance(record, Log) and record.component == COMPONENT:
        number = record.attributes.get("item")
        if isinstance(number, int):
            index.items[number] = place
        else:
            _note_fact(index, record)


def _note_open(index: Index, record: SpanOpen, home: Home) -> None:
    if record.type == "run":
        index.opening = decode_body(home, record, Opening)
    elif record.type == "file":
        index.open_files[record.span_id] = str(record.attributes.get("path", record.name))
    elif record.type == "snapshot":
        index.open_snapshots.add(record.span_id)
        index.last = f"snapshot {record.attributes.get('index')} ({record.name})"


def _note_close(index: Index, place: JournalOffset, record: SpanClose, home: Home) -> None:
    if record.span_id in index.open_snapshots:
        index.open_snapshots.discard(record.span_id)
        index.recipes.append(place)
    elif record.span_id in index.open_files:
        path = index.open_files.pop(record.span_id)
        size, sha256 = record.attributes.get("size_bytes"), record.attributes.get("sha256")
        if record.status == "ok" and isinstance(size, int) and _is_sha256(sha256):
            # Captured again, a file is as it was last.
            index.files[path] = CapturedFile(
                size, str(sha256), bool(record.attributes.get("redacted"))
            )
            index.last = f"file {path}"
    elif record.body is not None or record.body_info is not None:
        index.ending = decode_body(home, record, Ending) or index.ending


def _is_sha256(value: object) -> bool:
    """Return whether a name is a valid file name in bodies/. The spool is not trusted."""
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def _note_fact(index: Index, record: Log) -> None:
    found = record.attributes
    if record.message == FILE_SKIPPED:
        if len(index.skipped) >= CAPTURE_SKIPPED_MAX:
            index.skipped_more += 1
            return
        size = found.get("size_bytes")
        index.skipped.append(
            Skipped(
                str(found.get("path")),
                str(found.get("reason")),
                size if type(size) is int else None,
            )
        )
    elif record.message == SEGMENT_DROPPED:
        entries, size = found.get("entries"), found.get("size_bytes")
        if isinstance(entries, int) and isinstance(size, int):
            index.dropped[str(found.get("segment"))] = (entries, size)
    elif record.message == FAILED:
        index.failure = error_of(found)


# --- records -------------------------------------------------------------------------------------


def _records(path: Path) -> Iterator[tuple[JournalOffset, KnownRecord]]:
    offset = 0
    while True:
        data, after = read_lines(path, offset, BATCH)
        if after == offset:
            return
        at = offset
        for line in data.split(b"\n"):
            if line:
                record = _parsed(line)
                if record is not None:
                    yield JournalOffset(path, at, len(line)), record
            at += len(line) + 1
        offset = after


def _parsed(line: bytes) -> KnownRecord | None:
    try:
        record = parse_line(line)
    except BadLineError:
        return None
    return record if isinstance(record, KnownRecord) else None


def open_binary(path: Path) -> BinaryIO:
    return open(path, "rb")


def read_record(place: JournalOffset) -> KnownRecord:
    with open(place.path, "rb") as file:
        file.seek(place.offset)
        record = parse_line(file.read(place.length))
    assert isinstance(record, KnownRecord)
    return record


def read_body(home: Home, record: KnownRecord) -> str | None:
    """Return a record's text, from its line or its file."""
    info: BodyInfo | None = getattr(record, "body_info", None)
    if info is None or info.spilled_bytes is None:
        return getattr(record, "body", None)
    try:
        return home.spilled_body(record.writer, record.seq).read_text("utf-8", "backslashreplace")
    except OSError:
        return None


def decode_body(home: Home, record: KnownRecord, kind: type[T]) -> T | None:
    body = read_body(home, record)
    try:
        return None if body is None else msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError):
        return None
