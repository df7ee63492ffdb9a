"""The baseline of a gate: measured executions of a good version, in a JSON file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from vestige.errors import UnreadableError
from vestige.query.gate.measure_execution import Measurement

VERSION: Final = 1
FILE_MAX: Final = 64 * 1024 * 1024


class Baseline(msgspec.Struct, frozen=True):
    """Executions of a version that is known to be good."""

    version: int
    runs: list[Measurement]


def read_baseline(path: Path) -> Baseline:
    """Read a baseline that `write_baseline` wrote."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_MAX + 1)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read ({error.strerror}).") from None
    try:
        baseline = msgspec.json.decode(data, type=Baseline)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UnreadableError(
            f"{path}: not a baseline ({error}). Write one: `vestige gate --save {path} -- COMMAND`."
        ) from None
    if baseline.version != VERSION or not baseline.runs:
        raise UnreadableError(
            f"{path}: version {baseline.version} with {len(baseline.runs)} runs (expected version"
            f" {VERSION} with at least one). Write it again with `vestige gate --save`."
        )
    return baseline


def write_baseline(path: Path, runs: Sequence[Measurement]) -> None:
    """Write a baseline, readable and stable in a diff."""
    encoded = msgspec.json.encode(Baseline(VERSION, list(runs)), order="sorted")
    path.write_bytes(msgspec.json.format(encoded, indent=2) + b"\n")
