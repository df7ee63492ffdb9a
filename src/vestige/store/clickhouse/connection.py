"""The connection that all parts of a ClickHouse store share, and the state that they read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from vestige._runtime import clock
from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.ingest.commit_log import count_commits
from vestige.store.clickhouse.read_snapshot import View, read_view
from vestige.store.interface.ingest import ReadSpill

VIEW_S: Final = 1.0
"""The time for which a reader takes the state of a store for the newest. A command asks some 50
questions, and reading the state takes as long as most of them."""
VIEW_TIMES: Final = 20
"""On a slow server, it is used for this many times the time in which it was read."""
VIEW_MAX_S: Final = 10.0

WRITER_VIEW_S: Final = 0.1
"""The same for a store that is open for writing."""


class StoreConnection:
    """A connection to a store, with the tenant to which it is restricted."""

    def __init__(
        self,
        client: Client,
        tenant: str | None,
        readonly: bool,
        read_spill: ReadSpill,
        root: Path | None = None,
        home_id: str = "",
    ) -> None:
        self._client = client
        self._readonly = readonly
        self._read_spill = read_spill
        self.tenant = tenant
        """The tenant whose runs are visible. None: all runs are visible."""
        self.root = root
        self._home_id = home_id
        """The home whose journals the caller collects. Empty: it does not collect any."""
        self._snapshot: View | None = None
        self._recent: tuple[float, int, View] | None = None
        """The state that was read last: until when it is used, and after how many commits."""

    @property
    def path(self) -> None:
        """A store on a server has no file."""
        return

    def _view(self) -> View:
        """Return the state to read: that of the snapshot, or the newest one."""
        if self._snapshot is not None:
            return self._snapshot
        began, commits = clock.monotonic(), count_commits(self._client.address)
        recent = self._recent
        if recent is not None and began < recent[0] and commits == recent[1]:
            return recent[2]
        view = read_view(self._client, self.tenant)
        now = clock.monotonic()
        seconds = WRITER_VIEW_S
        if self._readonly:
            seconds = min(VIEW_MAX_S, max(VIEW_S, VIEW_TIMES * (now - began)))
        self._recent = now + seconds, commits, view
        return view

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all reads inside the block see the same state of the store."""
        if self._snapshot is not None:
            yield
            return
        self._snapshot = read_view(self._client, self.tenant)
        try:
            yield
        finally:
            self._snapshot = None

    def _query(self, view: View, sql: str, **parameters: Any) -> Sequence[Sequence[Any]]:
        return self._client.query(sql, **view.parameters(), **parameters)
