"""Where evidence is, how far it has come, and what was lost: what `doctor` tells."""

from __future__ import annotations

import msgspec

from vestige.home import Home
from vestige.journal import locks
from vestige.record.scan import Scanner
from vestige.settings import read_settings
from vestige.store.sqlite import SqliteStore


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a home."""

    home: str
    store: str
    store_bytes: int
    runs: int
    spans: int
    logs: int
    bodies: int
    body_bytes: int
    journal_files: int
    journal_bytes: int
    lag_bytes: int
    """Journal bytes that are not in the store yet."""
    collecting: bool
    writers_alive: int
    writers_dead: int
    dropped: int
    missing: int
    malformed: int
    scanner: str
    retention_age_s: float
    retention_body_bytes: int
    problems: list[str]


def examine(home: Home, store: SqliteStore) -> Health:
    """Look at everything once. Reads only."""
    positions = store.positions()
    journal_bytes = lag_bytes = files = 0
    alive: set[str] = set()
    for writer, generation, path in home.journal_files():
        try:
            size = path.stat().st_size
        except OSError:
            continue
        files += 1
        journal_bytes += size
        lag_bytes += max(0, size - positions.get((writer, generation), 0))
        if locks.is_held(path):
            alive.add(writer)
    writers = store.writers()
    dropped = sum(writer.dropped for writer in writers)
    missing = sum(writer.missing for writer in writers)
    malformed = sum(writer.malformed for writer in writers)
    sizes = store.sizes()
    settings = read_settings(home)
    return Health(
        home=str(home.root),
        store=str(home.store),
        store_bytes=sizes["file_bytes"],
        runs=sizes["runs"],
        spans=sizes["spans"],
        logs=sizes["logs"],
        bodies=sizes["bodies"],
        body_bytes=sizes["body_bytes"],
        journal_files=files,
        journal_bytes=journal_bytes,
        lag_bytes=lag_bytes,
        collecting=locks.is_held(home.lock),
        writers_alive=len(alive),
        writers_dead=sum(writer.ended == "interrupted" for writer in writers),
        dropped=dropped,
        missing=missing,
        malformed=malformed,
        scanner=Scanner().engine,
        retention_age_s=settings.retention_age_s,
        retention_body_bytes=settings.retention_body_bytes,
        problems=_problems(dropped, missing, malformed),
    )


def _problems(dropped: int, missing: int, malformed: int) -> list[str]:
    problems = []
    if dropped:
        problems.append(
            f"{dropped} records were dropped by their writers (disk full or read-only?)"
        )
    if missing > dropped:
        problems.append(f"{missing - dropped} records never arrived (journal files lost?)")
    if malformed:
        problems.append(f"{malformed} journal lines could not be read (torn by a kill, or damaged)")
    return problems
