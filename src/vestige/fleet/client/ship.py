"""Send the journals of a home to a server, as they grow: the far side of fleet/server/receive.py.

The agent knows nothing of this: a ship only reads what stands in its files. An offset moves once
the server has acknowledged what stands before it; so a kill, of either side and at any point,
costs at most some lines sent twice, which the server knows by their identity.

One parcel is on its way at a time, in the order of the journals, while the next is gathered and
packed. When the server cannot be reached the pauses grow; the journals wait.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vestige._runtime import file_locks
from vestige._runtime.clock import SYSTEM
from vestige.collector.outbox import forget_lost, read_lost
from vestige.errors import ShipError, UsageError
from vestige.fleet.client.ship_client import ServerReply, ShipClient
from vestige.fleet.client.ship_reader import OutgoingShipment, ShipReader, find_journals
from vestige.fleet.client.ship_state import Shipped, read_shipped, write_shipped
from vestige.fleet.compression import pack
from vestige.fleet.shipment import Identity
from vestige.home import Home
from vestige.limits import (
    KIB,
    PARCEL_BYTES,
    SHIP_PAUSE_MAX_S,
    SHIP_PAUSE_S,
    SHIP_REFUSED_MAX,
    SHIP_TICK_S,
    SHIP_TRIES,
)

Say = Callable[[str], None]
KeepOn = Callable[[float], bool]
"""Waits so many seconds, or until it is time to stop: then it says no."""

_PARCEL_MIN = 64 * KIB


@dataclass(slots=True)
class Sent:
    """What a ship has done so far."""

    records: int = 0
    new: int = 0
    """Of them, those that the server did not know."""
    packed_bytes: int = 0
    refused: int = 0
    """Lines of runs that belong to another tenant over there: not sent."""
    too_large: int = 0
    """Lines, or their bodies, that the server does not take."""


class _AgainError(Exception):
    """The parcel must be made otherwise; at once."""


class _LaterError(Exception):
    """Not now. The message says why."""

    def __init__(self, why: str, after_s: float | None = None) -> None:
        super().__init__(why)
        self.after_s = after_s


class Ship:
    """Holds the home's shipping lock. Made by `hold_ship`."""

    def __init__(self, home: Home, link: ShipClient, say: Say, remove: bool = False) -> None:
        self._home = home
        self._link = link
        self._say = say
        self._remove = remove
        self._shipped: Shipped = read_shipped(home, link.url)
        self._bytes_max = PARCEL_BYTES
        self._bodiless: set[Identity] = set()
        self._sent_bodies: set[Identity] = set()
        self._keep_on: KeepOn = lambda seconds: True
        self.sent = Sent()
        write_shipped(home, self._shipped)  # from now on the collector keeps files for us

    def run(self, keep_on: KeepOn, once: bool = False) -> Sent:
        """Send until told to stop; `once`: until all that is there was sent."""
        failures = 0
        self._keep_on = keep_on
        self._tell_lost()
        while True:
            try:
                moved = self.pass_once()
                if failures:
                    self._say(f"{self._link.url}: back; sending again.")
                failures = 0
                if once or not keep_on(0.0 if moved else SHIP_TICK_S):
                    return self.sent
            except _LaterError as problem:
                failures += 1
                if failures == 1:
                    self._say(f"{self._link.url}: {problem}; will try again.")
                if once and failures >= SHIP_TRIES:
                    raise ShipError(
                        f"{self._link.url}: {problem}. Nothing is lost: run this again later."
                    ) from None
                if not keep_on(_pause_s(failures, problem.after_s)):
                    return self.sent

    def pass_once(self) -> bool:
        """Send all that is there now; whether there was anything."""
        while True:
            gathering = ShipReader(self._home, self._shipped, self._bytes_max, self._bodiless)
            try:
                moved, all_of_it = self._send_all(gathering)
            except _AgainError:
                continue
            except OSError as error:  # of a file here; the link's are told by _acknowledge
                raise _LaterError(f"a journal cannot be read ({error})") from None
            if all_of_it:
                self._clean(gathering)
            return moved

    def _send_all(self, gathering: ShipReader) -> tuple[bool, bool]:
        """Whether there was anything, and whether that was all: we may be told to stop."""
        moved = False
        all_of_it = True
        with ThreadPoolExecutor(1, "vestige-ship") as sender:
            waiting: tuple[OutgoingShipment, Future[ServerReply | None]] | None = None
            for outgoing in gathering.parcels():
                moved = True
                data = outgoing.data
                packed = pack(data) if data else None
                if waiting is not None:
                    self._acknowledge(*waiting)
                    waiting = None
                    if not self._keep_on(0.0):
                        all_of_it = False
                        break
                waiting = outgoing, sender.submit(self._send, packed)
            if waiting is not None:
                self._acknowledge(*waiting)
        return moved, all_of_it

    def _send(self, packed: bytes | None) -> ServerReply | None:
        """None: there was nothing to send, as all of it is refused over there."""
        if packed is None:
            return None
        self.sent.packed_bytes += len(packed)
        return self._link.send(packed)

    # --- what the server says -------------------------------------------------------------

    def _acknowledge(self, outgoing: OutgoingShipment, waiting: Future[ServerReply | None]) -> None:
        try:
            answer = waiting.result()
        except ssl.SSLCertVerificationError as error:
            told = " ".join(str(error.verify_message).split()).rstrip(".")
            raise ShipError(
                f"{self._link.url}: its certificate is not trusted ({told}). Ask for the server by"
                " the name that stands in it, or give the certificate by --ca-file."
            ) from None
        except OSError as error:
            raise _LaterError(f"cannot be reached ({error.strerror or error})") from None
        if answer is not None:
            self._judge(answer, outgoing)
            self.sent.records += _count(answer, "records")
            self.sent.new += _count(answer, "new")
        self._moved(outgoing)

    def _judge(self, answer: ServerReply, outgoing: OutgoingShipment) -> None:
        """Return if the parcel was taken."""
        status, url = answer.status, self._link.url
        if status == 200 and isinstance(answer.data.get("records"), int):
            return  # a page that says 200 to everything has not kept a line
        if status == 409:
            self._refuse(answer)
        if status == 413:
            self._shrink(outgoing)
        if status in (408, 425, 429) or status >= 500:
            raise _LaterError(f"{status} {answer.message}", answer.retry_after_s)
        if status in (401, 403):
            raise ShipError(
                f"{url}: the key is refused ({status} {answer.message}). Give one with scope"
                " runs:write, in VESTIGE_SHIP_KEY or by --key-file."
            )
        raise ShipError(
            f"{url}: does not take records ({status} {answer.message}). Is it the address of a"
            " `vestige serve`?"
        )

    def _refuse(self, answer: ServerReply) -> None:
        """Runs of another tenant: leave them out from now on."""
        details = answer.data.get("details")
        runs = details.get("runs") if isinstance(details, dict) else None
        fresh = [
            run for run in runs or () if isinstance(run, str) and run not in self._shipped.refused
        ]
        if not fresh or len(self._shipped.refused) + len(fresh) > SHIP_REFUSED_MAX:
            raise ShipError(f"{self._link.url}: records are refused ({answer.message}).")
        self._say(f"{self._link.url}: {answer.message} Left out: {', '.join(fresh)}.")
        self._shipped.refused += fresh
        write_shipped(self._home, self._shipped)
        raise _AgainError

    def _shrink(self, outgoing: OutgoingShipment) -> None:
        """Too large, perhaps for something between us: smaller parcels; at last, one body less."""
        if not outgoing.single:
            smaller = min(self._bytes_max, outgoing.size_bytes) // 2
            self._bytes_max = max(smaller, _PARCEL_MIN)
            if smaller >= _PARCEL_MIN:
                raise _AgainError
            self._bytes_max = 1  # line by line
            raise _AgainError
        self.sent.too_large += 1
        if outgoing.spilled and outgoing.spilled[0] not in self._bodiless:
            self._say("a body is too large for the server: sent without it.")
            self._bodiless.add(outgoing.spilled[0])
        else:
            self._say("a record is too large for the server: left out.")
            self._moved(outgoing)
        raise _AgainError

    # --- what is done ---------------------------------------------------------------------

    def _moved(self, outgoing: OutgoingShipment) -> None:
        shipped = self._shipped
        shipped.offsets.update(outgoing.offsets)
        known = {*shipped.writers, *shipped.ended}
        for key in outgoing.offsets:
            writer = key.partition(".")[0]
            if writer not in known:
                known.add(writer)
                shipped.writers.append(writer)
        for writer in outgoing.ends:
            if writer in shipped.writers:
                shipped.writers.remove(writer)
            shipped.ended.append(writer)
        self.sent.refused += outgoing.refused
        self._sent_bodies.update(outgoing.spilled)
        write_shipped(self._home, shipped)

    def _clean(self, gathering: ShipReader) -> None:
        """All was sent: let go of what only waited for that."""
        home = self._home
        for _, _, path in gathering.done:
            if self._remove or path.parent == home.outbox:
                path.unlink(missing_ok=True)
        for identity in list(self._sent_bodies):
            path = home.spilled_body(*identity)
            if self._remove:
                path.unlink(missing_ok=True)
            (home.outbox / path.name).unlink(missing_ok=True)
            if not path.exists():
                self._sent_bodies.discard(identity)
        self._forget_gone()

    def _forget_gone(self) -> None:
        """Of writers without files nothing need be remembered, and nothing kept."""
        shipped = self._shipped
        files = find_journals(self._home)
        keys = {f"{writer}.{generation}" for writer, generation, _ in files}
        alive = {writer for writer, _, _ in files} | set(shipped.writers)
        ended = [writer for writer in shipped.ended if writer in alive]
        offsets = {key: offset for key, offset in shipped.offsets.items() if key in keys}
        if ended != shipped.ended or offsets != shipped.offsets:
            shipped.ended, shipped.offsets = ended, offsets
            write_shipped(self._home, shipped)
            _delete_leftovers(self._home, alive)

    def _tell_lost(self) -> None:
        lost = read_lost(self._home)
        if lost:
            self._say(f"{lost} bytes were deleted before they were sent: over the outbox's bound.")
            forget_lost(self._home)


