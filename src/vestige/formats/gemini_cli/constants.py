"""Names of files and entries of Gemini CLI's sessions."""

from __future__ import annotations

from typing import Any, Final

import msgspec

FORMAT: Final = "gemini_cli"
AGENT: Final = "gemini-cli"
PREFIX: Final = "session-"
SUFFIX: Final = ".jsonl"
CHATS: Final = "chats"
TMP: Final = "tmp"


class Entry(msgspec.Struct, gc=False, rename="camel"):
    """A line: the head of a session, a message, or a patch (`$set`)."""

    id: Any = None
    type: Any = None
    timestamp: Any = None
    content: Any = None
    thoughts: Any = None
    tokens: Any = None
    model: Any = None
    tool_calls: Any = None
    session_id: Any = None
    kind: Any = None
    set: Any = msgspec.field(default=None, name="$set")
