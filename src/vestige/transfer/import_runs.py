"""Import runs of other formats into a store, redacted and in batches.

    for result in import_path(store, Path("~/.agentdbg")):
        print(result)

The identity of an imported record derives from its source. So importing a file again
changes nothing, or adds the records that are new, and a killed import can be repeated.
A file never changes a run that was recorded here: additional content of a bundle becomes
a separate run of the same conversation.
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
    """The result of importing one run."""

    path: Path
    run_id: str | None
    """None: the run could not be read. The last problem is the reason."""
    records: int
    """The number of new records."""
    known: bool
    """True if the run was imported earlier, or recorded here."""
    problems: Sequence[Problem]


def find_format(path: Path) -> tuple[str, Format] | None:
    """Return the name and the module of the format of a path."""
    for name in NAMES:
        known = get_format(name)
        if known.is_readable(path):
            return name, known
    return None


OnProgress = Callable[[int], None]
"""Called with the number of records that were read since the last call."""


def import_path(
    store: Store, path: Path, format: str | None = None, on_progress: OnProgress | None = None
) -> Iterator[ImportResult]:
    """Import every run at a path, one after the other."""
    if not path.exists():
        raise NotFoundError(f"{path}: no such file or directory.")
    if format is not None:
        reader = get_format(format)
    else:
        found = find_format(path)
        if found is None:
            raise UnreadableError(
                f"{path}: unsupported format (expected one of: {', '.join(NAMES)})."
            )
        reader = found[1]
    importer = _Importer(store, reader, _redactor(), on_progress)
    for run_path in reader.find_runs(path):
        yield from importer.add(run_path)
    yield from importer.flush()


@cache
def _redactor() -> Redactor:
    """Return the redactor of this process, because creating its scanner is slow."""
    from vestige.home import get_home
    from vestige.record.redaction.redactor import Redactor

    return Redactor(kept_in=get_home().scanners)


_SMALL_MAX = 1_000
"""Records of a run that is imported together with others."""
_SMALL_BYTES_MAX = BATCH_BYTES // 64
_PENDING_MAX = 64
"""Small runs of one transaction, which are at most BATCH_BYTES together."""


class _Importer:
    """Import runs in order; small ones together, because a transaction costs more than they do."""

    def __init__(
        self, store: Store, reader: Format, redactor: Redactor, on_progress: OnProgress | None
    ) -> None:
        self._store = store
        self._reader = reader
        self._redactor = redactor
        self._on_progress = on_progress
        self._pending: list[tuple[Path, Source, list[KnownRecord]]] = []
        self._pending_runs: set[str] = set()
        self._count = 0

    def add(self, path: Path) -> Iterator[ImportResult]:
        """Read a run. Yield the results of the runs that are complete, in their order."""
        source: Source | None = None
        try:
            source = self._reader.read_run(path)
            head, _, is_small = _read_up_to(source.records, _SMALL_MAX, _SMALL_BYTES_MAX)
        except _READ_ERRORS as error:
            yield from self.flush()
            yield _build_failure(path, error, source.problems if source is not None else [])
            return
        if source.run_id in self._pending_runs:
            yield from self.flush()  # two files with the same run: the second adds nothing
        if is_small and not self._is_known(source):
            self._pending.append((path, source, head))
            self._pending_runs.add(source.run_id)
            self._count += len(head)
            if self._count >= IMPORT_BATCH or len(self._pending) >= _PENDING_MAX:
                yield from self.flush()
            return
        yield from self.flush()
        source.records = chain(head, source.records)
        yield _import_one(self._store, source, path, self._redactor, self._on_progress)

    def _is_known(self, source: Source) -> bool:
        return self._store.has_run(source.run_id) or self._store.has_seen(source.writer, 1)

    def flush(self) -> Iterator[ImportResult]:
        """Import the pending runs in one transaction."""
        pending, self._pending, self._pending_runs, self._count = self._pending, [], set(), 0
        if not pending:
            return
        records = [record for _, _, of_run in pending for record in of_run]
        with pause_gc(), self._store.transaction():
            self._store.append(masked(records, self._redactor))
            _mark_imported(self._store, set(map(_writer_of, records)), set(map(_run_of, records)))
        for path, source, of_run in pending:
            _import_notes(self._store, source)
            if self._on_progress is not None:
                self._on_progress(len(of_run))
            yield ImportResult(path, source.run_id, len(of_run), False, source.problems)


def _import_one(
    store: Store, source: Source, path: Path, redactor: Redactor, on_progress: OnProgress | None
) -> ImportResult:
    known = store.has_run(source.run_id)
    if known and not source.mergeable and not store.has_seen(source.writer, 1):
        # The run was recorded here, or imported from another format. It is not changed, but
        # notes are not a part of it and are imported.
        _import_notes(store, source)
        if source.separate_copy is None:
            return ImportResult(path, source.run_id, 0, True, [])
        source = source.separate_copy
        known = store.has_run(source.run_id)
    try:
        count = import_source(store, source, redactor, on_progress)
    except _READ_ERRORS as error:
        return _build_failure(path, error, source.problems)
    return ImportResult(path, source.run_id, count, known, source.problems)


_READ_ERRORS = (UnreadableError, NotFoundError, OSError)
"""Errors of one file that do not stop the import of others: it may be deleted or unreadable."""


def _build_failure(path: Path, error: Exception, earlier: Sequence[Problem]) -> ImportResult:
    message = str(error).removeprefix(f"{path}: ")
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.strerror}."
    problem = Problem(str(path), "", "unreadable", message)
    return ImportResult(path, None, 0, False, [*earlier, problem])


def check_source(path: Path) -> tuple[str, Sequence[Problem]] | None:
    """Return the format of a path and the problems by its rules, or None without a format."""
    found = find_format(path)
    return None if found is None else (found[0], found[1].validate_run(path))


def recover_source(path: Path) -> Iterator[tuple[Path, str]]:
    """Finalize, on disk, the runs of crashed programs at a path.

    Yield the path of each, and the reason if it is left unchanged.
    """
    found = find_format(path)
    recover = getattr(found[1], "recover_runs", None) if found is not None else None
    if recover is None:
        raise UnreadableError(f"{path}: cannot be recovered (expected a folder with journal/).")
    yield from recover(path)


def import_source(
    store: Store, source: Source, redactor: Redactor, on_progress: OnProgress | None = None
) -> int:
    """Import all records of a source, redacted. Return the number of new records."""
    new_count = 0
    writers: set[str] = set()
    runs: set[str] = set()
    # If the run exists, some spans may be known, and their packed bodies would be orphans.
    as_spans = not store.has_run(source.run_id)
    with pause_gc(), closing(_iter_batches(source, redactor, as_spans)) as batches:
        for batch in batches:
            stats = _BatchStats()
            with store.transaction():
                new_count += store.append_batches(stats.count_records(batch))
                # In each transaction, or a collector would take the writer for a crashed process.
                for writer in stats.writers:
                    store.end_writer(writer, "imported")
            writers |= stats.writers
            runs |= stats.runs
            if on_progress is not None:
                on_progress(stats.count)
    _import_notes(store, source)
    _mark_imported(store, writers, runs)
    return new_count


_writer_of, _run_of = attrgetter("writer"), attrgetter("run_id")


class _BatchStats:
    """The writers, runs and number of the records of a batch."""

    def __init__(self) -> None:
        self.writers: set[str] = set()
        self.runs: set[str] = set()
        self.count = 0

    def count_records(self, batch: Batch) -> Batch:
        """Yield the parts of a batch and count their records."""
        for part in batch:
            if isinstance(part, SpanBatch):
                self.count += 2 * len(part.spans)
                self.writers.add(part.writer)
                self.runs.add(part.run_id)
            else:
                self.count += len(part)
                self.writers.update(map(_writer_of, part))
                self.runs.update(map(_run_of, part))
            yield part


def _mark_imported(store: Store, writers: Iterable[str], runs: Iterable[str]) -> None:
    """Exclude the writers from crash detection, and count the age of the runs from now."""
    for writer in writers:
        store.end_writer(writer, "imported")
    store.mark_imported(runs, SYSTEM.now_ns())


def _import_notes(store: Store, source: Source) -> None:
    for note in source.notes:
        if not note.text.strip():
            continue
        try:
            store.add_note(note)
        except (UsageError, NotFoundError) as error:  # the run has too many notes
            problem = Problem("notes", "", "note-not-taken", str(error), severity="warning")
            source.problems.append(problem)
            return


def _iter_batches(source: Source, redactor: Redactor, as_spans: bool) -> Generator[Batch]:
    """Yield redacted batches, bounded in records and bytes. A process reads a long source."""
    records = source.records
    counts = _iter_batch_counts()
    if source.forkable:
        head, _, is_short = _read_up_to(records, _SHORT_MAX, _SHORT_BYTES_MAX)
        records = chain(head, records)
        if not is_short:
            parts = _iter_parts(records, _PART_RECORDS, _PART_BYTES)
            batches = read_in_worker(source, parts, redactor, counts, as_spans)
            if batches is not None:
                with closing(batches):
                    yield from batches
                return
    is_last = False
    while not is_last:
        batch, _, is_last = _read_up_to(records, next(counts), BATCH_BYTES)
        if batch:
            yield [masked(batch, redactor)]


def _iter_batch_counts() -> Iterator[int]:
    """Yield the numbers of records per batch. The first are small, so that storing starts soon."""
    count = IMPORT_BATCH // 8
    while True:
        yield count
        count = min(2 * count, IMPORT_BATCH)


_SHORT_MAX = 2_000
"""Longer sources are read by a process, which takes some milliseconds to start."""
_SHORT_BYTES_MAX = BATCH_BYTES // 8
_PART_RECORDS = 500
"""Records that the process sends at once, a few milliseconds of work."""
_PART_BYTES = BATCH_BYTES // 8


def _iter_parts(
    records: Iterator[KnownRecord], count_max: int, bytes_max: int
) -> Iterator[tuple[list[KnownRecord], int]]:
    """Yield all records in bounded parts, with the size of their bodies."""
    is_last = False
    while not is_last:
        part, size, is_last = _read_up_to(records, count_max, bytes_max)
        if part:
            yield part, size


def _read_up_to(
    records: Iterator[KnownRecord], count_max: int, bytes_max: int
) -> tuple[list[KnownRecord], int, bool]:
    """Return the next records, the size of their bodies, and whether they are the last ones."""
    part: list[KnownRecord] = []
    size = 0
    for record in records:
        part.append(record)
        size += len(getattr(record, "body", None) or "")
        if len(part) >= count_max or size >= bytes_max:
            return part, size, False
    return part, size, True


__all__ = [
    "ImportResult",
    "check_source",
    "find_format",
    "import_path",
    "import_source",
    "recover_source",
]
