"""DebugBundle: one run's evidence as an object, to look into and to hand on as one file.

    bundle = DebugBundle.load("debug/abc123.wink")
    for snapshot in bundle.snapshots: ...
    for entry in bundle.logs: ...
    bundle.read_file("workspace/.env")
    bundle.export("elsewhere/")

The one hard fact: a bundle never changes, whether it was loaded or made by a builder, and
threads may share it. What it holds is read when it is asked for.

Elsewhere: what is in the file and what is checked when it is read, in formats/wink/.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final, NoReturn, cast

# For the type alone, which is part of this API; ids are made by the clock.
from uuid import UUID

from vestige._runtime.clock import SYSTEM
from vestige.formats.protocol import derived_uuid
from vestige.formats.wink.content import BundleContent, ContentFile, Extra
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
from vestige.formats.wink.member_names import safe_path
from vestige.formats.wink.to_records import open_content
from vestige.formats.wink.write import write_bundle
from vestige.limits import BUNDLE_VERIFIED_MAX

_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


class BundleWarning(UserWarning):
    """Something in a bundle was passed over."""


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """Who ran."""

    name: str
    adapter: str
    model: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
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


class DebugBundle:
    """A self-contained artifact of one execution: state over time, logs, files, metadata."""

    __slots__ = (
        "__weakref__",
        "_content",
        "_files",
        "agent",
        "bundle_id",
        "execution",
        "session_id",
        "tags",
    )

    session_id: UUID
    agent: AgentInfo
    execution: ExecutionInfo
    tags: Mapping[str, str]
    bundle_id: UUID
    _content: BundleContent
    _files: dict[str, ContentFile] | None

    def __init__(
        self,
        session_id: UUID | BundleContent,
        agent: AgentInfo | None = None,
        execution: ExecutionInfo | None = None,
        tags: Mapping[str, str] | None = None,
        bundle_id: UUID | None = None,
        _snapshots: Sequence[str] = (),
        _logs: Sequence[str] = (),
        _files: Mapping[str, bytes] | None = None,
    ) -> None:
        """Of its parts; or, with a single argument, over content that is elsewhere."""
        if agent is None or execution is None:
            if not hasattr(session_id, "manifest"):
                raise TypeError("DebugBundle needs session_id, agent and execution")
            content = cast(BundleContent, session_id)
        else:
            manifest = make_manifest(
                session_id=cast(UUID, session_id),
                agent=agent,
                execution=execution,
                tags=tags or {},
                bundle_id=bundle_id or UUID(SYSTEM.run_id()),
            )
            content = _Parts(manifest, tuple(_snapshots), tuple(_logs), dict(_files or {}))
        manifest = content.manifest
        values = {
            "_content": content,
            "_files": None,
            "session_id": _uuid(manifest.session_id),
            "bundle_id": _uuid(manifest.bundle_id),
            "agent": _agent(manifest.agent),
            "execution": _execution(manifest.execution),
            "tags": MappingProxyType(dict(manifest.tags)),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a DebugBundle does not change: {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a DebugBundle does not change: {name} cannot be deleted")

    def __repr__(self) -> str:
        return (
            f"DebugBundle(session_id={self.session_id!r}, agent={self.agent!r},"
            f" execution={self.execution!r}, tags={dict(self.tags)!r},"
            f" bundle_id={self.bundle_id!r})"
        )

    # --- as a file -----------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DebugBundle:
        """A bundle from a file: ours, the later real format, or a file of snapshots.

        DebugBundleError if it is none, damaged, or not what it says. A small one is read
        through at once, a large one as it is used.
        """
        where = Path(path).expanduser()
        content = open_content(where)
        if where.suffix != ".jsonl" and where.stat().st_size <= BUNDLE_VERIFIED_MAX:
            content.verify()
        return cls(content)

    def export(self, target: str | os.PathLike[str]) -> Path:
        """Write the bundle to a file; a folder gets `<bundle_id>.wink`. All or nothing."""
        text = os.path.expanduser(os.fspath(target))
        path = write_bundle(self._content, text)
        tell = getattr(self._content, "exported", None)
        if tell is not None:
            tell(path)  # a capture's spool is no longer needed to recover from
        return path

    # --- what it holds -------------------------------------------------------------------------

    @property
    def manifest(self) -> Manifest:
        """As it stands in the file; sizes and counts are those of a bundle that was loaded."""
        return self._content.manifest

    @property
    def content(self) -> BundleContent:
        """What it is made of, for whoever goes on from here."""
        return self._content

    @property
    def created_at(self) -> datetime:
        return _time(self.manifest.created_at) or self.execution.started_at

    @property
    def environment(self) -> Mapping[str, Any]:
        return MappingProxyType(dict(self.manifest.environment))

    @property
    def snapshots(self) -> Iterator[SnapshotPayload]:
        """Oldest first. One that is not valid says so: `.errors`."""
        return (parse_snapshot(line, index) for index, line in enumerate(self._content.snapshots()))

    @property
    def logs(self) -> Iterator[LogEntry]:
        """Oldest first. What is no entry is passed over, with a warning."""
        for number, line in enumerate(self._content.logs(), 1):
            entry = parse_log(line)
            if entry is None:
                message = f"{self.bundle_id}: log entry {number} is malformed; passed over."
                warnings.warn(message, BundleWarning, stacklevel=2)
            else:
                yield entry

    def list_files(self) -> list[str]:
        """The paths of all files, relative to the bundle's files."""
        return sorted(self._by_path())

    def read_file(self, path: str) -> bytes:
        """A file's bytes. FileNotFoundError if there is none under this path."""
        with self.open_file(path) as stream:
            return stream.read()

    def open_file(self, path: str) -> BinaryIO:
        """As `read_file`, for files that should not be in memory at once."""
        files = self._by_path()
        # One whose name is not safe everywhere is stored under another: both lead to it.
        file = files.get(os.fspath(path)) or files.get(safe_path(os.fspath(path)))
        if file is None:
            raise FileNotFoundError(f"{path}: no such file in bundle {self.bundle_id}")
        return file.open()

    def _by_path(self) -> dict[str, ContentFile]:
        files = self._files
        if files is None:
            files = {file.path: file for file in self._content.files()}
            object.__setattr__(self, "_files", files)
        return files


class _Parts:
    """Content that is in memory."""

    def __init__(
        self,
        manifest: Manifest,
        snapshots: tuple[str, ...],
        logs: tuple[str, ...],
        files: dict[str, bytes],
    ) -> None:
        self.manifest = manifest
        self._snapshots, self._logs, self._files = snapshots, logs, files

    def snapshots(self) -> Iterator[str]:
        return iter(self._snapshots)

    def logs(self) -> Iterator[str]:
        return iter(self._logs)

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
    """The manifest of a bundle with these facts; sizes and counts come when it is written."""
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
    """As it stands in a file, where `interrupted` is a failure of that type."""
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
    error = None if execution.error is None else MappingProxyType(dict(execution.error))
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
    """Ids in a bundle are UUIDs; a foreign one that is none has one that derives from it."""
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
