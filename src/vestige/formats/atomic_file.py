"""Create a file atomically: complete or not at all.

path = resolve_target(target, f"{run_id}.otlp.jsonl")      # inside the target, if it is a folder
with create_file(path) as file:                            # never over an existing file
    file.write(...)
with replace_file(path) as file:                           # over an existing file
    file.write(...)
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from vestige.errors import UsageError

PART: Final = ".part"
"""How the name of a file ends that is being written."""


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
    """Yield a temporary file that becomes `path` once it is complete and on the disk.

    Until then the file has no name, so a kill leaves nothing behind. Where the system does not
    support that, it has a hidden name that ends in PART.
    """
    fd, partial = _open_unnamed(path.parent), None
    if fd is None:
        fd, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=PART, dir=path.parent)
        partial = Path(name)
    try:
        with os.fdopen(fd, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if partial is None:
                partial = path.parent / f".{path.name[:100]}.{os.getpid()}-{fd}{PART}"
                partial.unlink(missing_ok=True)
                _give_name(fd, partial)
        os.replace(partial, path)
    except BaseException as error:
        if partial is not None:
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk does not say where
        raise


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


@contextmanager
def create_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a temporary file that becomes `path` at the end. Raise UsageError if it cannot."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Exports are private to their owner, as the store and its journals are.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(partial, flags, 0o600), "wb") as file:
            yield file
        os.link(partial, path)  # unlike a rename, a link never replaces an existing file
    except FileExistsError:
        raise UsageError(f"{path}: already exists. Choose another target.") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}).") from None
    finally:
        partial.unlink(missing_ok=True)
