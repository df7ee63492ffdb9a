"""A process beside the server that takes parcels in, so that its readers do not feel it.

    intake = Intake(home)
    receipt = intake.submit(packed, "zstd", "default").result()

Unpacking, parsing, masking and writing take a core, and the interpreter has one lock: in a thread
of the server all readers would wait for them. The server hands the packed bytes over a pipe and
gets a line back when they are durable. What arrives while one transaction is committed goes into
the next one together, so the more requests there are, the fewer commits each costs.

Tenants take turns (fleet/server/fair_queue.py). A large parcel is opened in a thread beside the writer's and stored in
steps, each in a transaction with what others sent, so nobody waits for the end of another's.

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
from vestige.fleet.server.fair_queue import Turns
from vestige.fleet.server.receive import (
    JOURNAL,
    Delivery,
    Keeping,
    Opened,
    Outcome,
    Receipt,
    Receiver,
    open_delivery,
)
from vestige.home import Home, get_home
from vestige.limits import DRAIN_S
from vestige.record.redaction.redactor import Redactor


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


OPENERS = 3
"""Threads that unpack and parse."""
TENANT_MAX = 2
TOTAL_MAX = 8
"""Parcels in memory, unpacked: of one tenant, and of all."""
STEP_S = 0.5
"""After this a transaction is committed, though more could be stored in it."""


@dataclass(slots=True)
class _Parcel:
    """A delivery on its way into the store."""

    number: int
    tenant: str
    keeping: Keeping


def work(home: Home, source: BinaryIO, out: BinaryIO) -> None:
    """Take in what comes, until the pipe ends."""
    arrived: Turns[tuple[_Header, bytes]] = Turns(TENANT_MAX, TOTAL_MAX)
    ready: queue.SimpleQueue[tuple[_Header, Opened] | None] = queue.SimpleQueue()
    threading.Thread(target=_read_all, args=(source, arrived), daemon=True).start()
    for _ in range(OPENERS):
        threading.Thread(target=_open_all, args=(home, arrived, ready), daemon=True).start()
    writer = _Writer(home, ready, out, arrived.finish)
    with pause_gc():
        while writer.step():
            pass


def _read_all(source: BinaryIO, arrived: Turns[tuple[_Header, bytes]]) -> None:
    """Read the pipe to its end. The server bounds what it sends and has no answer to."""
    decode = msgspec.json.Decoder(_Header).decode
    while line := source.readline():
        header = decode(line)
        data = source.read(header.size_bytes)
        if len(data) < header.size_bytes:
            break  # the server died while it spoke
        arrived.put(header.tenant, (header, data))
        del data  # it may be large, and the next line may be long in coming
    arrived.close()


def _open_all(
    home: Home,
    arrived: Turns[tuple[_Header, bytes]],
    ready: queue.SimpleQueue[tuple[_Header, Opened] | None],
) -> None:
    redactor = Redactor(kept_in=home.scanners)
    while (item := arrived.take()) is not None:
        header, data = item
        delivery = Delivery(data, header.encoding, header.tenant, header.kind)
        try:
            ready.put((header, open_delivery(delivery, redactor)))
        finally:
            del item, data, delivery
    ready.put(None)


class _Writer:
    """Stores what was opened; the only one that touches the store."""

    def __init__(
        self,
        home: Home,
        ready: queue.SimpleQueue[tuple[_Header, Opened] | None],
        out: BinaryIO,
        finish: Callable[[str], None],
    ) -> None:
        """`finish` is called with the tenant of each parcel that is answered."""
        self._home = home
        self._ready = ready
        self._out = out
        self._finish = finish
        self._receiver: Receiver | None = None
        self._begun: deque[_Parcel] = deque()
        """Those that are not wholly stored, in the order of their turns."""
        self._openers = OPENERS

    def step(self) -> bool:
        """Make one transaction. False: there will be nothing more."""
        self._gather(wait=not self._begun)
        if not self._begun:
            return bool(self._openers)
        touched: dict[int, _Parcel] = {}
        done: dict[int, Outcome | Exception] = {}
        try:
            if self._receiver is None:
                self._receiver = Receiver(self._home)
            with self._receiver.transaction():
                self._store_some(touched, done)
        except (sqlite3.Error, OSError, StoreError) as error:
            # Undone for all of them: each sender keeps what it has, and sends it again. If none
            # was begun, the store cannot be opened or locked, and all of them are told so.
            touched = touched or {each.number: each for each in self._begun}
            self._begun = deque(each for each in self._begun if each.number not in touched)
            done = dict.fromkeys(touched, error.with_traceback(None))
        for number, outcome in done.items():
            self._out.write(msgspec.json.encode(_reply(number, outcome)) + b"\n")
            self._finish(touched[number].tenant)
        self._out.flush()
        return True

    def _gather(self, *, wait: bool) -> None:
        """Begin what is ready; with `wait`, at least one."""
        while self._openers:
            try:
                item = self._ready.get(block=wait)
            except queue.Empty:
                return
            if item is None:
                self._openers -= 1
                continue
            header, opened = item
            keeping = self._keep(opened, header.tenant)
            self._begun.append(_Parcel(header.number, header.tenant, keeping))
            wait = False

    def _keep(self, opened: Opened, tenant: str) -> Keeping:
        """The same as the receiver's; which is made, or made anew, only with a transaction."""
        assert self._receiver is not None
        return (yield from self._receiver.keep(opened, tenant))

    def _store_some(
        self, touched: dict[int, _Parcel], done: dict[int, Outcome | Exception]
    ) -> None:
        until = clock.monotonic() + STEP_S
        while self._begun and clock.monotonic() < until:
            parcel = self._begun.popleft()
            touched[parcel.number] = parcel
            try:
                next(parcel.keeping)
            except StopIteration as ended:
                done[parcel.number] = ended.value
            else:
                self._begun.append(parcel)
            self._gather(wait=False)


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
