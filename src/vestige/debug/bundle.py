"""DebugBundle: the evidence of one run, as an object and as one file.

    bundle = DebugBundle.load("debug/abc123.wink")
    for snapshot in bundle.snapshots: ...
    for entry in bundle.logs: ...
    bundle.read_file("workspace/.env")
    bundle.export("elsewhere/")

The content of a bundle never changes, and threads may share it. Parts are read when they are
accessed. The fields are those of a plain dataclass: `export` writes the values that are set.

Elsewhere: formats/wink/ describes the file and its validation.
"""

from __future__ import annotations

import copy
import io
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final, cast

# For the type alone, which is part of this API; ids are made by the clock.
from uuid import UUID

import msgspec

from vestige._runtime.clock import SYSTEM
from vestige.formats.protocol import Problem, derived_uuid
from vestige.formats.wink.archive.member_names import safe_path
from vestige.formats.wink.archive.skip_damaged_files import intact
from vestige.formats.wink.bundle_content import BundleContent, ContentFile, Extra
from vestige.formats.wink.jsonl_entries import LogEntry, SnapshotPayload, parse_log, parse_snapshot
from vestige.formats.wink.log_records import to_iso
from vestige.formats.wink.manifest import (
    INTERRUPTED,
    VERSION,
    Agent,
    Execution,
    Manifest,
    parse_time,
)
from vestige.formats.wink.sort_by_time import TimeOrder, log_time, snapshot_time
from vestige.formats.wink.to_records import ReadContent, open_content
from vestige.formats.wink.validate import check_content
from vestige.formats.wink.write import write_bundle

WARNINGS_MAX: Final = 20
"""The number of warnings for one reading of the logs; `problems` has all of them."""
_FACTS: Final = ("session_id", "agent", "execution", "tags", "bundle_id")
_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


class BundleWarning(UserWarning):
    """Something in a bundle was passed over."""


@dataclass(slots=True)
class AgentInfo:
    """Who ran."""

    name: str
    adapter: str
    model: str
    version: str | None = None


@dataclass(slots=True)
class ExecutionInfo:
    """When, and how it ended: success, failure, timeout, cancelled, interrupted; in_progress."""

    started_at: datetime
    ended_at: datetime | None = None
    outcome: str = "in_progress"
    error: Mapping[str, object] | None = None

    @property
    def duration_seconds(self) -> float | None:
        if self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()


