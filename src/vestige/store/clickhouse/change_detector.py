"""Detect whether a store has changed, with one small query a second at most."""

from __future__ import annotations

from typing import Final

from vestige._runtime import clock
from vestige.errors import StoreError
from vestige.store.clickhouse.address import parse_address
from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.ingest.commit_log import notice_commit

_INTERVAL_S: Final = 1.0

_markers: dict[str, tuple[float, bytes]] = {}
"""The time and the result of the last query, by address."""


def read_change_marker(address: str) -> bytes:
    """Return bytes that change whenever the rows of the store do."""
    now = clock.monotonic()
    known = _markers.get(address)
    if known is not None and now - known[0] < _INTERVAL_S:
        return known[1]
    try:
        client = Client.connect(parse_address(address))
        try:
            marker = str(client.value("SELECT max(number) FROM commits")).encode()
        finally:
            client.close()
    except StoreError:
        marker = b"none"
    _markers[address] = now, marker
    if known is not None and known[1] != marker:
        notice_commit(parse_address(address))
    return marker