def _delete_leftovers(home: Home, alive: set[str]) -> None:
    """Bodies and faults of writers that were sent to their end."""
    try:
        names = os.listdir(home.outbox)
    except OSError:
        return
    for name in names:
        writer = name.partition("-")[0].partition(".")[0]
        if ("-" in name or name.endswith(".txt")) and writer not in alive:
            (home.outbox / name).unlink(missing_ok=True)


def _count(answer: ServerReply, name: str) -> int:
    found = answer.data.get(name)
    return found if isinstance(found, int) else 0


def _pause_s(failures: int, after_s: float | None) -> float:
    """As the server asks, or twice as long each time; spread, so that a fleet comes back by and by."""
    pause: float = min(SHIP_PAUSE_S * 2 ** min(failures - 1, 16), SHIP_PAUSE_MAX_S)
    if after_s is not None:
        pause = min(max(pause, after_s), SHIP_PAUSE_MAX_S)
    return pause * (0.5 + SYSTEM.fraction())


@contextmanager
def hold_ship(
    home: Home, link: ShipClient, say: Say, remove: bool = False
) -> Iterator[Ship | None]:
    """Become the one who sends this home on, or get None: somebody else does."""
    if home.capture.exists():
        raise UsageError(
            f"{home.root}: a debug bundle that is being captured (expected a home). Its journal is"
            " the capture."
        )
    home.make()
    fd = os.open(_lock(home), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield Ship(home, link, say, remove) if file_locks.try_lock(fd) else None
    finally:
        link.close()
        os.close(fd)


def _lock(home: Home) -> Path:
    return home.shipped.with_suffix(".lock")


def stop_shipping(home: Home) -> None:
    """Keep nothing for a ship any more, and forget what was sent."""
    if file_locks.is_held(_lock(home)):  # it would write down again what it sends
        raise ShipError(f"{home.root}: another process ships this home: end it first.")
    home.shipped.unlink(missing_ok=True)
    for _, _, path in home.journal_files(home.outbox):
        path.unlink(missing_ok=True)
    _delete_leftovers(home, set())
    forget_lost(home)
