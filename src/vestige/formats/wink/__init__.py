"""Debug bundles: one `.wink` file that holds everything about a run, and opens anywhere.

manifest.py   what a bundle is about       content.py    what it holds, wherever it is
archive.py    write one                    unpack.py     read one that anybody may have made
reading.py    a bundle as a run            writing.py    a run as a bundle
records.py    the run's own records in it  others.py     what else is read as a bundle
fitting.py    stay within what is read     salvage.py    what is intact in a damaged one
events.py     calls that a bundle tells of ordering.py   lines in the order of their times
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.formats.wink.places import find, sniff

if TYPE_CHECKING:
    from vestige.formats.base import Problem, RunToWrite, Source

__all__ = ["check", "find", "read", "sniff", "write"]


def read(path: Path) -> Source:
    from vestige.formats.wink.reading import read_bundle

    return read_bundle(path)


def write(run: RunToWrite, target: Path) -> Path:
    from vestige.formats.wink.writing import write_run

    return write_run(run, target)


def check(path: Path) -> Sequence[Problem]:
    from vestige.formats.wink.checking import check_path

    return check_path(path)
