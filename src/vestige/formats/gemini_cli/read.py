"""Read one session of Gemini CLI."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vestige.errors import UnreadableError
from vestige.formats.gemini_cli.constants import Entry
from vestige.formats.gemini_cli.detect import is_session
from vestige.formats.gemini_cli.to_records import SessionReader
from vestige.formats.line_reader import JsonLines, Problems, read_head
from vestige.formats.protocol import Source
from vestige.formats.session_files import estimate_unread, is_long, is_silent, take_head, to_text
from vestige.record.types import KnownRecord

LINES = JsonLines(Entry)


def read_session(path: Path) -> Source:
    """Read a session file."""
    if not is_session(path):
        raise UnreadableError(f"{path}: not a Gemini CLI session (expected sessionId).")
    problems = Problems(str(path))
    reader = SessionReader(_find_id(path))
    records = _read_file(reader, path, problems)
    builder = reader.builder
    return Source(builder.run_id, builder.writer, records, problems.list, mergeable=True)


def read_session_head(path: Path) -> Source | None:
    """Read the beginning of a long session."""
    if not is_long(path):
        return None
    source = read_session(path)
    head = list(take_head(source.records))
    source.records, source.unread = iter(head), estimate_unread(path, len(head))
    return source


def _find_id(path: Path) -> str:
    """Return the id in the first line, or the name of the file."""
    try:
        first = LINES.decode(read_head(path, 64 * 1024).split(b"\n", 1)[0])
    except ValueError:
        return path.stem
    return to_text(first.session_id) or path.stem


def _read_file(reader: SessionReader, path: Path, problems: Problems) -> Iterator[KnownRecord]:
    for number, size, entry in LINES.read(path, problems):
        reader.add(number, size, entry)
        yield from reader.builder.drain()
    yield from reader.builder.end(is_dead=is_silent(path, reader.builder.last_ns))
