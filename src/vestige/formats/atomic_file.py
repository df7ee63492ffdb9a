"""A file that is written whole or not at all.

made = place_for(target, f"{run_id}.otlp.jsonl")      # in it, if it is a folder
with new_file(made) as file:                          # never over another
    file.write(...)
with replaced_file(path) as file:                     # over what is there
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


def place_for(target: Path, name: str) -> Path:
    """The target, or a file of this name in it, a folder. UsageError: something is there already."""
    if "/" in name or name in ("", ".", ".."):  # the name came from a run's id
        raise UsageError(f"{name!r}: not the name of a file. Choose a file as the target.")
    made = target / name if target.is_dir() else target
    if os.path.lexists(made):
        raise UsageError(f"{made}: is there already. Remove it, or choose another target.")
    return made


@contextmanager
def replaced_file(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name, also from another, once it is complete and on the disk.

    Until then it has no name at all, where the system can do that: a kill leaves nothing behind.
    Elsewhere it has a hidden one that ends in PART.
    """
    fd, half = _open_unnamed(path.parent), None
    if fd is None:
        fd, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=PART, dir=path.parent)
        half = Path(name)
    try:
        with os.fdopen(fd, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if half is None:
                half = path.parent / f".{path.name[:100]}.{os.getpid()}-{fd}{PART}"
                half.unlink(missing_ok=True)
                _give_name(fd, half)
        os.replace(half, path)
    except BaseException as error:
        if half is not None:
            half.unlink(missing_ok=True)
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
def new_file(made: Path) -> Iterator[BinaryIO]:
    """Under its name once it is complete. UsageError: it cannot be."""
    half = made.with_name(f".{made.name}.{os.getpid()}.part")
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        # What was recorded is for its owner: as the store and its journals are.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(half, flags, 0o600), "wb") as file:
            yield file
        os.link(half, made)  # unlike a rename, it does not take the place of another
    except FileExistsError:
        raise UsageError(f"{made}: is there already. Choose another target.") from None
    except OSError as error:
        raise UsageError(f"{made}: cannot be written ({error.strerror}).") from None
    finally:
        half.unlink(missing_ok=True)
