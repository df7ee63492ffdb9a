"""Names of files and entries of Claude Code's sessions."""

from __future__ import annotations

from typing import Any, Final

import msgspec

FORMAT: Final = "claude_code"
AGENT: Final = "claude-code"
SUFFIX: Final = ".jsonl"
PROJECTS: Final = "projects"
SUBAGENTS: Final = "subagents"
TOOL_RESULTS: Final = "tool-results"
SYNTHETIC: Final = "<synthetic>"
"""Model of answers that the program wrote itself, without a call."""
FILE_TOOLS: Final = frozenset(["Edit", "MultiEdit", "Write", "NotebookEdit"])
AGENT_TOOLS: Final = frozenset(["Agent", "Task"])


class Entry(msgspec.Struct, gc=False, rename="camel"):
    """A line of a session. Fields have any type, so that a newer version is read, too."""

    type: Any = None
    subtype: Any = None
    uuid: Any = None
    parent_uuid: Any = None
    timestamp: Any = None
    session_id: Any = None
    is_meta: Any = None
    is_compact_summary: Any = None
    is_api_error_message: Any = None
    api_error_status: Any = None
    message: Any = None
    attachment: Any = None
    content: Any = None
    level: Any = None
    compact_metadata: Any = None
    request_id: Any = None
    cwd: Any = None
    version: Any = None
    git_branch: Any = None
    custom_title: Any = None
    ai_title: Any = None
    tool_use_result: msgspec.Raw = msgspec.Raw(b"null")


class SubagentMeta(msgspec.Struct, gc=False, rename="camel"):
    """Facts that are stored beside the session of a sub-agent."""

    agent_type: Any = None
    description: Any = None
    tool_use_id: Any = None