@dataclass(slots=True, weakref_slot=True)
class DebugBundle:
    """A self-contained artifact of one execution: state over time, logs, files, metadata."""

    session_id: UUID
    agent: AgentInfo
    execution: ExecutionInfo
    tags: Mapping[str, str] = field(default_factory=dict)
    bundle_id: UUID = field(default_factory=lambda: UUID(SYSTEM.run_id()))

    _snapshots: list[str] = field(default_factory=list, repr=False)
    _logs: list[str] = field(default_factory=list, repr=False)
    _files: dict[str, bytes] = field(default_factory=dict, repr=False)
    _source: BundleContent | None = field(default=None, repr=False, compare=False)
    """The parts of a bundle that was loaded or captured. None: they are in the fields above."""
    _by_path: dict[str, ContentFile] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _made: tuple[object, ...] | None = field(default=None, init=False, repr=False, compare=False)
    """The public fields as the content has them."""
    _problems: list[Problem] | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def of_content(cls, content: BundleContent) -> DebugBundle:
        """Return a bundle over content that is elsewhere: in a file, or in a capture's spool."""
        manifest = content.manifest
        bundle = cls(
            _uuid(manifest.session_id),
            _agent(manifest.agent),
            _execution(manifest.execution),
            dict(manifest.tags),
            _uuid(manifest.bundle_id),
            _source=content,
        )
        bundle._made = copy.deepcopy(bundle._facts())
        return bundle

    # --- as a file -----------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DebugBundle:
        """Load a bundle from a file: ours, the later real format, or a file of snapshots.

        DebugBundleError if it is none, looks hostile, or has no readable manifest. Any other
        damage is in `problems`, and does not keep the rest from being read.
        """
        return cls.of_content(open_content(Path(path).expanduser()))

    def export(self, target: str | os.PathLike[str]) -> Path:
        """Write the bundle to a file; a folder gets `<bundle_id>.wink`. All or nothing.

        A file that is damaged (see `problems`) is left out, and the new manifest says so.
        """
        text = os.path.expanduser(os.fspath(target))
        path = write_bundle(intact(self.content), text)
        report_export = getattr(self._source, "exported", None)
        if report_export is not None:
            report_export(path)  # a capture's spool is no longer needed to recover from
        return path

    # --- what it holds -------------------------------------------------------------------------

    @property
    def manifest(self) -> Manifest:
        """Return the manifest as in the file. Sizes and counts are those of a loaded bundle."""
        return self.content.manifest

    @property
    def content(self) -> BundleContent:
        """Return the parts of the bundle, for other readers."""
        source = self._source
        if source is None:
            return _Parts(self._described(), self._snapshots, self._logs, self._files)
        manifest = source.manifest
        changes = self._changes()
        if not changes:
            return source
        return _Described(source, msgspec.structs.replace(manifest, **changes))

    def _changes(self) -> dict[str, Any]:
        """Return the parts of the manifest whose fields were set since the content was opened."""
        described = self._described()
        named = zip(_FACTS, self._facts(), self._made or (None,) * len(_FACTS), strict=True)
        return {name: getattr(described, name) for name, now, made in named if now != made}

    def _facts(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in _FACTS)

    def _described(self) -> Manifest:
        return make_manifest(
            session_id=self.session_id,
            agent=self.agent,
            execution=self.execution,
            tags=self.tags,
            bundle_id=self.bundle_id,
        )

    @property
    def problems(self) -> list[Problem]:
        """Return damaged or missing parts, and those that differ from the manifest.

        The first time all of it is read through, whatever its size.
        """
        if self._problems is None:
            source = self._source
            read = source is not None and hasattr(source, "verify")
            self._problems = check_content(cast(ReadContent, source)) if read else []
        return list(self._problems)

    @property
    def created_at(self) -> datetime:
        return _time(self.manifest.created_at) or self.execution.started_at

    @property
    def environment(self) -> Mapping[str, Any]:
        return MappingProxyType(dict(self.manifest.environment))

    @property
    def snapshots(self) -> Iterator[SnapshotPayload]:
        """Return the snapshots, oldest first. An invalid one has `.errors`."""
        return (parse_snapshot(line, index) for index, line in enumerate(self.content.snapshots()))

    @property
    def logs(self) -> Iterator[LogEntry]:
        """Yield entries, oldest first. Malformed ones are skipped with a warning."""
        malformed = 0
        for number, line in enumerate(self.content.logs(), 1):
            entry = parse_log(line)
            if entry is not None:
                yield entry
                continue
            malformed += 1
            if malformed <= WARNINGS_MAX:
                more = " So may be others." if malformed == WARNINGS_MAX else ""
                message = f"{self.bundle_id}: log entry {number} is malformed; passed over.{more}"
                warnings.warn(message, BundleWarning, stacklevel=2)

    def list_files(self) -> list[str]:
        """Return the paths of all files, relative to the bundle's files."""
        return sorted(self._find_files())

    def read_file(self, path: str) -> bytes:
        """Return the bytes of a file. Raise FileNotFoundError if the bundle has no such file."""
        with self.open_file(path) as stream:
            return stream.read()

    def open_file(self, path: str) -> BinaryIO:
        """Open a file for reading, for files too large for `read_file`."""
        files = self._find_files()
        # One whose name is not safe everywhere is stored under another: both lead to it.
        file = files.get(os.fspath(path)) or files.get(safe_path(os.fspath(path)))
        if file is None:
            raise FileNotFoundError(f"{path}: no such file in bundle {self.bundle_id}")
        return file.open()

    def _find_files(self) -> dict[str, ContentFile]:
        files = self._by_path
        if files is None or self._source is None:
            files = {file.path: file for file in self.content.files()}
            self._by_path = files
        return files


