"""Read one conversation of OpenHands with its sub-agents, as one run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from vestige.errors import UnreadableError
from vestige.formats.lenient_json import decode_items, decode_object, decode_value, read_document
from vestige.formats.line_reader import Problems, open_file
from vestige.formats.openhands.constants import EVENT_MAX, STATE
from vestige.formats.openhands.detect import (
    find_subagents,
    is_current,
    is_session,
    iter_events,
)
from vestige.formats.openhands.to_records import ConversationReader
from vestige.formats.openhands.version_0_events import LegacyReader
from vestige.formats.protocol import Source
from vestige.formats.session_builder import SessionBuilder
from vestige.formats.session_files import is_silent
from vestige.record.types import KnownRecord

Event = dict[str, Any]


class EventReader(Protocol):
    """Converts events to records."""

    builder: SessionBuilder

    def add(self, number: int, size: int, event: Event) -> None: ...


def read_conversation(path: Path) -> Source:
    """Read the folder of a conversation, or a trajectory."""
    if not is_session(path):
        raise UnreadableError(f"{path}: not a conversation of OpenHands (expected events).")
    problems = Problems(str(path))
    if path.is_dir() and is_current(path):
        reader = ConversationReader(path.name, _read_state(path))
        records = _read_all(reader, path, problems)
        return _make_source(reader, records, problems)
    name = path.name if path.is_dir() else f"{path.absolute().parent.name}/{path.name}"
    legacy = LegacyReader(name)
    if path.is_dir():
        return _make_source(legacy, _read_folder(legacy, path, problems), problems)
    return _make_source(legacy, _read_file(legacy, path, problems), problems)


def _make_source(reader: EventReader, records: Iterator[KnownRecord], problems: Problems) -> Source:
    builder = reader.builder
    return Source(builder.run_id, builder.writer, records, problems.list, mergeable=True)


def _read_all(
    reader: ConversationReader, folder: Path, problems: Problems
) -> Iterator[KnownRecord]:
    yield from _read_folder(reader, folder, problems)
    for inner in find_subagents(folder):
        first = [_read_event(path, Problems("")) for path in list(iter_events(inner))[:3]]
        side = reader.open_subagent(inner.name, _read_state(inner), first)
        yield from _read_folder(side, inner, problems)


def _read_folder(reader: EventReader, folder: Path, problems: Problems) -> Iterator[KnownRecord]:
    path = folder
    for number, path in enumerate(iter_events(folder)):
        event = _read_event(path, problems)
        if event:
            reader.add(number, path.stat().st_size, event)
            yield from reader.builder.drain()
    yield from reader.builder.end(is_dead=is_silent(path, reader.builder.last_ns))


def _read_file(reader: EventReader, path: Path, problems: Problems) -> Iterator[KnownRecord]:
    for number, raw in enumerate(decode_items(read_document(path))):
        event = decode_value(raw)
        if isinstance(event, dict):
            reader.add(number, len(bytes(raw)), event)
            yield from reader.builder.drain()
        else:
            problems.add(f"event {number}", "not-an-event", "not a JSON object; skipped.")
    yield from reader.builder.end(is_dead=is_silent(path, reader.builder.last_ns))


def _read_event(path: Path, problems: Problems) -> Event:
    try:
        with open_file(path) as file:
            data = file.read(EVENT_MAX + 1)
    except (UnreadableError, OSError) as error:
        problems.add(path.name, "event-unreadable", f"{error}; skipped.")
        return {}
    if len(data) > EVENT_MAX:
        problems.add(path.name, "event-too-long", f"more than {EVENT_MAX} bytes; skipped.")
        return {}
    event = decode_object(data)
    if not event:
        problems.add(path.name, "event-invalid", "not a JSON object; skipped.")
    return event


def _read_state(folder: Path) -> Event:
    try:
        return decode_object(read_document(folder / STATE))
    except UnreadableError:
        return {}
