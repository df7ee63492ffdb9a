"""Read a long source in a process of its own, while this one stores what it has read.

    records = read_apart(source, pieces, redactor, counts)     # None: it has to be read here
    for batch in records: ...                                  # masked, in order; pieces of a batch

Reading and storing take about as long, and neither waits for the other but by the pipe between
them: the reader is a fork, masks what it reads and sends it as journal lines; of a run that is new here
the tiny bodies on sheets (store/sheets.py), as storing takes longer. It runs a batch or two ahead and no
further, so memory stays bounded.

The one hard fact: a fork has all that we have, the store's connection too, and must leave it alone.
So it only reads its source, frees nothing that was there before it, and ends by `os._exit`, past
everybody's last words. Should we be gone, its next write fails, and it ends as well.

Elsewhere: what a batch is, and what becomes of it, importing.py.
"""

from __future__ import annotations

import fcntl
import gc
import marshal
import os
import pickle
import select
import signal
import struct
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeGuard

import msgspec

from vestige.errors import BrokenOffError, VestigeError
from vestige.limits import BATCH_BYTES
from vestige.record.backstop import masked, masked_lines
from vestige.record.line import decode_known, encode
from vestige.record.types import BodyInfo, KnownRecord, Log, SpanClose, SpanOpen, SpanUpdate
from vestige.store.sheets import TINY_MAX, Brought, NewSheet, make_sheets

if TYPE_CHECKING:
    from vestige.formats.base import Problem, Source
    from vestige.record.note import Note
    from vestige.record.redact import Redactor


class Batch(NamedTuple):
    """What is stored at once."""

    pieces: Iterable[list[KnownRecord]]
    """Each made when it is wanted: what was just made is stored before it is cold."""
    sheets: Brought | None = None
    """Where their tiny bodies stand; None: in the records."""


Piece = tuple[Sequence[KnownRecord], int]
"""Records, and how large their bodies are: a small part of a batch, so that the pipe is looked at often."""

_AHEAD_MAX = 2 * BATCH_BYTES
"""What waits in the reader for room in the pipe: while a batch is stored, the next one is made."""

_PIPE_BYTES = 1024 * 1024
"""As much as Linux lets anybody ask for."""

_HEAD = struct.Struct("<cIII")
"""Before each message: which kind, its length, how many records, how large the bodies in it are."""
_LINES, _SHEETS, _END = b"l", b"s", b"e"

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Handlers of these are the program's own, and not for the reader."""


def read_apart(
    source: Source,
    pieces: Iterable[Piece],
    redactor: Redactor,
    counts: Iterator[int],
    on_sheets: bool = False,
) -> Generator[Batch] | None:
    """Batches of the pieces' records, masked; `source` gets its problems and notes when they are over.
    `counts`: how many records each batch is to have. `on_sheets`: their tiny bodies come on sheets."""
    if not _is_possible():
        return None
    try:
        receiving, sending = os.pipe()
    except OSError:  # so many files are open
        return None
    # Until somebody cares for the child, and in the child until it has no handlers any more.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        pid = os.fork()
    except OSError:  # no room for another process: one is enough
        pid = -1
    if pid == 0:
        taken_off = _TakenOff() if on_sheets else None
        _be_the_reader(
            receiving, blocked, lambda: _send(sending, source, pieces, redactor, taken_off)
        )
    os.close(sending)
    if pid < 0:
        os.close(receiving)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return None
    batches = _batches(pid, os.fdopen(receiving, "rb"), source, counts, blocked)
    next(batches)  # from here on, closing it ends the child
    return batches


def _is_possible() -> bool:
    """Is there another CPU for it, and nobody but us who could hold a lock that a fork never lets go?"""
    cpus = getattr(
        os, "sched_getaffinity", None
    )  # Linux: elsewhere a fork may break what others loaded
    if cpus is None or len(cpus(0)) < 2 or threading.active_count() > 1:
        return False
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        return False  # how it ended, nobody would be told
    try:
        return len(os.listdir("/proc/self/task")) == 1  # threads that Python does not know of
    except OSError:
        return False


# --- the reader ----------------------------------------------------------------------------------


def _be_the_reader(
    receiving: int, blocked: set[int | signal.Signals], work: Callable[[], None]
) -> None:
    """Never returns, whatever happens: what is above us on the stack is the other process's."""
    status = 1
    try:
        os.close(receiving)
        gc.freeze()  # garbage of before the fork may be a connection, which is not ours to close
        for number in _SIGNALS:
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        # Ctrl-C is for both: the other one hears it, and ends us.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        work()
        status = 0
    finally:
        os._exit(status)


def _send(
    sending: int,
    source: Source,
    pieces: Iterable[Piece],
    redactor: Redactor,
    taken_off: _TakenOff | None,
) -> None:
    pipe = _Pipe(sending)
    error: Exception | None = None
    try:
        for records, size in pieces:
            if taken_off is None:
                lines = b"".join(masked_lines(records, redactor))
            else:
                sheets, lines = taken_off.take(records, redactor)
                pipe.send(_SHEETS, marshal.dumps(sheets), 0, 0)
            pipe.send(_LINES, lines, len(records), size)
    except BrokenPipeError:
        raise  # nobody is there to be told
    except Exception as raised:  # noqa: BLE001  # raised where the records are wanted
        error = raised
    # Pickled: paths may be bytes that are no text, and an error may be of any kind.
    pipe.send(_END, _pickled((source.problems, source.notes, error)), 0, 0)
    pipe.finish()


