"""A store in a ClickHouse database, for many writers, many readers and terabytes.

    with ClickHouseStore.open(parse_address("clickhouse://db:8123/vestige")) as store: ...

Elsewhere: the tables, schema.py; how writes are committed, ingest/commit_log.py; the methods that
write, writer.py; that read, reader.py; code outside store/ opens a store with store/open.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from vestige._runtime import clock
from vestige.errors import StoreError, UsageError
from vestige.record.tenant import is_tenant
from vestige.record.types import BodyInfo
from vestige.store.clickhouse import schema
from vestige.store.clickhouse.address import Address
from vestige.store.clickhouse.administration import read_problems
from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.reader import ClickHouseReader
from vestige.store.clickhouse.writer import ClickHouseWriter
from vestige.store.interface.ingest import ReadSpill

if TYPE_CHECKING:
    from vestige.store.protocol import Store


def no_spill(writer: str, seq: int, info: BodyInfo) -> bytes | None:
    return None


CHECK_INTERVAL_S: Final = 5.0
"""The time for which the version of a store is taken for unchanged."""

_current_at: Final[dict[Address, float]] = {}
"""When a store was last found to have this version."""


class ClickHouseStore(ClickHouseReader, ClickHouseWriter):
    """A store in a ClickHouse database."""

    _checked = 0.0

    @classmethod
    def open(
        cls,
        address: Address,
        *,
        readonly: bool = False,
        read_spill: ReadSpill = no_spill,
        tenant: str | None = None,
        root: Path | None = None,
        home_id: str = "",
    ) -> Self:
        """Open a store, which `vestige store init` has made."""
        assert readonly or tenant is None, "a writer passes the tenant with each batch"
        if tenant is not None and not is_tenant(tenant):
            raise UsageError(f"{tenant[:80]!r}: not a valid tenant name.")
        client = Client.connect(address)
        try:
            if clock.monotonic() - _current_at.get(address, -CHECK_INTERVAL_S) >= CHECK_INTERVAL_S:
                schema.require_version(client, schema.read_version(client))
                _current_at[address] = clock.monotonic()
        except BaseException:
            client.close()
            raise
        return cls(client, tenant, readonly, read_spill, root, home_id)

    def is_current(self) -> bool:
        now = clock.monotonic()
        if now - self._checked < CHECK_INTERVAL_S:
            return True
        try:
            is_current = schema.read_version(self._client) == schema.VERSION
        except StoreError:
            return False
        self._checked = now
        return is_current

    def find_problems(self) -> Sequence[str]:
        return () if self.tenant is not None else read_problems(self._client)

    def interrupt(self) -> None:
        """Do nothing: a query ends at its time limit."""

    def close(self) -> None:
        if self._image is not None:
            self._image.connection.close()
            self._image = None
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()


if TYPE_CHECKING:

    def _check_interface(store: ClickHouseStore) -> Store:
        return store
