"""SpoolContent: a capture's spool as the content of a bundle.

The journal is read twice: once for an index (debug/spool_index.py), then piece by piece while a
caller iterates: snapshots in debug/snapshot_rebuild.py, log lines in debug/spool_log_entries.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from vestige.debug.capture_facts import CapturedRun, Ending, Opening
from vestige.debug.copy_recorded_run import kept_records
from vestige.debug.snapshot_rebuild import assemble_snapshots
from vestige.debug.spool import Spool
from vestige.debug.spool_index import Index, open_binary, read_index
from vestige.debug.spool_log_entries import last_entry_ns, read_entries
from vestige.formats.wink.bundle_content import ContentFile, Extra
from vestige.formats.wink.log_records import to_iso
from vestige.formats.wink.manifest import (
    FILES,
    INTERRUPTED,
    LOGS,
    SNAPSHOTS,
    VERSION,
    Agent,
    Component,
    Execution,
    Manifest,
    Skipped,
    parse_time,
)


class SpoolContent:
    """The content of a spool; it no longer changes once the capture is finalized."""

    def __init__(self, spool: Spool, *, dead: bool = False) -> None:
        """`dead`: the process is gone, and what has no end was interrupted."""
        self.spool = spool
        self._home = spool.home
        self._dead = dead
        self._final: Index | None = None
        self.opening: Opening | None = None
        self.ending: Ending | None = None
        """The redacted start and end of a capture, if the disk could not store them."""

    # --- as BundleContent -------------------------------------------------------------------

    @property
    def manifest(self) -> Manifest:
        index = self._index()
        opening = index.opening
        if opening is None:  # killed before its first line, or nothing could be written
            opening = Opening(self.spool.id, "", Agent(""), {}, {}, to_iso(index.last_ns))
        ending = index.ending
        execution = self._execution(opening, index)
        return Manifest(
            version=VERSION,
            bundle_id=opening.bundle_id,
            created_at=ending.created_at if ending else to_iso(index.last_ns),
            session_id=opening.session_id,
            agent=opening.agent,
            execution=execution,
            environment=opening.environment,
            components=self._components(index),
            tags=opening.tags,
        )

    def snapshots(self) -> Iterator[str]:
        return assemble_snapshots(self._home, self._index())

    def logs(self) -> Iterator[str]:
        return read_entries(self._home)

    def files(self) -> Iterator[ContentFile]:
        for path, file in self._index().files.items():
            place = self._home.bodies / file.sha256
            yield ContentFile(path, file.size_bytes, partial(open_binary, place))

    def extras(self) -> Iterator[Extra]:
        return kept_records(self._home)

    def exported(self, target: Path) -> None:
        """Mark the spool as exported: it may be deleted once it has no readers."""
        try:
            self.spool.exported(target)
        except OSError:  # the bundle is there; at worst it is recovered a second time
            pass

    def close(self) -> None:
        self.spool.close()

    @property
    def captured_run(self) -> CapturedRun | None:
        opening = self._index().opening
        return None if opening is None else opening.run

    def is_empty(self) -> bool:
        """Return whether the process was killed before its first line."""
        return self._index().opening is None and next(self.logs(), None) is None

    # --- the manifest ---------------------------------------------------------------------------

    def _execution(self, opening: Opening, index: Index) -> Execution:
        ending = index.ending
        if ending is not None:
            outcome, error, ended_at = ending.outcome, ending.error, ending.ended_at
        elif not self._dead:
            return Execution(opening.started_at)
        else:
            outcome, error, ended_at = "failure", index.failure, to_iso(index.last_ns)
            if error is None:
                message = f"process exited unexpectedly after {index.last}"
                error = {"type": INTERRUPTED, "message": message}
        seconds = _seconds(opening.started_at, ended_at)
        return Execution(opening.started_at, ended_at, seconds, outcome, error)

    def _components(self, index: Index) -> dict[str, Component]:
        gone = [
            counts
            for name, counts in index.dropped.items()
            if not (self._home.journal / name).exists()
        ]
        ending = index.ending
        components = {
            "snapshots": Component(SNAPSHOTS, lost_records=(ending and ending.lost) or None),
            "logs": Component(
                LOGS,
                dropped_entries=sum(entries for entries, _ in gone) or None,
                dropped_bytes=sum(size for _, size in gone) or None,
                lost_records=(ending and ending.lost_logs) or None,
            ),
        }
        if index.files or index.skipped:
            skipped = list(index.skipped)
            if index.skipped_more:
                skipped.append(Skipped("", f"{index.skipped_more} more were left out"))
            redacted = sorted(path for path, file in index.files.items() if file.redacted)
            components["files"] = Component(
                FILES, skipped=skipped or None, redacted=redacted or None
            )
        return components

    # --- the index --------------------------------------------------------------------------------

    def _index(self) -> Index:
        if self._final is not None:
            return self._final
        index = read_index(self._home)
        index.opening = index.opening or self.opening
        index.ending = index.ending or self.ending
        if self._dead:
            index.last_ns = max(index.last_ns, last_entry_ns(self._home))
        if index.ending is not None or self._dead:
            self._final = index
        return index


def _seconds(started_at: str, ended_at: str) -> float | None:
    started, ended = parse_time(started_at), parse_time(ended_at)
    return None if started is None or ended is None else (ended - started).total_seconds()
