"""Read a long source in a process of its own, while this one stores what it has read.

    records = read_apart(source, pieces, redactor, counts)     # None: it has to be read here
    for batch in records: ...                                  # masked, in order; pieces of a batch

Reading and storing take about as long, and neither waits for the other but by the pipe between
them: the reader is a fork, masks what it reads and sends it as journal lines; of a run that is new here
also in blocks (store/span_batches.py), as storing takes longer. It runs a batch or two ahead and no
further, so memory stays bounded.

The one hard fact: a fork has all that we have, the store's connection too, and must leave it alone.
So it only reads its source, frees nothing that was there before it, and ends by `os._exit`, past
everybody's last words. Should we be gone, its next write fails, and it ends as well.

Elsewhere: what a batch is, and what becomes of it, transfer/import_runs.py.
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
from typing import TYPE_CHECKING

from vestige.errors import BrokenOffError, VestigeError
from vestige.limits import BATCH_BYTES
from vestige.record.codec import decode_known
from vestige.record.redaction.bulk_redaction import masked_lines
from vestige.record.types import KnownRecord, SpanOpen
from vestige.store.span_batches import SpanBatch, SpanBatchBuilder, decode_spans, iter_batches

if TYPE_CHECKING:
    from vestige.formats.protocol import Problem, Source
    from vestige.record.note import Note
    from vestige.record.redaction.redactor import Redactor


Batch = Iterable[Sequence[KnownRecord] | SpanBatch]
"""What is stored at once, in pieces. Each is made when it is wanted: what was just made is stored before it
is cold."""

Piece = tuple[Sequence[KnownRecord], int]
"""Records, and how large their bodies are: a small part of a batch, so that the pipe is looked at often."""

_AHEAD_MAX = BATCH_BYTES
"""What waits in the reader for room in the pipe, and as much here: while a batch is stored, the next one
is made."""

_PIPE_BYTES = 1024 * 1024
"""As much as Linux lets anybody ask for."""

_HEAD = struct.Struct("<cIII")
"""Before each message: which kind, its length, how many records, how large the bodies in it are."""
_LINES, _BLOCK, _END = b"l", b"b", b"e"

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Handlers of these are the program's own, and not for the reader."""


def read_in_worker(
    source: Source,
    pieces: Iterable[Piece],
    redactor: Redactor,
    counts: Iterator[int],
    in_blocks: bool = False,
) -> Generator[Batch] | None:
    """Batches of the pieces' records, masked; `source` gets its problems and notes when they are over.
    `counts`: how many records each batch is to have. `in_blocks`: whole spans may come as such."""
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
        _be_the_reader(
            receiving, blocked, lambda: _send(sending, source, pieces, redactor, in_blocks)
        )
    os.close(sending)
    if pid < 0:
        os.close(receiving)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return None
    batches = _batches(pid, _Incoming(receiving), source, counts, blocked)
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
    in_blocks: bool,
) -> None:
    pipe = _Pipe(sending)
    sender = _Sender(pipe, redactor, in_blocks)
    error: Exception | None = None
    try:
        try:
            for records, size in pieces:
                sender.send(records, size)
        finally:
            sender.finish()
    except BrokenPipeError:
        raise  # nobody is there to be told
    except Exception as raised:  # noqa: BLE001  # raised where the records are wanted
        error = raised
    # Pickled: paths may be bytes that are no text, and an error may be of any kind.
    pipe.send(_END, _pickled((source.problems, source.notes, error)), 0, 0)
    pipe.finish()