class _TakenOff:
    """Tiny bodies are taken off their records and put on sheets here, where there is time for it:
    storing takes longer than reading."""

    def __init__(self) -> None:
        self._count = 0
        """Of texts so far: each is known by its number."""

    def take(
        self, records: Sequence[KnownRecord], redactor: Redactor
    ) -> tuple[list[NewSheet], bytes]:
        """The sheets of some records, and their lines, which have the numbers of their texts; masked."""
        found = [(record, record.body or "") for record in records if _has_tiny(record)]
        texts, times = self._number(found)
        try:
            lines = encode(records)
            harmless = not (redactor.suspicious(lines) or redactor.suspicious(_json(texts)))
        except Exception:  # noqa: BLE001  # lone surrogates: a file may hold them escaped
            harmless = False
        if not harmless:
            for record, text in found:
                record.body, record.body_info = text, None
            records = masked(records, redactor)
            found = [(record, record.body or "") for record in records if _has_tiny(record)]
            texts, times = self._number(found)
            lines = encode(records)
        self._count += len(times)
        return make_sheets([text.encode() for text in texts], times), lines

    def _number(self, found: Sequence[tuple[_WithBody, str]]) -> tuple[list[str], list[int]]:
        """Give records numbers in place of their texts: the texts, each once, and their times."""
        known: dict[str, str] = {}
        times: list[int] = []
        for record, text in found:
            number = known.get(text)
            if number is None:
                number = known[text] = str(self._count + len(times))
                times.append(record.time_ns)
            record.body = number
            record.body_info = _on_sheet(
                len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
            )
        return list(known), times


_WithBody = SpanOpen | SpanClose | Log
_json = msgspec.json.Encoder().encode


def _has_tiny(record: KnownRecord) -> TypeGuard[_WithBody]:
    if isinstance(record, SpanUpdate) or record.body is None or record.body_info is not None:
        return False
    # Of a text that is no ASCII the bytes are four times as many at most.
    return len(record.body) * (1 if record.body.isascii() else 4) < TINY_MAX


@cache
def _on_sheet(size_bytes: int) -> BodyInfo:
    return BodyInfo(encoding="sheet", spilled_bytes=size_bytes)


def _pickled(told: tuple[list[Problem], list[Note], Exception | None]) -> bytes:
    problems, notes, error = told
    if error is not None and not isinstance(error, (VestigeError, OSError)):
        error.add_note(
            "".join(traceback.format_exception(error))
        )  # a fault of ours, from over here
    data = pickle.dumps((problems, notes, error))
    try:
        pickle.loads(data)
    except Exception:  # noqa: BLE001  # an error whose arguments are not what it is made from
        data = pickle.dumps((problems, notes, RuntimeError(f"{type(error).__name__}: {error}")))
    return data


class _Pipe:
    """Writes as much as there is room for, and keeps the rest; waits only when that is much."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting = bytearray()
        self._room = select.poll()
        self._room.register(fd, select.POLLOUT)
        os.set_blocking(fd, False)
        with suppress(OSError, AttributeError):  # smaller ones do as well
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def send(self, kind: bytes, data: bytes, count: int, size: int) -> None:
        self._waiting += _HEAD.pack(kind, len(data), count, size)
        self._waiting += data
        self._write(_AHEAD_MAX)

    def finish(self) -> None:
        self._write(0)

    def _write(self, waiting_max: int) -> None:
        while self._waiting:
            try:
                del self._waiting[: os.write(self._fd, self._waiting)]
            except BlockingIOError:
                if len(self._waiting) <= waiting_max:
                    return
                self._room.poll()


# --- the one who stores --------------------------------------------------------------------------


def _batches(
    pid: int,
    pipe: BinaryIO,
    source: Source,
    counts: Iterator[int],
    blocked: set[int | signal.Signals],
) -> Generator[Batch]:
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        yield Batch(())
        complete = yield from _receive(pipe, source, counts)
    finally:
        pipe.close()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # if it is still there, nobody wants more of it
        how = _reap(pid)
    if not complete:
        raise BrokenOffError(
            f"run {source.run_id}: the process that read it ended too soon ({how})."
            " Try again: an import goes on from what is stored."
        )


def _receive(pipe: BinaryIO, source: Source, counts: Iterator[int]) -> Generator[Batch, None, bool]:
    """False: there was no end."""
    batch: list[bytes] = []
    sheets: list[NewSheet] = []
    count = size = texts = 0
    wanted = next(counts)
    while len(head := pipe.read(_HEAD.size)) == _HEAD.size:
        kind, length, more, more_bytes = _HEAD.unpack(head)
        data = pipe.read(length)
        if len(data) < length:
            break
        if kind == _END:
            source.problems[:], source.notes[:], error = pickle.loads(data)
            if error is not None:
                raise error
            if batch:
                yield Batch(map(decode_known, batch), Brought(sheets, texts) if sheets else None)
            return True
        if kind == _SHEETS:
            sheets += marshal.loads(data)
            continue
        batch.append(data)
        count += more
        size += more_bytes
        if count >= wanted or size >= BATCH_BYTES:
            yield Batch(map(decode_known, batch), Brought(sheets, texts) if sheets else None)
            texts += sum(sheet[0] for sheet in sheets)
            batch, sheets, count, size = [], [], 0, 0
            wanted = next(counts)
    return False


def _reap(pid: int) -> str:
    """Wait for it, and how it ended."""
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:  # the program waits for all children that it has
        return "nobody knows how"
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"exit code {code}"