class _Described:
    """Content under a manifest whose facts were changed. Implements `BundleContent`."""

    def __init__(self, content: BundleContent, manifest: Manifest) -> None:
        self.manifest = manifest
        self.snapshots, self.logs = content.snapshots, content.logs
        self.files, self.extras = content.files, content.extras


class _Parts:
    """Content that is in memory."""

    def __init__(
        self,
        manifest: Manifest,
        snapshots: list[str],
        logs: list[str],
        files: dict[str, bytes],
    ) -> None:
        self.manifest = manifest
        self._snapshots, self._logs, self._files = snapshots, logs, files

    def snapshots(self) -> Iterator[str]:
        return TimeOrder(snapshot_time).sorted(lambda: iter(self._snapshots))

    def logs(self) -> Iterator[str]:
        return TimeOrder(log_time).sorted(lambda: iter(self._logs))

    def files(self) -> Iterator[ContentFile]:
        for path, data in self._files.items():
            yield ContentFile(path, len(data), _opener(data))

    def extras(self) -> Iterator[Extra]:
        return iter(())


def _opener(data: bytes) -> Callable[[], BinaryIO]:
    return lambda: io.BytesIO(data)


def make_manifest(
    *,
    session_id: UUID,
    agent: AgentInfo,
    execution: ExecutionInfo,
    tags: Mapping[str, str],
    bundle_id: UUID,
    environment: Mapping[str, Any] = _EMPTY,
    created_at: datetime | None = None,
) -> Manifest:
    """Return the manifest of a bundle with these facts.

    Sizes and counts are set when it is written.
    """
    finished = created_at or execution.ended_at
    return Manifest(
        VERSION,
        str(bundle_id),
        _iso(finished) if finished is not None else to_iso(SYSTEM.now_ns()),
        str(session_id),
        Agent(agent.name, agent.version, agent.adapter, agent.model),
        _written(execution),
        dict(environment),
        {},
        {str(key): str(value) for key, value in tags.items()},
    )


def _written(execution: ExecutionInfo) -> Execution:
    """Return the outcome as in a file, where `interrupted` is a failure of that type."""
    outcome = execution.outcome
    error = None if execution.error is None else dict(execution.error)
    if outcome == "interrupted":
        outcome = "failure"
        error = {"message": "the program ended before the run did", **(error or {})}
        error["type"] = INTERRUPTED
    ended = execution.ended_at
    return Execution(
        _iso(execution.started_at),
        None if ended is None else _iso(ended),
        execution.duration_seconds,
        outcome,
        error,
    )


def _execution(execution: Execution) -> ExecutionInfo:
    error = None if execution.error is None else dict(execution.error)
    return ExecutionInfo(
        _time(execution.started_at) or datetime.fromtimestamp(0, UTC),
        _time(execution.ended_at or ""),
        execution.shown_outcome,
        error,
    )


def _agent(agent: Agent) -> AgentInfo:
    return AgentInfo(agent.name, agent.adapter, agent.model, agent.version)


def _time(text: str) -> datetime | None:
    return parse_time(text)


def _iso(when: datetime) -> str:
    return (when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)).isoformat()


def _uuid(text: str) -> UUID:
    """Return an id as a UUID. Any other id is replaced by one that derives from it."""
    try:
        return UUID(text)
    except ValueError:
        return UUID(derived_uuid("wink", text))


__all__ = [
    "AgentInfo",
    "BundleWarning",
    "DebugBundle",
    "ExecutionInfo",
    "LogEntry",
    "SnapshotPayload",
    "make_manifest",
]
