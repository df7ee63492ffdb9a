"""Read one trajectory as a run.

The run's id derives from the session, the trajectory or file name, and the steps before the
first answer. So a file that has grown is the same run.

A sub-agent's trajectory is embedded, or a file beside this one. Files elsewhere are not read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from vestige.errors import UnreadableError
from vestige.formats.atif.constants import DEPTH_MAX, FORMAT, VERSION_PREFIX
from vestige.formats.atif.to_records import Document, TrajectoryRecords
from vestige.formats.lenient_json import (
    Object,
    decode_items,
    decode_members,
    decode_object,
    decode_value,
    read_document,
)
from vestige.formats.protocol import Problem, Source
from vestige.formats.record_builder import RecordBuilder

_FILES_MAX: Final = 1_000
"""Files of sub-agents that are read with a trajectory."""


def read_trajectory(path: Path) -> Source:
    members = _read_members(path)
    version = decode_value(members.get("schema_version"))
    if not (isinstance(version, str) and version.startswith(VERSION_PREFIX)):
        raise UnreadableError(f"{path}: not a trajectory (expected schema_version ATIF-v1.x).")
    document = _to_document(members, path, 0, _FileReader(path))
    if not document.steps:
        raise UnreadableError(f"{path}: has no steps (expected an array `steps`).")
    problems: list[Problem] = []
    builder = RecordBuilder(FORMAT, _source_id(document, path), _get_time_ns(path))
    records = TrajectoryRecords(document, builder, problems, str(path)).records()
    return Source(builder.run_id, builder.writer, records, problems, mergeable=True)


def find_referenced_files(path: Path) -> set[Path]:
    """Return the files of sub-agents that a trajectory refers to."""
    try:
        members = _read_members(path)
    except UnreadableError:
        return set()
    found: set[Path] = set()
    for raw in decode_items(members.get("steps")):
        if b"subagent_trajectory_ref" in bytes(raw):
            found.update(_iter_reference_paths(decode_object(raw), path.parent))
    found.discard(path.resolve())
    return found


def _read_members(path: Path) -> dict[str, msgspec.Raw]:
    members = decode_members(read_document(path))
    if not members:
        raise UnreadableError(f"{path}: not a JSON object (expected a trajectory).")
    return members


def _to_document(
    members: dict[str, msgspec.Raw], path: Path, depth: int, files: _FileReader
) -> Document:
    others = {
        key: decode_value(raw)
        for key, raw in members.items()
        if key not in ("steps", "subagent_trajectories")
    }
    steps = decode_items(members.get("steps"))
    agents: dict[str, Document] = {}
    if depth < DEPTH_MAX:
        for raw in decode_items(members.get("subagent_trajectories")):
            inner = _to_document(decode_members(raw), path, depth + 1, files)
            agents.setdefault(inner.id or f"#{len(agents)}", inner)
        for raw in steps:
            if b"trajectory_path" in bytes(raw):
                for name, found in files.read(decode_object(raw), path.parent):
                    agents.setdefault(name, _to_document(found, path, depth + 1, files))
    return Document(others, steps, agents)


class _FileReader:
    """Reads the files of sub-agents, each once."""

    def __init__(self, path: Path) -> None:
        self._seen = {path.resolve()}

    def read(self, step: Object, folder: Path) -> Iterator[tuple[str, dict[str, msgspec.Raw]]]:
        for reference in _iter_references(step):
            file = _resolve(reference, folder)
            if file is None or file in self._seen or len(self._seen) >= _FILES_MAX:
                continue
            self._seen.add(file)
            try:
                members = _read_members(file)
            except UnreadableError:
                continue
            yield str(reference["trajectory_path"]), members


def _iter_references(step: Object) -> Iterator[Object]:
    observation = step.get("observation")
    results = observation.get("results") if isinstance(observation, dict) else None
    for result in results if isinstance(results, list) else ():
        references = result.get("subagent_trajectory_ref") if isinstance(result, dict) else None
        for reference in references if isinstance(references, list) else ():
            if isinstance(reference, dict):
                yield reference


def _iter_reference_paths(step: Object, folder: Path) -> Iterator[Path]:
    for reference in _iter_references(step):
        file = _resolve(reference, folder)
        if file is not None:
            yield file


def _resolve(reference: Object, folder: Path) -> Path | None:
    """Return the file of a reference if it is in the folder or below."""
    name = reference.get("trajectory_path")
    if not isinstance(name, str) or not name or "://" in name or "\0" in name or len(name) > 4096:
        return None
    try:
        file = (folder / name).resolve()
        inside = file.is_relative_to(folder.resolve())
        return file if inside and file.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None


def _source_id(document: Document, path: Path) -> str:
    digest = hashlib.sha256()
    for raw in document.steps:
        if decode_object(raw).get("source") == "agent":
            break
        digest.update(bytes(raw))
    session = document.text("session_id") or path.absolute().parent.name
    return f"{session}/{document.id or path.name}-{digest.hexdigest()}"


def _get_time_ns(path: Path) -> int:
    try:
        return max(0, path.stat().st_mtime_ns)
    except OSError:
        return 0
