"""Convert a stored run of any program to a bundle.

    write_run(RunToWrite(run, read_body), target)

Snapshots are the bodies of `snapshot` spans, files those of `file` spans, logs the log records; the
manifest is made from the root span. All records are included (embedded_records.py), so that a
reader that knows them loses nothing. A body that is in a component is not written twice.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from vestige.errors import NotFoundError
from vestige.formats.protocol import RunToWrite
from vestige.formats.wink.bundle_content import ContentFile, Extra
from vestige.formats.wink.embedded_records import RecordParts
from vestige.formats.wink.jsonl_entries import render_log, single_line
from vestige.formats.wink.log_records import MALFORMED, entry_of, to_iso, to_ns
from vestige.formats.wink.manifest import (
    FILES,
    INTERRUPTED,
    SNAPSHOTS,
    VERSION,
    Agent,
    Component,
    Execution,
    Manifest,
)
from vestige.formats.wink.notes import notes_extra
from vestige.formats.wink.sort_by_time import is_sorted, sort_by_time
from vestige.formats.wink.to_records import STATUSES, manifest_body
from vestige.formats.wink.write import name_files, write_bundle
from vestige.record.run import BodyRef, LogInfo, Run, SpanInfo
from vestige.record.types import Scalar

_OUTCOMES: Final = {status: outcome for outcome, status in STATUSES.items()}


def write_run(source: RunToWrite, target: Path) -> Path:
    """Write a run to, or into, the target; the path that was made."""
    return write_bundle(RunContent(source), target)


class RunContent:
    """A stored run as the content of a bundle. Implements `BundleContent`."""

    def __init__(self, source: RunToWrite, manifest: Manifest | None = None) -> None:
        self._source = source
        self._run = source.run
        self._manifest = _with_redacted(manifest or manifest_of(source), source.run)
        self._lines: dict[int, int] | None = None
        self._places: dict[int, str] | None = None
        self._there: dict[int, bool] = {}

    @property
    def manifest(self) -> Manifest:
        return self._manifest

    def snapshots(self) -> Iterator[str]:
        lines: dict[int, int] = {}
        number = 0
        for span in sorted(self._run.spans, key=_snapshot_ns):
            if span.type != "snapshot":
                continue
            ref = span.output or span.input
            data = self._read(ref)
            line = None if data is None else single_line(data)
            if line is not None and ref is not None and ref.id is not None:
                number += 1
                if line.encode(errors="surrogateescape") == data:
                    lines.setdefault(ref.id, number)
                yield line
        self._lines = lines

    def logs(self) -> Iterator[str]:
        lines = ((log.time_ns, self._log_line(log)) for log in self._run.logs)
        logs = self._run.logs
        in_order = is_sorted((log.time_ns, None) for log in logs)
        return (line for _, line in lines) if in_order else sort_by_time(lines)

    def _log_line(self, log: LogInfo) -> str:
        if log.attributes.get(MALFORMED) is True:
            data = self._read(log.body)
            if data is not None:
                return data.decode(errors="surrogateescape")
        if log.attributes.get("entry.body") is True:
            data = self._read(log.body)
            line = None if data is None else single_line(data)
            if line is not None:
                return line
        return render_log(
            entry_of(log.time_ns, log.level, log.component, log.message, log.attributes)
        )

    def files(self) -> Iterator[ContentFile]:
        yield from (file for file, _ in self._latest_files())

    def extras(self) -> Iterator[Extra]:
        yield from RecordParts(self._source, self._find_stored).extras()
        yield from notes_extra(self._source)

    # --- bodies that a component holds -----------------------------------------------------------

    def _find_stored(self, body_id: int) -> tuple[str, int | None] | None:
        if self._lines is None:
            for _ in self.snapshots():
                pass
        assert self._lines is not None
        if body_id in self._lines:
            return SNAPSHOTS, self._lines[body_id]
        if self._places is None:
            ids = {file.path: ref.id for file, ref in self._latest_files()}
            named = name_files(file for file, _ in self._latest_files())
            self._places = {
                body: FILES + name
                for name, file in named.items()
                if (body := ids[file.path]) is not None
            }
        place = self._places.get(body_id)
        return None if place is None else (place, None)

    def _latest_files(self) -> Iterator[tuple[ContentFile, BodyRef]]:
        """Return the last captured file of each path."""
        latest: dict[str, BodyRef] = {}
        for span in self._run.spans:
            path = span.attributes.get("path")
            ref = span.output or span.input
            if span.type != "file" or ref is None or ref.id is None:
                continue
            if isinstance(path, str) and path:
                latest[path] = ref
        for path, ref in latest.items():
            if self._is_there(ref):
                yield ContentFile(path, ref.size_bytes, self._opener(ref)), ref

    def _is_there(self, ref: BodyRef) -> bool:
        """Return whether a body can be read: a deleted one keeps its id and size."""
        assert ref.id is not None
        if ref.id not in self._there:
            self._there[ref.id] = self._read(ref) is not None
        return self._there[ref.id]

    def _opener(self, ref: BodyRef) -> Any:
        # Taken since we looked: an error, for an empty file would be a false one.
        return lambda: io.BytesIO(self._source.body(ref) or b"")

    def _read(self, ref: BodyRef | None) -> bytes | None:
        try:
            return self._source.body(ref)
        except NotFoundError:  # retention took it
            return None


def _snapshot_ns(span: SpanInfo) -> int:
    """Return the time of a snapshot."""
    created_at = span.attributes.get("created_at")
    time_ns = to_ns(created_at) if isinstance(created_at, str) else None
    return span.started_ns if time_ns is None else time_ns


# --- the manifest -----------------------------------------------------------------------------


def _with_redacted(manifest: Manifest, run: Run) -> Manifest:
    """Name the files in which a secret was masked when the run was taken in."""
    masked = {
        path
        for span in run.spans
        if span.type == "file"
        and span.redacted
        and isinstance(path := span.attributes.get("path"), str)
    }
    if not masked:
        return manifest
    files = manifest.component("files") or Component(FILES)
    files = msgspec.structs.replace(files, redacted=sorted(masked | set(files.redacted or ())))
    return msgspec.structs.replace(manifest, components={**manifest.components, "files": files})


def manifest_of(source: RunToWrite) -> Manifest:
    """Return the manifest of a run; for an imported bundle, its own manifest."""
    run = source.run
    root = next((span for span in run.spans if (span.type, span.parent_id) == ("run", None)), None)
    if root is not None and "bundle_id" in root.attributes and root.input is not None:
        try:
            manifest = manifest_body(source.body(root.input) or b"")
        except NotFoundError:
            manifest = None
        if manifest is not None and manifest.bundle_id == root.attributes["bundle_id"]:
            return manifest
    attributes: Mapping[str, Scalar] = root.attributes if root is not None else {}
    info = run.info
    created_at = _text(attributes.get("bundle.created_at")) or to_iso(info.ended_ns or info.last_ns)
    return Manifest(
        VERSION,
        _text(attributes.get("bundle_id")) or info.id,
        created_at,
        _text(attributes.get("session_id")) or info.id,
        _agent(run, attributes),
        _execution(run, attributes),
        _environment(run, attributes),
        {},
        _tags(attributes),
    )


def _agent(run: Run, attributes: Mapping[str, Scalar]) -> Agent:
    calls = [span for span in run.spans if span.type == "llm"]
    return Agent(
        _text(attributes.get("agent.name")) or run.info.name,
        _text(attributes.get("agent.version")) or None,
        _text(attributes.get("agent.adapter")) or _first(calls, "provider"),
        _text(attributes.get("agent.model")) or _first(calls, "model"),
    )


def _first(spans: list[SpanInfo], attribute: str) -> str:
    return next((text for span in spans if (text := _text(span.attributes.get(attribute)))), "")


def _execution(run: Run, attributes: Mapping[str, Scalar]) -> Execution:
    info = run.info
    error: dict[str, Any] = {
        key.removeprefix("error."): value
        for key, value in attributes.items()
        if key.startswith("error.") and value is not None
    }
    outcome = _OUTCOMES.get(info.outcome, info.outcome)
    if info.outcome == "running":
        outcome = "in_progress"
    elif info.outcome == "interrupted":
        outcome = "failure"
        error = {**error, "type": INTERRUPTED}
        error.setdefault("message", "the program ended before the run did")
    return Execution(
        to_iso(info.started_ns),
        None if info.ended_ns is None else to_iso(info.ended_ns),
        None if info.duration_ns is None else info.duration_ns / 1e9,
        outcome,
        error if error and outcome != "success" else None,
    )


def _environment(run: Run, attributes: Mapping[str, Scalar]) -> dict[str, Any]:
    found = _prefixed(attributes, "environment.")
    if found:
        return found
    process = next((span for span in run.spans if span.type == "process"), None)
    if process is None:
        return {}
    named = {"platform": "platform", "python": "python_version", "git.commit": "git_commit"}
    return {
        name: process.attributes[key] for key, name in named.items() if key in process.attributes
    }


def _tags(attributes: Mapping[str, Scalar]) -> dict[str, str]:
    return {key: str(value) for key, value in _prefixed(attributes, "tag.").items()}


def _prefixed(attributes: Mapping[str, Scalar], prefix: str) -> dict[str, Any]:
    return {
        key.removeprefix(prefix): value
        for key, value in attributes.items()
        if key.startswith(prefix)
    }


def _text(value: Scalar) -> str:
    return value if isinstance(value, str) else ""
