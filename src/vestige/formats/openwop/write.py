"""Write a run as a bundle file: all or nothing, and never over another."""

from __future__ import annotations

from pathlib import Path

from vestige._runtime.clock import SYSTEM
from vestige.formats.atomic_file import create_file, resolve_target
from vestige.formats.openwop.assemble import assemble
from vestige.formats.openwop.constants import Mode
from vestige.formats.openwop.from_records import Story
from vestige.formats.protocol import RunToWrite
from vestige.record.run_id import file_name_of

SUFFIX = ".openwop.json"


def write_bundle(source: RunToWrite, target: Path, mode: Mode, key: bytes) -> Path:
    made = resolve_target(target, f"{file_name_of(source.run.info.id)}{SUFFIX}")
    raw = assemble(Story(source, mode, key=key), SYSTEM.now_ns())
    with create_file(made) as file:
        file.write(raw)
    return made
