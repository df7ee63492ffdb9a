"""The parts of a capture on their own: a log file, a session's snapshots, a filesystem as a zip.

    with collect_all_logs("debug/prompt.log"):
        response = adapter.evaluate(prompt, session=session)
    dump_session(session, "debug/")
    archive_filesystem(fs, "debug/")

Secrets are masked in all three.
"""

from __future__ import annotations

import logging
import os
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# For the type alone, which is part of this API; ids are made by the clock.
from uuid import UUID

import msgspec

from vestige._runtime.clock import SYSTEM
from vestige.debug.agent_filesystem import as_filesystem, chunks, walk
from vestige.debug.logging_capture import Sink, listening
from vestige.debug.snapshot_writer import family, invalid_snapshot, take_snapshot
from vestige.debug.spool_log_entries import render_entry
from vestige.errors import DebugBundleError
from vestige.formats.atomic_file import replace_file
from vestige.formats.wink.archive.member_names import safe_path
from vestige.formats.wink.jsonl_entries import parse_snapshot
from vestige.limits import BODY_CHUNK
from vestige.process_writer import make_redactor
from vestige.record import repair_record
from vestige.record.coercion import clean_text, safe_str
from vestige.record.inline_or_chunked_body import decode_chunks
from vestige.record.redaction.redactor import Redactor
from vestige.record.types import Log


class CollectedLogs:
    """The file into which logs are collected: `path`, and whatever a path can do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def __eq__(self, other: object) -> bool:
        return self.path == (other.path if isinstance(other, CollectedLogs) else other)

    def __hash__(self) -> int:
        return hash(self.path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.path, name)


@contextmanager
def collect_all_logs(
    path: str | os.PathLike[str], *, level: int = logging.DEBUG
) -> Iterator[CollectedLogs]:
    """Write the program's log records to a file as JSON lines, until the block ends."""
    target = Path(path).expanduser()
    target.parent.mkdir(parents=True, exist_ok=True)
    redactor = make_redactor()
    # Unbuffered: a line is one write, and no lock is held that a signal's handler could wait for.
    with open(target, "ab", buffering=0) as file:

        def write(
            name: str, level: str, message: str, time_ns: int, more: dict[str, Any], body: Any
        ) -> bool:
            record = Log(1, "", 0, time_ns, "", name, level, message, None, more, body)
            record = redactor.record(repair_record.clean_record(record))  # type: ignore[assignment]
            line = render_entry(record, record.body)
            file.write(line.encode() + b"\n")
            return True

        with listening(Sink(write, level)):
            yield CollectedLogs(target)


def dump_session(session: Any, target: str | os.PathLike[str]) -> Path | None:
    """Write a session and its children, parents first, as snapshots; the file that was made.

    A target without a suffix is a folder, and gets `<session id>.jsonl`. None, and no file, if
    none of them has state.
    """
    redactor = make_redactor()
    lines = []
    empty = True
    for member in family(session):
        text, error = take_snapshot(member, "dump")
        if error is not None:
            text = invalid_snapshot(member, error, text)
        text = clean_text(text)
        if "\n" in text:
            text = msgspec.json.format(text, indent=-1)
        empty = empty and not parse_snapshot(text).slices
        lines.append(redactor.text(text) + "\n")
    if empty:
        return None
    path = _place(target, f"{safe_str(session.session_id)}.jsonl")
    with replace_file(path) as file:
        file.writelines(line.encode() for line in lines)
    return path


def archive_filesystem(
    fs: Any, target: str | os.PathLike[str], *, archive_id: UUID | str | None = None
) -> Path:
    """Write a filesystem's files into a zip; the file that was made.

    `fs` is a filesystem, or the path of a directory. A target without a suffix is a folder, and
    gets `<archive_id>.zip`; without an id, each archive has a new one.
    """
    fs = as_filesystem(fs)
    path = _place(target, f"{archive_id or SYSTEM.run_id()}.zip")
    redactor = make_redactor()
    taken: set[str] = set()
    with replace_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for found in walk(fs):
            name = safe_path(found.path)
            if found.error is not None or name in taken:
                continue
            taken.add(name)
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
                for step in _masked(redactor, chunks(fs, found.path, BODY_CHUNK)):
                    member.write(step)
    return path


def _masked(redactor: Redactor, steps: Iterable[bytes]) -> Iterator[bytes]:
    for text in redactor.stream(decode_chunks(steps)):
        yield text.encode(errors="surrogateescape")


def _place(target: str | os.PathLike[str], name: str) -> Path:
    text = os.fspath(target)
    path = Path(text).expanduser()
    if text.endswith(("/", os.sep)) or path.is_dir() or not path.suffix:
        path = path / safe_path(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DebugBundleError(f"{path.parent}: cannot be made ({error}).") from None
    return path
