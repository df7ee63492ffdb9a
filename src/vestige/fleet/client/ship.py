"""Send the journals of a home to a server, as they grow.

Only the journal files are read; the agent is not involved. An offset advances when the server has
acknowledged the lines before it. If either side is killed, some lines are sent twice, and the
server recognizes them by their identity.

One shipment is sent at a time, in the order of the journals, while the next is read and
compressed. While the server cannot be reached, the pauses between attempts grow.

Elsewhere: the receiving side is fleet/server/receive.py.
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

Report = Callable[[str], None]
KeepOn = Callable[[float], bool]
"""Waits the seconds and returns true, or returns false as soon as shipping should stop."""

_PARCEL_MIN = 64 * KIB


@dataclass(slots=True)
class Sent:
    """Totals of a ship."""

    records: int = 0
    new: int = 0
    """Records that the server did not have yet."""
    packed_bytes: int = 0
    refused: int = 0
    """Lines that were not sent: their runs belong to another tenant on the server."""
    too_large: int = 0
    """Lines or bodies that are too large for the server."""


class _RebuildError(Exception):
    """The shipment must be built differently and sent again at once."""


class _RetryLaterError(Exception):
    """Sending failed and can be retried. The message is the reason."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.after_s = after_s


class Ship:
    """Sends a home's journals while it has the home's shipping lock. Created by `hold_ship`."""

    def __init__(
        self, home: Home, client: ShipClient, report: Report, remove: bool = False
    ) -> None:
        self._home = home
        self._client = client
        self._report = report
        self._remove = remove
        self._shipped: Shipped = read_shipped(home, client.url)
        self._bytes_max = PARCEL_BYTES
        self._bodiless: set[Identity] = set()
        self._sent_bodies: set[Identity] = set()
        self._keep_on: KeepOn = lambda seconds: True
        self.sent = Sent()
        write_shipped(home, self._shipped)  # from now on the collector moves files to the outbox

    def run(self, keep_on: KeepOn, once: bool = False) -> Sent:
        """Send until `keep_on` returns false. `once`: until everything present was sent."""
        failures = 0
        self._keep_on = keep_on
        self._report_lost()
        while True:
            try:
                any_sent = self.send_pending()
                if failures:
                    self._report(f"{self._client.url}: reachable again; sending.")
                failures = 0
                if once or not keep_on(0.0 if any_sent else SHIP_TICK_S):
                    return self.sent
            except _RetryLaterError as error:
                failures += 1
                if failures == 1:
                    self._report(f"{self._client.url}: {error}; will try again.")
                if once and failures >= SHIP_TRIES:
                    raise ShipError(
                        f"{self._client.url}: {error}. Nothing is lost: run this again later."
                    ) from None
                if not keep_on(_pause_s(failures, error.after_s)):
                    return self.sent

    def send_pending(self) -> bool:
        """Send everything present. Return whether there was anything."""
        while True:
            reader = ShipReader(self._home, self._shipped, self._bytes_max, self._bodiless)
            try:
                any_sent, is_complete = self._send_all(reader)
            except _RebuildError:
                continue
            except OSError as error:  # of a local file; _acknowledge handles the connection's
                raise _RetryLaterError(f"a journal cannot be read ({error})") from None
            if is_complete:
                self._clean(reader)
            return any_sent

    def _send_all(self, reader: ShipReader) -> tuple[bool, bool]:
        """Send all shipments. Return whether there were any, and false if it was stopped."""
        any_sent = False
        with ThreadPoolExecutor(1, "vestige-ship") as sender:
            pending: tuple[OutgoingShipment, Future[ServerReply | None]] | None = None
            for outgoing in reader.iter_shipments():
                any_sent = True
                data = outgoing.data
                packed = pack(data) if data else None
                if pending is not None:
                    self._acknowledge(*pending)
                    if not self._keep_on(0.0):
                        return any_sent, False
                pending = outgoing, sender.submit(self._send, packed)
            if pending is not None:
                self._acknowledge(*pending)
        return any_sent, True

    def _send(self, packed: bytes | None) -> ServerReply | None:
        """Send a shipment. None: it is empty, because the server refuses all of its runs."""
        if packed is None:
            return None
        self.sent.packed_bytes += len(packed)
        return self._client.send(packed)

    # --- replies --------------------------------------------------------------------------

    def _acknowledge(self, outgoing: OutgoingShipment, future: Future[ServerReply | None]) -> None:
        try:
            reply = future.result()
        except ssl.SSLCertVerificationError as error:
            reason = " ".join(str(error.verify_message).split()).rstrip(".")
            raise ShipError(
                f"{self._client.url}: its certificate is not trusted ({reason}). Use the host name"
                " in the certificate, or pass the certificate with --ca-file."
            ) from None
        except OSError as error:
            raise _RetryLaterError(f"cannot be reached ({error.strerror or error})") from None
        if reply is not None:
            self._check_reply(reply, outgoing)
            self.sent.records += _count(reply, "records")
            self.sent.new += _count(reply, "new")
        self._mark_sent(outgoing)

    def _check_reply(self, reply: ServerReply, outgoing: OutgoingShipment) -> None:
        """Return if the server stored the shipment; otherwise raise."""
        status, url = reply.status, self._client.url
        # A count of records is required: another kind of server may answer 200 to everything.
        if status == 200 and isinstance(reply.data.get("records"), int):
            return
        if status == 409:
            self._skip_refused_runs(reply)
        if status == 413:
            self._shrink(outgoing)
        if status in (408, 425, 429) or status >= 500:
            raise _RetryLaterError(f"{status} {reply.message}", reply.retry_after_s)
        if status in (401, 403):
            raise ShipError(
                f"{url}: the key is refused ({status} {reply.message}). Pass one with scope"
                " runs:write, in VESTIGE_SHIP_KEY or with --key-file."
            )
        raise ShipError(
            f"{url}: does not accept records ({status} {reply.message}). Is it the address of a"
            " `vestige server start`?"
        )

    def _skip_refused_runs(self, reply: ServerReply) -> None:
        """Leave out the runs that belong to another tenant from now on."""
        details = reply.data.get("details")
        runs = details.get("runs") if isinstance(details, dict) else None
        new = [
            run for run in runs or () if isinstance(run, str) and run not in self._shipped.refused
        ]
        if not new or len(self._shipped.refused) + len(new) > SHIP_REFUSED_MAX:
            raise ShipError(f"{self._client.url}: records are refused ({reply.message}).")
        self._report(f"{self._client.url}: {reply.message} Left out: {', '.join(new)}.")
        self._shipped.refused += new
        write_shipped(self._home, self._shipped)
        raise _RebuildError

    def _shrink(self, outgoing: OutgoingShipment) -> None:
        """Retry with smaller shipments, then line by line, then without the body or line."""
        if not outgoing.single:
            smaller = min(self._bytes_max, outgoing.size_bytes) // 2
            self._bytes_max = smaller if smaller >= _PARCEL_MIN else 1  # 1: line by line
            raise _RebuildError
        self.sent.too_large += 1
        if outgoing.spilled and outgoing.spilled[0] not in self._bodiless:
            self._report("a body is too large for the server: sent without it.")
            self._bodiless.add(outgoing.spilled[0])
        else:
            self._report("a record is too large for the server: left out.")
            self._mark_sent(outgoing)
        raise _RebuildError

    # --- progress -------------------------------------------------------------------------

    def _mark_sent(self, outgoing: OutgoingShipment) -> None:
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

    def _clean(self, reader: ShipReader) -> None:
        """Delete files that were only kept until everything was sent."""
        home = self._home
        for _, _, path in reader.done:
            if self._remove or path.parent == home.outbox:
                path.unlink(missing_ok=True)
        for identity in list(self._sent_bodies):
            path = home.spilled_body(*identity)
            if self._remove:
                path.unlink(missing_ok=True)
            (home.outbox / path.name).unlink(missing_ok=True)
            if not path.exists():
                self._sent_bodies.discard(identity)
        self._forget_deleted()

    def _forget_deleted(self) -> None:
        """Drop the state and leftover files of writers that have no journal files."""
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

    def _report_lost(self) -> None:
        lost_bytes = read_lost(self._home)
        if lost_bytes:
            self._report(f"{lost_bytes} bytes were deleted unsent: the outbox was full.")
            forget_lost(self._home)


