"""Apply changes to settings files, with a backup, and undo them.

    applied = apply(changes, receipt)     # receipt: a file in the data directory
    restored = undo(receipt)

The receipt has a hash of each file before and after. Undoing restores the backup if the file is
unchanged since; otherwise it changes nothing and names the backup, because the user's later edits
must not be lost.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from vestige.errors import UnreadableError, UsageError
from vestige.integrations.vendors.telemetry_settings import Change, JsonChange, Tree

BACKUP_SUFFIX: Final = ".before-vestige"
_SETTINGS_MAX: Final = 4 * 1024 * 1024


def render_change(change: Change) -> str:
    """Return the text of a change, as it would be in a new file."""
    if isinstance(change, JsonChange):
        return _encode(change.tree)
    lines = (f'{name}="{value}"' for name, value in change.variables.items())
    prefix = "" if change.is_read_by_program else "export "
    return "".join(f"{prefix}{line}\n" for line in lines)


def apply(changes: Sequence[Change], receipt: Path) -> list[Path]:
    """Write all changes and return the files. Raises UsageError if they were applied before."""
    if receipt.exists():
        raise UsageError(f"{receipt}: already set up. Undo it first (--undo).")
    planned = [(change.path, *_plan(change)) for change in changes]
    entries = [
        {"path": str(path), "before": before and _hash(before), "after": _hash(after)}
        for path, before, after in planned
    ]
    _write(receipt, _encode({"files": entries}).encode())
    for path, before, after in planned:
        if before is not None:
            shutil.copy2(path, _backup_of(path))
        _write(path, after)
    return [path for path, _, _ in planned]


def undo(receipt: Path) -> list[Path]:
    """Restore every file and return them. Raises UsageError if one was edited since."""
    try:
        entries = json.loads(receipt.read_bytes())["files"]
        found = [(Path(each["path"]), each["before"], each["after"]) for each in entries]
    except FileNotFoundError:
        raise UsageError(f"{receipt}: there is nothing to undo.") from None
    except (ValueError, KeyError, TypeError):
        raise UnreadableError(f"{receipt}: not a receipt of `vestige setup`.") from None
    for path, *hashes in found:
        if path.exists() and _hash(path.read_bytes()) not in hashes:
            raise UsageError(
                f"{path}: was edited since. Remove the settings by hand, or restore"
                f" {_backup_of(path).name} beside it; then delete {receipt}."
            )
    for path, before, _ in found:
        if before is None:
            path.unlink(missing_ok=True)
        elif _backup_of(path).exists():
            os.replace(_backup_of(path), path.resolve())
    receipt.unlink()
    return [path for path, _, _ in found]


def _plan(change: Change) -> tuple[bytes | None, bytes]:
    """Return a file's bytes before and after a change. None: there is no such file."""
    before = _read(change.path)
    if isinstance(change, JsonChange):
        return before, _encode(_merge(_parse(change.path, before), change.tree)).encode()
    old = "" if before is None else before.decode("utf-8", "surrogateescape")
    names = tuple(f"{name}=" for name in change.variables)
    others = [line for line in old.splitlines(keepends=True) if not line.startswith(names)]
    if others and not others[-1].endswith("\n"):
        others[-1] += "\n"
    return before, ("".join(others) + render_change(change)).encode("utf-8", "surrogateescape")


def _read(path: Path) -> bytes | None:
    try:
        if path.stat().st_size > _SETTINGS_MAX:
            raise UnreadableError(f"{path}: too large for a settings file.")
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _parse(path: Path, data: bytes | None) -> Tree:
    if data is None or not data.strip():
        return {}
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        raise UnreadableError(
            f"{path}: not a JSON object without comments. Add the settings by hand: run the"
            " command without --write to see them."
        )
    return tree


def _merge(old: Tree, new: Tree) -> Tree:
    merged: Tree = dict(old)
    for name, value in new.items():
        inner = old.get(name)
        if isinstance(inner, dict) and isinstance(value, dict):
            merged[name] = _merge(inner, value)
        else:
            merged[name] = value
    return merged


def _write(path: Path, data: bytes) -> None:
    """Write a file at once, readable by its owner only: it contains a key."""
    path.parent.mkdir(parents=True, exist_ok=True)
    target = path.resolve()  # a link to a file in a repository of settings stays a link
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
    os.replace(partial, target)


def _backup_of(path: Path) -> Path:
    return path.with_name(path.name + BACKUP_SUFFIX)


def _encode(tree: Any) -> str:
    return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
