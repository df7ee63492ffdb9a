"""Open anything that contains runs: a home, a store, a journal file, a run in another format.

    with open_path() as debugger: ...                       # the default home
    with open_path("spool/x") as debugger: ...              # another home
    with open_path("8f3c.000001.ndjson") as debugger: ...   # a journal, read into a temporary store
    with open_path("runs/3d1957bd-...") as debugger: ...    # an AgentDbg run, likewise
    with open_ids(home, "a.wink#3", "b.wink") as ...        # paths in place of ids

The journals of a home are ingested before it is opened read-only. The readers of files are
imported only for files: most commands open a home.

Elsewhere: files are loaded into temporary stores in transfer/temp_store.py.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.errors import NotFoundError, UnreadableError, UsageError, VestigeError
from vestige.formats import NAMES
from vestige.home import JOURNAL_SUFFIX, Home, explain_missing, get_home, has_nothing, is_default
from vestige.limits import COPY_MAX
from vestige.query.debugger import Debugger
from vestige.query.formatting import single_line
from vestige.settings import find_store

if TYPE_CHECKING:
    from vestige.record.run import RunInfo
    from vestige.store.protocol import CheckResult, Store
    from vestige.transfer.temp_store import TempStore

STORE_SUFFIX = ".db"

_SUFFIXES = (
    STORE_SUFFIX, JOURNAL_SUFFIX, ".wink", ".json", ".jsonl", ".xml", ".zip", ".html", ".gz", ".zst"
)  # fmt: skip
"""Suffixes of files that can be opened. A text with one of these is meant as a path."""

_UNSUPPORTED = (
    f"cannot be opened (expected a home, a {STORE_SUFFIX} store,"
    f" a {JOURNAL_SUFFIX} journal, or one of: {', '.join(NAMES)})."
)


def open_path(
    path: str | os.PathLike[str] | Home | None = None, *, glance: bool = False
) -> Debugger:
    """Return a debugger for a path, or for the default home without one.

    `glance`: read only the first events of a long run in another format.
    """
    home = get_home(path)
    if home.root.is_file():
        return _open_file(home.root, glance=glance)
    if home.root.is_dir() and not _is_home(home.root):
        from vestige.transfer.import_runs import find_format

        if find_format(home.root) is not None:
            return _open_runs(home.root, glance=glance)
    return _open_home(home)


def _open_runs(path: Path, *, glance: bool) -> Debugger:
    from vestige.transfer.temp_store import load_head, load_runs

    head = load_head(path) if glance else None
    if head is None:
        return _debug_store(path, load_runs(path))
    debugger = _debug_store(path, head[0])
    debugger.unread = head[1]
    return debugger


def is_source(text: str) -> bool:
    """Return whether a text is a path that can be opened, and not an id.

    `PATH#3` is the snapshot 3 of the run at PATH.
    """
    if not text or "\0" in text or len(text) > 4096:
        return False
    path = Path(split_source(text)[0])
    try:
        if not path.exists():
            return False
        from vestige.transfer.import_runs import find_format

        if path.is_file() and _plain_suffix(path) in (JOURNAL_SUFFIX, STORE_SUFFIX):
            return True
        return _is_home(path) or find_format(path) is not None
    except UnreadableError:  # a damaged compressed file: opening it says why
        return True
    except OSError:
        return False


def _plain_suffix(path: Path) -> str:
    """Return the suffix of a file, without that of its compression."""
    from vestige.transfer.compressed_file import is_compressed

    return path.with_suffix("").suffix if is_compressed(path) else path.suffix


def split_source(text: str) -> tuple[str, str]:
    """Split `x.wink#3` into its path and `#3`, unless a file has that name."""
    path, mark, number = text.rpartition("#")
    if mark and path and number.isdecimal() and not os.path.exists(text):
        return path, f"#{number}"
    return text, ""


@contextmanager
def open_as_home(text: str) -> Iterator[tuple[Home, bool]]:
    """Yield a home with the runs at a path, for the server, and whether it is permanent.

    The home of a long file has its beginning, and gets the rest while it is shown.
    """
    from vestige.transfer.view_while_importing import import_in_background, is_long_source

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
    if is_long_source(path):
        with import_in_background(path) as home:
            yield home, False
        return
    with open_path(path) as debugger:
        yield Home(_get_file(debugger.store).parent), False


@contextmanager
def open_home_or_copy(home: Home) -> Iterator[tuple[Home, bool, str | None]]:
    """Yield a home, or a temporary copy if it cannot be written.

    Yield also whether it is permanent, and a notice for the user if it is a copy.
    """
    if _can_write(home):
        yield home, True, None
        return
    with open_path(home) as debugger:
        opened = Home(_get_file(debugger.store).parent)
        yield opened, opened.root == home.root, debugger.notice


@contextmanager
def open_ids(
    home: Home, *ids: str | None, glance: bool = False
) -> Iterator[tuple[Debugger, list[str | None]]]:
    """Yield a debugger for a home, or for the files if the ids are paths, and the ids in it."""
    sources = [each if each is not None and is_source(each) else None for each in ids]
    paths = list(dict.fromkeys(split_source(each)[0] for each in sources if each is not None))
    if not paths:
        try:
            with open_path(home, glance=glance and not any(ids)) as debugger:
                yield debugger, list(ids)
        except NotFoundError as error:
            raise _explain_path(home, ids, error) from None
        return
    if any(source is None and each is not None for source, each in zip(sources, ids, strict=True)):
        raise UsageError(
            f"{paths[0]}: a path cannot be combined with an id of the home. Import the file first:"
            f" `vestige import {shlex.quote(paths[0])}`."
        )
    if len(paths) == 1:
        with open_path(paths[0], glance=glance) as debugger:
            snapshots = [split_source(each)[1] or None if each else None for each in sources]
            yield debugger, snapshots
        return
    from vestige.transfer.temp_store import load_several

    temporary, runs = load_several([Path(path) for path in paths])
    with _debug_store(Path(paths[0]), temporary) as debugger:
        yield debugger, [_find_id(runs, each) for each in sources]


def _explain_path(home: Home, ids: Sequence[str | None], error: NotFoundError) -> VestigeError:
    """Return an error about a path, if an id that was not found looks like one."""
    from vestige.transfer.text_encoding import find_wide_encoding

    for text in ids:
        # The error may be about something else, such as a body.
        not_found = f"{single_line(text or '', 80)!r} not found"
        if not text or "\0" in text or (home.root.is_dir() and not_found not in str(error)):
            continue
        path = Path(split_source(text)[0])
        if os.path.exists(path):
            encoded = find_wide_encoding(path)
            return UnreadableError(encoded or f"{path}: not a run id, and {_UNSUPPORTED}")
        if (os.sep in text or path.suffix in _SUFFIXES) and not re.search(r"\s|://", text):
            return NotFoundError(f"{text}: no such file or directory, and no such run.")
    return error


def _find_id(runs: dict[str, str], text: str | None) -> str | None:
    if text is None:
        return None
    path, snapshot = split_source(text)
    return runs[str(Path(path))] + snapshot  # Path normalizes `./x` to `x`


def _get_file(store: Store) -> Path:
    assert store.path is not None, "a temporary store is a file"
    return store.path


def _is_home(path: Path) -> bool:
    return (path / "journal").is_dir() or (path / "store.db").is_file()


def _open_source(path: str) -> Debugger:
    if not is_source(path):
        raise NotFoundError(f"{path}: cannot be opened.")
    return open_path(split_source(path)[0])


def _format_home_option(path: Path) -> str:
    return f"--home {shlex.quote(str(path))}"


def _open_home(home: Home) -> Debugger:
    from vestige.collector.health import examine
    from vestige.collector.loop import catch_up
    from vestige.store.open import open_store

    if has_nothing(home, find_store(home)):
        raise NotFoundError(explain_missing(home))
    lag = catch_up(home)
    at = "" if is_default(home) else _format_home_option(home.root)
    if lag is not None and not lag.can_write and _should_copy(home):
        from vestige.transfer.temp_store import load_copy

        copy = load_copy(home)
        debugger = Debugger(
            copy.store,
            health=lambda: examine(home, copy.store),
            at=at,
            close=copy.close,
            elsewhere=_open_source,
        )
        debugger.notice = f"{home.root}: cannot be written ({lag.reason}). Showing a copy."
        return debugger

    store = open_store(find_store(home), readonly=True, root=home.root)
    debugger = Debugger(
        store,
        keep=partial(_store_findings, find_store(home)),
        health=lambda: examine(home, store),
        at=at,
        elsewhere=_open_source,
    )
    if lag is not None and home.journal_files():
        debugger.notice = f"{home.root}: some records could not be imported ({lag.reason})."
    return debugger


def _can_write(home: Home) -> bool:
    from vestige.collector.loop import hold
    from vestige.errors import StoreError

    try:
        with hold(home):
            return True
    except (OSError, StoreError):
        return False


def _should_copy(home: Home) -> bool:
    """Return whether a home has records outside its store, and its store is small enough."""
    from vestige.store.open import read_pending_bytes

    pending = read_pending_bytes(home.store) or any(
        _size(path) for _, _, path in home.journal_files()
    )
    return bool(pending) and _size(home.store) <= COPY_MAX


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # there is no such file, or it was just deleted
        return 0


def open_tenant(home: Home, tenant: str) -> Debugger:
    """Return a debugger for one tenant's runs in the store of a home.

    It cannot open other paths, and its answers contain no path of the home.
    """
    from vestige.store.open import open_store

    store = open_store(find_store(home), readonly=True, tenant=tenant, root=home.root)
    return Debugger(store, keep=partial(_store_findings, find_store(home)))


def _store_findings(location: str | Path, run: RunInfo, results: Sequence[CheckResult]) -> None:
    """Store findings over a separate connection. If that fails, they are computed again later."""
    from vestige.errors import StoreError
    from vestige.store.open import open_store

    if isinstance(location, Path) and not (
        os.access(location, os.W_OK) and os.access(location.parent, os.W_OK)
    ):
        return
    try:
        with open_store(location) as store:
            store.store_findings(run, results)
    except (StoreError, OSError):
        return


def _open_file(path: Path, *, glance: bool) -> Debugger:
    from vestige.store.open import open_store
    from vestige.transfer.compressed_file import decompress
    from vestige.transfer.import_runs import find_format
    from vestige.transfer.temp_store import load_journal
    from vestige.transfer.text_encoding import find_wide_encoding

    if _plain_suffix(path) != path.suffix and _plain_suffix(path) in (JOURNAL_SUFFIX, STORE_SUFFIX):
        path = decompress(path)
    if path.suffix == STORE_SUFFIX:
        store = open_store(path, readonly=True)
        return Debugger(store, at=_format_home_option(path), elsewhere=_open_source)
    if path.suffix == JOURNAL_SUFFIX:
        return _debug_store(path, load_journal(path))
    if find_format(path) is not None:
        return _open_runs(path, glance=glance)
    raise UnreadableError(find_wide_encoding(path) or f"{path}: {_UNSUPPORTED}")


def _debug_store(path: Path, temporary: TempStore) -> Debugger:
    debugger = Debugger(
        temporary.store,
        at=_format_home_option(path),
        close=temporary.close,
        elsewhere=_open_source,
    )
    losses = [one for one in temporary.problems if one.severity == "error" or one.rule in _LOSSES]
    if losses:
        others = len(losses) - 1
        more = f" {others} more problem{'s' * (others > 1)}." if others else ""
        first = single_line(str(losses[0]), 200)
        debugger.notice = f"{first}{more} See: vestige check {shlex.quote(str(path))}"
    return debugger


_LOSSES = ("line-invalid", "record-unreadable")
"""Rules whose problems are warnings of a format, but cost part of the run."""
