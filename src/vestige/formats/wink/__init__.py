"""Debug bundles: one `.wink` file that holds everything about a run, and opens anywhere.

manifest.py   what a bundle is about       content.py    what it holds, wherever it is
formats/wink/write.py    write one                    formats/wink/read.py     read one that anybody may have made
formats/wink/to_records.py    a bundle as a run            formats/wink/from_records.py    a run as a bundle
formats/wink/run_records.py    the run's own records in it  formats/wink/other_layouts.py     what else is read as a bundle
formats/wink/archive/size_limits.py    stay within what is read     formats/wink/archive/salvage.py    what is intact in a damaged one
formats/wink/call_events.py     calls that a bundle tells of formats/wink/time_order.py   lines in the order of their times
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
