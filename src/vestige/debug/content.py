"""SpoolContent: a capture's spool as the content of a bundle.

The journal is read twice: once for an index (what is where; a few dozen bytes an entry), then piece
by piece while somebody iterates. A snapshot is put together when its turn comes, from the items
that its recipe names, so that memory holds one at a time and the items used last.

What a kill or a full disk left out is missing here, and nothing else: a recipe that refers to what
is not there is passed over, and said.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, TypeVar

import msgspec

from vestige.debug.logs import RESERVED, WHOLE
from vestige.debug.recording import Recipe, apply_difference
from vestige.debug.records import kept_records
from vestige.debug.spool import COMPONENT, LOGS, SEGMENT_DROPPED, Spool
from vestige.formats.wink.content import ContentFile, Extra
from vestige.formats.wink.log_records import LEVELS, to_iso
from vestige.formats.wink.manifest import (
    FILES,
    INTERRUPTED,
    SNAPSHOTS,
    VERSION,
    Agent,
    Component,
    Execution,
    Manifest,
    Skipped,
    parse_time,
)
from vestige.formats.wink.manifest import LOGS as LOGS_MEMBER
from vestige.home import Home
from vestige.journal.reader import read_lines
from vestige.limits import CAPTURE_CACHE_BYTES, CAPTURE_SKIPPED_MAX, LINE_MAX
from vestige.record.line import BadLineError, parse_line, parse_lines
from vestige.record.types import BodyInfo, KnownRecord, Log, SpanClose, SpanOpen

T = TypeVar("T")
FILE_SKIPPED: Final = "file skipped"
FAILED: Final = "capture failed"
_BATCH: Final = LINE_MAX + 1
_context = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.Encoder().encode


class CapturedRun(msgspec.Struct, frozen=True):
    """A run of a recorder that is captured with the session: its records travel in the bundle."""

    home: str
    run_id: str


class Opening(msgspec.Struct, frozen=True):
    """Whose capture this is: the body of its run's opening."""

    bundle_id: str
    session_id: str
    agent: Agent
    tags: dict[str, str]
    environment: dict[str, Any]
    started_at: str
    run: CapturedRun | None = None


class Ending(msgspec.Struct, frozen=True):
    """How it ended: the body of its run's end."""

    outcome: str
    error: dict[str, Any] | None
    ended_at: str
    created_at: str


@dataclass(frozen=True, slots=True)
class _Place:
    """A line of a journal."""

    path: Path
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class _File:
    size_bytes: int
    sha256: str
    redacted: bool


@dataclass(slots=True)
class _Index:
    """What the journal holds, and where."""

    opening: Opening | None = None
    ending: Ending | None = None
    failure: dict[str, Any] | None = None
    recipes: list[_Place] = field(default_factory=list)
    items: dict[int, _Place] = field(default_factory=dict)
    files: dict[str, _File] = field(default_factory=dict)
    open_files: dict[str, str] = field(default_factory=dict)
    open_snapshots: set[str] = field(default_factory=set)
    skipped: list[Skipped] = field(default_factory=list)
    skipped_more: int = 0
    dropped: dict[str, tuple[int, int]] = field(default_factory=dict)
    last_ns: int = 0
    last: str = "its beginning"


