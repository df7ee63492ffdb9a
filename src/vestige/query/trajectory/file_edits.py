"""Files that a tool call edited, each with its difference.

    for edit in find_edits("Edit", arguments, ""):
        edit.path, edit.added, edit.removed, edit.diff

The difference is the one that the agent recorded (`file_diff`), else it is computed from the
arguments: an old and a new text, a content, or a patch.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

ARGUMENTS_MAX: Final = 512 * 1024
LINES_MAX: Final = 2_000
"""Lines of a text that is compared line by line; a longer one is shown as replaced."""

_PATHS: Final = ("file_path", "filePath", "path", "notebook_path", "target_file")
_OLD: Final = ("old_string", "oldString", "old_str", "oldText", "old_text", "before")
_NEW: Final = ("new_string", "newString", "new_str", "newText", "new_text", "new_source", "after")
_CONTENT: Final = ("content", "file_text", "contents")
_WRITES: Final = re.compile(r"write|create|edit", re.IGNORECASE)
_PATCH_FILE: Final = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$")
_DIFF_FILE: Final = re.compile(r"^(?:---|\+\+\+) (?:[ab]/)?([^\t\n]+)")

EditKind = Literal["edited", "written", "created", "deleted"]


@dataclass(frozen=True, slots=True)
class FileEdit:
    """An edited file."""

    path: str
    kind: EditKind
    diff: str
    """Lines that begin with `+`, `-`, a space or `@@`."""

    @property
    def added(self) -> int:
        return sum(line.startswith("+") for line in self.diff.splitlines())

    @property
    def removed(self) -> int:
        return sum(line.startswith("-") for line in self.diff.splitlines())

    def data(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "kind": self.kind,
            "added": self.added,
            "removed": self.removed,
            "diff": self.diff,
        }


def find_edits(name: str, arguments: str, file_diff: str = "") -> list[FileEdit]:
    """Return the files that a call edited; none if it is not an edit."""
    if len(arguments) > ARGUMENTS_MAX:
        return []
    value = _decode(arguments)
    path = _first(value, _PATHS)
    if file_diff:
        recorded = list(_split_diff(file_diff, path))
        if recorded:
            return recorded
    patch = arguments if value is None else _first(value, ("patch", "input"))
    if patch.lstrip().startswith("*** Begin Patch"):
        return list(_split_patch(patch))
    if value is None or not path:
        return []
    return _from_arguments(name, value, path)


def _from_arguments(name: str, value: dict[str, Any], path: str) -> list[FileEdit]:
    edits = value.get("edits")
    changes = [each for each in edits if isinstance(each, dict)] if isinstance(edits, list) else []
    pairs = [(_first(each, _OLD), _first(each, _NEW)) for each in changes or [value]]
    diffs = [_compare(old, new) for old, new in pairs if old or new]
    if diffs:
        return [FileEdit(path, "edited", "\n".join(diffs))]
    content = _first(value, _CONTENT)
    if content and _WRITES.search(name):
        return [FileEdit(path, "written", "\n".join(f"+{each}" for each in content.splitlines()))]
    return []


def _compare(old: str, new: str) -> str:
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > LINES_MAX:
        return "\n".join([*(f"-{line}" for line in before), *(f"+{line}" for line in after)])
    lines = difflib.unified_diff(before, after, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def _split_diff(text: str, path: str) -> Iterator[FileEdit]:
    """Yield the files of a unified difference; without headers, it belongs to `path`."""
    names: list[str] = []
    lines: list[str] = []
    in_hunk = False
    for line in text.splitlines():
        header = _DIFF_FILE.match(line)
        if (
            header is not None
            and (line.startswith("--- ") or names)
            and not (in_hunk and line.startswith("+++"))
        ):
            if lines:
                yield _build(names, lines, path)
                names, lines = [], []
            names.append(header[1].strip())
            in_hunk = False
        elif line.startswith("@@"):
            in_hunk = True
            lines.append(line)
        elif in_hunk:
            lines.append(line)
    if lines:
        yield _build(names, lines, path)


def _build(names: list[str], lines: list[str], path: str) -> FileEdit:
    real = [name for name in names if name != "/dev/null"]
    kind: EditKind = "edited"
    if "/dev/null" in names[:1]:
        kind = "created"
    elif "/dev/null" in names:
        kind = "deleted"
    return FileEdit(real[-1] if real else path, kind, "\n".join(lines))


def _split_patch(patch: str) -> Iterator[FileEdit]:
    """Yield the files of a patch in Codex's form."""
    kinds: dict[str, EditKind] = {"Add": "created", "Update": "edited", "Delete": "deleted"}
    path, kind = "", "Update"
    lines: list[str] = []
    for line in patch.splitlines():
        found = _PATCH_FILE.match(line)
        if found is not None or line.startswith("*** End Patch"):
            if path:
                yield FileEdit(path, kinds[kind], "\n".join(lines))
            kind, path = (found[1], found[2].strip()) if found is not None else ("Update", "")
            lines = []
        elif path and not line.startswith("*** "):
            lines.append(line)
    if path:  # a patch that was truncated
        yield FileEdit(path, kinds[kind], "\n".join(lines))


def _decode(text: str) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(text) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _first(value: dict[str, Any] | None, names: tuple[str, ...]) -> str:
    for name in names if value is not None else ():
        found = value.get(name) if value is not None else None
        if isinstance(found, str) and found:
            return found
    return ""
