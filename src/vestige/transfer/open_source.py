"""Open anything that holds runs: a home, a store, a journal file, a run in another format.

    with open_path() as debugger: ...                       # the default home
    with open_path("spool/x") as debugger: ...              # a home elsewhere
    with open_path("8f3c.000001.ndjson") as debugger: ...   # a journal, read into a temporary store
    with open_path("runs/3d1957bd-...") as debugger: ...    # an AgentDbg run, likewise
    with open_ids(home, "a.wink#3", "b.wink") as ...        # what is named in place of ids

A home is first brought up to its journals, then opened read-only.

Elsewhere: files are read into stores of their own in transfer/temp_store.py.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.errors import NotFoundError, UnreadableError, UsageError
from vestige.formats import NAMES
from vestige.home import JOURNAL_SUFFIX, Home, get_home, is_default
from vestige.limits import COPY_MAX
from vestige.query.debugger import Debugger
from vestige.query.formatting import single_line
from vestige.transfer.import_runs import find_format
from vestige.transfer.temp_store import (
    TempStore,
    of_beginning,
    of_copy,
    of_journal,
    of_runs,
    of_several,
)

if TYPE_CHECKING:
    from vestige.record.run import RunInfo
    from vestige.store.protocol import CheckResult

STORE_SUFFIX = ".db"

_SUFFIXES = (STORE_SUFFIX, JOURNAL_SUFFIX, ".wink", ".json", ".jsonl", ".xml", ".zip", ".html")
"""Of what people open: a name that ends so is no id."""

_NOTHING = (
    f"nothing that can be opened (expected a home, a {STORE_SUFFIX} store,"
    f" a {JOURNAL_SUFFIX} journal, or one of: {', '.join(NAMES)})."
)


def open_path(
    path: str | os.PathLike[str] | Home | None = None, *, glance: bool = False
) -> Debugger:
    """The verbs over whatever is there; the default home without a path.

    `glance`: of a long run in another format its beginning is enough, for now.
    """
    home = get_home(path)
    if home.root.is_file():
        return _open_file(home.root)
    if home.root.is_dir() and not _is_home(home.root) and find_format(home.root) is not None:
        beginning = of_beginning(home.root) if glance else None
        if beginning is None:
            return _over(home.root, of_runs(home.root))
        debugger = _over(home.root, beginning[0])
        debugger.unread = beginning[1]
        return debugger
    return _open_home(home)


def is_source(text: str) -> bool:
    """Is this the path of something that can be opened, rather than an id?

    `PATH#3` is: the snapshot 3 of what is at PATH.
    """
    if not text or "\0" in text or len(text) > 4096:
        return False
    path = Path(split_source(text)[0])
    try:
        if path.is_file() and path.suffix in (JOURNAL_SUFFIX, STORE_SUFFIX):
            return True
        return path.exists() and (_is_home(path) or find_format(path) is not None)
    except OSError:
        return False


def split_source(text: str) -> tuple[str, str]:
    """`x.wink#3` as its path and `#3`; a file whose very name ends so is itself."""
    path, mark, number = text.rpartition("#")
    if mark and path and number.isdecimal() and not os.path.exists(text):
        return path, f"#{number}"
    return text, ""


@contextmanager
def as_home(text: str) -> Iterator[tuple[Home, bool]]:
    """What is at a path as a home that can be served, and whether it lasts: else it is read into
    a temporary one."""
    path = Path(split_source(text)[0])
    if path.is_dir() and _is_home(path):
        yield get_home(path), True
        return
    if path.suffix == STORE_SUFFIX:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="vestige-") as folder:
            home = Home(Path(folder))
            home.store.symlink_to(path.absolute())
            yield home, False
        return
    with open_path(path) as debugger:
        yield Home(Path(debugger.store.path).parent), False  # type: ignore[attr-defined]  # a file


@contextmanager
def as_written(home: Home) -> Iterator[tuple[Home, bool, str | None]]:
    """The home, whether it lasts, and what is to be said of it: where nothing can be written to it,
    a copy is served, which has what its journals hold."""
    if _can_write(home):
        yield home, True, None
        return
    with open_path(home) as debugger:
        place = Home(Path(debugger.store.path).parent)  # type: ignore[attr-defined]  # a file
        yield place, place.root == home.root, debugger.notice


@contextmanager
def open_ids(
    home: Home, *ids: str | None, glance: bool = False
) -> Iterator[tuple[Debugger, list[str | None]]]:
    """The verbs over a home; or, where ids are paths, over what is there, with its own ids."""
    named = [each if each is not None and is_source(each) else None for each in ids]
    paths = list(dict.fromkeys(split_source(each)[0] for each in named if each is not None))
    if not paths:
        try:
            with open_path(home, glance=glance and not any(ids)) as debugger:
                yield debugger, list(ids)
        except NotFoundError as error:
            raise _no_path(home, ids, error) from None
        return
    if any(name is None and each is not None for name, each in zip(named, ids, strict=True)):
        raise UsageError(
            f"{paths[0]} is a path, and another of these is an id of the home. Take the file in"
            f" first: `vestige import {shlex.quote(paths[0])}`."
        )
    if len(paths) == 1:
        with open_path(paths[0], glance=glance) as debugger:
            yield debugger, [None if not each else split_source(each)[1] or None for each in named]
        return
    temporary, runs = of_several([Path(path) for path in paths])
    with _over(Path(paths[0]), temporary) as debugger:
        yield debugger, [_inside(runs, each) for each in named]


def _no_path(home: Home, ids: Sequence[str | None], error: NotFoundError) -> NotFoundError:
    """An id that leads nowhere may have been meant as a path: then that is what to say."""
    for text in ids:
        # Other things than an id may be missing, too: a part of a body, say.
        message = f"{single_line(text or '', 80)!r} not found"
        refused = not home.root.is_dir() or message in str(error)
        if not text or "\0" in text or not refused:
            continue
        path = Path(split_source(text)[0])
        if os.path.exists(path):
            return NotFoundError(f"{path}: no such run, and {_NOTHING}")
        if (os.sep in text or path.suffix in _SUFFIXES) and not re.search(r"\s|://", text):
            return NotFoundError(f"{text}: no such file or directory, and no such run.")
    return error


def _inside(runs: dict[str, str], text: str | None) -> str | None:
    if text is None:
        return None
    path, snapshot = split_source(text)
    return runs[str(Path(path))] + snapshot  # `./x` is `x`


def _is_home(path: Path) -> bool:
    return (path / "journal").is_dir() or (path / "store.db").is_file()


def _elsewhere(path: str) -> Debugger:
    if not is_source(path):
        raise NotFoundError(f"{path}: nothing there that can be opened.")
    return open_path(split_source(path)[0])


def _at(path: Path) -> str:
    return f"--home {shlex.quote(str(path))}"


def _open_home(home: Home) -> Debugger:
    from vestige.collector.health import examine
    from vestige.collector.loop import catch_up
    from vestige.store.sqlite.sqlite_store import SqliteStore

    if not home.root.is_dir():
        raise NotFoundError(
            f"{home.root}: no such home. Record something first: `vestige run -- COMMAND`."
        )
    behind = catch_up(home)
    at = "" if is_default(home) else _at(home.root)
    if behind is not None and not behind.can_write and _is_worth_a_copy(home):
        copy = of_copy(home)
        debugger = Debugger(
            copy.store,
            health=lambda: examine(home, copy.store),
            at=at,
            close=copy.close,
            elsewhere=_elsewhere,
        )
        debugger.notice = f"{home.root}: cannot be written ({behind.reason}). Asked is a copy."
        return debugger

    def keep(run: RunInfo, results: Sequence[CheckResult]) -> None:
        _keep_findings(home.store, run, results)

    store = SqliteStore.open(home.store, readonly=True)
    debugger = Debugger(
        store, keep=keep, health=lambda: examine(home, store), at=at, elsewhere=_elsewhere
    )
    if behind is not None and home.journal_files():
        debugger.notice = f"{home.root}: not all of it could be taken in ({behind.reason})."
    return debugger


def _can_write(home: Home) -> bool:
    from vestige.collector.loop import hold
    from vestige.errors import StoreError

    try:
        with hold(home):
            return True
    except (OSError, StoreError):
        return False


def _is_worth_a_copy(home: Home) -> bool:
    """Is there more than its store can tell, and the store not too large?"""
    from vestige.store.sqlite.database_file import unwritten_bytes

    more = unwritten_bytes(home.store) or any(_size(path) for _, _, path in home.journal_files())
    return bool(more) and _size(home.store) <= COPY_MAX


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # not there, or no more


def open_tenant(home: Home, tenant: str) -> Debugger:
    """The verbs over one tenant's runs in a home, as they are in its store now.

    Nothing outside can be opened from there, and no answer names a path of the home.
    """
    from vestige.store.sqlite.sqlite_store import SqliteStore

    store = SqliteStore.open(home.store, readonly=True, tenant=tenant)

    def keep(run: RunInfo, results: Sequence[CheckResult]) -> None:
        _keep_findings(home.store, run, results)

    return Debugger(store, keep=keep)


def _keep_findings(path: Path, run: RunInfo, results: Sequence[CheckResult]) -> None:
    """Through a connection of its own; where that is not possible, the next one computes again."""
    import sqlite3

    from vestige.errors import StoreError
    from vestige.store.sqlite.sqlite_store import SqliteStore

    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        return
    try:
        with SqliteStore.open(path) as store:
            store.store_findings(run, results)
    except (StoreError, sqlite3.Error, OSError):
        return


def _open_file(path: Path) -> Debugger:
    from vestige.store.sqlite.sqlite_store import SqliteStore

    if path.suffix == STORE_SUFFIX:
        return Debugger(SqliteStore.open(path, readonly=True), at=_at(path), elsewhere=_elsewhere)
    if path.suffix == JOURNAL_SUFFIX:
        return _over(path, of_journal(path))
    if find_format(path) is not None:
        return _over(path, of_runs(path))
    raise UnreadableError(f"{path}: {_NOTHING}")


def _over(path: Path, temporary: TempStore) -> Debugger:
    return Debugger(temporary.store, at=_at(path), close=temporary.close, elsewhere=_elsewhere)
