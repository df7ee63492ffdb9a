"""The connection that all parts of a ClickHouse store share, and the state that they read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.current import View, read_view
from vestige.store.interface.ingest import ReadSpill


class StoreConnection:
    """A connection to a store, with the tenant to which it is restricted."""

    def __init__(
        self, client: Client, tenant: str | None, readonly: bool, read_spill: ReadSpill
    ) -> None:
        self._client = client
        self._readonly = readonly
        self._read_spill = read_spill
        self.tenant = tenant
        """The tenant whose runs are visible. None: all runs are visible."""
        self._snapshot: View | None = None

    @property
    def path(self) -> None:
        """A store on a server has no file."""
        return

    def _view(self) -> View:
        """Return the state to read: that of the snapshot, or the newest one."""
        return self._snapshot or read_view(self._client, self.tenant)

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
