"""OpenWOP debug bundles: one run as one JSON document, portable, redacted, at most 8 MB.

formats/openwop/from_records.py             a run as OpenWOP documents
formats/openwop/write_event_payloads.py     the payload of each event
formats/openwop/assemble.py                 one bundle within the size limit
formats/openwop/redaction_modes.py          redaction modes
formats/openwop/host_redaction.py           remove details of the machine
formats/openwop/to_records.py               a bundle as a run
formats/openwop/validate.py                 all problems of a bundle, by validation_rules.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from vestige.formats.openwop.constants import MODES as MODES
from vestige.formats.openwop.constants import Mode
from vestige.formats.protocol import Problem, RunToWrite, Source

_SNIFFED = 64 * 1024
_SIGNS = (b'"bundleVersion"', b'"redactionMode"', b'"redactionApplied"')


def is_readable(path: Path) -> bool:
    """Return whether a file is a JSON object with a bundle's version near its start or end."""
    try:
        if not path.is_file():
            return False
        with open(path, "rb") as file:
            start = file.read(_SNIFFED)
            if not start.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{"):
                return False
            file.seek(max(0, path.stat().st_size - _SNIFFED))
            end = file.read(_SNIFFED)
    except (OSError, ValueError):
        return False
    return any(sign in start or sign in end for sign in _SIGNS)


def find_runs(path: Path) -> Iterator[Path]:
    yield path


def read_run(path: Path) -> Source:
    from vestige.formats.openwop.to_records import read_bundle

    return read_bundle(path)


def validate_run(path: Path) -> Sequence[Problem]:
    from vestige.formats.openwop.validate import check_path

    return check_path(path)


def write_run(run: RunToWrite, target: Path, redaction: Mode = "mask", key: bytes = b"") -> Path:
    """Write to a new file, or into an existing folder. `key`: the key of the hashes."""
    from vestige.formats.openwop.write import write_bundle

    return write_bundle(run, target, redaction, key)
