"""Convert a bundle to the records of a run.

If the bundle contains the records of its run (embedded_records.py), these are used, and the
components of the format (component_records.py) add only data that they lack.

Ids derive from the bundle's id, sequence numbers from positions. The end of the run has its own
writer, so that a longer file of snapshots can be imported again.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from vestige.errors import BundleCorruptedError, DebugBundleError
from vestige.formats.protocol import (
    Source,
    derived_run_id,
    derived_writer,
)
from vestige.formats.wink.archive.zip_members import Members
from vestige.formats.wink.bundle_content import ContentFile
from vestige.formats.wink.component_records import (
    FORMAT,
    STATUSES,
    ComponentRecords,
    ReadContent,
    root_attributes,
)
from vestige.formats.wink.detect import LATER_MANIFEST
from vestige.formats.wink.embedded_records import find_run_id, has_records, read_records
from vestige.formats.wink.jsonl_entries import (
    LogEntry,
    parse_log,
    render_log,
    single_line,
)
from vestige.formats.wink.log_records import (
    MALFORMED,
    entry_of,
)
from vestige.formats.wink.manifest import Manifest, parse_manifest
from vestige.formats.wink.notes import read_notes
from vestige.formats.wink.other_layouts import JsonlContent, LaterContent
from vestige.formats.wink.read import ZipContent
from vestige.limits import (
    BUNDLE_ENTRY_MAX,
    BUNDLE_MEMORY_MAX,
)
from vestige.record.types import (
    VERSION,
    KnownRecord,
    Log,
    SpanClose,
    SpanOpen,
    SpanUpdate,
)


def open_content(path: Path, *, partial: bool = False) -> ReadContent:
    """Open anything that can be read as a bundle; raise if it cannot.

    `partial`: also one without snapshots or logs.
    """
    if path.suffix == ".jsonl":
        return JsonlContent(path)
    try:
        opened = Members(path)
    except DebugBundleError:
        raise
    except OSError as error:
        raise BundleCorruptedError(f"{path}: {error.strerror or error}.") from error
    if opened.has(LATER_MANIFEST):
        return LaterContent(opened)
    return ZipContent(opened, partial=partial)


def read_bundle(path: Path) -> Source:
    """Read one bundle: once to find damage, then again while its records are consumed."""
    content = open_content(path)
    content.verify(BUNDLE_MEMORY_MAX)
    bundle_id = content.manifest.bundle_id
    parts = ComponentRecords(
        content, derived_run_id(FORMAT, bundle_id), derived_writer(FORMAT, bundle_id)
    )
    alone = Source(parts.run_id, parts.writer, parts.records(), content.problems)
    if isinstance(content, ZipContent) and has_records(content):
        run_id = find_run_id(content)
        if run_id is not None:
            writer = derived_writer(FORMAT, f"{run_id}\0{0}")
            reader = _RunAndComponents(content, run_id)
            # A builder's bundle holds more than the run that it watched; one of that run does not.
            more = alone if run_id not in (bundle_id, parts.run_id) else None
            notes = read_notes(content, run_id)
            return Source(
                run_id, writer, reader.records(), content.problems, notes=notes, separate_copy=more
            )
    return alone


class _RunAndComponents(ComponentRecords):
    """A bundle with the records of its run: these first, then what only the components have."""

    content: ZipContent

    def __init__(self, content: ZipContent, run_id: str) -> None:
        bundle_id = content.manifest.bundle_id
        super().__init__(content, run_id, derived_writer(FORMAT, f"{bundle_id}\0components"))
        self._logged: Counter[int] = Counter()
        self._bodies: set[str] = set()
        self._watched: dict[str, tuple[str, str]] = {}
        self._has_calls = False

    def records(self) -> Iterator[KnownRecord]:
        root: SpanOpen | None = None
        for record in read_records(self.content, self.run_id, self.content.problems):
            if root is None and isinstance(record, SpanOpen) and _is_root(record):
                root = record
            self._note(record)
            yield record
        if root is not None:
            self.root = root.span_id
            yield from self._update_root(root)
        yield from self.components()

    def _note(self, record: KnownRecord) -> None:
        """Note the component's copy of this record, if the bundle was written from it
        (formats/wink/from_records.py)."""
        if isinstance(record, SpanClose):
            if self._watched and record.span_id in self._watched:
                self._note_body(self._watched.pop(record.span_id), _bytes_of(record))
        elif isinstance(record, SpanOpen):
            self._has_calls = self._has_calls or record.type in ("llm", "tool")
            if record.type in ("snapshot", "file"):
                source = record.type, str(record.attributes.get("path", ""))
                self._watched[record.span_id] = source
                if record.body is not None:
                    self._note_body(source, _bytes_of(record))
        elif isinstance(record, Log):
            entry = entry_of(
                record.time_ns, record.level, record.component, record.message, record.attributes
            )
            if record.attributes.get(MALFORMED) is True:
                self._logged[hash(_bytes_of(record).decode(errors="surrogateescape"))] += 1
                return
            if record.attributes.get("entry.body") is True:
                entry = parse_log(single_line(_bytes_of(record)) or "") or entry
            self._logged[hash(render_log(entry))] += 1

    def _note_body(self, source: tuple[str, str], data: bytes) -> None:
        kind, path = source
        if kind == "file":
            self._bodies.add(_key(path, data))
        elif (line := single_line(data)) is not None:
            self._bodies.add(_key("", line.encode(errors="surrogateescape")))

    def wants_snapshot(self, line: str) -> bool:
        return _key("", line.encode(errors="surrogateescape")) not in self._bodies

    def wants_log(self, entry: LogEntry | None, line: str) -> bool:
        known = hash(line if entry is None else render_log(entry))
        if self._logged[known]:
            self._logged[known] -= 1
            return False
        return True

    def wants_file(self, file: ContentFile) -> bool:
        if not self._bodies or file.path in self.content.damaged_files:
            return True
        if file.size_bytes > BUNDLE_ENTRY_MAX:
            return False
        files = self.content.manifest.component("files")
        renamed = (files.renamed if files else None) or {}
        with file.open() as stream:
            data = stream.read()
        # A record may know it by the path that it had, or by the one here.
        paths = {file.path, renamed.get(file.path, file.path)}
        return self._bodies.isdisjoint(_key(path, data) for path in paths)

    def wants_calls(self) -> bool:
        """Return whether to derive calls from events: not if calls were recorded, which is more
        exact."""
        return not self._has_calls

    def _update_root(self, root: SpanOpen) -> Iterator[SpanUpdate]:
        """Yield the attributes that a bundle adds to a run that it was not made from."""
        manifest = self.content.manifest
        if manifest.bundle_id == self.run_id or "bundle_id" in root.attributes:
            return
        attributes = {
            key: value
            for key, value in root_attributes(manifest).items()
            if key not in root.attributes
        }
        writer = derived_writer(FORMAT, f"{manifest.bundle_id}\0run")
        yield SpanUpdate(VERSION, writer, 1, root.time_ns, self.run_id, root.span_id, attributes)


def _is_root(record: SpanOpen) -> bool:
    return record.type == "run" and record.parent_id is None


def _bytes_of(record: SpanOpen | SpanClose | Log) -> bytes:
    import base64

    if record.body is None:
        return b""
    if record.body_info is not None and record.body_info.encoding == "base64":
        try:
            return base64.b64decode(record.body, validate=True)
        except ValueError:
            pass  # It is not base64: the store reads it as text, too.
    return record.body.encode(errors="surrogatepass")


def _key(path: str, data: bytes) -> str:
    return f"{hashlib.sha256(data).hexdigest()} {path}"


def manifest_body(text: bytes) -> Manifest | None:
    """Return the manifest in the body of an imported bundle's root; None for another body."""
    try:
        return parse_manifest(text, "")
    except DebugBundleError:
        return None


__all__ = [
    "STATUSES",
    "ReadContent",
    "manifest_body",
    "open_content",
    "read_bundle",
    "root_attributes",
]
