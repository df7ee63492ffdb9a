"""Take runs of other formats into a store: masked, in batches, as often as one likes.

    for imported in import_path(store, Path("~/.agentdbg")):
        print(imported)

An imported record has an identity that derives from its source. So importing twice
changes nothing, importing again what has grown adds the rest, and a kill in between
costs nothing. A run that was recorded here is never changed by a file that claims its id:
what a bundle has beyond it becomes a run beside it, of the same conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from vestige._runtime.clock import SYSTEM
from vestige._runtime.gc_pause import pause_gc
from vestige.errors import NotFoundError, UnreadableError, UsageError
from vestige.formats import NAMES, get_format
from vestige.formats.protocol import Format, Problem, Source
from vestige.limits import BATCH_BYTES, IMPORT_BATCH
from vestige.record.redaction.bulk_redaction import masked
from vestige.record.types import KnownRecord
from vestige.store.protocol import Store
from vestige.store.span_batches import SpanBatch
from vestige.transfer.import_worker import Batch, read_in_worker

if TYPE_CHECKING:
    from vestige.record.redaction.redactor import Redactor


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What became of one run."""

    path: Path
    run_id: str | None
    """None: it could not be read; the problem says why."""
    records: int
    """How many were new."""
    known: bool
    """It was here before: imported earlier, or recorded here."""
    problems: Sequence[Problem]


def find_format(path: Path) -> tuple[str, Format] | None:
    """The format of what is at a path, if one knows it."""
    for name in NAMES:
        known = get_format(name)
        if known.is_readable(path):
            return name, known
    return None


Tell = Callable[[int], None]
"""Called now and then, with how many records have been read since the last time."""


def import_path(
    store: Store, path: Path, format: str | None = None, tell: Tell | None = None
) -> Iterator[ImportResult]:
    """Take in every run at a path, one after the other."""
    if not path.exists():
        raise NotFoundError(f"{path}: no such file or directory.")
    if format is not None:
        reader = get_format(format)
    else:
        found = find_format(path)
        if found is None:
            raise UnreadableError(
                f"{path}: nothing that can be imported (expected one of: {', '.join(NAMES)})."
            )
        reader = found[1]
    importing = _Importing(store, reader, _redactor(), tell)
    for place in reader.find_runs(path):
        yield from importing.take(place)
    yield from importing.flush()


@cache
def _redactor() -> Redactor:
    """One for the process: making its scanner takes longer than a small import."""
    from vestige.home import get_home
    from vestige.record.redaction.redactor import Redactor

    return Redactor(kept_in=get_home().scanners)


_SMALL_MAX = 1_000
"""Records of a run that is taken in together with others."""
_SMALL_BYTES_MAX = BATCH_BYTES // 64
_HELD_MAX = 64
"""So many of them are one batch's bytes at most."""


class _Importing:
    """Runs one after the other; small ones together, for a transaction costs more than their records."""

    def __init__(self, store: Store, reader: Format, redactor: Redactor, tell: Tell | None) -> None:
        self._store = store
        self._reader = reader
        self._redactor = redactor
        self._tell = tell
        self._held: list[tuple[Path, Source, list[KnownRecord]]] = []
        self._held_runs: set[str] = set()
        self._count = 0

    def take(self, place: Path) -> Iterator[ImportResult]:
        """Read a run; those that are done with it, in their order."""
        source: Source | None = None
        try:
            source = self._reader.read_run(place)
            beginning, _, small = _up_to(source.records, _SMALL_MAX, _SMALL_BYTES_MAX)
        except _UNREAD as error:
            yield from self.flush()
            yield _unread(place, error, source.problems if source is not None else [])
            return
        if source.run_id in self._held_runs:
            yield from self.flush()  # the same run in two places: the second adds nothing
        if small and not self._is_known(source):
            self._held.append((place, source, beginning))
            self._held_runs.add(source.run_id)
            self._count += len(beginning)
            if self._count >= IMPORT_BATCH or len(self._held) >= _HELD_MAX:
                yield from self.flush()
            return
        yield from self.flush()
        source.records = chain(beginning, source.records)
        yield _import_one(self._store, source, place, self._redactor, self._tell)

    def _is_known(self, source: Source) -> bool:
        return self._store.has_run(source.run_id) or self._store.has_seen(source.writer, 1)

    def flush(self) -> Iterator[ImportResult]:
        """Take in what is held, all or nothing."""
        held, self._held, self._held_runs, self._count = self._held, [], set(), 0
        if not held:
            return
        records = [record for _, _, own in held for record in own]
        with pause_gc(), self._store.together():
            self._store.append(masked(records, self._redactor))
            _settle(self._store, {one.writer for one in records}, {one.run_id for one in records})
        for place, source, own in held:
            _take_notes(self._store, source)
            if self._tell is not None:
                self._tell(len(own))
            yield ImportResult(place, source.run_id, len(own), False, source.problems)


def _import_one(
    store: Store, source: Source, place: Path, redactor: Redactor, tell: Tell | None
) -> ImportResult:
    known = store.has_run(source.run_id)
    if known and not source.mergeable and not store.has_seen(source.writer, 1):
        # Recorded here, or come by another way: the one that is here stands. What somebody
        # elsewhere said about it is no part of it, and is taken.
        _take_notes(store, source)
        if source.separate_copy is None:
            return ImportResult(place, source.run_id, 0, True, [])
        source = source.separate_copy
        known = store.has_run(source.run_id)
    try:
        taken = take_source(store, source, redactor, tell)
    except _UNREAD as error:
        return _unread(place, error, source.problems)
    return ImportResult(place, source.run_id, taken, known, source.problems)


