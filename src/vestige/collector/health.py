"""Where evidence is, how far it has come, and what was lost: what `doctor` tells."""

from __future__ import annotations

from vestige import locks
from vestige.home import Home
from vestige.record.health import Health
from vestige.record.scan import Scanner
from vestige.settings import read_settings
from vestige.store.sqlite import SqliteStore


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
    scanner = Scanner().engine
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
        scanner=scanner,
        retention_age_s=settings.retention_age_s,
        retention_body_bytes=settings.retention_body_bytes,
        problems=_problems(dropped, missing, malformed, scanner),
    )


def _problems(dropped: int, missing: int, malformed: int, scanner: str) -> list[str]:
    problems = []
    if dropped:
        problems.append(
            f"{dropped} records were dropped by their writers (disk full or read-only?)"
        )
    if missing > dropped:
        problems.append(f"{missing - dropped} records never arrived (journal files lost?)")
    if malformed:
        problems.append(f"{malformed} journal lines could not be read (torn by a kill, or damaged)")
    if scanner == "re":
        problems.append(
            "no quick scanner for secrets is installed: recording is slow (pip install hyperscan)"
        )
    return problems
