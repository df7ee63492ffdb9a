"""Open anything that holds runs: a home, a store, a journal file, a run in another format.

    with open_path() as debugger: ...                       # the default home
    with open_path("spool/x") as debugger: ...              # a home elsewhere
    with open_path("8f3c.000001.ndjson") as debugger: ...   # a journal, read into a temporary store
    with open_path("runs/3d1957bd-...") as debugger: ...    # an AgentDbg run, likewise

A home is first brought up to its journals, then opened read-only.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.errors import NotFoundError, UnreadableError, UsageError
from vestige.formats import NAMES
from vestige.home import JOURNAL_SUFFIX, Home, default_root, get_home
from vestige.query.debugger import Debugger
from vestige.transfer.importing import find_format, import_path

if TYPE_CHECKING:
    from vestige.record.run import RunInfo
    from vestige.record.types import BodyInfo
    from vestige.store.base import CheckResult
    from vestige.store.ingest import ReadSpill
    from vestige.store.sqlite import SqliteStore

STORE_SUFFIX = ".db"


def open_path(path: str | os.PathLike[str] | Home | None = None) -> Debugger:
    """The verbs over whatever is there; the default home without a path."""
    home = get_home(path)
    if home.root.is_file():
        return _open_file(home.root)
    if home.root.is_dir() and not _is_home(home.root) and find_format(home.root) is not None:
        return _open_foreign(home.root)
    return _open_home(home)


def is_source(text: str) -> bool:
    """Is this the path of something that can be opened, rather than an id?"""
    if not text or "\0" in text or len(text) > 4096:
        return False
    path = Path(text)
    try:
        if path.is_file() and path.suffix in (JOURNAL_SUFFIX, STORE_SUFFIX):
            return True
        return path.exists() and (_is_home(path) or find_format(path) is not None)
    except OSError:
        return False


def _is_home(path: Path) -> bool:
    return (path / "journal").is_dir() or (path / "store.db").is_file()


def _at(path: Path) -> str:
    return f"--home {shlex.quote(str(path))}"


def _open_home(home: Home) -> Debugger:
    from vestige.collector.health import examine
    from vestige.collector.loop import catch_up
    from vestige.store.sqlite import SqliteStore

    if not home.root.is_dir():
        raise NotFoundError(
            f"{home.root}: no such home. Record something first: `vestige run -- COMMAND`."
        )
    catch_up(home)

    def keep(run: RunInfo, results: Sequence[CheckResult]) -> None:
        _keep_findings(home.store, run, results)

    at = "" if home.root == get_home(default_root()).root else _at(home.root)
    store = SqliteStore.open(home.store, readonly=True)
    return Debugger(store, keep=keep, health=lambda: examine(home, store), at=at)


def _keep_findings(path: Path, run: RunInfo, results: Sequence[CheckResult]) -> None:
    """Through a connection of its own; where that is not possible, the next one computes again."""
    import sqlite3

    from vestige.errors import StoreError
    from vestige.store.sqlite import SqliteStore

    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        return
    try:
        with SqliteStore.open(path) as store:
            store.store_findings(run, results)
    except (StoreError, sqlite3.Error, OSError):
        return


def _open_file(path: Path) -> Debugger:
    from vestige.store.sqlite import SqliteStore

    if path.suffix == STORE_SUFFIX:
        return Debugger(SqliteStore.open(path, readonly=True), at=_at(path))
    if path.suffix == JOURNAL_SUFFIX:
        return _open_journal(path)
    if find_format(path) is not None:
        return _open_foreign(path)
    raise UnreadableError(
        f"{path}: nothing that can be opened (expected a home, a {STORE_SUFFIX} store,"
        f" a {JOURNAL_SUFFIX} journal, or one of: {', '.join(NAMES)})."
    )


def _open_journal(path: Path) -> Debugger:
    from vestige.collector.take import read_spill
    from vestige.journal.reader import read_lines
    from vestige.record.line import parse_lines

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

    return _open_temporary(path, fill, spilled)


def open_pair(a: Path, b: Path) -> tuple[Debugger, str, str]:
    """Two runs of other formats in one temporary store, and their ids: to compare them."""
    ids: list[str] = []

    def fill(store: SqliteStore) -> None:
        for path in (a, b):
            found = [one for one in import_path(store, path) if one.run_id is not None]
            if len(found) != 1:
                raise UsageError(
                    f"{path}: {len(found)} runs in it (expected one). Name one of them."
                )
            ids.append(str(found[0].run_id))

    return _open_temporary(b, fill), ids[0], ids[1]


def _open_foreign(path: Path) -> Debugger:
    def fill(store: SqliteStore) -> None:
        imported = list(import_path(store, path))
        if not any(one.records for one in imported):
            problems = [problem for one in imported for problem in one.problems]
            raise UnreadableError(
                str(problems[0].message) if problems else f"{path}: no run in it."
            )

    return _open_temporary(path, fill)


def _no_spill(writer: str, seq: int, info: object) -> bytes | None:
    return None


def _open_temporary(
    path: Path, fill: Callable[[SqliteStore], None], read_spill: ReadSpill = _no_spill
) -> Debugger:
    """Read into a store of its own, gone when the debugger is closed."""
    import shutil
    import tempfile

    from vestige.store.sqlite import SqliteStore

    folder = Path(tempfile.mkdtemp(prefix="vestige-"))
    try:
        with SqliteStore.open(folder / "store.db", read_spill=read_spill) as store:
            fill(store)
        reader = SqliteStore.open(folder / "store.db", readonly=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Debugger(reader, at=_at(path), close=lambda: shutil.rmtree(folder, ignore_errors=True))
