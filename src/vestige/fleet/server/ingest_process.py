"""A child process of the server that stores shipments.

    intake = Intake(home)
    reply = intake.submit(packed, "zstd", "default").result()

Decompressing, parsing, redacting and writing can occupy a core. In a thread of the server they
would slow down all readers. The server sends the compressed bytes over a pipe and gets a reply when
they are durable: in the store, or in a segment (fleet/segments). Shipments that arrive during a
commit share the next transaction, so more requests cost fewer commits each.

Tenants take turns (fleet/server/fair_queue.py). Shipments are opened in threads beside the writer's
and stored in steps. A step shares its transaction with other shipments, so none has to wait until a
large one is complete.

The process ends when the pipe closes, whatever ended the server. If it dies, the pending requests
are refused with a retry (nothing was acknowledged), and the next shipment starts a new process.

Pipe protocol: a line of JSON (`_Header`) and `size_bytes` bytes; back, a line of JSON (`Reply`).
"""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

import msgspec

from vestige._runtime import clock
from vestige._runtime.gc_pause import pause_gc
from vestige.errors import ForeignRunError, ParcelTooLargeError, StoreError, VestigeError
from vestige.fleet.segments.segment_storage import open_storage
from vestige.fleet.segments.segment_writer import SegmentReceiver
from vestige.fleet.server.fair_queue import FairQueue
from vestige.fleet.server.receive import (
    JOURNAL,
    Delivery,
    Opened,
    Outcome,
    Receipt,
    Receiver,
    StoreSteps,
    open_delivery,
)
from vestige.home import Home, get_home
from vestige.limits import DRAIN_S
from vestige.record.redaction.redactor import Redactor
from vestige.settings import find_segments


class _Header(msgspec.Struct):
    number: int
    size_bytes: int
    encoding: str
    tenant: str
    kind: str


class Reply(msgspec.Struct, omit_defaults=True):
    """The result of a shipment."""

    number: int
    records: int = 0
    new: int = 0
    malformed: int = 0
    problem: str | None = None
    """None: it is stored. Otherwise foreign, too_large, unreadable or busy."""
    message: str = ""
    """The reason if it was not stored, or not completely."""
    run_id: str | None = None


# --- in the server ------------------------------------------------------------------------------

_Waiting = dict[int, "Future[Reply]"]


