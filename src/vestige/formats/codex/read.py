"""Read one rollout of Codex with those of its sub-agents, as one run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from vestige.errors import UnreadableError
from vestige.formats.codex.constants import Entry
from vestige.formats.codex.detect import find_root, index_threads, is_rollout, thread_of
from vestige.formats.codex.to_records import RolloutReader
from vestige.formats.line_reader import JsonLines, Problems
from vestige.formats.protocol import Source
from vestige.formats.session_files import estimate_unread, is_long, is_silent, take_head
from vestige.record.types import KnownRecord

LINES = JsonLines(Entry)
_AGENTS_MAX: Final = 1_000
"""Sub-agents of one session, also of sub-agents. It ends cycles."""


def read_rollout(path: Path) -> Source:
    """Read a rollout file."""
    if not is_rollout(path):
        raise UnreadableError(f"{path}: not a Codex rollout (expected a line `session_meta`).")
    problems = Problems(str(path))
    reader = RolloutReader(thread_of(path))
    builder = reader.builder
    records = _read_all(reader, path, problems)
    return Source(builder.run_id, builder.writer, records, problems.list, mergeable=True)


def read_rollout_head(path: Path) -> Source | None:
    """Read the beginning of a long rollout."""
    if not is_long(path):
        return None
    source = read_rollout(path)
    head = list(take_head(source.records))
    source.records, source.unread = iter(head), estimate_unread(path, len(head))
    return source


def _read_all(reader: RolloutReader, path: Path, problems: Problems) -> Iterator[KnownRecord]:
    yield from _read_file(reader, path, problems)
    threads = index_threads(find_root(path)) if reader.agents else {}
    waiting = list(reader.agents)
    seen = {reader.thread}
    while waiting and len(seen) < _AGENTS_MAX:
        agent = waiting.pop(0)
        inner = threads.get(agent.thread)
        if inner is None or agent.thread in seen:
            continue
        seen.add(agent.thread)
        sub_reader = reader.open_subagent(agent)
        yield from _read_file(sub_reader, inner, Problems(str(inner)))
        waiting += sub_reader.agents


def _read_file(reader: RolloutReader, path: Path, problems: Problems) -> Iterator[KnownRecord]:
    for number, size, entry in LINES.read(path, problems):
        reader.add(number, size, entry)
        yield from reader.builder.drain()
    yield from reader.builder.end(is_dead=is_silent(path, reader.builder.last_ns))
