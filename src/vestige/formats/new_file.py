"""A file that is written whole or not at all, and never over another.

made = place_for(target, f"{run_id}.otlp.jsonl")      # in it, if it is a folder
with new_file(made) as file:
    file.write(...)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from vestige.errors import UsageError


def place_for(target: Path, name: str) -> Path:
    """The target, or a file of this name in it, a folder. UsageError: something is there already."""
    if "/" in name or name in ("", ".", ".."):  # the name came from a run's id
        raise UsageError(f"{name!r}: not the name of a file. Choose a file as the target.")
    made = target / name if target.is_dir() else target
    if os.path.lexists(made):
        raise UsageError(f"{made}: is there already. Remove it, or choose another target.")
    return made


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
