"""Health of a home: sizes, lag, losses and problems, for `vestige doctor`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from vestige._runtime import file_locks
from vestige.collector.outbox import read_lost
from vestige.home import Home
from vestige.record.health import Health
from vestige.record.redaction.scan_engines import choose_engine
from vestige.record.tenant import DEFAULT_TENANT
from vestige.settings import find_store, read_settings
from vestige.store.protocol import Store


def examine(home: Home, store: Store) -> Health:
    """Return the health of a home, read-only. A tenant's store covers only that tenant."""
    positions, writers = store.positions(), store.writers()
    # Local journals, captures and the outbox belong to the default tenant.
    is_local = store.tenant in (None, DEFAULT_TENANT)
    own = {writer.writer for writer in writers}
    journal_bytes = lag_bytes = files = 0
    alive: set[str] = set()
    for writer, generation, path in home.journal_files():
        if not is_local and writer not in own:
            continue
        try:
            size = path.stat().st_size
        except OSError:
            continue
        files += 1
        journal_bytes += size
        lag_bytes += max(0, size - positions.get((writer, generation), 0))
        if file_locks.is_held(path):
            alive.add(writer)
    dropped = sum(writer.dropped for writer in writers)
    missing = sum(writer.missing for writer in writers)
    malformed = sum(writer.malformed for writer in writers)
    sizes = store.sizes()
    settings = read_settings(home)
    scanner = choose_engine(None)
    captures_dead = _count_dead_captures(home) if is_local else 0
    unsent_bytes = read_lost(home) if is_local else 0
    return Health(
        home="" if store.tenant is not None else str(home.root),  # hidden from tenants
        store="" if store.tenant is not None else _format_location(find_store(home)),
        store_bytes=sizes.file_bytes,
        runs=sizes.runs,
        spans=sizes.spans,
        logs=sizes.logs,
        bodies=sizes.bodies,
        body_bytes=sizes.body_bytes,
        journal_files=files,
        journal_bytes=journal_bytes,
        lag_bytes=lag_bytes,
        collecting=file_locks.is_held(home.lock),
        writers_alive=len(alive),
        writers_dead=sum(writer.ended == "interrupted" for writer in writers),
        captures_dead=captures_dead,
        dropped=dropped,
        missing=missing,
        malformed=malformed,
        scanner=scanner,
        retention_age_s=settings.retention_age_s,
        retention_body_bytes=settings.retention_body_bytes,
        problems=[
            *_problems(dropped, missing, malformed, scanner, captures_dead, unsent_bytes),
            *(_permission_problems(home) if store.tenant is None else ()),
            *store.find_problems(),
        ],
    )


def _format_location(location: str | Path) -> str:
    """Return where a store is, without user and password."""
    return re.sub(r"//[^/@]*@", "//", str(location))


def _permission_problems(home: Home) -> Iterator[str]:
    """Iterate over permissions and links that give other users access to the home."""
    try:
        found = os.stat(home.root)
    except OSError:
        return
    if found.st_uid not in (os.geteuid(), 0):
        yield (
            f"the home belongs to user {found.st_uid}, who may replace any of its files (expected"
            f" {os.geteuid()}; to keep it: chown -R {os.geteuid()} {home.root})"
        )
    if found.st_mode & 0o022:
        yield (
            f"the home may be written by other users (mode {found.st_mode & 0o777:04o}; to forbid"
            f" it: chmod go-w {home.root})"
        )
    for path in (home.journal, home.bodies, home.spool, home.store, home.keys):
        if path.is_symlink():
            yield f"{path.name} is a link to {os.readlink(path)} (expected inside the home)"


def _count_dead_captures(home: Home) -> int:
    """Count captures without a live process and without a bundle."""
    try:
        names = os.listdir(home.spool)
    except OSError:
        return 0
    return sum(_is_dead_capture(Home(home.spool / name)) for name in names if name[0] != ".")


def _is_dead_capture(spool: Home) -> bool:
    return (
        spool.capture.is_file()
        and not spool.exported.exists()
        and not file_locks.is_held(spool.capture)
    )


def _problems(
    dropped: int,
    missing: int,
    malformed: int,
    scanner: str,
    captures_dead: int,
    unsent_bytes: int,
) -> list[str]:
    problems = []
    if dropped:
        problems.append(
            f"{dropped} records were dropped by their writers (disk full or read-only?)"
        )
    if missing > dropped:
        problems.append(f"{missing - dropped} records never arrived (journal files lost?)")
    if malformed:
        problems.append(f"{malformed} journal lines could not be read (torn by a kill, or damaged)")
    if captures_dead:
        problems.append(
            f"debug bundles that ended processes captured, but never exported: {captures_dead}"
            " (make them: vestige store recover)"
        )
    if unsent_bytes:
        problems.append(
            f"{unsent_bytes} bytes of journals were deleted before they were sent on"
            " (is `vestige server ship` running? else: vestige server ship --stop)"
        )
    if scanner == "re":
        problems.append(
            "no quick scanner for secrets is installed: recording is slow (pip install hyperscan)"
        )
    return problems
