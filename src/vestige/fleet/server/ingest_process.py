"""A process beside the server that takes parcels in, so that its readers do not feel it.

    intake = Intake(home)
    receipt = intake.submit(packed, "zstd", "default").result()

Unpacking, parsing, masking and writing take a core, and the interpreter has one lock: in a thread
of the server all readers would wait for them. The server hands the packed bytes over a pipe and
gets a line back when they are durable. What waits in the pipe while one transaction is committed
goes into the next one together, so the more requests there are, the fewer commits each costs.

The process ends when the pipe does, whatever ended the server. If it dies itself, whoever waits is
told to come again (nothing was acknowledged), and the next parcel starts another.

On the pipe: a line of JSON (`_Header`), then so many bytes. Back: a line of JSON (`Reply`).
"""

from __future__ import annotations

import queue
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import BinaryIO

import msgspec

from vestige.errors import ForeignRunError, ParcelTooLargeError, StoreError, VestigeError
from vestige.fleet.server.receive import JOURNAL, Delivery, Outcome, Receipt, Receiver
from vestige.home import Home, get_home
from vestige.limits import DRAIN_S, INGEST_TOGETHER_BYTES


class _Header(msgspec.Struct):
    number: int
    size_bytes: int
    encoding: str
    tenant: str
    kind: str


class Reply(msgspec.Struct, omit_defaults=True):
    """What became of a parcel."""

    number: int
    records: int = 0
    new: int = 0
    malformed: int = 0
    problem: str | None = None
    """None: it is kept. foreign, too_large, unreadable, busy."""
    message: str = ""
    """Why it was not kept, or not all of it."""
    run_id: str | None = None


# --- in the server ------------------------------------------------------------------------------

_Waiting = dict[int, "Future[Reply]"]