_UNREAD = (UnreadableError, NotFoundError, OSError)
"""Of one file of many: it may be gone since they were found, or not be ours to read."""


def _unread(place: Path, error: Exception, before: Sequence[Problem]) -> ImportResult:
    message = str(error).removeprefix(f"{place}: ")
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.strerror}."
    problem = Problem(str(place), "", "unreadable", message)
    return ImportResult(place, None, 0, False, [*before, problem])


def check_source(path: Path) -> tuple[str, Sequence[Problem]] | None:
    """What is wrong with what is at a path, by the rules of its format; None: it has none."""
    found = find_format(path)
    return None if found is None else (found[0], found[1].validate_run(path))


def recover_source(path: Path) -> Iterator[tuple[Path, str]]:
    """Finish on disk the runs at a path whose program died: each, and why it is left alone."""
    found = find_format(path)
    recover = getattr(found[1], "recover_runs", None) if found is not None else None
    if recover is None:
        raise UnreadableError(f"{path}: nothing here that can be recovered (no journal/ in it).")
    yield from recover(path)


def take_source(store: Store, source: Source, redactor: Redactor, tell: Tell | None = None) -> int:
    """All records of a source, masked; how many were new."""
    taken = 0
    writers: set[str] = set()
    runs: set[str] = set()
    # Of one that is here spans may be known, and nobody would refer to the bodies that came with them.
    in_blocks = not store.has_run(source.run_id)
    with pause_gc(), closing(_masked_batches(source, redactor, in_blocks)) as batches:
        for batch in batches:
            seen = _Seen()
            with store.together():
                taken += store.append_pieces(seen.passing(batch))
                # At once: a collector that looks between two batches would take it for dead.
                for writer in seen.writers:
                    store.end_writer(writer, "imported")
            writers |= seen.writers
            runs |= seen.runs
            if tell is not None:
                tell(seen.count)
    _take_notes(store, source)
    _settle(store, writers, runs)
    return taken


_writer_of, _run_of = attrgetter("writer"), attrgetter("run_id")


class _Seen:
    """Whose records went by, of which runs, and how many."""

    def __init__(self) -> None:
        self.writers: set[str] = set()
        self.runs: set[str] = set()
        self.count = 0

    def passing(self, batch: Batch) -> Batch:
        for piece in batch:
            if isinstance(piece, SpanBatch):
                self.count += 2 * len(piece.spans)
                self.writers.add(piece.writer)
                self.runs.add(piece.run_id)
            else:
                self.count += len(piece)
                self.writers.update(map(_writer_of, piece))
                self.runs.update(map(_run_of, piece))
            yield piece


def _settle(store: Store, writers: Iterable[str], runs: Iterable[str]) -> None:
    """No process of ours: nobody may wait for its end, or stamp it. And its age counts from now."""
    for writer in writers:
        store.end_writer(writer, "imported")
    store.mark_imported(runs, SYSTEM.now_ns())


def _take_notes(store: Store, source: Source) -> None:
    for note in source.notes:
        if not note.text.strip():
            continue  # somebody's annotation that says nothing
        try:
            store.add_note(note)
        except (UsageError, NotFoundError) as error:  # too many
            problem = Problem("notes", "", "note-not-taken", str(error), severity="warning")
            source.problems.append(problem)
            return


def _masked_batches(source: Source, redactor: Redactor, in_blocks: bool) -> Generator[Batch]:
    """Bounded in number and in bytes: a body may be large. A long source has a process that reads it."""
    records = source.records
    counts = _batch_counts()
    if source.forkable:
        beginning, _, short = _up_to(records, _SHORT_MAX, _SHORT_BYTES_MAX)
        records = chain(beginning, records)
        if not short:
            pieces = _pieces(records, _PIECE, _PIECE_BYTES)
            batches = read_in_worker(source, pieces, redactor, counts, in_blocks)
            if batches is not None:
                with closing(batches):
                    yield from batches
                return
    over = False
    while not over:
        batch, _, over = _up_to(records, next(counts), BATCH_BYTES)
        if batch:
            yield [masked(batch, redactor)]


def _batch_counts() -> Iterator[int]:
    """Records of one batch after the other. The first are small: storing is not to wait long for
    the reader."""
    count = IMPORT_BATCH // 8
    while True:
        yield count
        count = min(2 * count, IMPORT_BATCH)


_SHORT_MAX = 2_000
"""Records that are read before a process is started for the rest, which takes some milliseconds."""
_SHORT_BYTES_MAX = BATCH_BYTES // 8
_PIECE = 500
"""Records that are sent at once: some milliseconds' work."""
_PIECE_BYTES = BATCH_BYTES // 8


def _pieces(
    records: Iterator[KnownRecord], count_max: int, bytes_max: int
) -> Iterator[tuple[list[KnownRecord], int]]:
    """All records, so many at a time; and how large their bodies are."""
    over = False
    while not over:
        piece, size, over = _up_to(records, count_max, bytes_max)
        if piece:
            yield piece, size


def _up_to(
    records: Iterator[KnownRecord], count_max: int, bytes_max: int
) -> tuple[list[KnownRecord], int, bool]:
    """The next records, up to a bound; the size of their bodies; and whether these are the last."""
    found: list[KnownRecord] = []
    size = 0
    for record in records:
        found.append(record)
        size += _size(record)
        if len(found) >= count_max or size >= bytes_max:
            return found, size, False
    return found, size, True


def _size(record: KnownRecord) -> int:
    return len(getattr(record, "body", None) or "")


__all__ = [
    "ImportResult",
    "check_source",
    "find_format",
    "import_path",
    "recover_source",
    "take_source",
]