class SpoolContent:
    """What a spool holds, now; or for good, once the capture is finalized."""

    def __init__(self, spool: Spool, *, dead: bool = False) -> None:
        """`dead`: the process is gone, and what has no end was interrupted."""
        self.spool = spool
        self._home = spool.home
        self._dead = dead
        self._final: _Index | None = None
        self.opening: Opening | None = None
        self.ending: Ending | None = None
        """As they were to be written, masked: where the disk took neither."""

    # --- as BundleContent -------------------------------------------------------------------

    @property
    def manifest(self) -> Manifest:
        index = self._index()
        opening = index.opening
        if opening is None:  # killed before its first line, or nothing could be written
            opening = Opening(self.spool.id, "", Agent(""), {}, {}, to_iso(index.last_ns))
        ending = index.ending
        execution = self._execution(opening, index)
        return Manifest(
            version=VERSION,
            bundle_id=opening.bundle_id,
            created_at=ending.created_at if ending else to_iso(index.last_ns),
            session_id=opening.session_id,
            agent=opening.agent,
            execution=execution,
            environment=opening.environment,
            components=self._components(index),
            tags=opening.tags,
        )

    def snapshots(self) -> Iterator[str]:
        index = self._index()
        lists: Lists = {}
        with _Items(self._home, index.items) as items:
            for place in index.recipes:
                recipe = _decode(self._home, _read(place), Recipe)
                if recipe is not None:
                    yield _snapshot(recipe, lists, items)

    def logs(self) -> Iterator[str]:
        lanes: dict[str, list[Path]] = {}
        for writer, _, path in self._home.journal_files():
            if writer.startswith(LOGS):
                lanes.setdefault(writer, []).append(path)
        streams = [_log_records(paths) for paths in lanes.values()]
        merged: Iterator[Log] = heapq.merge(*streams, key=_time_ns)
        if len(streams) == 1:
            merged = streams[0]  # in the order in which it was written, whatever the clock did
        for record in merged:
            yield render_entry(
                record, _body(self._home, record) if record.body_info else record.body
            )

    def files(self) -> Iterator[ContentFile]:
        for path, file in self._index().files.items():
            place = self._home.bodies / file.sha256
            yield ContentFile(path, file.size_bytes, partial(_open_binary, place))

    def extras(self) -> Iterator[Extra]:
        return kept_records(self._home)

    def exported(self, target: Path) -> None:
        """Told by `export`: the spool may go once nobody reads from it."""
        try:
            self.spool.exported(target)
        except OSError:  # the bundle is there; at worst it is recovered a second time
            pass

    def close(self) -> None:
        self.spool.close()

    @property
    def captured_run(self) -> CapturedRun | None:
        opening = self._index().opening
        return None if opening is None else opening.run

    def is_empty(self) -> bool:
        """Killed before its first line."""
        return self._index().opening is None and next(self.logs(), None) is None

    # --- the manifest ---------------------------------------------------------------------------

    def _execution(self, opening: Opening, index: _Index) -> Execution:
        ending = index.ending
        if ending is not None:
            outcome, error, ended_at = ending.outcome, ending.error, ending.ended_at
        elif not self._dead:
            return Execution(opening.started_at)
        else:
            outcome, error, ended_at = "failure", index.failure, to_iso(index.last_ns)
            if error is None:
                message = f"process exited unexpectedly after {index.last}"
                error = {"type": INTERRUPTED, "message": message}
        seconds = _seconds(opening.started_at, ended_at)
        return Execution(opening.started_at, ended_at, seconds, outcome, error)

    def _components(self, index: _Index) -> dict[str, Component]:
        gone = [
            counts
            for name, counts in index.dropped.items()
            if not (self._home.journal / name).exists()
        ]
        components = {
            "snapshots": Component(SNAPSHOTS),
            "logs": Component(
                LOGS_MEMBER,
                dropped_entries=sum(entries for entries, _ in gone) or None,
                dropped_bytes=sum(size for _, size in gone) or None,
            ),
        }
        if index.files or index.skipped:
            skipped = list(index.skipped)
            if index.skipped_more:
                skipped.append(Skipped("", f"{index.skipped_more} more were left out"))
            redacted = sorted(path for path, file in index.files.items() if file.redacted)
            components["files"] = Component(
                FILES, skipped=skipped or None, redacted=redacted or None
            )
        return components

    # --- the index --------------------------------------------------------------------------------

    def _index(self) -> _Index:
        if self._final is not None:
            return self._final
        index = _Index()
        for writer, _, path in self._home.journal_files():
            if not writer.startswith(LOGS):
                for place, record in _records(path):
                    _note(index, place, record, self._home)
        index.opening = index.opening or self.opening
        index.ending = index.ending or self.ending
        if self._dead:
            index.last_ns = max(index.last_ns, self._last_log())
        if index.ending is not None or self._dead:
            self._final = index
        return index

    def _last_log(self) -> int:
        """When the program last said something: a killed capture ended after that."""
        last = 0
        for writer, _, path in self._home.journal_files():
            if writer.startswith(LOGS):
                for record in _log_records([path]):
                    last = max(last, record.time_ns)
        return last