class _Sender:
    """Sends records masked: as lines, or in blocks."""

    def __init__(self, pipe: _Pipe, redactor: Redactor, in_blocks: bool) -> None:
        self._pipe = pipe
        self._redactor = redactor
        self._in_blocks = in_blocks
        self._opened: list[KnownRecord] = []
        """An opening at the end of a piece: its close may be the next record."""

    def send(self, records: Sequence[KnownRecord], size: int) -> None:
        if not self._in_blocks:
            self._send_lines(records, size)
            return
        records = [*self._opened, *records]
        self._opened = [records.pop()] if isinstance(records[-1], SpanOpen) else []
        for some, found in iter_batches(records):
            if found is None or not self._send_block(found, size):
                self._send_lines(some, size)
            size = 0  # it was that of all

    def finish(self) -> None:
        if self._opened:
            self._send_lines(self._opened, 0)

    def _send_block(self, found: SpanBatchBuilder, size: int) -> bool:
        """False: there is something to be masked, record by record."""
        try:
            spans, others = found.encode()
        except Exception:  # noqa: BLE001  # lone surrogates: a file may hold them escaped
            return False
        if self._redactor.suspicious(spans) or self._redactor.suspicious(others):
            return False
        block = (found.writer, found.run_id, spans, found.pack_bodies())
        self._pipe.send(_BLOCK, marshal.dumps(block), 2 * len(found.spans), size)
        return True

    def _send_lines(self, records: Sequence[KnownRecord], size: int) -> None:
        lines = b"".join(masked_lines(records, self._redactor))
        self._pipe.send(_LINES, lines, len(records), size)


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
    pipe: _Incoming,
    source: Source,
    counts: Iterator[int],
    blocked: set[int | signal.Signals],
) -> Generator[Batch]:
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        yield ()
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


def _receive(
    pipe: _Incoming, source: Source, counts: Iterator[int]
) -> Generator[Batch, None, bool]:
    """False: there was no end."""
    batch: list[tuple[bytes, bytes]] = []
    count = size = 0
    wanted = next(counts)
    for kind, data, more, more_bytes in pipe.messages():
        if kind == _END:
            source.problems[:], source.notes[:], error = pickle.loads(data)
            if error is not None:
                raise error
            if batch:
                yield _pieces_of(batch, pipe)
            return True
        batch.append((kind, data))
        count += more
        size += more_bytes
        if count >= wanted or size >= BATCH_BYTES:
            yield _pieces_of(batch, pipe)
            batch, count, size = [], 0, 0
            wanted = next(counts)
    return False


def _pieces_of(batch: Sequence[tuple[bytes, bytes]], pipe: _Incoming) -> Batch:
    for kind, data in batch:
        if kind == _LINES:
            yield decode_known(data)
        else:
            writer, run_id, spans, sheets = marshal.loads(data)
            yield SpanBatch(writer, run_id, decode_spans(spans), sheets)
        pipe.take_more()


class _Incoming:
    """The pipe's end here. What is in it is taken out now and then, so that the reader can go on."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._data = bytearray()
        self._over = False
        os.set_blocking(fd, False)
        self._ready = select.poll()
        self._ready.register(fd, select.POLLIN)

    def messages(self) -> Iterator[tuple[bytes, bytes, int, int]]:
        """All that come, as they are wanted; a last one that is not whole is left out."""
        while True:
            while len(self._data) >= _HEAD.size:
                kind, length, count, size = _HEAD.unpack_from(self._data)
                end = _HEAD.size + length
                if len(self._data) < end:
                    break
                message = bytes(memoryview(self._data)[_HEAD.size : end])
                del self._data[:end]
                yield kind, message, count, size
            if self._over:
                return
            if not self.take_more():
                self._ready.poll()

    def take_more(self) -> bool:
        """What is there, without waiting for it. False: nothing is."""
        if len(self._data) > _AHEAD_MAX:
            return False
        try:
            data = os.read(self._fd, _PIPE_BYTES)
        except BlockingIOError:
            return False
        self._over = not data
        self._data += data
        return True

    def close(self) -> None:
        os.close(self._fd)


def _reap(pid: int) -> str:
    """Wait for it, and how it ended."""
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:  # the program waits for all children that it has
        return "nobody knows how"
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"exit code {code}"
