"""Read one session of Claude Code with its sub-agents, as one run.

Each file has its own writer. Spans of a sub-agent are below the tool call that started it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from vestige.errors import UnreadableError
from vestige.formats.claude_code.constants import Entry, SubagentMeta
from vestige.formats.claude_code.detect import find_subagents, is_session
from vestige.formats.claude_code.to_records import SessionReader
from vestige.formats.line_reader import JsonLines, Problems, read_head
from vestige.formats.protocol import Source
from vestige.formats.session_files import estimate_unread, is_long, is_silent, take_head
from vestige.record.types import KnownRecord

LINES = JsonLines(Entry)
_META_MAX = 64 * 1024


def read_session(path: Path) -> Source:
    """Read a session file."""
    if not is_session(path):
        raise UnreadableError(f"{path}: not a Claude Code session (expected lines with sessionId).")
    problems = Problems(str(path))
    reader = SessionReader(path)
    records = _read_all(reader, path, problems)
    return Source(
        reader.builder.run_id, reader.builder.writer, records, problems.list, mergeable=True
    )


def read_session_head(path: Path) -> Source | None:
    """Read the beginning of a long session."""
    if not is_long(path):
        return None
    source = read_session(path)
    head = list(take_head(source.records))
    source.records, source.unread = iter(head), estimate_unread(path, len(head))
    return source


def _read_all(reader: SessionReader, path: Path, problems: Problems) -> Iterator[KnownRecord]:
    yield from _read_file(reader, path, problems)
    for inner in find_subagents(path):
        meta = read_meta(inner)
        yield from _read_file(reader.open_subagent(inner, meta), inner, Problems(str(inner)))


def _read_file(reader: SessionReader, path: Path, problems: Problems) -> Iterator[KnownRecord]:
    for number, size, entry in LINES.read(path, problems):
        reader.add(number, size, entry)
        yield from reader.builder.drain()
    yield from reader.builder.end(is_dead=is_silent(path, reader.builder.last_ns))


def read_meta(session: Path) -> SubagentMeta:
    """Read the description of a sub-agent, which older versions did not write."""
    data = read_head(session.with_suffix(".meta.json"), _META_MAX)
    try:
        return msgspec.json.decode(data, type=SubagentMeta)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return SubagentMeta()
