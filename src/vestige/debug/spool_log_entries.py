"""The program's log lines: from their journals in the spool to entries of a bundle."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vestige.debug.logging_capture import ENTRY_BODY, RESERVED
from vestige.debug.spool import LOGS
from vestige.debug.spool_index import BATCH, read_body
from vestige.formats.wink.log_records import LEVELS, to_iso
from vestige.formats.wink.sort_by_time import is_sorted, sort_by_time
from vestige.home import Home
from vestige.journal.reader import read_lines
from vestige.record.codec import parse_lines
from vestige.record.types import Log

_context = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.Encoder().encode


def read_entries(home: Home) -> Iterator[str]:
    """Yield every entry as one line of JSON, in the order of their times.

    A thread may be overtaken between taking the time of a record and writing it.
    """
    entries = (
        (record.time_ns, render_entry(record, _body(home, record))) for record in _merged(home)
    )
    if is_sorted((record.time_ns, None) for record in _merged(home)):
        return (line for _, line in entries)
    return sort_by_time(entries)


def _merged(home: Home) -> Iterator[Log]:
    """Yield the records of all journals with log lines, in order of time if each journal is
    ordered."""
    lanes: dict[str, list[Path]] = {}
    for writer, _, path in home.journal_files():
        if writer.startswith(LOGS):
            lanes.setdefault(writer, []).append(path)
    return heapq.merge(*(_log_records(paths) for paths in lanes.values()), key=_time_ns)


def _body(home: Home, record: Log) -> str | None:
    return read_body(home, record) if record.body_info else record.body


def last_entry_ns(home: Home) -> int:
    """Return the time of the last log entry, or 0 without entries."""
    paths = [path for writer, _, path in home.journal_files() if writer.startswith(LOGS)]
    return max(map(_time_ns, _log_records(paths)), default=0)


def _log_records(paths: list[Path]) -> Iterator[Log]:
    for path in paths:
        offset = 0
        while True:
            data, after = read_lines(path, offset, BATCH)
            if after == offset:
                break
            for record in parse_lines(data)[0]:
                if isinstance(record, Log):
                    yield record
            offset = after


def _time_ns(record: Log) -> int:
    return record.time_ns


def render_entry(record: Log, body: str | None) -> str:
    """Return a log entry as a bundle has it."""
    attributes = record.attributes
    message: str = record.message
    if body is not None and attributes.get(ENTRY_BODY):
        try:
            found = _context.decode(body)
            message = msgspec.json.decode(found["message"], type=str)
            context = bytes(found["context"]).decode()
        except (msgspec.DecodeError, LookupError, RecursionError):
            context = _encode({"vestige.unparsed": body}).decode()
    else:
        scalars = {key: value for key, value in attributes.items() if key not in RESERVED}
        context = _encode(scalars).decode()
    fields = {
        "timestamp": to_iso(record.time_ns),
        "level": attributes.get("entry.level") or LEVELS.get(record.level, record.level.upper()),
        "logger": record.component,
        "event": attributes.get("event") or "",
        "message": message,
    }
    return f'{_encode(fields).decode()[:-1]},"context":{context}}}'
