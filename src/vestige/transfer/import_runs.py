"""Import runs of other formats into a store, redacted and in batches.

    for result in import_path(store, Path("~/.agentdbg")):
        print(result)

The identity of an imported record derives from its source. So importing a file again
changes nothing, or adds the records that are new, and a killed import can be repeated.
A file never changes a run that was recorded here: additional content of a bundle becomes
a separate run of the same conversation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vestige._runtime.clock import SYSTEM
from vestige._runtime.gc_pause import pause_gc
from vestige.errors import NotFoundError, UnreadableError, UsageError
from vestige.formats import NAMES, get_format
from vestige.formats.protocol import Format, Problem, Source
from vestige.formats.session_files import list_files, list_folders
from vestige.limits import BATCH_BYTES, FOREIGN_RUNS_MAX, IMPORT_BATCH
from vestige.record.redaction.bulk_redaction import masked
from vestige.record.types import KnownRecord
from vestige.store.protocol import Store
from vestige.transfer.compressed_file import CompressedFormat, decompress, is_compressed
from vestige.transfer.text_encoding import find_wide_encoding

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


def find_format(path: Path, name: str | None = None) -> tuple[str, Format] | None:
    """Return the name and the module of the format of a path; of a compressed file, too.

    `name`: the format that the user named.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        return None  # opening a pipe or a device may wait for ever
    names = NAMES if name is None else (name,)
    found = _find_readable(path, names)
    if found is not None or not is_compressed(path):
        return found
    plain = decompress(path)
    inner = _find_readable(plain, names)
    return inner and (inner[0], CompressedFormat(inner[1], path, plain))


def _find_readable(path: Path, names: Iterable[str]) -> tuple[str, Format] | None:
    for name in names:
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
    _, reader = find_reader(path, format)
    yield from import_found(store, reader, reader.find_runs(path), on_progress)


def list_sources(path: Path, format: str | None = None) -> list[Path]:
    """Return the path itself, or the sources below a folder without a format, or with several."""
    if format is not None or not path.is_dir() or _is_source(path):
        return [path]
    found: list[Path] = []
    folders = [path]
    examined = 0
    while folders and examined < FOREIGN_RUNS_MAX:
        folder = folders.pop(0)
        for entry in chain(list_folders(folder), list_files(folder, "")):
            examined += 1
            if entry.name.startswith("."):
                continue
            if _is_source(entry):
                found.append(entry)
            elif entry.is_dir():
                folders.append(entry)
    return found or [path]


_FORMATS_OF_FILES: Final = frozenset(("atif", "inspect_logs", "messages", "openwop", "otlp"))
"""Formats in which a folder is nothing but a place for files."""
_FILES_LOOKED_AT: Final = 100


def _is_source(path: Path) -> bool:
    """Return whether a path has a format, and is not a folder with files of several formats."""
    found = find_format(path)
    if found is None or found[0] not in _FORMATS_OF_FILES or not path.is_dir():
        return found is not None
    files = (find_format(file) for file in islice(list_files(path, ""), _FILES_LOOKED_AT))
    return len({each[0] for each in files if each is not None}) <= 1


def find_reader(path: Path, format: str | None = None) -> tuple[str, Format]:
    """Return the name and the module of the format of a path. Raise if it cannot be read."""
    if not path.exists():
        raise NotFoundError(f"{path}: no such file or directory.")
    found = find_format(path, format)
    if found is None and format is None:
        raise UnreadableError(
            find_wide_encoding(path)
            or f"{path}: unsupported format (expected one of: {', '.join(NAMES)})."
        )
    return found if found is not None else (format or "", get_format(format or ""))


def import_found(
    store: Store, reader: Format, run_paths: Iterable[Path], on_progress: OnProgress | None = None
) -> Iterator[ImportResult]:
    """Import runs that `find_runs` of a format has found."""
    importer = _Importer(store, reader, _redactor(), on_progress)
    for run_path in run_paths:
        yield from importer.add(run_path)
    yield from importer.flush()


@cache
def _redactor() -> Redactor:
    """Return the redactor of this process, because creating its scanner is slow."""
    from vestige.home import get_home
    from vestige.record.redaction.redactor import Redactor

    return Redactor(cache_folder=get_home().scanners)


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
            head, is_small = _read_up_to(source.records, _SMALL_MAX, _SMALL_BYTES_MAX)
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
    with pause_gc():
        for batch in _iter_batches(source, redactor, store if source.mergeable else None):
            batch_writers = set(map(_writer_of, batch))
            with store.transaction():
                new_count += store.append(batch)
                # In each transaction, or a collector would take the writer for a crashed process.
                for writer in batch_writers:
                    store.end_writer(writer, "imported")
            writers |= batch_writers
            runs.update(map(_run_of, batch))
            if on_progress is not None:
                on_progress(len(batch))
    _import_notes(store, source)
    _mark_imported(store, writers, runs)
    return new_count


_writer_of, _run_of = attrgetter("writer"), attrgetter("run_id")


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


def _iter_batches(
    source: Source, redactor: Redactor, known_in: Store | None
) -> Iterator[list[KnownRecord]]:
    """Yield redacted batches, bounded in records and bytes, without those that a store has."""
    is_last = False
    while not is_last:
        batch, is_last = _read_up_to(source.records, IMPORT_BATCH, BATCH_BYTES)
        if known_in is not None:
            batch = _drop_seen(known_in, batch)
        if batch:
            yield masked(batch, redactor)


def _drop_seen(store: Store, batch: list[KnownRecord]) -> list[KnownRecord]:
    """Drop the records of a grown source that were imported before: redacting them is slow.

    Numbers of a writer increase and were imported in order, so the seen ones come first.
    """
    new: list[KnownRecord] = []
    for writer, group in groupby(batch, _writer_of):
        records = list(group)
        first = bisect_left(records, True, key=lambda each: not store.has_seen(writer, each.seq))
        new += records[first:]
    return new


def _read_up_to(
    records: Iterator[KnownRecord], count_max: int, bytes_max: int
) -> tuple[list[KnownRecord], bool]:
    """Return the next records, and whether they are the last ones."""
    part: list[KnownRecord] = []
    size = 0
    for record in records:
        part.append(record)
        size += len(getattr(record, "body", None) or "")
        if len(part) >= count_max or size >= bytes_max:
            return part, False
    return part, True


__all__ = [
    "ImportResult",
    "check_source",
    "find_format",
    "import_found",
    "import_path",
    "import_source",
    "recover_source",
]
