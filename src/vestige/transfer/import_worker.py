"""Read a long source in a forked process, while this process stores the records.

    batches = read_in_worker(source, parts, redactor, counts)     # None: read it in this process
    for batch in batches: ...                                     # redacted, in order

Reading and storing take about the same time. The worker reads and redacts records, and sends them
through a pipe as journal lines, or as span batches (store/span_batches.py) if the run is new,
which are faster to store. The worker is at most a batch or two ahead, so memory is bounded.

The one hard fact: a fork inherits everything, including the connection to the store, and must
not touch it. So the worker only reads its source, frees no earlier objects, and ends with
`os._exit`, which runs no exit handlers. If this process dies, the worker's next write fails.

Elsewhere: the batches are stored by transfer/import_runs.py.
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
"""The records of one transaction, in parts. Each part is decoded just before it is stored."""

Part = tuple[Sequence[KnownRecord], int]
"""Records, and the size of their bodies. Parts are small, so that the pipe is served often."""

_AHEAD_MAX = BATCH_BYTES
"""The size of the buffers on both sides, so that a batch is read while another is stored."""

_PIPE_BYTES = 1024 * 1024
"""The limit of Linux for unprivileged processes."""

_HEAD = struct.Struct("<cIII")
"""The header of a message: kind, length, number of records, size of their bodies."""
_LINES, _SPANS, _END = b"l", b"b", b"e"

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals whose handlers belong to the program, and must not run in the worker."""


def read_in_worker(
    source: Source,
    parts: Iterable[Part],
    redactor: Redactor,
    counts: Iterator[int],
    as_spans: bool = False,
) -> Generator[Batch] | None:
    """Return redacted batches of the records in `parts`, or None if a fork is not possible.

    The problems and notes of `source` are set when the batches end. `counts` has the number
    of records of each batch. `as_spans`: send complete spans as span batches.
    """
    if not _can_fork():
        return None
    try:
        receiving, sending = os.pipe()
    except OSError:  # too many open files
        return None
    # Blocked until the parent can clean up the child, and the child has reset its handlers.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        pid = os.fork()
    except OSError:  # too many processes, or not enough memory
        pid = -1
    if pid == 0:
        _run_worker(
            receiving, blocked, lambda: _send_parts(sending, source, parts, redactor, as_spans)
        )
    os.close(sending)
    if pid < 0:
        os.close(receiving)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return None
    batches = _iter_batches(pid, _PipeReader(receiving), source, counts, blocked)
    next(batches)  # from here on, closing the generator ends the child
    return batches


def _can_fork() -> bool:
    """Return whether there is a second CPU, and no other thread that could hold a lock."""
    # Only Linux has it. On other systems, a fork may break system libraries.
    get_cpus = getattr(os, "sched_getaffinity", None)
    if get_cpus is None or len(get_cpus(0)) < 2 or threading.active_count() > 1:
        return False
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        return False  # the exit code of the worker would not be available
    try:
        return len(os.listdir("/proc/self/task")) == 1  # includes threads unknown to Python
    except OSError:
        return False


# --- the worker ----------------------------------------------------------------------------------


def _run_worker(
    receiving: int, blocked: set[int | signal.Signals], work: Callable[[], None]
) -> None:
    """Run the worker, and never return, because the callers belong to the parent process."""
    status = 1
    try:
        os.close(receiving)
        gc.freeze()  # garbage from before the fork may be a connection, which must not be closed
        for number in _SIGNALS:
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        # Ctrl-C reaches both processes. The parent handles it and kills the worker.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        work()
        status = 0
    finally:
        os._exit(status)


def _send_parts(
    sending: int,
    source: Source,
    parts: Iterable[Part],
    redactor: Redactor,
    as_spans: bool,
) -> None:
    pipe = _PipeWriter(sending)
    sender = _RecordSender(pipe, redactor, as_spans)
    error: Exception | None = None
    try:
        try:
            for records, size in parts:
                sender.send(records, size)
        finally:
            sender.finish()
    except BrokenPipeError:
        raise  # the parent has ended
    except Exception as raised:  # noqa: BLE001  # the parent raises it
        error = raised
    # Pickled, because paths may be invalid text and an error may have any type.
    pipe.send(_END, _pickle_end(source.problems, source.notes, error), 0, 0)
    pipe.finish()


class _RecordSender:
    """Send redacted records, as journal lines or span batches."""

    def __init__(self, pipe: _PipeWriter, redactor: Redactor, as_spans: bool) -> None:
        self._pipe = pipe
        self._redactor = redactor
        self._as_spans = as_spans
        self._opened: list[KnownRecord] = []
        """The opening at the end of a part, because its close may be the next record."""

    def send(self, records: Sequence[KnownRecord], size: int) -> None:
        if not self._as_spans:
            self._send_lines(records, size)
            return
        records = [*self._opened, *records]
        self._opened = [records.pop()] if isinstance(records[-1], SpanOpen) else []
        for some, batch in iter_batches(records):
            if batch is None or not self._send_spans(batch, size):
                self._send_lines(some, size)
            size = 0  # the first message has the size of all bodies

    def finish(self) -> None:
        if self._opened:
            self._send_lines(self._opened, 0)

    def _send_spans(self, batch: SpanBatchBuilder, size: int) -> bool:
        """Send a batch. Return False if its records have to be redacted one by one."""
        try:
            spans, other_texts = batch.encode()
        except Exception:  # noqa: BLE001  # lone surrogates, which a file may contain escaped
            return False
        if self._redactor.suspicious(spans) or self._redactor.suspicious(other_texts):
            return False
        message = (batch.writer, batch.run_id, spans, batch.pack_bodies())
        self._pipe.send(_SPANS, marshal.dumps(message), 2 * len(batch.spans), size)
        return True

    def _send_lines(self, records: Sequence[KnownRecord], size: int) -> None:
        lines = b"".join(masked_lines(records, self._redactor))
        self._pipe.send(_LINES, lines, len(records), size)


