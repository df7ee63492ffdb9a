"""Programs that record, run in a process of their own; their runs read back; free ports."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import pytest

from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.record.run import Run
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore

RunProgram = Callable[..., "subprocess.CompletedProcess[str]"]
ReadRuns = Callable[[], list[Run]]
Golden = Callable[[str, str], None]
SmallDisk = Callable[[str], Path]

WAIT_S = 120.0
"""For what is certain to come: only a test that fails waits as long, on whatever machine."""


def load(home: Home) -> list[Run]:
    """Every run of a home, implicit ones too, oldest first, once its journals are taken in."""
    with pytest.MonkeyPatch.context() as patient:
        patient.setattr(
            "vestige.collector.loop.CATCH_UP_WAIT_S", WAIT_S
        )  # who else is at it may be slow
        catch_up(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        infos = store.list_runs(RunFilter(with_implicit=True))
        return [store.load_run(info.id) for info in reversed(infos)]


def run_in(
    home: Home,
    source: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    timeout_s: float = WAIT_S,
    command: Sequence[str] = (sys.executable,),
) -> subprocess.CompletedProcess[str]:
    """Run a program's text to its end, as a file beside the home."""
    program = home.root.parent / "program.py"
    text = textwrap.dedent(source)
    if not program.exists() or program.read_text(encoding="utf-8") != text:
        program.write_text(text, encoding="utf-8")
    return subprocess.run(
        [*command, str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "VESTIGE_HOME": str(home.root), **(env or {})},
        cwd=home.root.parent,
    )


_ports: list[IO[str]] = []


def free_port() -> int:
    """A port to listen at, again and again: ours until this process ends.

    Not one that the kernel gives: it may give the same one to a client while nobody listens.
    """
    range_file = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(range_file.read_text().split()[0]) if range_file.exists() else 49152
    places = Path(tempfile.gettempdir(), f"vestige-test-ports-{os.getuid()}")
    places.mkdir(exist_ok=True)
    for port in range(first - 1, 1023, -1):
        place = open(places / str(port), "w")  # noqa: SIM115  # open for as long as it is ours
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            place.close()  # another test's, or a server's
            continue
        _ports.append(place)
        return port
    raise AssertionError("no port is free")
