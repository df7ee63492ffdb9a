"""Debug bundles: one `.wink` file with everything about a run, which opens anywhere.

formats/wink/manifest.py               the manifest
formats/wink/read.py                   read a bundle of any origin
formats/wink/write.py                  write a bundle
formats/wink/to_records.py             a bundle as a run
formats/wink/from_records.py           a run as a bundle
formats/wink/embedded_records.py            the run's own records in a bundle
formats/wink/other_layouts.py          other files that are read as a bundle
formats/wink/call_events.py            model and tool calls in a bundle
formats/wink/sort_by_time.py             lines in the order of time
formats/wink/archive/write_limits.py    limits of what is read
formats/wink/archive/undamaged_content.py        the intact part of a damaged bundle
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.formats.wink.detect import find_runs, is_readable

if TYPE_CHECKING:
    from vestige.formats.protocol import Problem, RunToWrite, Source

__all__ = ["find_runs", "is_readable", "read_run", "validate_run", "write_run"]


def read_run(path: Path) -> Source:
    from vestige.formats.wink.to_records import read_bundle

    return read_bundle(path)


def write_run(run: RunToWrite, target: Path) -> Path:
    from vestige.formats.wink.from_records import write_run

    return write_run(run, target)


def validate_run(path: Path) -> Sequence[Problem]:
    from vestige.formats.wink.validate import check_path

    return check_path(path)
