"""The components of a bundle as records: snapshots, logs, files, calls.

Source of a bundle:   run span      agent, tags, outcome; the manifest as its body
                      snapshot spans, each with its JSON as body
                      log records, each with its context
                      file spans, each with its bytes as body
                      llm and tool spans, from events and transcript (call_events.py)
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from vestige.formats.protocol import (
    Problem,
    derived_span_id,
    derived_writer,
)
from vestige.formats.wink.bundle_content import BundleContent, ContentFile
from vestige.formats.wink.call_events import CallSpans, has_transcript
from vestige.formats.wink.jsonl_entries import (
    LogEntry,
    SnapshotPayload,
    count_items,
    parse_log,
    parse_snapshot,
)
from vestige.formats.wink.log_records import (
    MALFORMED,
    attributes_of,
    our_level,
    to_ns,
)
from vestige.formats.wink.manifest import UNKNOWN, Manifest, render_manifest
from vestige.limits import (
    BUNDLE_ENTRY_MAX,
    BUNDLE_EVENTS_MAX,
    BUNDLE_PROBLEMS_MAX,
)
from vestige.record.coercion import clean_attributes, clean_text, flat, inline_bytes, truncate
from vestige.record.run import OUTCOME
from vestige.record.types import (
    VERSION,
    Attributes,
    BodyInfo,
    KnownRecord,
    Log,
    SpanClose,
    SpanOpen,
)

FORMAT: Final = "wink"
COMPONENT: Final = "wink"
"""The component of the spans that parts of a bundle become. Log entries keep their loggers."""
STATUSES: Final = {
    "success": "ok",
    "failure": "error",
    "timeout": "timeout",
    "cancelled": "cancelled",
    "interrupted": "interrupted",
}


class ReadContent(BundleContent, Protocol):
    """Content that was read from somewhere."""

    path: Path
    problems: list[Problem]

    def verify(self, keep: int = 0) -> None:
        """Add a problem for each part that differs from what the bundle states.

        A reader may keep this many bytes of it, to unpack it only once.
        """

    def numbered(self, name: str) -> Iterator[tuple[str, int, str]]:
        """Yield the member, number and text of each line of a component, as they are in the
        file."""

    @property
    def damaged_files(self) -> Mapping[str, str]:
        """Damaged files by path, each with its problem."""


class ComponentRecords:
    """Yield the format's components as records."""

    def __init__(self, content: ReadContent, run_id: str, writer: str) -> None:
        self.content = content
        self.run_id = run_id
        self.writer = writer
        self.root = derived_span_id(FORMAT, content.manifest.bundle_id, "run")
        self._seq = 0
        execution = content.manifest.execution
        self._started_ns = to_ns(execution.started_at) or 0
        self._ended_ns = max(to_ns(execution.ended_at or "") or 0, self._started_ns)

    def records(self) -> Iterator[KnownRecord]:
        """Yield the records of the run."""
        yield self._open_root()
        yield from self.components()
        yield from self._close_root()

    def components(self) -> Iterator[KnownRecord]:
        """Yield snapshots and log entries in order of time, the calls that they describe, then the
        files."""
        wants_calls = self.wants_calls()
        transcript = wants_calls and has_transcript(self.content.logs())
        calls = CallSpans(self.run_id, self.root, self.content.manifest, transcript)
        moments = heapq.merge(self._snapshots(), self._logs(), key=lambda each: each[0])
        for time_ns, part in moments:
            if isinstance(part, SnapshotPayload):
                yield from self._snapshot(time_ns, part)
                if wants_calls:
                    yield from calls.take_snapshot(part)
            else:
                yield self._log(time_ns, *part)
                if wants_calls and part[0] is not None:
                    yield from calls.take_log(part[0])
        if wants_calls:
            yield from calls.finish()
        if calls.left_out:
            message = f"more than {BUNDLE_EVENTS_MAX} calls; the rest are not among the spans."
            self._warn("", "calls-too-many", message)
        for file in self.content.files():
            if self.wants_file(file):
                yield from self._file(file)

    # What a bundle with records has among them already; see `_RunAndComponents`.

    def wants_snapshot(self, line: str) -> bool:
        return True

    def wants_log(self, entry: LogEntry | None, line: str) -> bool:
        return True

    def wants_file(self, file: ContentFile) -> bool:
        return True

    def wants_calls(self) -> bool:
        return True

    # --- the run ---------------------------------------------------------------------------------

    def _open_root(self) -> SpanOpen:
        manifest = self.content.manifest
        return SpanOpen(
            VERSION,
            self.writer,
            self._next(),
            self._started_ns,
            self.run_id,
            self.root,
            COMPONENT,
            "run",
            truncate(clean_text(manifest.agent.name), 512) or "bundle",
            None,
            manifest.session_id or None,
            root_attributes(manifest),
            None,
            render_manifest(manifest).decode(),
        )

    def _close_root(self) -> Iterator[SpanClose]:
        execution = self.content.manifest.execution
        if execution.outcome == "in_progress":
            return
        seconds = execution.duration_seconds
        duration_ns = self._ended_ns - self._started_ns
        if seconds is not None and 0 <= seconds < 2**32:
            duration_ns = int(seconds * 1e9)
        status = STATUSES.get(execution.shown_outcome, execution.outcome)
        attributes = error_attributes(execution.error)
        end = f"{self.content.manifest.bundle_id}\0end"
        if execution.outcome == UNKNOWN:
            # The file may grow, and then has a later end.
            end += f"\0{self._ended_ns}"
            status, attributes = "ok", {OUTCOME: UNKNOWN, **attributes}
        yield SpanClose(
            VERSION,
            derived_writer(FORMAT, end),
            1,
            self._ended_ns,
            self.run_id,
            self.root,
            status,
            duration_ns,
            attributes,
        )

    # --- snapshots -------------------------------------------------------------------------------

    def _snapshots(self) -> Iterator[tuple[int, Any]]:
        latest = self._started_ns
        for index, line in enumerate(self.content.snapshots()):
            if not self.wants_snapshot(line):
                continue
            snapshot = parse_snapshot(line, index)
            latest = max(latest, to_ns(snapshot.created_at) or 0)
            yield latest, snapshot

    def _snapshot(self, time_ns: int, snapshot: SnapshotPayload) -> Iterator[KnownRecord]:
        span_id = derived_span_id(
            FORMAT, self.content.manifest.bundle_id, "snapshot", str(snapshot.index)
        )
        attributes: Attributes = {"index": snapshot.index}
        if snapshot.session_id:
            attributes["session_id"] = snapshot.session_id
        attributes["created_at"] = snapshot.created_at
        attributes["slice_count"] = len(snapshot.slices)
        attributes["item_count"] = count_items(snapshot.slices)
        if snapshot.parent_id:
            attributes["parent_session_id"] = snapshot.parent_id
        for key, value in snapshot.tags.items():
            if key != "session_id":
                attributes[f"tag.{key}"] = value
        status = "ok"
        if snapshot.errors:
            status = "error"
            attributes["error.type"] = "InvalidSnapshot"
            attributes["error.message"] = "; ".join(snapshot.errors)
            place = f"snapshot {snapshot.index}"
            self._warn(place, "snapshot-invalid", f"{attributes['error.message']}.")
        reason = truncate(clean_text(snapshot.tags.get("tag", "")), 512)
        yield self._open(span_id, time_ns, "snapshot", reason or "snapshot", attributes)
        raw = snapshot.raw.encode(errors="surrogateescape")
        yield self._close(span_id, time_ns, status, raw)

    # --- logs ------------------------------------------------------------------------------------

    def _logs(self) -> Iterator[tuple[int, Any]]:
        latest = self._started_ns
        for number, line in enumerate(self.content.logs(), 1):
            entry = parse_log(line)
            if entry is None:
                self._warn(f"log entry {number}", "log-malformed", "not a log entry; kept as text.")
            if self.wants_log(entry, line):
                latest = max(latest, (to_ns(entry.timestamp) if entry is not None else None) or 0)
                yield latest, (entry, line)

    def _log(self, order_ns: int, entry: LogEntry | None, line: str) -> Log:
        if entry is None:
            text, info = inline_bytes(line.encode(errors="surrogateescape"))
            return Log(
                VERSION,
                self.writer,
                self._next(),
                order_ns,
                self.run_id,
                COMPONENT,
                "warn",
                "malformed log entry",
                self.root,
                {MALFORMED: True},
                text,
                info,
            )
        time_ns = to_ns(entry.timestamp)
        attributes = attributes_of(entry, time_ns)
        record = Log(
            VERSION,
            self.writer,
            self._next(),
            order_ns if time_ns is None else time_ns,
            self.run_id,
            entry.logger or COMPONENT,
            our_level(entry.level),
            entry.message,
            self.root,
        )
        if attributes is not None:
            record.attributes = attributes
        else:
            # Too much for attributes: the line itself, and what fits of them.
            record.attributes = {"event": truncate(entry.event, 512), "entry.body": True}
            record.body = line
        return record

    # --- files -----------------------------------------------------------------------------------

    def _file(self, file: ContentFile) -> Iterator[KnownRecord]:
        bundle_id = self.content.manifest.bundle_id
        span_id = derived_span_id(FORMAT, bundle_id, "file", file.path)
        attributes: Attributes = {"path": file.path, "size_bytes": file.size_bytes}
        data = None
        status = "ok"
        damage = self.content.damaged_files.get(file.path)
        if damage is not None:
            status = "error"
            attributes["error.type"] = "DamagedFile"
            attributes["error.message"] = damage
        elif file.size_bytes <= BUNDLE_ENTRY_MAX:
            with file.open() as stream:
                data = stream.read()
            attributes["sha256"] = hashlib.sha256(data).hexdigest()
        else:
            self._warn(
                f"files/{file.path[:200]}",
                "file-too-large",
                f"{file.size_bytes} bytes (at most {BUNDLE_ENTRY_MAX} are taken in); it stays in"
                " the bundle.",
            )
        name = truncate(clean_text(file.path), 512)
        yield self._open(span_id, self._ended_ns, "file", name, attributes)
        close = self._close(span_id, self._ended_ns, status, data)
        if data is None:
            close.body_info = BodyInfo(spilled_bytes=file.size_bytes)
        yield close

    # --- records ---------------------------------------------------------------------------------

    def _next(self) -> int:
        self._seq += 1
        return self._seq

    def _open(
        self, span_id: str, time_ns: int, type: str, name: str, attributes: Attributes
    ) -> SpanOpen:
        return SpanOpen(
            VERSION,
            self.writer,
            self._next(),
            time_ns,
            self.run_id,
            span_id,
            COMPONENT,
            type,
            name,
            self.root,
            None,
            clean_attributes(attributes),
        )

    def _close(self, span_id: str, time_ns: int, status: str, data: bytes | None) -> SpanClose:
        text, info = inline_bytes(data) if data is not None else (None, None)
        return SpanClose(
            VERSION,
            self.writer,
            self._next(),
            time_ns,
            self.run_id,
            span_id,
            status,
            0,
            {},
            text,
            info,
        )

    def _warn(self, place: str, rule: str, message: str) -> None:
        problems = self.content.problems
        if len(problems) < BUNDLE_PROBLEMS_MAX:
            problems.append(
                Problem(str(self.content.path), place, rule, message, severity="warning")
            )


def root_attributes(manifest: Manifest) -> Attributes:
    """Return the attributes of a run's root that describe its bundle."""
    agent = manifest.agent
    attributes: dict[str, Any] = {
        "bundle_id": manifest.bundle_id,
        "session_id": manifest.session_id,
        "agent.name": agent.name,
        "agent.version": agent.version,
        "agent.adapter": agent.adapter or None,
        "agent.model": agent.model or None,
        "bundle.created_at": manifest.created_at,
        **{f"tag.{key}": value for key, value in manifest.tags.items()},
        **{f"environment.{key}": value for key, value in manifest.environment.items()},
    }
    return clean_attributes({key: value for key, value in attributes.items() if value is not None})


def error_attributes(error: dict[str, Any] | None) -> Attributes:
    """Type, message and trace under their usual names; whatever else an error has, beside them."""
    if not error:
        return {}
    attributes: dict[str, Any] = {}
    for key, value in error.items():
        name = {"traceback": "stack", "stacktrace": "stack"}.get(key, key)
        if isinstance(value, list) and all(isinstance(line, str) for line in value):
            value = "".join(value)
        attributes[f"error.{name}"] = flat(value)
    return clean_attributes(attributes)
