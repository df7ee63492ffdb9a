"""Debug bundles: one `.wink` file with everything about a run, which opens anywhere.

manifest.py             the manifest
read.py                 the content of a bundle's zip
archive/                the zip: members, names, limits, damage
other_layouts.py        other files that are read as a bundle
write.py                write a bundle
to_records.py           a bundle as a run
component_records.py    its snapshots, logs, files and calls as records
call_events.py          its model and tool calls
embedded_records.py     the records of a run inside a bundle
from_records.py         a run as a bundle
sort_by_time.py         lines in the order of time
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