def _note(index: _Index, place: _Place, record: KnownRecord, home: Home) -> None:
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


def _note_open(index: _Index, record: SpanOpen, home: Home) -> None:
    if record.type == "run":
        index.opening = _decode(home, record, Opening)
    elif record.type == "file":
        index.open_files[record.span_id] = str(record.attributes.get("path", record.name))
    elif record.type == "snapshot":
        index.open_snapshots.add(record.span_id)
        index.last = f"snapshot {record.attributes.get('index')} ({record.name})"


def _note_close(index: _Index, place: _Place, record: SpanClose, home: Home) -> None:
    if record.span_id in index.open_snapshots:
        index.open_snapshots.discard(record.span_id)
        index.recipes.append(place)
    elif record.span_id in index.open_files:
        path = index.open_files.pop(record.span_id)
        size, sha256 = record.attributes.get("size_bytes"), record.attributes.get("sha256")
        if record.status == "ok" and isinstance(size, int) and isinstance(sha256, str):
            # Captured again, a file is as it was last.
            index.files[path] = _File(size, sha256, bool(record.attributes.get("redacted")))
            index.last = f"file {path}"
    elif record.body is not None or record.body_info is not None:
        index.ending = _decode(home, record, Ending) or index.ending


def _note_fact(index: _Index, record: Log) -> None:
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


def error_of(attributes: dict[str, Any]) -> dict[str, Any]:
    """An exception's attributes as a manifest tells of it."""
    return {
        "type": str(attributes.get("error.type", "")).rpartition(".")[2],
        "message": attributes.get("error.message", ""),
        "traceback": attributes.get("error.stack", ""),
    }


# --- records -------------------------------------------------------------------------------------


def _records(path: Path) -> Iterator[tuple[_Place, KnownRecord]]:
    offset = 0
    while True:
        data, after = read_lines(path, offset, _BATCH)
        if after == offset:
            return
        at = offset
        for line in data.split(b"\n"):
            if line:
                record = _parsed(line)
                if record is not None:
                    yield _Place(path, at, len(line)), record
            at += len(line) + 1
        offset = after


def _parsed(line: bytes) -> KnownRecord | None:
    try:
        record = parse_line(line)
    except BadLineError:
        return None
    return record if isinstance(record, KnownRecord) else None


def _open_binary(path: Path) -> BinaryIO:
    return open(path, "rb")


def _read(place: _Place) -> KnownRecord:
    with open(place.path, "rb") as file:
        file.seek(place.offset)
        record = parse_line(file.read(place.length))
    assert isinstance(record, KnownRecord)
    return record


def _body(home: Home, record: KnownRecord) -> str | None:
    """A record's text, from its line or its file."""
    info: BodyInfo | None = getattr(record, "body_info", None)
    if info is None or info.spilled_bytes is None:
        return getattr(record, "body", None)
    try:
        return home.spilled_body(record.writer, record.seq).read_text("utf-8", "backslashreplace")
    except OSError:
        return None


def _decode(home: Home, record: KnownRecord, kind: type[T]) -> T | None:
    body = _body(home, record)
    try:
        return None if body is None else msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError):
        return None


# --- snapshots -------------------------------------------------------------------------------------


