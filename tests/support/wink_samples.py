"""Bundles for tests: small real ones, and a zip that can be spoilt in one place."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any
from uuid import UUID

from vestige.debug import AgentInfo, DebugBundle, ExecutionInfo
from vestige.formats.wink.manifest import parse_time

DATA = Path(__file__).parent.parent / "data" / "wink"
SESSION = UUID("6ddf26c6-cf46-4238-8d3c-fb33866f7355")
BUNDLE = UUID("0f7b2a52-7f3c-4f6e-9a54-6a3f2f0d9c11")


def read_lines(name: str) -> list[str]:
    return (DATA / name).read_text(encoding="utf-8").splitlines()


def make_bundle(**changes: Any) -> DebugBundle:
    """The real run's states and logs, and a few files."""
    values: dict[str, Any] = {
        "session_id": SESSION,
        "agent": AgentInfo("code-reviewer", "scripted", "model-1", "1.0.0"),
        "execution": ExecutionInfo(
            parse_time("2026-11-15T18:12:26+00:00"),  # type: ignore[arg-type]  # it is a time
            parse_time("2026-11-15T18:12:27+00:00"),
            "success",
        ),
        "tags": {"repository": "acme/webapp"},
        "bundle_id": BUNDLE,
        "_snapshots": read_lines("snapshots_timeline.jsonl"),
        "_logs": read_lines("logs.jsonl"),
        "_files": {
            "workspace/.env": b"A=1\n",
            "workspace/deep/er/still/x.py": b"print(1)\n",
            "artifacts/blob.bin": bytes(range(256)),
            "artifacts/empty": b"",
        },
    }
    values.update(changes)
    return DebugBundle(**values)


def members_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_zip(path: Path, members: dict[str, bytes]) -> Path:
    """A plain zip, as anybody would write one."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def seed_members(**changes: Any) -> dict[str, bytes]:
    """A bundle with only what the seed says: no hashes, no listing."""
    snapshots = (
        b'{"version":"1","created_at":"2024-01-15T10:30:00+00:00",'
        b'"tags":{"session_id":"s"},"slices":[]}\n'
    )
    logs = (
        b'{"timestamp":"2024-01-15T10:30:00+00:00","level":"INFO","logger":"a.b",'
        b'"event":"e","message":"m","context":{"k":1}}\n'
    )
    manifest: dict[str, Any] = {
        "version": "1",
        "bundle_id": str(BUNDLE),
        "created_at": "2024-01-15T10:35:00+00:00",
        "session_id": str(SESSION),
        "agent": {"name": "code-reviewer", "version": "1.0.0", "adapter": "openai", "model": "m"},
        "execution": {
            "started_at": "2024-01-15T10:30:00+00:00",
            "ended_at": "2024-01-15T10:35:00+00:00",
            "duration_seconds": 300.0,
            "outcome": "success",
            "error": None,
        },
        "environment": {"platform": "linux"},
        "components": {
            "snapshots": {
                "path": "snapshots.jsonl",
                "entry_count": 1,
                "size_bytes": len(snapshots),
            },
            "logs": {"path": "logs.jsonl", "entry_count": 1, "size_bytes": len(logs)},
            "files": {"path": "files/", "file_count": 1, "total_size_bytes": 4},
        },
        "tags": {"task_id": "PR-123"},
    }
    manifest.update(changes)
    return {
        "snapshots.jsonl": snapshots,
        "logs.jsonl": logs,
        "files/workspace/x": b"abcd",
        "manifest.json": json.dumps(manifest).encode(),
    }


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
