"""Read one session with its sub-agents, or one task, as one run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from vestige.errors import UnreadableError
from vestige.formats.cline.constants import HISTORY, MESSAGES
from vestige.formats.cline.detect import find_agent, find_subagents, is_session
from vestige.formats.cline.request_usage import RequestFinder, read_requests
from vestige.formats.cline.to_records import SessionReader
from vestige.formats.lenient_json import (
    decode_items,
    decode_members,
    decode_value,
    read_document,
)
from vestige.formats.line_reader import Problems
from vestige.formats.protocol import Source
from vestige.formats.session_files import is_silent
from vestige.record.types import KnownRecord


def read_session(path: Path) -> Source:
    """Read a file of messages."""
    if not is_session(path):
        raise UnreadableError(f"{path}: not a session of Cline (expected a list of messages).")
    problems = Problems(str(path))
    messages = _read_messages(path)
    if path.name == HISTORY:
        # A task is named after its time, which is not unique.
        digest = hashlib.sha256(bytes(messages[0]) if messages else b"").hexdigest()[:16]
        session_id = f"{path.absolute().parent.name} {digest}"
        reader = SessionReader(session_id, find_agent(path.absolute()))
        reader.requests = RequestFinder(read_requests(path))
    else:
        reader = SessionReader(path.name.removesuffix(MESSAGES))
    records = _read_all(reader, path, messages, problems)
    builder = reader.builder
    return Source(builder.run_id, builder.writer, records, problems.list, mergeable=True)


def _read_all(
    reader: SessionReader, path: Path, messages: list[msgspec.Raw], problems: Problems
) -> Iterator[KnownRecord]:
    yield from _read_list(reader, path, messages, problems)
    for inner in find_subagents(path):
        try:
            inner_messages = _read_messages(inner)
        except UnreadableError as error:
            problems.add(inner.name, "file-unreadable", f"{error}")
            continue
        first = _decode(inner_messages[0]) if inner_messages else {}
        side = reader.open_subagent(inner.name.removesuffix(MESSAGES), first)
        yield from _read_list(side, inner, inner_messages, Problems(str(inner)))


def _read_list(
    reader: SessionReader, path: Path, messages: list[msgspec.Raw], problems: Problems
) -> Iterator[KnownRecord]:
    message: dict[str, Any] | None = None
    for number, raw in enumerate([*messages, None]):
        following = _decode(raw) if raw is not None else None
        if message:
            reader.add(number - 1, len(bytes(messages[number - 1])), message, following)
            yield from reader.builder.drain()
        if raw is not None and not following:
            problems.add(f"message {number}", "not-a-message", "not a JSON object; skipped.")
        message = following
    yield from reader.builder.end(is_dead=is_silent(path, reader.builder.last_ns))


def _read_messages(path: Path) -> list[msgspec.Raw]:
    data = read_document(path)
    return decode_items(data if data[:1] == b"[" else decode_members(data).get("messages"))


def _decode(raw: msgspec.Raw) -> dict[str, Any]:
    value = decode_value(raw)
    return value if isinstance(value, dict) else {}
