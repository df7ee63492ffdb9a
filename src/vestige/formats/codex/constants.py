"""Names of files and entries of Codex's sessions."""

from __future__ import annotations

from typing import Any, Final

import msgspec

FORMAT: Final = "codex"
AGENT: Final = "codex"
PREFIX: Final = "rollout-"
SUFFIXES: Final = (".jsonl", ".jsonl.zst")
SESSIONS: Final = ("sessions", "archived_sessions")
MANIFEST: Final = "manifest.json"


class Entry(msgspec.Struct, gc=False):
    """A line of a rollout: an event (`event_msg`), or an item of the history."""

    timestamp: Any = None
    type: Any = None
    payload: Any = None
