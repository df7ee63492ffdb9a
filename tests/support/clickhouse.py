"""Start, kill and restart a ClickHouse server for tests (clickhouse_server.py)."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

from vestige.store.clickhouse import schema
from vestige.store.clickhouse.address import parse_address
from vestige.store.clickhouse.client import Client

_SCRIPT = Path(__file__).with_name("clickhouse_server.py")
_databases = itertools.count(1)


class ClickHouseServer:
    """A server with its data in a folder, in a process of its own."""

    def __init__(self, folder: Path, config: Path | None = None) -> None:
        self._folder = folder
        self._config = config
        self.port = 0
        self._free: list[str] = []
        """Stores that are empty again."""
        self.start()

    def start(self) -> None:
        """Start the server, on the same port as before."""
        self._process = subprocess.Popen(
            [
                sys.executable,
                str(_SCRIPT),
                f"{self._folder}?config-file={self._config}" if self._config else str(self._folder),
                str(self.port),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """Kill the server as a power cut would: it cannot finish anything."""
        self._process.kill()
        self._process.wait()

    def make_store(self) -> str:
        """Make an empty store in a database of its own. Return its address."""
        if self._free:
            return self._free.pop()
        address = f"clickhouse://127.0.0.1:{self.port}/test{next(_databases)}"
        client = Client.connect(parse_address(address))
        schema.migrate(client)
        client.close()
        return address

    def release_store(self, address: str) -> None:
        """Empty a store for the next test, which is faster than to make one."""
        client = Client.connect(parse_address(address))
        name = client.address.database
        client.command(f"TRUNCATE ALL TABLES FROM {name} NOT LIKE 'schema%'")
        client.close()
        self._free.append(address)
