"""Read the journal lines that the server has not acknowledged, as shipments.

    for outgoing in ShipReader(home, shipped).iter_shipments():
        send(outgoing.data)

Journals are read from the journal folder and from the outbox (collector/outbox.py). The end of a
writer is sent only when all of its files were unlocked before they were read, were read to their
end, and a second listing finds no other: a writer creates its next file before it unlocks the last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vestige._runtime import file_locks
from vestige.collector.journal_ingest import read_spill
from vestige.fleet.client.ship_state import Shipped
from vestige.fleet.shipment import Identity, body_lines, end_line
from vestige.home import Home
from vestige.journal.reader import read_lines
from vestige.limits import BODY_INLINE_MAX, PARCEL_BYTES
from vestige.record.codec import BadLineError, parse_line

JournalFile = tuple[str, int, Path]
_SPILLED = b'"spilled_bytes":'


@dataclass(slots=True)
class OutgoingShipment:
    """A shipment, and the progress to store once it was acknowledged."""

    lines: list[bytes] = field(default_factory=list)
    """Chunks of one or more lines, including newlines."""
    size_bytes: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    spilled: list[Identity] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    refused: int = 0
    """Lines left out because the server refuses their run."""
    single: bool = True
    """True if it cannot be made smaller."""

    @property
    def data(self) -> bytes:
        return b"".join(self.lines)


@dataclass(frozen=True, slots=True)
class _Piece:
    lines: bytes
    after: int
    single: bool
    spilled: tuple[Identity, ...] = ()
    refused: int = 0


def find_journals(home: Home) -> list[JournalFile]:
    """Return all journal files of a home and its outbox.

    The outbox is listed last: a file that is moved meanwhile is seen twice, never missed.
    """
    found = {file[:2]: file for file in home.journal_files()}
    found.update((file[:2], file) for file in home.journal_files(home.outbox))
    return sorted(found.values())


class ShipReader:
    """A single pass over the journals of a home."""

    def __init__(
        self,
        home: Home,
        shipped: Shipped,
        bytes_max: int = PARCEL_BYTES,
        bodiless: Collection[Identity] = (),
    ) -> None:
        self._home = home
        self._shipped = shipped
        self._bytes_max = bytes_max
        self._bodiless = bodiless
        """Records that are sent without their bodies, which are too large for the server."""
        self._refused = frozenset(shipped.refused)
        self._next = OutgoingShipment()
        self.done: list[JournalFile] = []
        """Finished files; complete after the last shipment."""

    def iter_shipments(self) -> Iterator[OutgoingShipment]:
        """Yield everything to send now, in the order in which it must be sent."""
        for writer, generation, path in find_journals(self._home):
            yield from self._read_file(writer, generation, path)
        for writer in self._ended_writers():
            line = end_line(writer, self._read_fault(writer))
            yield from self._flush_if_full(len(line))
            self._add_end(writer, line)
        yield from self._flush()

    def _read_file(self, writer: str, generation: int, path: Path) -> Iterator[OutgoingShipment]:
        key = f"{writer}.{generation}"
        offset = self._shipped.offsets.get(key, 0)
        finished = not file_locks.is_held(path)  # before reading, as the collector does
        while True:
            data, after = read_lines(path, offset)
            if after == offset:
                break
            for piece in self._pieces(data, offset):
                yield from self._flush_if_full(len(piece.lines))
                self._add(key, piece)
            offset = after
        # A missing file was moved to the outbox, and is found there in the next pass.
        if finished and path.exists():
            self.done.append((writer, generation, path))

    def _flush_if_full(self, more_bytes: int) -> Iterator[OutgoingShipment]:
        """Yield the current shipment if it has no room for this many more bytes."""
        if self._next.size_bytes + more_bytes > self._bytes_max:
            yield from self._flush()

    def _flush(self) -> Iterator[OutgoingShipment]:
        if self._next.lines or self._next.offsets:
            yield self._next
            self._next = OutgoingShipment()

    def _add(self, key: str, piece: _Piece) -> None:
        outgoing = self._next
        outgoing.single = piece.single and not outgoing.lines
        outgoing.lines.append(piece.lines)
        outgoing.size_bytes += len(piece.lines)
        outgoing.offsets[key] = piece.after
        outgoing.spilled += piece.spilled
        outgoing.refused += piece.refused

    def _add_end(self, writer: str, line: bytes) -> None:
        outgoing = self._next
        outgoing.single = not outgoing.lines
        outgoing.lines.append(line)
        outgoing.size_bytes += len(line)
        outgoing.ends.append(writer)

    # --- lines ----------------------------------------------------------------------------

    def _pieces(self, data: bytes, offset: int) -> Iterator[_Piece]:
        """Yield the lines in pieces of at most `bytes_max`, with their long bodies."""
        must_parse = bool(self._refused) or _SPILLED in data
        at = 0
        while at < len(data):
            end = data.rfind(b"\n", at, at + self._bytes_max) + 1
            if not end:
                end = data.find(b"\n", at) + 1  # a single line that is longer
            lines = data[at:end]
            if must_parse and (self._refused or _SPILLED in lines):
                yield from self._line_pieces(lines, offset + at)
            else:
                yield _Piece(lines, offset + end, lines.count(b"\n", 0, -1) == 0)
            at = end

    def _line_pieces(self, lines: bytes, offset: int) -> Iterator[_Piece]:
        for line in lines.splitlines(keepends=True):
            offset += len(line)
            try:
                record = parse_line(line)
            except BadLineError:
                yield _Piece(line, offset, True)
                continue
            if record.run_id in self._refused:
                yield _Piece(b"", offset, True, refused=1)
                continue
            info = getattr(record, "body_info", None)
            if info is None or info.spilled_bytes is None:
                yield _Piece(line, offset, True)
                continue
            identity = (record.writer, record.seq)
            body = None if identity in self._bodiless else read_spill(self._home, *identity, info)
            parts = () if body is None else body_lines(*identity, body)
            yield _Piece(b"".join((*parts, line)), offset, True, (identity,))

    # --- ends -----------------------------------------------------------------------------

    def _ended_writers(self) -> list[str]:
        """Return writers that have ended, were read completely, and whose end was not sent."""
        done = {file[:2] for file in self.done}
        has_ended: dict[str, bool] = dict.fromkeys(self._shipped.writers, True)
        for writer, generation, _ in find_journals(self._home):
            has_ended[writer] = has_ended.get(writer, True) and (writer, generation) in done
        sent = set(self._shipped.ended)
        return [writer for writer, ended in has_ended.items() if ended and writer not in sent]

    def _read_fault(self, writer: str) -> str | None:
        name = self._home.fault_file(writer).name
        for folder in (self._home.faults, self._home.outbox):
            try:
                with open(folder / name, "rb") as file:
                    return file.read(BODY_INLINE_MAX).decode(errors="replace") or None
            except OSError:
                continue
        return None