def _pickle_end(problems: list[Problem], notes: list[Note], error: Exception | None) -> bytes:
    if error is not None and not isinstance(error, (VestigeError, OSError)):
        # A bug. The traceback of the worker would be missing in the parent.
        error.add_note("".join(traceback.format_exception(error)))
    data = pickle.dumps((problems, notes, error))
    try:
        pickle.loads(data)
    except Exception:  # noqa: BLE001  # an error type whose constructor has other arguments
        data = pickle.dumps((problems, notes, RuntimeError(f"{type(error).__name__}: {error}")))
    return data


class _PipeWriter:
    """Write to a pipe without blocking. It waits only while its buffer is full."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = bytearray()
        self._room = select.poll()
        self._room.register(fd, select.POLLOUT)
        os.set_blocking(fd, False)
        with suppress(OSError, AttributeError):  # a smaller pipe works too
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def send(self, kind: bytes, data: bytes, count: int, size: int) -> None:
        self._buffer += _HEAD.pack(kind, len(data), count, size)
        self._buffer += data
        self._write(_AHEAD_MAX)

    def finish(self) -> None:
        self._write(0)

    def _write(self, buffer_max: int) -> None:
        while self._buffer:
            try:
                del self._buffer[: os.write(self._fd, self._buffer)]
            except BlockingIOError:
                if len(self._buffer) <= buffer_max:
                    return
                self._room.poll()


# --- the parent ----------------------------------------------------------------------------------


def _iter_batches(
    pid: int,
    pipe: _PipeReader,
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
            os.kill(pid, signal.SIGKILL)  # no more records are needed
        status = _reap(pid)
    if not complete:
        raise BrokenOffError(
            f"run {source.run_id}: the process that read it ended too soon ({status})."
            " Repeat the import: it continues after the stored records."
        )


def _receive(
    pipe: _PipeReader, source: Source, counts: Iterator[int]
) -> Generator[Batch, None, bool]:
    """Yield batches. Return False if the end message is missing."""
    batch: list[tuple[bytes, bytes]] = []
    count = size = 0
    count_max = next(counts)
    for kind, data, more, more_bytes in pipe.iter_messages():
        if kind == _END:
            source.problems[:], source.notes[:], error = pickle.loads(data)
            if error is not None:
                raise error
            if batch:
                yield _decode(batch, pipe)
            return True
        batch.append((kind, data))
        count += more
        size += more_bytes
        if count >= count_max or size >= BATCH_BYTES:
            yield _decode(batch, pipe)
            batch, count, size = [], 0, 0
            count_max = next(counts)
    return False


def _decode(batch: Sequence[tuple[bytes, bytes]], pipe: _PipeReader) -> Batch:
    for kind, data in batch:
        if kind == _LINES:
            yield decode_known(data)
        else:
            writer, run_id, spans, packs = marshal.loads(data)
            yield SpanBatch(writer, run_id, decode_spans(spans), packs)
        pipe.read_available()


class _PipeReader:
    """Read from the pipe into a buffer, often, so that the worker can continue."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._data = bytearray()
        self._is_over = False
        os.set_blocking(fd, False)
        self._ready = select.poll()
        self._ready.register(fd, select.POLLIN)

    def iter_messages(self) -> Iterator[tuple[bytes, bytes, int, int]]:
        """Yield the messages. An incomplete last message is left out."""
        while True:
            while len(self._data) >= _HEAD.size:
                kind, length, count, size = _HEAD.unpack_from(self._data)
                end = _HEAD.size + length
                if len(self._data) < end:
                    break
                message = bytes(memoryview(self._data)[_HEAD.size : end])
                del self._data[:end]
                yield kind, message, count, size
            if self._is_over:
                return
            if not self.read_available():
                self._ready.poll()

    def read_available(self) -> bool:
        """Read without blocking. Return False if no data is available, or the buffer is full."""
        if len(self._data) > _AHEAD_MAX:
            return False
        try:
            data = os.read(self._fd, _PIPE_BYTES)
        except BlockingIOError:
            return False
        self._is_over = not data
        self._data += data
        return True

    def close(self) -> None:
        os.close(self._fd)


def _reap(pid: int) -> str:
    """Wait for a child. Return how it ended."""
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:  # the program itself waits for all of its children
        return "unknown exit code"
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"exit code {code}"
