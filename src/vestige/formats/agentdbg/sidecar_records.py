"""vestige.ndjson beside an exported run's events: our own records, so that nothing is lost.

Its last line says to which events it belongs. If those were changed since (AgentDbg went on, or
they were edited), the events count and this file is ignored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from vestige.errors import UnreadableError
from vestige.formats.agentdbg.file_structs import EVENTS_FILE, SIDECAR_FILE
from vestige.formats.line_reader import LineReader, TooLong, open_file
from vestige.limits import BODY_INLINE_MAX, BODY_MAX
from vestige.record.coercion import clean_text
from vestige.record.types import BodyInfo, KnownRecord, Log, SpanClose, SpanOpen

_LINE_MAX = 2 * BODY_MAX
"""A body at its bound, as base64, with room to spare."""
_CHUNK = 1024 * 1024
_TAIL = 4096


class Footer(msgspec.Struct):
    vestige: str
    """The format, "agentdbg", which identifies the file."""
    version: int
    run_id: str
    events_sha256: str


def render_footer(run_id: str, events_sha256: str) -> bytes:
    return msgspec.json.encode(Footer("agentdbg", 1, run_id, events_sha256)) + b"\n"


def render_record(record: KnownRecord) -> bytes:
    """Render a line. A long body is base64, whose size is known; escaped text may grow."""
    if isinstance(record, (SpanOpen, SpanClose, Log)) and record.body is not None:
        info = record.body_info
        if len(record.body) > BODY_INLINE_MAX and (info is None or info.encoding == "text"):
            import base64

            record.body = base64.b64encode(record.body.encode(errors="backslashreplace")).decode()
            original = None if info is None else info.original_bytes
            record.body_info = BodyInfo(encoding="base64", original_bytes=original)
    try:
        return msgspec.json.encode(record) + b"\n"
    except UnicodeEncodeError:
        from vestige.record.repair_record import clean_record

        return msgspec.json.encode(clean_record(record)) + b"\n"


def events_sha256(run: Path) -> str:
    digest = hashlib.sha256()
    with open_file(run / EVENTS_FILE) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def find_sidecar(run: Path) -> tuple[bool, str]:
    """Find the sidecar of these events, or the reason why an existing one does not match."""
    path = run / SIDECAR_FILE
    if not path.is_file() or path.is_symlink():
        return False, ""
    try:
        with open_file(path) as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
            footer = msgspec.json.decode(last, type=Footer)
        if footer.vestige != "agentdbg" or footer.version != 1:
            return False, "it is of another version"
        if footer.events_sha256 != events_sha256(run):
            return False, "the events were changed after it was written"
    except (msgspec.DecodeError, UnicodeError, OSError, UnreadableError) as error:
        return False, f"it cannot be read ({clean_text(str(error))[:200]})"
    return True, ""


def read_sidecar(
    run: Path, run_id: str, writer: str, damaged: Callable[[int], None]
) -> Iterator[KnownRecord]:
    """Yield the records with the writer and run of the import, whatever the file states.

    `damaged` gets the number of a line without a record, except the last line."""
    decode = msgspec.json.Decoder(KnownRecord).decode
    seq = bad = 0
    with open_file(run / SIDECAR_FILE) as file:
        for number, line in LineReader(file, _LINE_MAX):
            if bad:
                damaged(bad)
                bad = 0
            if isinstance(line, TooLong):
                bad = number
                continue
            try:
                record: KnownRecord = decode(line)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                bad = number
                continue
            seq += 1
            record.run_id, record.writer, record.seq = run_id, writer, seq
            yield record
