"""Keys in files of a home, each created when it is first needed and readable by its owner only."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from vestige._runtime.clock import SYSTEM
from vestige.errors import UnreadableError

KEY_BYTES: Final = 32
_LEAST: Final = 16


def read_or_create_key(path: Path, advice: str) -> bytes:
    """Return the key in a file. `advice` completes the error if it cannot be read or created."""
    try:
        if not path.exists():
            _create(path)
        key = path.read_bytes()
    except OSError as error:
        raise UnreadableError(
            f"{path}: cannot be read or created ({error.strerror}). {advice}"
        ) from None
    if len(key) < _LEAST:
        raise UnreadableError(f"{path}: too short for a key. Delete it to create a new key.")
    return key


def _create(path: Path) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.{SYSTEM.writer_id()}")
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(os.urandom(KEY_BYTES))
    with contextlib.suppress(FileExistsError):  # another process was first
        os.link(partial, path)
    partial.unlink()
