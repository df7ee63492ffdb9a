"""Files beside a session: results that were too long for its lines.

    <session>.jsonl                  `<persisted-output> ... Full output saved to: PATH ... Preview`
    <session>/tool-results/<name>    the complete result

Only the name in PATH is used: a session cannot refer to a file elsewhere.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from vestige.errors import UnreadableError
from vestige.formats.claude_code.constants import SUBAGENTS, TOOL_RESULTS
from vestige.formats.line_reader import open_file
from vestige.limits import BODY_MAX

_MARK: Final = "<persisted-output>"
_SAVED: Final = re.compile(r"saved to: [^\n]*[/\\]tool-results[/\\]([\w.-]{1,200})[ \t]*(?:\n|$)")


def read_result_file(session: Path, text: str) -> str | None:
    """Return the complete result that a preview refers to; None if there is none."""
    if not text.startswith(_MARK):
        return None
    found = _SAVED.search(text[:4_000])
    if found is None or found[1] in (".", ".."):
        return None
    folder = _folder_of(session) / TOOL_RESULTS
    if folder.is_symlink() or folder.parent.is_symlink():
        return None
    try:
        with open_file(folder / found[1]) as file:
            return file.read(BODY_MAX).decode("utf-8", "replace")
    except (UnreadableError, OSError):
        return None


def _folder_of(session: Path) -> Path:
    """Return the folder of a session, which its sub-agents share."""
    if session.parent.name == SUBAGENTS:
        return session.parent.parent
    if session.parent.parent.name == SUBAGENTS:
        return session.parent.parent.parent
    return session.with_suffix("")