def _delete_leftovers(home: Home, alive: set[str]) -> None:
    """Delete bodies and fault files of writers that were sent completely."""
    try:
        names = os.listdir(home.outbox)
    except OSError:
        return
    for name in names:
        writer = name.partition("-")[0].partition(".")[0]
        if ("-" in name or name.endswith(".txt")) and writer not in alive:
            (home.outbox / name).unlink(missing_ok=True)


def _count(reply: ServerReply, name: str) -> int:
    found = reply.data.get(name)
    return found if isinstance(found, int) else 0


def _pause_s(failures: int, after_s: float | None) -> float:
    """Return the server's Retry-After, or a doubling pause, with jitter to spread a fleet."""
    pause: float = min(SHIP_PAUSE_S * 2 ** min(failures - 1, 16), SHIP_PAUSE_MAX_S)
    if after_s is not None:
        pause = min(max(pause, after_s), SHIP_PAUSE_MAX_S)
    return pause * (0.5 + SYSTEM.fraction())


@contextmanager
def hold_ship(
    home: Home, client: ShipClient, report: Report, remove: bool = False
) -> Iterator[Ship | None]:
    """Take the home's shipping lock and yield its ship. None: another process has the lock."""
    if home.capture.exists():
        raise UsageError(f"{home.root}: a debug bundle that is being captured (expected a home).")
    home.make()
    fd = os.open(_lock(home), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield Ship(home, client, report, remove) if file_locks.try_lock(fd) else None
    finally:
        client.close()
        os.close(fd)


def _lock(home: Home) -> Path:
    return home.shipped.with_suffix(".lock")


def stop_shipping(home: Home) -> None:
    """Delete the state of shipping and the outbox."""
    if file_locks.is_held(_lock(home)):  # that process would write its state again
        raise ShipError(f"{home.root}: another process ships this home. End it first.")
    home.shipped.unlink(missing_ok=True)
    for _, _, path in home.journal_files(home.outbox):
        path.unlink(missing_ok=True)
    _delete_leftovers(home, set())
    forget_lost(home)
