"""Write a run as a bundle file: all or nothing, and never over another."""

from __future__ import annotations

import os
from pathlib import Path

from vestige.clock import SYSTEM
from vestige.errors import UsageError
from vestige.formats.base import RunToWrite
from vestige.formats.openwop.bundle import assemble
from vestige.formats.openwop.names import Mode
from vestige.formats.openwop.story import Story

SUFFIX = ".openwop.json"


def write_bundle(source: RunToWrite, target: Path, mode: Mode, key: bytes) -> Path:
    made = target / f"{source.run.info.id}{SUFFIX}" if target.is_dir() else target
    if os.path.lexists(made):
        raise UsageError(f"{made}: is there already. Remove it, or choose another target.")
    raw = assemble(Story(source, mode, key=key), SYSTEM.now_ns())
    half = made.with_name(f".{made.name}.{os.getpid()}.part")
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        half.write_bytes(raw)
        os.link(half, made)  # unlike a rename, it does not take the place of another
    except FileExistsError:
        raise UsageError(f"{made}: is there already. Choose another target.") from None
    except OSError as error:
        raise UsageError(f"{made}: cannot be written ({error.strerror}).") from None
    finally:
        half.unlink(missing_ok=True)
    return made
