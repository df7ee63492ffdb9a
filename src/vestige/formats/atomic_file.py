"""Create a file atomically: complete or not at all.

path = resolve_target(target, f"{run_id}.otlp.jsonl")      # inside the target, if it is a folder
with create_file(path) as file:                            # never over an existing file
    file.write(...)
with replace_file(path) as file:                           # over an existing file
    file.write(...)
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from vestige._runtime.clock import random_bytes
from vestige._runtime.file_locks import is_held, try_lock
from vestige.errors import UsageError

PART: Final = ".part"
"""The suffix of a file that is being written."""

_PARTIAL_NAME: Final = re.compile(r"[0-9]+-[0-9a-f]+\.part")
"""The rest of such a name, after the name of its target."""


def resolve_target(target: Path, name: str) -> Path:
    """Return the target, or the file `name` in it if it is a folder.

    Raise UsageError if that path exists.
    """
    if "/" in name or name in ("", ".", ".."):  # the name is made from a run id
        raise UsageError(f"{name!r}: not a file name. Choose a file as the target.")
    path = target / name if target.is_dir() else target
    if os.path.lexists(path):
        raise UsageError(f"{path}: already exists. Remove it, or choose another target.")
    return path


@contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a temporary file that becomes `path` once it is complete and on the disk."""
    _remove_abandoned(path)
    fd, partial = _open_temporary(path)
    try:
        with os.fdopen(fd, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if partial is None:
                partial = _partial_path(path)
                _give_name(fd, partial)
            os.replace(partial, path)  # while the lock is held, or another writer would remove it
    except BaseException as error:
        if partial is not None:
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk does not say where
        raise


@contextmanager
def create_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a temporary file that becomes `path` at the end. Raise UsageError if it cannot."""
    partial = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path)
        fd, partial = _open_temporary(path)
        with os.fdopen(fd, "w+b") as file:
            yield file
            file.flush()
            # Unlike a rename, a link never replaces an existing file.
            if partial is None:
                _give_name(fd, path)
            else:
                os.link(partial, path)
    except FileExistsError:
        raise UsageError(f"{path}: already exists. Choose another target.") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}).") from None
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def _open_temporary(path: Path) -> tuple[int, Path | None]:
    """Open a private file beside `path` and lock it. Return its path if it has a name.

    It has none where the system supports that, so a kill leaves nothing behind.
    """
    fd, partial = _open_unnamed(path.parent), None
    if fd is None:
        partial = _partial_path(path)
        fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try_lock(fd)
    return fd, partial


def _open_unnamed(folder: Path) -> int | None:
    """Open a file without a name; None where that cannot be done."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.open(folder, flag | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


def _give_name(fd: int, path: Path) -> None:
    # With a folder's descriptor, the link is made to what /proc's link leads to, not to that link.
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def _partial_path(path: Path) -> Path:
    return path.with_name(f"{_partial_prefix(path)}{os.getpid()}-{random_bytes(4).hex()}{PART}")


def _partial_prefix(path: Path) -> str:
    return f".{path.name[:100]}."


def _remove_abandoned(path: Path) -> None:
    """Remove the temporary files of killed writers of the same path: those without a lock."""
    prefix = _partial_prefix(path)
    try:
        names = [name for name in os.listdir(path.parent) if name.startswith(prefix)]
    except OSError:
        return
    for name in names:
        if _PARTIAL_NAME.fullmatch(name[len(prefix) :]) and not is_held(path.with_name(name)):
            path.with_name(name).unlink(missing_ok=True)
