"""Stores that live as long as the question: what is in a file, read in so that the verbs can ask it.

    temporary = of_runs(Path("runs/3d1957bd-..."))
    temporary.store                             # read-only
    temporary.close()                           # and it is gone

Elsewhere: which of these a path needs, transfer/open_source.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.errors import StoreError, UnreadableError
from vestige.home import Home
from vestige.transfer.import_runs import find_format, import_path, take_source
from vestige.transfer.temp_folder import make_folder

if TYPE_CHECKING:
    from vestige.formats.protocol import Problem, Source
    from vestige.record.types import BodyInfo
    from vestige.store.sqlite.ingest.batch_ingest import ReadSpill
    from vestige.store.sqlite.sqlite_store import SqliteStore


@dataclass(frozen=True, slots=True)
class TempStore:
    """A store that was filled from elsewhere, and how to be rid of it."""

    store: SqliteStore
    close: Callable[[], None]
    problems: Sequence[Problem] = ()
    """Of the files that it was filled from."""


def of_runs(path: Path) -> TempStore:
    """Every run at a path, in whatever format it is."""
    problems: list[Problem] = []
    temporary = _filled(lambda store: _take(store, path, problems))
    return replace(temporary, problems=problems)


def of_several(paths: Sequence[Path]) -> tuple[TempStore, dict[str, str]]:
    """Runs of several files side by side, in one store; the run of each path."""
    runs: dict[str, str] = {}

    def fill(store: SqliteStore) -> None:
        for path in paths:
            runs[str(path)] = _take(store, path, [])[-1]

    return _filled(fill), runs


def _take(store: SqliteStore, path: Path, problems: list[Problem]) -> list[str]:
    """The ids of the runs there; UnreadableError if there are none."""
    imported = list(import_path(store, path))
    problems.extend(problem for one in imported for problem in one.problems)
    found = [one.run_id for one in imported if one.run_id is not None]
    if not found:
        # Of each, what was wrong in the end comes last, after what was only passed over.
        reasons = [str(one.problems[-1]) for one in imported if one.problems]
        raise UnreadableError(reasons[0] if reasons else f"{path}: no run in it.")
    return found


def of_beginning(path: Path) -> tuple[TempStore, int] | None:
    """The beginning of a long run, and how many of its events were left; None: it is not long."""
    from vestige.home import get_home
    from vestige.record.redaction.redactor import Redactor

    found = find_format(path)
    look = getattr(found[1], "read_head", None) if found is not None else None
    source: Source | None = look(path) if look is not None else None
    if source is None:
        return None
    taken = source

    def fill(store: SqliteStore) -> None:
        take_source(store, taken, Redactor(kept_in=get_home().scanners))

    return _filled(fill), source.unread


def of_journal(path: Path) -> TempStore:
    """The records of one journal file."""
    from vestige.collector.journal_ingest import read_spill
    from vestige.journal.reader import read_lines
    from vestige.record.codec import parse_lines

    # A journal in its home: what was too long for its lines is beside it.
    home = Home(path.absolute().parent.parent)

    def spilled(writer: str, seq: int, info: BodyInfo) -> bytes | None:
        return read_spill(home, writer, seq, info)

    def fill(store: SqliteStore) -> None:
        offset = taken = 0
        while True:
            data, after = read_lines(path, offset)
            if after == offset:
                break
            records, _ = parse_lines(data)
            taken += store.append(records)
            offset = after
        if not taken:
            raise UnreadableError(f"{path}: no records in it.")

    return _filled(fill, spilled)


def of_copy(home: Home) -> TempStore:
    """A home in which nothing can be written, and what its journals hold beyond its store."""
    # Here, as below: most commands ask a home as it is, and would only start more slowly.
    from vestige.collector.loop import catch_up
    from vestige.store.sqlite.sqlite_store import SqliteStore

    remove: Callable[[], None] = _nothing
    try:
        folder, remove = make_folder()
        copy = _copy(home, Home(folder))
        behind = catch_up(copy)
        if behind is not None and not behind.can_write:
            raise OSError(0, behind.reason)
        return TempStore(SqliteStore.open(copy.store, readonly=True), remove)
    except BaseException as error:
        remove()
        if isinstance(error, OSError):
            raise StoreError(
                f"{home.root}: nothing can be written there, and no copy could be made"
                f" ({error.strerror}). Make room, or set TMPDIR."
            ) from error
        raise


def _copy(home: Home, copy: Home) -> Home:
    """The store; of the journals links, which the collector removes once it took them in."""
    import shutil

    copy.make()
    for name in ("store.db", "store.db-wal"):
        if (home.root / name).exists():
            shutil.copyfile(home.root / name, copy.root / name)
    for folder in (home.journal, home.bodies, home.faults):
        for path in folder.iterdir() if folder.is_dir() else ():
            (copy.root / folder.name / path.name).symlink_to(path.absolute())
    return copy


def _nothing() -> None:
    pass


def _no_spill(writer: str, seq: int, info: object) -> bytes | None:
    return None


def _filled(fill: Callable[[SqliteStore], object], read_spill: ReadSpill = _no_spill) -> TempStore:
    from vestige.store.sqlite.sqlite_store import SqliteStore

    folder, remove = make_folder()
    try:
        with SqliteStore.open(folder / "store.db", read_spill=read_spill, lasting=False) as store:
            fill(store)
        reader = SqliteStore.open(folder / "store.db", readonly=True)
    except BaseException:
        remove()
        raise
    return TempStore(reader, remove)
