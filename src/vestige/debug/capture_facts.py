"""Facts about a capture: its owner, its end, and the parts that were left out.

Written by capture.py as bodies and log records of the spool, read back by debug/spool_index.py.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from vestige.formats.wink.manifest import Agent

FILE_SKIPPED: Final = "file skipped"
FAILED: Final = "capture failed"
"""Messages of facts about the capture; see also SEGMENT_DROPPED in spool.py."""


class CapturedRun(msgspec.Struct, frozen=True):
    """A run of a recorder that is captured with the session: its records travel in the bundle."""

    home: str
    run_id: str


class Opening(msgspec.Struct, frozen=True):
    """Whose capture this is: the body of its run's opening."""

    bundle_id: str
    session_id: str
    agent: Agent
    tags: dict[str, str]
    environment: dict[str, Any]
    started_at: str
    run: CapturedRun | None = None


class Ending(msgspec.Struct, frozen=True):
    """The end of a capture: the body of its run's end."""

    outcome: str
    error: dict[str, Any] | None
    ended_at: str
    created_at: str
    lost: int = 0
    """Records of states and files that could not be written."""
    lost_logs: int = 0


def error_of(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return an exception's attributes as in a manifest."""
    return {
        "type": str(attributes.get("error.type", "")).rpartition(".")[2],
        "message": attributes.get("error.message", ""),
        "traceback": attributes.get("error.stack", ""),
    }
