"""Recorder: the producing side, wired. emit -> redact -> journal.

    recorder = vestige.Recorder()                      # ~/.vestige, or $VESTIGE_HOME
    with recorder.run("triage", conversation_id="c-9") as run:
        run.log.info("started", goal="reply")
        with run.span("search", type="tool", body='{"q": "refund"}') as span:
            span.end(body="[...]")

A record passes `_send` on its way out: encode once, scan the encoded line for secrets,
redact only on a hit, write. Nothing on this path raises into the program.

Elsewhere: the process as a writer (journal, process span, last words, fork) in process_writer.py.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

import msgspec

from vestige._runtime.clock import SYSTEM, Clock
from vestige.emit import context
from vestige.emit.emitter import LEVEL_RANK, Emitter, PreparedBody
from vestige.emit.logger import Logger
from vestige.emit.no_op import NULL_LOGGER, NULL_SPAN, UnsampledRun
from vestige.emit.run_listeners import SINKS
from vestige.emit.span import Span
from vestige.errors import UsageError
from vestige.home import Home
from vestige.journal.writer import FSYNC_MODES, JournalWriter
from vestige.limits import LINE_MAX, SECRETS_MET_MAX
from vestige.process_writer import Writer, get_process_writer, register_secret, registry_lock
from vestige.record.body_encoding import LongBody, body_form
from vestige.record.codec import encode, parse_lines
from vestige.record.coercion import clean_name, inline_bytes
from vestige.record.redaction.redactor import Redactor
from vestige.record.types import BodyInfo, KnownRecord, Link, SpanClose, SpanOpen, Unknown
from vestige.settings import find_home, null_home

Listener = Callable[[KnownRecord], None]
_TOLD_WITHIN_MAX = 2
"""Of what a listener records itself, listeners are told, but not of what they record of that."""


class Recorder:
    """Records this process. Cheap to make, safe to share between threads; close it or just exit.

    `home`: where to write (default `$VESTIGE_HOME` or `~/.vestige`).
    `level`, `sample`, `fsync`, `last_words`, `silence_s`: see settings.py; arguments win over settings.
    `redact`: turn the central pass off only where no secret can be, e.g. in a benchmark.
    `collect`: also keep a collector process running beside this one (collector_process.py).
    `quick_start`: what looks for secrets is built in parts, as lines need them: sooner ready, but a
    line may wait a tenth of a second. For programs that nobody waits for.
    `sinks`: called with every record after redaction, beside the journal.
    """

    asked_for = False
    """True of a capture's own: VESTIGE_DISABLED turns off what runs by itself, not what code asks for."""

    gave_up_ns: int | None = None
    """When it could not begin, for a reason that may pass."""

    def __init__(
        self,
        home: str | os.PathLike[str] | Home | None = None,
        *,
        level: str | None = None,
        sample: float | None = None,
        fsync: str | None = None,
        redact: bool = True,
        secrets: Iterable[str] = (),
        last_words: bool | None = None,
        silence_s: float | None = None,
        collect: bool = False,
        quick_start: bool = False,
        sinks: Sequence[Listener] = (),
        clock: Clock = SYSTEM,
    ) -> None:
        self._redactor: Redactor | None = None
        try:
            self.home, given = find_home(home)
        except Exception as error:  # noqa: BLE001  # as below
            self.home = null_home()
            self._give_up(error)
            return
        self.enabled = self.asked_for or not given.disabled
        self.wire = self.enabled and given.wire
        """Whether a process below `vestige run`, or a test suite, records HTTP calls to model providers."""
        self.logging = self.enabled and given.logs
        """Whether it records what it logs (`logging`)."""
        self.prints = self.enabled and given.prints
        """Whether, below `vestige run`, it records what it prints."""
        self._closed = not self.enabled
        if not self.enabled:
            return
        level = level if level is not None else given.level
        sample = sample if sample is not None else given.sample
        fsync = fsync if fsync is not None else given.fsync
        _check_arguments(level, sample, fsync)
        self._companion: Any = None
        if collect:
            from vestige.collector_process import (
                CollectorProcess,  # starts processes; most recorders do not
            )

            self._companion = CollectorProcess(self.home)
        self._fsync = fsync
        self._met: set[str] = set()
        self._listeners: list[Listener] = list(sinks)
        self._on_any: Listener | None = None
        self._telling = threading.local()
        self._emitter = Emitter(
            clock,
            self._send,
            self._prepare_body,
            level=level,
            sample=sample,
            send_both=self._send_both,
        )
        self._emitter.learn = self._learn
        if last_words is None:
            last_words = given.last_words
        if silence_s is None:
            silence_s = given.silence_s
        try:
            self._begin(clock, redact, secrets, quick_start, last_words, silence_s)
        except Exception as error:  # noqa: BLE001  # whatever a test has put in the place of what we need
            self._give_up(error)

    def _begin(
        self,
        clock: Clock,
        redact: bool,
        secrets: Iterable[str],
        quick_start: bool,
        last_words: bool,
        silence_s: float,
    ) -> None:
        with registry_lock():
            self._writer = self._join(clock)
            self._redactor = self._writer.redactor if redact else None
            if self._redactor is not None:
                self._redactor.whole = not quick_start
                self._redactor.add_secrets(secrets)
                self._emitter.redact = self._redactor.text
                self._emitter.redact_stream = self._redactor.streamed
            self._emitter.keep_partial = self._keep_partial
            self._suspicious = self._redactor.suspicious if self._redactor else None
            self._write = self._writer.journal.write
            self._writer.attach(self._emitter, last_words, silence_s)
            if self._companion is not None:
                self._writer.checks.append(self._companion.check)
        atexit.register(self.close)

    def _give_up(self, error: Exception) -> None:
        """The program goes on, and this recorder records nothing."""
        global _said
        self._closed = True
        self.enabled = self.wire = self.logging = self.prints = False
        self.gave_up_ns = SYSTEM.monotonic_ns()
        with suppress(Exception):
            if not _said:
                reason = f"{type(error).__name__}: {error}"
                sys.stderr.write(f"vestige: recording is off, and tried again later ({reason}).\n")
            _said = True
            writer = getattr(self, "_writer", None)
            if writer is not None and self._emitter in writer._emitters:
                writer.detach(self._emitter)

    # --- what a program uses --------------------------------------------------------------------

    def run(
        self,
        name: str,
        conversation_id: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        *,
        component: str = "agent",
        body: Any = None,
        on_id: Callable[[str], None] | None = None,
    ) -> Span:
        """Open a run: the root span of one trace, a context manager (sync and async).

        `on_id` is told the run's id before its first record: for a sink of that run."""
        if self._closed:
            return NULL_SPAN
        emitter = self._emitter
        run_id = emitter.run_id()
        if on_id is not None:
            on_id(run_id)
        sampled = emitter.sample >= 1 or int(run_id[:8], 16) / 2**32 < emitter.sample
        if not sampled:
            attributes = {**emitter.attributes(attributes), "sampled": False}
        links = []
        if emitter.process_span_id:
            links.append(Link(emitter.process_span_id, emitter.process_run_id, "process"))
        within = context.SPAN.get()
        if within is not None:
            links.append(Link(within.id, within.run_id, "started by"))
        if conversation_id is not None:
            conversation_id = clean_name(conversation_id)  # some count their conversations
        span = (_RootSpan if sampled else _UnsampledRootSpan)(
            emitter, run_id, None, component, name, "run", attributes, body, links, conversation_id
        )
        span.on_end = self._writer.run_ended
        self._writer.run_opened(span)
        return span

    def logger(self, component: str) -> Logger:
        """A component's handle. The component is stamped on all it says."""
        if self._closed:
            return NULL_LOGGER
        return Logger(self._emitter, str(component))

    def secret(self, value: str) -> str:
        """Register a secret: from now on it is masked wherever it appears. Returns it.

        What is no text (a setting that is not there) is counted as a fault, and returned too.
        """
        if not self._closed and self._redactor is not None:
            try:
                text = value.decode() if isinstance(value, bytes) else value
                if not isinstance(text, str):
                    raise TypeError("no text")
                self._redactor.add_secret(text)
                register_secret(text, self._redactor)
            except Exception:  # noqa: BLE001  # the program goes on, whatever it gave
                self._emitter.fault(f"secret that is no text: {type(value).__name__}")
        return value

    def redact_argv(self, arguments: Sequence[str]) -> list[str]:
        """A command line with its secrets masked."""
        return self._redactor.argv(arguments) if self._redactor else list(arguments)

    def on_any(self, listener: Listener) -> None:
        """Tap everything emitted, after redaction. For observing only: what the listener
        raises is swallowed and counted. There is one; a second is refused."""
        if self._closed:
            return
        if self._on_any is not None:
            raise UsageError("on_any: there is a listener already. Combine the two into one.")
        self._on_any = listener
        self._listeners = [*self._listeners, listener]

    @property
    def redactor(self) -> Redactor | None:
        """What masks the secrets of this process; None where nothing is masked or recorded."""
        return self._redactor

    @property
    def writer(self) -> str:
        """The identity of this process's journal; empty when recording is disabled."""
        return self._emitter.writer if self.enabled else ""

    @property
    def faults(self) -> dict[str, int]:
        """Misuse and failures so far, by name: what was counted instead of raised."""
        if not self.enabled:
            return {}
        dropped = self._writer.journal.dropped
        return {**self._emitter.faults, **({"records dropped": dropped} if dropped else {})}

    def close(self) -> None:
        """Say goodbye: flush and let go. Happens by itself at exit."""
        global _said_goodbye
        if self._closed:
            return
        _said_goodbye = _said_goodbye or is_exiting()  # first: another thread may look at once
        self._closed = True
        atexit.unregister(self.close)
        self._writer.detach(self._emitter)
        if self._companion is not None:
            self._companion.drain()  # From here on its `check` does nothing.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the way out ------------------------------------------------------------------------------

    def _join(self, clock: Clock) -> Writer:
        def open_journal(joined: Writer) -> JournalWriter:
            return JournalWriter(
                joined.home,
                joined.id,
                fsync=self._fsync,  # type: ignore[arg-type]  # checked in __init__
                on_check=lambda: joined.check(),  # what it checks is made after its journal
                on_lost=lambda: joined.check_descriptors(),
            )

        return get_process_writer(self.home, clock, open_journal)

    def _send(self, record: KnownRecord) -> None:
        try:
            try:
                line = encode((record,))
            except Exception:  # noqa: BLE001  # surrogates, foreign types: the slow, thorough way
                from vestige.record.sanitize import clean_record

                record = clean_record(record)
                line = encode((record,))
            given = record
            scan = self._suspicious
            if scan is not None and scan(line):
                assert self._redactor is not None
                record = self._redactor.record(record)
                line = encode((record,))
            if len(line) > LINE_MAX:
                from vestige.record.sanitize import shrink_record

                record = shrink_record(record)
                line = encode((record,))
            self._write(line)
            if self._listeners:
                self._tell(record)
            if SINKS:
                self._tell_run(record, given)
        except Exception as error:  # noqa: BLE001  # the program goes on, whatever this is
            self._emitter.fault(f"record lost: {type(error).__name__}")

    def send_lines(self, lines: bytes) -> None:
        """Records that are lines already, and whose texts the redactor has cleaned: they are not scanned
        again. For a test suite, whose records are nothing but the names of its tests."""
        self._write(lines)
        if self._listeners or SINKS:
            for record in parse_lines(lines)[0]:
                assert not isinstance(record, Unknown)
                self._tell(record)
                self._tell_run(record, record)

    def _send_both(self, opened: SpanOpen, closed: SpanClose) -> None:
        """A span of one moment, in one write: the common case of `_send`, and nothing else."""
        try:
            lines = encode((opened, closed))
        except Exception:  # noqa: BLE001  # as above
            lines = b""
        scan = self._suspicious
        if not lines or len(lines) > LINE_MAX or self._listeners or (scan and scan(lines)):
            self._send(opened)
            self._send(closed)
            return
        self._write(lines)
        sink = SINKS.get(opened.run_id)
        if sink is not None:
            try:
                sink.take_both(opened, closed, self)
            except Exception as error:  # noqa: BLE001  # as below
                self._sink_failed(error)

    def _tell(self, record: KnownRecord) -> None:
        telling = self._telling
        depth = getattr(telling, "depth", 0)
        if depth >= _TOLD_WITHIN_MAX:
            return  # a listener that records what it hears: each of its records would make more
        telling.depth = depth + 1
        try:
            for listener in self._listeners:
                try:
                    listener(record)
                except Exception as error:  # noqa: BLE001  # a listener only observes
                    self._emitter.fault(f"listener raised {type(error).__name__}")
        finally:
            telling.depth = depth

    def _tell_run(self, record: KnownRecord, given: KnownRecord) -> None:
        sink = SINKS.get(record.run_id)
        if sink is None:
            return
        try:
            sink.take(record, given, self)
        except Exception as error:  # noqa: BLE001  # as above; a guardrail is none, and goes on
            self._sink_failed(error)

    def _sink_failed(self, error: Exception) -> None:
        self._emitter.fault(f"sink of a run raised {type(error).__name__}")

    def _prepare_body(self, body: Any, seq: int) -> PreparedBody:
        """A body as its line will hold it; a long one goes to a file first."""
        try:
            text = body_form(body)
            if type(text) is str:
                return text, None
            if isinstance(text, LongBody):
                return None, self._spill(text, seq)
            return inline_bytes(text) if isinstance(text, bytes) else (text, None)
        except Exception as error:  # noqa: BLE001  # a body's own code, or the disk
            self._emitter.fault(f"body lost: {type(error).__name__}")
            return f"<body lost: {type(error).__name__}>", None

    def _spill(self, body: LongBody, seq: int) -> BodyInfo:
        from vestige.journal.spill import write_spill  # most programs have no such body

        texts = body.texts if self._redactor is None else self._redactor.stream(body.texts)
        path = self.home.spilled_body(self._emitter.writer, seq)
        info = write_spill(path, (text.encode(errors=body.errors) for text in texts))
        if body.original_bytes is None:
            return info
        return msgspec.structs.replace(
            info, original_bytes=body.original_bytes, original_sha256=body.original_sha256
        )

    def _keep_partial(self, span_id: str, body: bytes | bytearray | None) -> None:
        """Redacted as a body of the journal is; the collector reads it if this process is killed."""
        from vestige.journal.spill import remove_partial, write_partial

        path = self.home.partial_body(self._emitter.writer, span_id)
        if body is None:
            remove_partial(path)
            return
        if self._redactor is not None:
            data = self._redactor.streamed(body, is_partial=True)
            text = self._redactor.text(data.decode(errors="surrogateescape"))
            body = text.encode(errors="surrogateescape")
        write_partial(path, bytes(body))

    def _learn(self, value: str) -> None:
        """A secret that the wire met. Also one that is known by its shape: in base64 it has another."""
        if value in self._met or self._redactor is None:
            return
        if len(self._met) >= SECRETS_MET_MAX:
            self._emitter.fault("wire: more secrets than can be known")
            return
        self._met.add(value)
        self.secret(value)


