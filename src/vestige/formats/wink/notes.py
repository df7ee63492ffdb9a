"""Notes inside a bundle: `vestige/notes.ndjson`, one per line. Other readers ignore the member.

notes_extra(run_to_write)                       # export
read_notes(content, run_id)                     # import
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from vestige.formats.protocol import RunToWrite
from vestige.formats.wink.bundle_content import Extra
from vestige.formats.wink.read import ZipContent
from vestige.limits import MIB, NOTES_MAX
from vestige.record.note import Note

NOTES: Final = "vestige/notes.ndjson"
NAME: Final = "notes"
_BYTES_MAX: Final = 64 * MIB
"""The maximum size of all notes of a bundle; later notes are skipped."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Note).decode


def notes_extra(source: RunToWrite) -> Iterator[Extra]:
    """Return the component with the notes of a run, or None without notes."""
    if source.notes:
        lines = [_encode(note) + b"\n" for note in source.notes]
        yield Extra(NAME, NOTES, len(lines), lambda: iter(lines))


def read_notes(content: ZipContent, run_id: str) -> list[Note]:
    """Return the notes of a bundle with the id of this run, which may differ in the bundle."""
    if not content.has(NOTES):
        return []
    component = content.manifest.component(NAME)
    found: list[Note] = []
    bad = read = 0
    for _, line in content.lines(NOTES, component.sha256 if component else None):
        read += len(line)
        if len(found) >= NOTES_MAX or read > _BYTES_MAX:
            content.warn(NOTES, "", "notes-too-many", f"only the first {len(found)} were taken.")
            break
        try:
            found.append(msgspec.structs.replace(_decode(line), run_id=run_id))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            bad += 1
    if bad:
        content.warn(NOTES, "", "note-unreadable", f"{bad} lines that hold no note.")
    return found


__all__ = ["NOTES", "notes_extra", "read_notes"]
