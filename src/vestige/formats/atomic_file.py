"""Create a file atomically: complete or not at all, and never over an existing one.

path = resolve_target(target, f"{run_id}.otlp.jsonl")      # inside the target, if it is a folder
with create_file(path) as file:
    file.write(...)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from vestige.errors import UsageError


def resolve_target(target: Path, name: str) -> Path:
    """Return the target, or the file `name` in it if it is a folder.

    Raise UsageError if that path exists.
    """
    path = target / name if target.is_dir() else target
    if os.path.lexists(path):
        raise UsageError(f"{path}: already exists. Remove it, or choose another target.")
    return path


@contextmanager
def create_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a temporary file that becomes `path` at the end. Raise UsageError if it cannot."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "wb") as file:
            yield file
        os.link(partial, path)  # unlike a rename, a link never replaces an existing file
    except FileExistsError:
        raise UsageError(f"{path}: already exists. Choose another target.") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}).") from None
    finally:
        partial.unlink(missing_ok=True)