class _RootSpan(Span):
    """A run's root: tells the writer when it ends."""

    __slots__ = ("on_end",)
    on_end: Callable[[Span], None]

    def end(self, *args: Any, **kwargs: Any) -> None:
        super().end(*args, **kwargs)
        self.on_end(self)


class _UnsampledRootSpan(UnsampledRun, _RootSpan):
    __slots__ = ()


_said = False
"""That one could not begin: the same will happen in the next call, or test."""


_said_goodbye = False
"""By the program's exit (atexit): threads that nobody waits for may go on for a moment."""


def is_exiting() -> bool:
    """Is this called by the program's exit, or after it? Other threads may outlive the main one's
    code: until goodbye is said, they are recorded."""
    main = threading.main_thread()
    if main.is_alive():
        return False
    return _said_goodbye or threading.current_thread() is main


def _after_fork() -> None:
    global _said_goodbye
    _said_goodbye = False


os.register_at_fork(after_in_child=_after_fork)


def _check_arguments(level: str, sample: float, fsync: str) -> None:
    """A wrong argument is the programmer's, and said at once."""
    if level not in LEVEL_RANK:
        raise UsageError(f"level: {level!r} is not known (expected {', '.join(LEVEL_RANK)}).")
    if not 0 <= sample <= 1:
        raise UsageError(f"sample: {sample!r} is no share (expected a number from 0 to 1).")
    if fsync not in FSYNC_MODES:
        raise UsageError(f"fsync: {fsync!r} is no mode (expected {', '.join(FSYNC_MODES)}).")