class Intake:
    """The server's side. The process starts with the first shipment."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._number = 0
        self._child: _Child | None = None
        self._closed = False

    def submit(
        self, packed: bytes, encoding: str, tenant: str, kind: str = JOURNAL
    ) -> Future[Reply]:
        """Send a shipment to the process, without blocking. The future is the reply."""
        with self._lock:
            self._number += 1
            if self._closed:
                return _resolved(_ended_reply(self._number))
            if self._child is None or not self._child.is_alive():
                self._child = _Child(self._home)
            header = _Header(self._number, len(packed), encoding, tenant, kind)
            return self._child.submit(header, packed)

    def close(self) -> None:
        """Let the process finish and end. Later shipments are refused with a retry."""
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.close()
                self._child = None


class _Child:
    """A running process, with a thread for each direction of the pipe."""

    def __init__(self, home: Home) -> None:
        command = [sys.executable, "-m", "vestige.fleet.server.ingest_process", str(home.root)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches only the server, which ends the child
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
        future.set_running_or_notify_cancel()  # a cancelled future would end the reading thread
        with self._lock:
            if self._over:
                return _resolved(_ended_reply(header.number))
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
                del item  # frees the data while the thread waits for the next item
            self._process.stdin.close()
        except OSError:
            pass  # the process has ended: the reading thread handles that

    def _read(self) -> None:
        assert self._process.stdout is not None
        decode = msgspec.json.Decoder(Reply).decode
        with suppress(msgspec.DecodeError):  # the process died in the middle of a line
            for line in self._process.stdout:
                reply = decode(line)
                with self._lock:
                    future = self._waiting.pop(reply.number, None)
                if future is not None:
                    future.set_result(reply)
        with self._lock:
            self._over = True
            pending, self._waiting = self._waiting, {}
        for number, future in pending.items():
            future.set_result(_ended_reply(number))
        self._out.put(None)
        self._process.kill()  # it may still run after an invalid reply
        self._process.wait()

    def close(self) -> None:
        self._out.put(None)
        try:
            self._process.wait(DRAIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        for thread in self._threads:
            thread.join(DRAIN_S)


def _resolved(reply: Reply) -> Future[Reply]:
    future: Future[Reply] = Future()
    future.set_result(reply)
    return future


def _ended_reply(number: int) -> Reply:
    return Reply(number, problem="busy", message="The ingest process has ended. Send it again.")


# --- in the process -----------------------------------------------------------------------------


OPENERS = 3
"""Threads that decompress and parse."""
TENANT_MAX = 2
TOTAL_MAX = 8
"""Decompressed shipments in memory: of one tenant, and of all."""
STEP_S = 0.5
"""Maximum time for storing in one transaction."""


@dataclass(slots=True)
class _StoringShipment:
    """A shipment that is being stored."""

    number: int
    tenant: str
    steps: StoreSteps


def work(home: Home, source: BinaryIO, out: BinaryIO) -> None:
    """Store the shipments from the pipe until it closes."""
    arrived: FairQueue[tuple[_Header, bytes]] = FairQueue(TENANT_MAX, TOTAL_MAX)
    ready: queue.SimpleQueue[tuple[_Header, Opened] | None] = queue.SimpleQueue()
    threading.Thread(target=_read_all, args=(source, arrived), daemon=True).start()
    for _ in range(OPENERS):
        threading.Thread(target=_open_all, args=(home, arrived, ready), daemon=True).start()
    writer = _Writer(home, ready, out, arrived.finish)
    with pause_gc():
        while writer.step():
            pass


def _read_all(source: BinaryIO, arrived: FairQueue[tuple[_Header, bytes]]) -> None:
    """Read the pipe to its end. The server bounds the bytes that are not answered yet."""
    decode = msgspec.json.Decoder(_Header).decode
    while line := source.readline():
        header = decode(line)
        data = source.read(header.size_bytes)
        if len(data) < header.size_bytes:
            break  # the server died while it was writing
        arrived.put(header.tenant, (header, data))
        del data  # frees the data while the thread waits for the next line
    arrived.close()


def _open_all(
    home: Home,
    arrived: FairQueue[tuple[_Header, bytes]],
    ready: queue.SimpleQueue[tuple[_Header, Opened] | None],
) -> None:
    redactor = Redactor(cache_folder=home.scanners)
    while (item := arrived.get()) is not None:
        header, data = item
        delivery = Delivery(data, header.encoding, header.tenant, header.kind)
        try:
            ready.put((header, open_delivery(delivery, redactor)))
        finally:
            del item, data, delivery
    ready.put(None)


class _Writer:
    """Stores opened shipments. Only its thread uses the store."""

    def __init__(
        self,
        home: Home,
        ready: queue.SimpleQueue[tuple[_Header, Opened] | None],
        out: BinaryIO,
        finish: Callable[[str], None],
    ) -> None:
        """Create the writer. `finish` is called with the tenant of each shipment replied to."""
        self._home = home
        self._ready = ready
        self._out = out
        self._finish = finish
        self._receiver: Receiver | SegmentReceiver | None = None
        self._storing: deque[_StoringShipment] = deque()
        """Shipments that are not stored completely, in the order of their turns."""
        self._openers = OPENERS

    def step(self) -> bool:
        """Execute one transaction. False: there are no more shipments."""
        self._gather(wait=not self._storing)
        if not self._storing:
            return bool(self._openers)
        touched: dict[int, _StoringShipment] = {}
        done: dict[int, Outcome | Exception] = {}
        try:
            if self._receiver is None:
                self._receiver = _open_receiver(self._home)
            with self._receiver.transaction():
                self._store_some(touched, done)
        except (OSError, StoreError) as error:
            # The transaction is rolled back, and each of its senders sends again. If none was
            # touched, the store cannot be opened or locked, and all shipments fail.
            touched = touched or {each.number: each for each in self._storing}
            self._storing = deque(each for each in self._storing if each.number not in touched)
            done = dict.fromkeys(touched, error.with_traceback(None))
        for number, outcome in done.items():
            self._out.write(msgspec.json.encode(_reply(number, outcome)) + b"\n")
            self._finish(touched[number].tenant)
        self._out.flush()
        return True

    def _gather(self, *, wait: bool) -> None:
        """Start the shipments that are opened. With `wait`, block until there is one."""
        while self._openers:
            try:
                item = self._ready.get(block=wait)
            except queue.Empty:
                return
            if item is None:
                self._openers -= 1
                continue
            header, opened = item
            steps = self._store(opened, header.tenant)
            self._storing.append(_StoringShipment(header.number, header.tenant, steps))
            wait = False

    def _store(self, opened: Opened, tenant: str) -> StoreSteps:
        """Delegate to the receiver, which exists only once a transaction has started."""
        assert self._receiver is not None
        return (yield from self._receiver.store(opened, tenant))

    def _store_some(
        self, touched: dict[int, _StoringShipment], done: dict[int, Outcome | Exception]
    ) -> None:
        until = clock.monotonic() + STEP_S
        while self._storing and clock.monotonic() < until:
            shipment = self._storing.popleft()
            touched[shipment.number] = shipment
            try:
                next(shipment.steps)
            except StopIteration as ended:
                done[shipment.number] = ended.value
            else:
                self._storing.append(shipment)
            self._gather(wait=False)


def _open_receiver(home: Home) -> Receiver | SegmentReceiver:
    """Return a receiver that stores shipments, or writes segments if a place for them is set."""
    location = find_segments(home)
    return SegmentReceiver(open_storage(location)) if location else Receiver(home)


def _reply(number: int, outcome: Outcome | Exception) -> Reply:
    if isinstance(outcome, Receipt):
        message = " ".join(outcome.message.split())
        return Reply(number, outcome.records, outcome.new, outcome.malformed, message=message)
    message = " ".join(str(outcome).split())
    if isinstance(outcome, ForeignRunError):
        return Reply(number, problem="foreign", message=message, run_id=outcome.run_id)
    if isinstance(outcome, ParcelTooLargeError):
        return Reply(number, problem="too_large", message=message)
    if isinstance(outcome, VestigeError) and not isinstance(outcome, StoreError):
        return Reply(number, problem="unreadable", message=message)
    # The disk is full, or another process has locked the store: the sender tries again.
    return Reply(number, problem="busy", message=f"The store cannot be written ({message}).")


if __name__ == "__main__":
    work(get_home(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
