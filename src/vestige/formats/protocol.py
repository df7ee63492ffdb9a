"""The functions of a format module, and the types that they exchange with callers.

    for run_path in agentdbg.find_runs(path):    # a run directory, or a folder of them
        source = agentdbg.read_run(run_path)
        store.append(source.records)             # an iterator: the file is read meanwhile
        source.problems                          # complete when the records are

    agentdbg.write_run(RunToWrite(run, read_body), target)

Ids and sequence numbers derive from the source. So reading it again, or after it has grown, gives
the same records.

Elsewhere: transfer/ imports what a format reads, redacted, and opens files for queries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, Protocol

from vestige import limits
from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.record.note import Note
from vestige.record.run import BodyRef, LogInfo, Run
from vestige.record.types import Attributes, KnownRecord
from vestige.settings import ModelPrice

TIME_MAX_NS: Final = limits.TIME_MAX_NS

_UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class Problem(msgspec.Struct, frozen=True):
    """Something in a file that violates its format, or that was skipped."""

    file: str
    """The path that was read, or a path relative to it."""
    place: str
    """A JSON pointer, `line 7`, or empty for the file itself."""
    rule: str
    """Short and stable: `event-type-unknown`."""
    message: str
    hint: str = ""
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        where = f"{self.file}: {self.place}" if self.place else self.file
        return f"{where}: {self.message}" + (f" {self.hint}" if self.hint else "")


class ValidationResult(msgspec.Struct, frozen=True):
    """Problems found at one path."""

    path: str
    files: int
    """Number of files that were read."""
    problems: Sequence[Problem]

    @property
    def valid(self) -> bool:
        return not any(problem.severity == "error" for problem in self.problems)


class Source(msgspec.Struct):
    """A run of a file, as a format reads it."""

    run_id: str
    writer: str
    """Writer of the first record. An import uses it to recognize a run that it imported before."""
    records: Iterator[KnownRecord]
    """Records in order, which can be read once."""
    problems: list[Problem] = msgspec.field(default_factory=list)
    """Complete when the records are."""
    unread: int = 0
    """After `read_head`: number of events that are not among the records."""
    notes: list[Note] = msgspec.field(default_factory=list)
    """Complete when the records are."""
    mergeable: bool = False
    """A stored run with this id came from the same kind of source, so new records are added."""
    separate_copy: Source | None = None
    """The same content under another run id, for a store that recorded the run itself."""


class RunToWrite(msgspec.Struct, frozen=True):
    """A run to export: its structure, with bodies that are read one at a time."""

    run: Run
    read_body: Callable[[int], bytes]
    process: Attributes = msgspec.field(default_factory=dict)
    """Attributes of the run's `process` span."""
    notes: Sequence[Note] = ()
    read_log: Callable[[int], LogInfo] | None = None
    """If set, log records of the run have no content yet, and are read one at a time."""
    prices: Mapping[str, ModelPrice] = msgspec.field(default_factory=dict)
    """Prices that the user configured, by model."""

    def load_log(self, log: LogInfo) -> LogInfo:
        """Return the log record with its content."""
        return log if log.row is None or self.read_log is None else self.read_log(log.row)

    def body(self, ref: BodyRef | None) -> bytes | None:
        """Return the bytes of a body, or None if they are missing."""
        return None if ref is None or ref.id is None else self.read_body(ref.id)


RowState = tuple[str, int]
"""A text that changes when a run of a database changes, and the time of its last change in ns."""


class Format(Protocol):
    """The functions of a format module.

    Four more are optional: `recover_runs(path)` completes runs whose program died,
    `read_head(path)` reads the beginning of a long run, `list_parts(path)` returns the files
    and folders whose times change when a run grows, and `read_row_states(path)` returns the state
    of each run of a database by its id.
    """

    def is_readable(self, path: Path) -> bool:
        """Return whether the path looks like this format. Bounded work; never raises."""

    def find_runs(self, path: Path) -> Iterator[Path]:
        """Yield the path of each run: the path itself, or the runs in a folder."""

    def read_run(self, path: Path) -> Source:
        """Read one run. Raise UnreadableError if there is none; other damage is a problem."""

    def write_run(self, run: RunToWrite, target: Path) -> Path:
        """Write a run to the target, or into it if it is a folder; return the path written.

        Either everything is written or nothing.
        """

    def validate_run(self, path: Path) -> Sequence[Problem]:
        """Return everything that violates the rules of the format."""


# --- ids that derive from the source -------------------------------------------------------------


def is_uuid4(text: str) -> bool:
    return _UUID4.fullmatch(text) is not None


def derived_writer(format: str, source_id: str) -> str:
    """Return the writer id of an imported run, which depends only on the source."""
    return _digest(format, source_id)[:16]


def derived_span_id(format: str, *source_ids: str) -> str:
    return _digest(format, *source_ids)[:16]


def span_hash(format: str, *source_ids: str) -> Callable[[str], str]:
    """Return `derived_span_id` with the last id open, for files with many spans."""
    digest = _prefix_digest(format, *source_ids)
    return lambda last_id: digest(last_id)[:16]


def derived_uuid(*parts: str) -> str:
    """Return an id in the form of a UUIDv4, always the same for the same parts."""
    return _format_uuid(_digest(*parts))


def uuid_hash(*parts: str) -> Callable[[str], str]:
    """Return `derived_uuid` with the last part open, for runs with many ids."""
    digest = _prefix_digest(*parts)
    return lambda last_part: _format_uuid(digest(last_part))


def _format_uuid(digest: str) -> str:
    variant = _VARIANTS[digest[16]]
    return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


_VARIANTS = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


def derived_run_id(format: str, foreign_id: str) -> str:
    """Return the foreign id if it is a UUIDv4, else an id derived from it."""
    return foreign_id if is_uuid4(foreign_id) else derived_uuid(format, foreign_id)


def _prefix_digest(*parts: str) -> Callable[[str], str]:
    """Return `_digest` with the last part open."""
    prefix = "\0".join((*parts, "")).encode(errors="surrogatepass")
    # Hashing everything again is faster than copying the state of a hash.
    return lambda last: sha256(prefix + last.encode("utf-8", "surrogatepass")).hexdigest()


def _digest(*parts: str) -> str:
    return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()
