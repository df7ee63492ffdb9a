"""Many readers while records come in at full rate: no error, and nothing lost."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path

import pytest

from support.ship_server import Serving
from vestige.fleet.compression import pack
from vestige.record.codec import render_line
from vestige.record.types import SpanClose, SpanOpen

READERS = 200
READS = 10
"""Of each reader. Counted, not timed: a slow machine does the same work."""
RUNS, SPANS = 20, 50


@pytest.mark.full  # 8 s of load
def test_readers_see_no_error_and_no_record_is_lost_while_ingest_runs(tmp_path: Path) -> None:
    """Some seconds of what `make bench` does for a minute, on a small store."""
    server = Serving(tmp_path / "server")
    key, writing = server.key(), server.key()
    server.start()
    try:
        assert server.post(pack(parcel(1)), writing).status == 200
        sent = Sending(server, writing)
        sent.start()
        statuses = asyncio.run(read_all(server.port, key))
        sent.read.set()
        sent.join()
    finally:
        server.stop()

    assert set(statuses) == {200}
    assert len(statuses) == READERS * READS
    assert set(sent.statuses) == {200}
    runs = server.runs()
    assert len(runs) == RUNS * (1 + len(sent.statuses))
    assert all(run.info.span_count == SPANS and run.info.outcome == "ok" for run in runs.values())


class Sending(threading.Thread):
    """One parcel after the other, for as long as there are readers."""

    def __init__(self, server: Serving, key: str) -> None:
        super().__init__()
        self._server, self._key = server, key
        self.read = threading.Event()
        self.statuses: list[int] = []

    def run(self) -> None:
        while not self.read.is_set():
            packed = pack(parcel(2 + len(self.statuses)))
            self.statuses.append(self._server.post(packed, self._key).status)


def parcel(number: int) -> bytes:
    """Runs of their own, by a writer of their own."""
    lines = []
    seq = 0
    for run in range(RUNS):
        run_id = f"{number:08x}-0000-4000-8000-{run:012x}"
        for at in range(SPANS):
            span, kind = f"{at:016x}", "tool" if at else "run"
            parent = f"{0:016x}" if at else None
            lines += [
                render_line(
                    SpanOpen(
                        1,
                        f"{number:016x}",
                        seq + 1,
                        1_000,
                        run_id,
                        span,
                        "a",
                        kind,
                        "n",
                        parent,
                        None,
                        {"n": at},
                    )
                ),
                render_line(
                    SpanClose(1, f"{number:016x}", seq + 2, 2_000, run_id, span, "ok", 1_000)
                ),
            ]
            seq += 2
    return b"".join(lines)


async def read_all(port: int, key: str) -> list[int]:
    paths = [
        "/api/v1/list?limit=20",
        *(
            f"/api/v1/{verb}"
            for n in range(1, RUNS)
            for verb in (f"show?id=r{n}", f"span?id=r{n}.s3")
        ),
    ]
    statuses: list[int] = []

    async def one(first: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in range(first, first + READS):
            head = f"GET {paths[number % len(paths)]} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            writer.write(f"{head}Authorization: Bearer {key}\r\n\r\n".encode())
            header = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = re.search(r"(?i)content-length: (\d+)", header)
            assert length is not None, header
            await reader.readexactly(int(length[1]))
            statuses.append(int(header.split(" ", 2)[1]))
        writer.close()

    await asyncio.gather(*(one(number) for number in range(READERS)))
    return statuses
