"""What a format is: a module with these names, and what passes between it and the rest.

    for place in agentdbg.find(path):            # a run directory, or a folder of them
        source = agentdbg.read(place)
        store.append(source.records)             # records, bodies inside; read as they are taken
        source.problems                          # what was passed over on the way

    agentdbg.write(RunToWrite(run, read_body), target)

The one hard fact: reading mints nothing. Ids and numbers derive from the source, so that
reading it a second time, or after it has grown, gives the same records again.

Elsewhere: transfer/ takes what a format reads into a store, masked; and opens it for questions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, Protocol

import msgspec

from vestige import limits
from vestige.record.note import Note
from vestige.record.run import BodyRef, LogInfo, Run
from vestige.record.types import Attributes, KnownRecord
from vestige.settings import ModelPrice

TIME_MAX_NS: Final = limits.TIME_MAX_NS

_UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class Problem(msgspec.Struct, frozen=True):
    """Something in a file that its format does not allow, or that had to be passed over."""

    file: str
    """As the reader was given it, or relative to it."""
    place: str
    """A JSON pointer, `line 7`, or empty: the file as a whole."""
    rule: str
    """Short and stable: `event-type-unknown`."""
    message: str
    hint: str = ""
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        where = f"{self.file}: {self.place}" if self.place else self.file
        return f"{where}: {self.message}" + (f" {self.hint}" if self.hint else "")


class Checked(msgspec.Struct, frozen=True):
    """One thing that was validated."""

    path: str
    files: int
    """How many were looked at."""
    problems: Sequence[Problem]

    @property
    def valid(self) -> bool:
        return not any(problem.severity == "error" for problem in self.problems)


class Source(msgspec.Struct):
    """One run as its format holds it."""

    run_id: str
    writer: str
    """Of its first record: whether it was taken in before is known by it."""
    records: Iterator[KnownRecord]
    """In order; read once, while they are taken."""
    problems: list[Problem] = msgspec.field(default_factory=list)
    """Complete when the records are."""
    unread: int = 0
    """Of a glance: so many events of the file are not among the records."""
    notes: list[Note] = msgspec.field(default_factory=list)
    """Complete when the records are."""
    adds: bool = False
    """Its id can be no recorded run's: what is here of it came the same way, in other pieces, and
    what is missing is added."""
    apart: bool = False
    """Its records are read from files, and nothing else comes of it: another process can do it as well."""
    beside: Source | None = None
    """The same as a run of its own, for where the run that it tells of was recorded."""


class RunToWrite(msgspec.Struct, frozen=True):
    """A run on its way out: its skeleton, and its bodies one at a time."""

    run: Run
    read_body: Callable[[int], bytes]
    process: Attributes = msgspec.field(default_factory=dict)
    """What is known of the program that ran: attributes of its `process` span."""
    notes: Sequence[Note] = ()
    read_log: Callable[[int], LogInfo] | None = None
    """Set: the lines of the run are only places, and are read one at a time too."""
    prices: Mapping[str, ModelPrice] = msgspec.field(default_factory=dict)
    """What the user says that models cost."""

    def line(self, log: LogInfo) -> LogInfo:
        """A line with what it says."""
        return log if log.row is None or self.read_log is None else self.read_log(log.row)

    def body(self, ref: BodyRef | None) -> bytes | None:
        """The bytes of a body, if they are still there."""
        return None if ref is None or ref.id is None else self.read_body(ref.id)


class Format(Protocol):
    """The names that a format module has. Two may be missing: `recover_runs(path)`, which finishes runs on
    disk whose program died, and `read_head(path)`, the beginning of a run that is long to read."""

    def is_readable(self, path: Path) -> bool:
        """Does this path look like ours? Cheap, bounded, and never raises."""

    def find_runs(self, path: Path) -> Iterator[Path]:
        """The runs at a path: itself, or those in a folder of them."""

    def read_run(self, path: Path) -> Source:
        """One run. UnreadableError if there is none to be had; lesser faults are problems."""

    def write_run(self, run: RunToWrite, target: Path) -> Path:
        """Write a run to, or into, the target, all or nothing; the path that was made."""

    def validate_run(self, path: Path) -> Sequence[Problem]:
        """All that is wrong with what is there, by the format's own rules."""


# --- ids that derive from the source ---------------------------------------------------------


def is_uuid4(text: str) -> bool:
    return _UUID4.fullmatch(text) is not None


def derived_writer(format: str, source_id: str) -> str:
    """Who "wrote" an imported run: the same for the same source, wherever it is read."""
    return _digest(format, source_id)[:16]


def derived_span_id(format: str, *source_ids: str) -> str:
    return _digest(format, *source_ids)[:16]


def span_hash(format: str, *source_ids: str) -> Callable[[str], str]:
    """`derived_span_id` with one id still to come: for a file with many of them."""
    digest = _begun_digest(format, *source_ids)
    return lambda last_id: digest(last_id)[:16]


def derived_uuid(*parts: str) -> str:
    """Shaped as a UUIDv4, and always the same for the same parts."""
    return _uuid_of(_digest(*parts))


def uuid_hash(*parts: str) -> Callable[[str], str]:
    """`derived_uuid` with one part still to come: for a run with many of them."""
    digest = _begun_digest(*parts)
    return lambda last_part: _uuid_of(digest(last_part))


def _uuid_of(digest: str) -> str:
    variant = _VARIANTS[digest[16]]
    return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


_VARIANTS = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


def derived_run_id(format: str, foreign_id: str) -> str:
    """The foreign id itself where it is a UUIDv4, else one that derives from it."""
    return foreign_id if is_uuid4(foreign_id) else derived_uuid(format, foreign_id)


def _begun_digest(*parts: str) -> Callable[[str], str]:
    """`_digest` of these parts and one more."""
    begun = "\0".join((*parts, "")).encode(errors="surrogatepass")
    # Of all at once: a copy of a hash that was begun takes longer.
    return lambda last: sha256(begun + last.encode("utf-8", "surrogatepass")).hexdigest()


def _digest(*parts: str) -> str:
    return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()