class Intake:
    """The process, started with the first parcel."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._number = 0
        self._child: _Child | None = None
        self._closed = False

    def submit(
        self, packed: bytes, encoding: str, tenant: str, kind: str = JOURNAL
    ) -> Future[Reply]:
        """Hand a parcel over; never waits. Its reply comes when it is durable, or refused."""
        with self._lock:
            self._number += 1
            if self._closed:
                return _answered(_gone(self._number))
            if self._child is None or not self._child.is_alive():
                self._child = _Child(self._home)
            header = _Header(self._number, len(packed), encoding, tenant, kind)
            return self._child.submit(header, packed)

    def close(self) -> None:
        """Let it finish what it has, and go. Whoever comes later is told to come again."""
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.close()
                self._child = None


class _Child:
    """One life of the process, with a thread for each direction of the pipe."""

    def __init__(self, home: Home) -> None:
        command = [sys.executable, "-m", "vestige.fleet.server.ingest_process", str(home.root)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the server, which then ends this one
        )
        self._waiting: _Waiting = {}
        self._lock = threading.Lock()
        self._over = False
        self._out: queue.SimpleQueue[tuple[_Header, bytes] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=work, name=f"vestige-intake-{name}", daemon=True)
            for name, work in (("out", self._write), ("back", self._read))
        ]
        for thread in self._threads:
            thread.start()

    def is_alive(self) -> bool:
        return not self._over

    def submit(self, header: _Header, packed: bytes) -> Future[Reply]:
        future: Future[Reply] = Future()
        future.set_running_or_notify_cancel()  # one that is cancelled would end the reading thread
        with self._lock:
            if self._over:
                return _answered(_gone(header.number))
            self._waiting[header.number] = future
        self._out.put((header, packed))
        return future

    def _write(self) -> None:
        assert self._process.stdin is not None
        try:
            while (item := self._out.get()) is not None:
                self._process.stdin.write(msgspec.json.encode(item[0]) + b"\n")
                self._process.stdin.write(item[1])
                self._process.stdin.flush()
                del item  # it may be large, and the next may be long in coming
            self._process.stdin.close()
        except OSError:
            pass  # it is gone: the other thread sees that, too

    def _read(self) -> None:
        assert self._process.stdout is not None
        decode = msgspec.json.Decoder(Reply).decode
        with suppress(msgspec.DecodeError):  # it died in the middle of a line
            for line in self._process.stdout:
                reply = decode(line)
                with self._lock:
                    future = self._waiting.pop(reply.number, None)
                if future is not None:
                    future.set_result(reply)
        with self._lock:
            self._over = True
            left, self._waiting = self._waiting, {}
        for number, future in left.items():
            future.set_result(_gone(number))
        self._out.put(None)
        self._process.kill()  # if it still lives, we do not understand each other
        self._process.wait()

    def close(self) -> None:
        self._out.put(None)
        try:
            self._process.wait(DRAIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        for thread in self._threads:
            thread.join(DRAIN_S)


def _answered(reply: Reply) -> Future[Reply]:
    future: Future[Reply] = Future()
    future.set_result(reply)
    return future


def _gone(number: int) -> Reply:
    return Reply(
        number, problem="busy", message="The process that writes has ended. Send it again."
    )


# --- in the process -----------------------------------------------------------------------------


def work(home: Home, source: BinaryIO, out: BinaryIO) -> None:
    """Take in what comes, until the pipe ends."""
    arrived: queue.SimpleQueue[tuple[_Header, bytes] | None] = queue.SimpleQueue()
    # A bound on what is read ahead: the rest waits in the pipe, and at last in the sender.
    room = threading.Semaphore(_AHEAD)
    reading = threading.Thread(target=_read_ahead, args=(source, arrived, room), daemon=True)
    reading.start()
    receiver: Receiver | None = None
    for headers, deliveries in _groups(arrived, room):
        try:
            if receiver is None:
                receiver = Receiver(home)
            outcomes: list[Outcome | Exception] = list(receiver.take(deliveries))
        except (sqlite3.Error, OSError, StoreError) as error:
            outcomes = [error] * len(deliveries)
        for header, outcome in zip(headers, outcomes, strict=True):
            out.write(msgspec.json.encode(_reply(header.number, outcome)) + b"\n")
        out.flush()


_AHEAD = 16


def _read_ahead(
    source: BinaryIO,
    arrived: queue.SimpleQueue[tuple[_Header, bytes] | None],
    room: threading.Semaphore,
) -> None:
    decode = msgspec.json.Decoder(_Header).decode
    while line := source.readline():
        header = decode(line)
        data = source.read(header.size_bytes)
        if len(data) < header.size_bytes:
            break  # the server died while it spoke
        room.acquire()
        arrived.put((header, data))
    arrived.put(None)


def _groups(
    arrived: queue.SimpleQueue[tuple[_Header, bytes] | None], room: threading.Semaphore
) -> Iterator[tuple[list[_Header], list[Delivery]]]:
    """What is there, up to a bound; at least one."""
    going = True
    while going:
        headers: list[_Header] = []
        deliveries: list[Delivery] = []
        total = 0
        while going and total < INGEST_TOGETHER_BYTES // 8:  # packed: lines shrink to a tenth or so
            try:
                item = arrived.get(block=not headers)
            except queue.Empty:
                break
            if item is None:
                going = False
                break
            room.release()
            header, data = item
            headers.append(header)
            deliveries.append(Delivery(data, header.encoding, header.tenant, header.kind))
            total += len(data)
        if headers:
            yield headers, deliveries


def _reply(number: int, outcome: Outcome | Exception) -> Reply:
    if isinstance(outcome, Receipt):
        said = " ".join(outcome.message.split())
        return Reply(number, outcome.records, outcome.new, outcome.malformed, message=said)
    message = " ".join(str(outcome).split())
    if isinstance(outcome, ForeignRunError):
        return Reply(number, problem="foreign", message=message, run_id=outcome.run_id)
    if isinstance(outcome, ParcelTooLargeError):
        return Reply(number, problem="too_large", message=message)
    if isinstance(outcome, VestigeError) and not isinstance(outcome, StoreError):
        return Reply(number, problem="unreadable", message=message)
    # The disk is full, or somebody else has the store: the sender keeps it, and comes again.
    return Reply(number, problem="busy", message=f"The store cannot be written ({message}).")


if __name__ == "__main__":
    work(get_home(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
