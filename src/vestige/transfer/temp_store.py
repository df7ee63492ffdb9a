"""Temporary stores, filled from runs in other formats, journals or homes that cannot be written.

    temporary = load_runs(Path("runs/3d1957bd-..."))
    temporary.store                             # read-only
    temporary.close()                           # deletes it

Elsewhere: the choice between these functions, transfer/open_any_path.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.errors import StoreError, UnreadableError
from vestige.home import Home
from vestige.transfer.import_runs import find_format, import_path, import_source
from vestige.transfer.temp_folder import create_folder

if TYPE_CHECKING:
    from vestige.formats.protocol import Problem, Source
    from vestige.record.types import BodyInfo
    from vestige.store.protocol import ReadSpill, Store


@dataclass(frozen=True, slots=True)
class TempStore:
    """A store, and a function that deletes it."""

    store: Store
    close: Callable[[], None]
    problems: Sequence[Problem] = ()
    """The problems of the files that it was filled from."""


def load_runs(path: Path) -> TempStore:
    """Load every run at a path, in any format."""
    problems: list[Problem] = []
    temporary = _create_store(lambda store: _import_runs(store, path, problems))
    return replace(temporary, problems=problems)


def load_several(paths: Sequence[Path]) -> tuple[TempStore, dict[str, str]]:
    """Load the runs of several files into one store. Return it and the run id of each path."""
    runs: dict[str, str] = {}

    def fill(store: Store) -> None:
        for path in paths:
            runs[str(path)] = _import_runs(store, path, [])[-1]

    return _create_store(fill), runs


def _import_runs(store: Store, path: Path, problems: list[Problem]) -> list[str]:
    """Import the runs at a path. Return their ids; raise UnreadableError if there are none."""
    results = list(import_path(store, path))
    problems.extend(problem for result in results for problem in result.problems)
    run_ids = [result.run_id for result in results if result.run_id is not None]
    if not any(store.has_run(run_id) for run_id in run_ids):
        # The last problem is the fatal one. Earlier problems were only skipped. A session of which
        # no entry can be read has an id, and no records.
        reasons = [str(result.problems[-1]) for result in results if result.problems]
        raise UnreadableError(reasons[0] if reasons else f"{path}: contains no run.")
    return run_ids


def load_head(path: Path) -> tuple[TempStore, int] | None:
    """Load the first events of a long run. Return the number of events that were not read.

    Return None if the run is not long.
    """
    from vestige.home import get_home
    from vestige.record.redaction.redactor import Redactor

    found = find_format(path)
    read_head = getattr(found[1], "read_head", None) if found is not None else None
    source: Source | None = read_head(path) if read_head is not None else None
    if source is None:
        return None
    head = source

    def fill(store: Store) -> None:
        import_source(store, head, Redactor(cache_folder=get_home().scanners))

    return _create_store(fill), source.unread


def load_journal(path: Path) -> TempStore:
    """Load the records of one journal file."""
    from vestige.collector.journal_ingest import read_spill
    from vestige.journal.reader import read_lines
    from vestige.record.codec import parse_lines

    # If the journal is in a home, bodies that were too long for a line are beside it.
    home = Home(path.absolute().parent.parent)

    def read_body(writer: str, seq: int, info: BodyInfo) -> bytes | None:
        return read_spill(home, writer, seq, info)

    def fill(store: Store) -> None:
        offset = count = 0
        while True:
            data, after = read_lines(path, offset)
            if after == offset:
                break
            records, _ = parse_lines(data)
            count += store.append(records)
            offset = after
        if not count:
            raise UnreadableError(f"{path}: contains no records.")

    return _create_store(fill, read_body)


def load_copy(home: Home) -> TempStore:
    """Copy a home that cannot be written, and add the records of its journals to the copy."""
    # Imported here, because most commands need no copy and start faster without these modules.
    from vestige.collector.loop import catch_up
    from vestige.store.open import open_store

    remove: Callable[[], None] = _do_nothing
    try:
        folder, remove = create_folder()
        copy = _copy_home(home, Home(folder))
        lag = catch_up(copy)
        if lag is not None and not lag.can_write:
            raise OSError(0, lag.reason)
        return TempStore(open_store(copy.store, readonly=True), remove)
    except BaseException as error:
        remove()
        if isinstance(error, OSError):
            raise StoreError(
                f"{home.root}: can be neither written nor copied ({error.strerror})."
                " Free disk space, or set TMPDIR."
            ) from error
        raise


def _copy_home(home: Home, copy: Home) -> Home:
    """Copy the store, and link the journals. The collector deletes the links it has read."""
    from vestige.store.open import copy_store

    copy.make()
    copy_store(home.store, copy.store)
    for folder in (home.journal, home.bodies, home.faults):
        for path in folder.iterdir() if folder.is_dir() else ():
            (copy.root / folder.name / path.name).symlink_to(path.absolute())
    return copy


def _do_nothing() -> None:
    pass


def _no_spill(writer: str, seq: int, info: object) -> bytes | None:
    return None


def _create_store(fill: Callable[[Store], object], read_spill: ReadSpill = _no_spill) -> TempStore:
    from vestige.store.open import open_store

    folder, remove = create_folder()
    try:
        with open_store(folder / "store.db", read_spill=read_spill, lasting=False) as store:
            fill(store)
        reader = open_store(folder / "store.db", readonly=True)
    except BaseException:
        remove()
        raise
    return TempStore(reader, remove)