class _Items:
    """The texts of items, the ones used last in memory."""

    def __init__(self, home: Home, places: dict[int, _Place]) -> None:
        self._home = home
        self._places = places
        self._held: OrderedDict[int, str] = OrderedDict()
        self._size = 0
        self._files: dict[Path, BinaryIO] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def get(self, number: int) -> str:
        text = self._held.get(number)
        if text is not None:
            return text
        text = self._load(number)
        self._held[number] = text
        self._size += len(text)
        while self._size > CAPTURE_CACHE_BYTES and len(self._held) > 1:
            _, old = self._held.popitem(last=False)
            self._size -= len(old)
        return text

    def _load(self, number: int) -> str:
        place = self._places[number]  # LookupError: it was lost
        file = self._files.get(place.path)
        if file is None:
            file = self._files[place.path] = _open_binary(place.path)
        file.seek(place.offset)
        record = parse_line(file.read(place.length))
        body = _body(self._home, record)  # type: ignore[arg-type]  # indexed as a Log
        if body is None:
            raise LookupError(f"item {number} is gone")
        try:
            msgspec.json.decode(body, type=msgspec.Raw)
        except (msgspec.DecodeError, RecursionError):
            return _encode(body).decode()  # whatever it is, the line around it stays JSON
        return body


Lists = dict[str, dict[tuple[str, int], list[int]]]
"""By session and slice: the items that it had in the last snapshot."""


def _snapshot(recipe: Recipe, lists: Lists, items: _Items) -> str:
    if recipe.whole:
        lists.clear()
    before, after = lists.get(recipe.session_id, {}), {}
    seen: dict[str, int] = {}
    numbers: list[list[int]] = []
    for one in recipe.slices:
        name = bytes(one.head.get("slice_type", b"")).decode()
        seen[name] = nth = seen.get(name, -1) + 1
        after[name, nth] = apply_difference(one, before.get((name, nth), ()))
        numbers.append(after[name, nth])
    lists[recipe.session_id] = after
    try:
        slices = [
            _object(one.head, "items", [items.get(number) for number in own])
            for one, own in zip(recipe.slices, numbers, strict=True)
        ]
    except LookupError:
        why = msgspec.Raw(b'"some of it could not be written while it was captured"')
        return _object({**recipe.head, "validation_error": why}, "slices", [])
    return _object(recipe.head, "slices", slices)


def _object(head: dict[str, msgspec.Raw], key: str, elements: list[str]) -> str:
    """A JSON object as it was, with the list put back in its place."""
    parts = []
    for name, raw in head.items():
        value = f"[{','.join(elements)}]" if name == key else bytes(raw).decode()
        parts.append(f"{_encode(name).decode()}:{value}")
    return "{" + ",".join(parts) + "}"


# --- log lines -------------------------------------------------------------------------------------


def _log_records(paths: list[Path]) -> Iterator[Log]:
    for path in paths:
        offset = 0
        while True:
            data, after = read_lines(path, offset, _BATCH)
            if after == offset:
                break
            for record in parse_lines(data)[0]:
                if isinstance(record, Log):
                    yield record
            offset = after


def _time_ns(record: Log) -> int:
    return record.time_ns


def render_entry(record: Log, body: str | None) -> str:
    """A log entry as a bundle has it."""
    attributes = record.attributes
    message: str = record.message
    if body is not None and attributes.get(WHOLE):
        try:
            found = _context.decode(body)
            message = msgspec.json.decode(found["message"], type=str)
            context = bytes(found["context"]).decode()
        except (msgspec.DecodeError, LookupError, RecursionError):
            context = _encode({"vestige.unparsed": body}).decode()
    else:
        scalars = {key: value for key, value in attributes.items() if key not in RESERVED}
        context = _encode(scalars).decode()
    told = {
        "timestamp": to_iso(record.time_ns),
        "level": attributes.get("entry.level") or LEVELS.get(record.level, record.level.upper()),
        "logger": record.component,
        "event": attributes.get("event") or "",
        "message": message,
    }
    return f'{_encode(told).decode()[:-1]},"context":{context}}}'


def _seconds(started_at: str, ended_at: str) -> float | None:
    started, ended = parse_time(started_at), parse_time(ended_at)
    return None if started is None or ended is None else (ended - started).total_seconds()
