"""A real server in a process of its own, and `vestige server ship` as one too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from support.programs import WAIT_S, free_port
from vestige.fleet.api_keys import Keys
from vestige.fleet.client.ship_client import ServerReply, ShipClient
from vestige.home import Home
from vestige.record.run import Run
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore


class Serving:
    """`vestige server start`, to be started, killed and started again at one address."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.home.make()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def key(self, tenant: str = "default", *scopes: str) -> str:
        name = f"k{len(Keys(self.home).list())}"
        return Keys(self.home).add(name, scopes or ("runs:read", "runs:write"), tenant).key

    def start(self) -> None:
        command = [sys.executable, "-m", "vestige", "serve", "--home", str(self.home.root)]
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port), "--no-log"], stderr=subprocess.PIPE
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert line.startswith(b"Vestige is running at "), line

    def kill(self) -> None:
        """As the kernel does it when memory is short."""
        assert self.process is not None
        self.process.kill()
        self.process.communicate(timeout=WAIT_S)
        self.process = None

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.communicate(timeout=WAIT_S)
            self.process = None

    def post(self, packed: bytes, key: str) -> ServerReply:
        link = ShipClient(self.url, key)
        try:
            return link.send(packed)
        finally:
            link.close()

    def runs(self) -> dict[str, Run]:
        """All that is in its store, of every tenant."""
        return runs_in(self.home)

    def tenant_of(self, run_id: str) -> str:
        with SqliteStore.open(self.home.store, readonly=True) as store:
            row = store._connection.execute("SELECT tenant FROM runs WHERE run_id = ?", (run_id,))
            return str(row.fetchone()[0])


def runs_in(home: Home) -> dict[str, Run]:
    with SqliteStore.open(home.store, readonly=True) as store:
        infos = store.list_runs(RunFilter(with_implicit=True))
        return {info.id: store.load_run(info.id) for info in infos}


def start_ship(home: Home, url: str, key: str, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "vestige", "ship", "--home", str(home.root), "--to", url]
    return subprocess.Popen(
        [*command, *more],
        env={**os.environ, "VESTIGE_SHIP_KEY": key},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ship(home: Home, url: str, key: str, *more: str) -> tuple[int, str, str]:
    """`vestige server ship --once`: exit code, what it said, what it complained of."""
    process = start_ship(home, url, key, "--once", *more)
    out, problems = process.communicate(timeout=WAIT_S)
    return process.returncode, out, problems
