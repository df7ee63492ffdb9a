"""Recorder: the emitting side, connected to the journal. emit -> redact -> journal.

    recorder = vestige.Recorder()                      # ~/.vestige, or $VESTIGE_HOME
    with recorder.run("triage", conversation_id="c-9") as run:
        run.log.info("started", goal="reply")
        with run.span("search", type="tool", body='{"q": "refund"}') as span:
            span.end(body="[...]")

Every record goes through `_send`: encode once, scan the encoded line for secrets, redact only on a
hit (record/redaction/record_encoding.py), write. Nothing on this path raises into the program.

Elsewhere: the writer that all recorders of a process share (journal, process span, crash hooks,
fork) is in process_writer.py.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from vestige._runtime.clock import SYSTEM, Clock
from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.emit import context
from vestige.emit.emitter import LEVEL_RANK, Emitter, PreparedBody
from vestige.emit.logger import Logger
from vestige.emit.no_op import NULL_LOGGER, NULL_SPAN, UnsampledRun
from vestige.emit.run_sinks import SINKS
from vestige.emit.span import OpeningDetails, Span
from vestige.errors import UsageError
from vestige.home import Home
from vestige.journal.writer import FSYNC_MODES, JournalWriter
from vestige.limits import HEADER_SECRETS_MAX, LINE_MAX
from vestige.process_writer import (
    Writer,
    get_process_writer,
    is_worker_of_run,
    register_secret,
    registry_lock,
)
from vestige.record.codec import encode, parse_lines
from vestige.record.coercion import clean_name, inline_bytes
from vestige.record.inline_or_chunked_body import LongBody, body_form
from vestige.record.redaction.record_encoding import encode_redacted
from vestige.record.redaction.redactor import Redactor
from vestige.record.types import BodyInfo, KnownRecord, Link, SpanClose, SpanOpen, Unknown
from vestige.settings import find_home, null_home

if TYPE_CHECKING:
    from typing import Self

Listener = Callable[[KnownRecord], None]
_LISTENER_DEPTH_MAX = 2
"""Listeners get the records of a listener, but not the records that these cause in turn."""


class Recorder:
    """Records this process. Cheap to create, safe to share between threads, closed at exit.

    `home`: the data directory (default `$VESTIGE_HOME` or `~/.vestige`).
    `level`, `sample`, `fsync`, `crash_hooks`, `silence_s`: override the settings (settings.py).
    `redact`: turn redaction off only where there are no secrets, e.g. in a benchmark.
    `collect`: also run a collector process (collector_process.py).
    `quick_start`: deprecated, without effect. Every recorder starts quickly.
    `renamed`: `last_words` is the old name of `crash_hooks`.
    `sinks`: called with every record after redaction, in addition to the journal.
    """

    ignores_disabled = False
    """True for the recorder of a capture: VESTIGE_DISABLED does not apply to explicit captures."""

    gave_up_ns: int | None = None
    """The time at which this recorder failed to start, perhaps for a temporary reason."""

    def __init__(
        self,
        home: str | os.PathLike[str] | Home | None = None,
        *,
        level: str | None = None,
        sample: float | None = None,
        fsync: str | None = None,
        redact: bool = True,
        secrets: Iterable[str] = (),
        crash_hooks: bool | None = None,
        silence_s: float | None = None,
        collect: bool = False,
        quick_start: bool = False,
        sinks: Sequence[Listener] = (),
        clock: Clock = SYSTEM,
        **renamed: bool | None,
    ) -> None:
        self._redactor: Redactor | None = None
        crash_hooks = renamed.pop("last_words", crash_hooks)
        if renamed:
            raise TypeError(f"Recorder: unexpected arguments: {', '.join(renamed)}")
        try:
            self.home, settings = find_home(home)
        except Exception as error:  # noqa: BLE001  # a test may have replaced the file system
            self.home = null_home()
            self._give_up(error)
            return
        self.enabled = self.ignores_disabled or not settings.disabled
        self.wire = self.enabled and settings.wire
        """Record HTTP calls to model providers under `vestige run` and in test suites."""
        self.logging = self.enabled and settings.logs
        self.level_is_set = level is not None or settings.level_is_set
        """Record the lines of `logging` there."""
        self.prints = self.enabled and settings.prints
        """Record prints under `vestige run`."""
        self.integrations = settings.integrations if self.enabled else ("!*",)
        """The integrations with frameworks that are installed there."""
        self._closed = not self.enabled
        if not self.enabled:
            return
        level = level if level is not None else settings.level
        sample = sample if sample is not None else settings.sample
        fsync = fsync if fsync is not None else settings.fsync
        _check_arguments(level, sample, fsync)
        self._collector: Any = None
        if collect:
            from vestige.collector_process import CollectorProcess  # imports subprocess

            self._collector = CollectorProcess(self.home)
        self._fsync = fsync
        self._wire_secrets: set[str] = set()
        self._listeners: list[Listener] = list(sinks)
        self._on_any: Listener | None = None
        self._notifying = threading.local()
        self._emitter = Emitter(
            clock,
            self._send,
            self._prepare_body,
            Span,
            level=level,
            sample=sample,
            send_both=self._send_both,
        )
        self._emitter.register_secret = self._register_wire_secret
        if crash_hooks is None:
            crash_hooks = settings.crash_hooks
        if silence_s is None:
            silence_s = settings.silence_s
        try:
            self._start(clock, redact, secrets, crash_hooks, silence_s)
        except Exception as error:  # noqa: BLE001  # a test may have replaced system functions
            self._give_up(error)

    def _start(
        self,
        clock: Clock,
        redact: bool,
        secrets: Iterable[str],
        crash_hooks: bool,
        silence_s: float,
    ) -> None:
        with registry_lock():
            self._writer = self._join(clock)
            self._redactor = self._writer.redactor if redact else None
            if self._redactor is not None:
                self._redactor.add_secrets(secrets)
                self._emitter.redact = self._redactor.text
                self._emitter.redact_stream = self._redactor.streamed
            self._emitter.keep_partial = self._keep_partial
            self._scanner = self._redactor.scanner if self._redactor else None
            self._write = self._writer.journal.write
            self._writer.attach(self._emitter, crash_hooks, silence_s)
            if self._collector is not None:
                self._writer.checks.append(self._collector.check)
        atexit.register(self.close)

    def _give_up(self, error: Exception) -> None:
        """Record nothing, and print the reason once. The program continues."""
        global _printed_failure
        self._closed = True
        self.enabled = self.wire = self.logging = self.prints = False
        self.integrations = ("!*",)
        self.gave_up_ns = SYSTEM.monotonic_ns()
        with suppress(Exception):
            if not _printed_failure:
                reason = f"{type(error).__name__}: {error}"
                sys.stderr.write(f"vestige: recording is off, and tried again later ({reason}).\n")
            _printed_failure = True
            writer = getattr(self, "_writer", None)
            if writer is not None and self._emitter in writer._emitters:
                writer.detach(self._emitter)

    # --- public -----------------------------------------------------------------------------

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

        `on_id` is called with the run's id before its first record, to register a sink.
        """
        if self._closed:
            return NULL_SPAN
        emitter = self._emitter
        run_id = emitter.run_id()
        if on_id is not None:
            on_id(run_id)
        sampled = emitter.sample >= 1 or int(run_id[:8], 16) / 2**32 < emitter.sample
        attributes = emitter.attributes(attributes)  # once: the caller's mapping runs its code
        if not sampled:
            attributes = {**attributes, "sampled": False}
        links = []
        if emitter.process_span_id:
            links.append(Link(emitter.process_span_id, emitter.process_run_id, "process"))
        parent = context.SPAN.get()
        if parent is not None:
            links.append(Link(parent.id, parent.run_id, "started by"))
        if conversation_id is not None:
            conversation_id = clean_name(conversation_id)  # The program may pass a number.
        span = (_RootSpan if sampled else _UnsampledRootSpan)(
            emitter, run_id, None, component, name, "run", attributes, body, links, conversation_id
        )
        span.on_end = self._writer.run_ended
        details = OpeningDetails(attributes, links, conversation_id)
        self._writer.run_opened(span, details)
        return span

    def root_span(self, name: str, type: str = "step", *, body: Any = None) -> Span:
        """Open a run for work outside of any span.

        In a worker that multiprocessing spawned during a run, it is a span of that run.
        """
        if not self._closed and is_worker_of_run(self._emitter.process_run_id):
            return self.logger("agent").span(name, type, body=body)
        return self.run(name, body=body)

    def logger(self, component: str) -> Logger:
        """Return a logger that records as `component`."""
        if self._closed:
            return NULL_LOGGER
        return Logger(self._emitter, str(component))

    def secret(self, value: str) -> str:
        """Register a secret, which is masked in all further records. Return it.

        A value that is not a text (a missing setting) is counted as a fault, and returned too.
        """
        if not self._closed and self._redactor is not None:
            try:
                text = value.decode() if isinstance(value, bytes) else value
                if not isinstance(text, str):
                    raise TypeError("not a text")
                self._redactor.add_secret(text)
                register_secret(text, self._redactor)
            except Exception:  # noqa: BLE001  # the program continues
                self._emitter.fault(f"secret that is not a text: {type(value).__name__}")
        return value

    def redact_argv(self, arguments: Sequence[str]) -> list[str]:
        """Return a command line with its secrets masked."""
        return self._redactor.argv(arguments) if self._redactor else list(arguments)

    def on_any(self, listener: Listener) -> None:
        """Call `listener` with every redacted record. Only one listener can be set.

        Its exceptions are counted and not raised.
        """
        if self._closed:
            return
        if self._on_any is not None:
            raise UsageError("on_any: a listener is already set. Combine the two into one.")
        self._on_any = listener
        self._listeners = [*self._listeners, listener]

    @property
    def redactor(self) -> Redactor | None:
        """The redactor of this process. None if nothing is redacted or recorded."""
        return self._redactor

    @property
    def writer(self) -> str:
        """The id of this process's journal. Empty when recording is disabled."""
        return self._emitter.writer if self.enabled else ""

    @property
    def faults(self) -> dict[str, int]:
        """The counts of misuse and internal failures by name."""
        if not self.enabled:
            return {}
        dropped = self._writer.journal.dropped
        return {**self._emitter.faults, **({"records dropped": dropped} if dropped else {})}

    def close(self) -> None:
        """Flush, and release the journal. Called automatically at exit."""
        global _closed_at_exit
        if self._closed:
            return
        _closed_at_exit = _closed_at_exit or is_exiting()  # first: other threads read it
        self._closed = True
        atexit.unregister(self.close)
        self._writer.detach(self._emitter)
        if self._collector is not None:
            self._collector.drain()  # Its `check` does nothing after this.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- sending ----------------------------------------------------------------------------

    def _join(self, clock: Clock) -> Writer:
        def open_journal(writer: Writer) -> JournalWriter:
            return JournalWriter(
                writer.home,
                writer.id,
                fsync=self._fsync,  # type: ignore[arg-type]  # checked in __init__
                # Lambdas: the writer is not complete yet.
                on_check=lambda: writer.check(),
                on_lost=lambda: writer.files_lost(),
                on_deleted=lambda: writer.journal_deleted(),
            )

        return get_process_writer(self.home, clock, open_journal)

    def _send(self, record: KnownRecord) -> None:
        try:
            unredacted = record
            record, line = encode_redacted(record, self._scanner, self._redactor)
            self._write(line)
            if self._listeners:
                self._notify_listeners(record)
            if SINKS:
                self._notify_sink(record, unredacted)
        except Exception as error:  # noqa: BLE001  # the program continues
            self._emitter.fault(f"record lost: {type(error).__name__}")

    def send_lines(self, lines: bytes) -> None:
        """Write encoded records whose texts are redacted already, without scanning them.

        Test suites use this for records that contain only the names of tests.
        """
        self._write(lines)
        if self._listeners or SINKS:
            for record in parse_lines(lines)[0]:
                assert not isinstance(record, Unknown)
                self._notify_listeners(record)
                self._notify_sink(record, record)

    def _send_both(self, opened: SpanOpen, closed: SpanClose) -> None:
        """Write a finished span with one write, or call `_send` twice in the uncommon cases."""
        try:
            lines = encode((opened, closed))
        except Exception:  # noqa: BLE001  # `_send` cleans the records
            lines = b""
        scanner = self._scanner
        is_suspicious = not lines or (scanner is not None and scanner.suspicious(lines))
        if is_suspicious or len(lines) > LINE_MAX or self._listeners:
            self._send(opened)
            self._send(closed)
            return
        self._write(lines)
        sink = SINKS.get(opened.run_id)
        if sink is not None:
            try:
                sink.take_both(opened, closed, self)
            except Exception as error:  # noqa: BLE001  # a guardrail is not caught
                self._count_sink_failure(error)

    def _notify_listeners(self, record: KnownRecord) -> None:
        notifying = self._notifying
        depth = getattr(notifying, "depth", 0)
        if depth >= _LISTENER_DEPTH_MAX:
            return  # A listener that records every record would never end.
        notifying.depth = depth + 1
        try:
            for listener in self._listeners:
                try:
                    listener(record)
                except Exception as error:  # noqa: BLE001  # a listener only observes
                    self._emitter.fault(f"listener raised {type(error).__name__}")
        finally:
            notifying.depth = depth

    def _notify_sink(self, record: KnownRecord, unredacted: KnownRecord) -> None:
        sink = SINKS.get(record.run_id)
        if sink is None:
            return
        try:
            if unredacted is not record:
                from vestige.record.repair_record import clean_record

                unredacted = clean_record(unredacted)  # It may be what could not be encoded.
            sink.take(record, unredacted, self)
        except Exception as error:  # noqa: BLE001  # a guardrail is not caught
            self._count_sink_failure(error)

    def _count_sink_failure(self, error: Exception) -> None:
        self._emitter.fault(f"sink of a run raised {type(error).__name__}")

    def _prepare_body(self, body: Any, seq: int) -> PreparedBody:
        """Convert a body for its line. A long body is written to a file."""
        try:
            text = body_form(body)
            if type(text) is str:
                return text, None
            if isinstance(text, LongBody):
                return None, self._spill(text, seq)
            return inline_bytes(text) if isinstance(text, bytes) else (text, None)
        except Exception as error:  # noqa: BLE001  # the body's code, or the disk
            self._emitter.fault(f"body lost: {type(error).__name__}")
            return f"<body lost: {type(error).__name__}>", None

    def _spill(self, body: LongBody, seq: int) -> BodyInfo:
        from vestige.journal.spill import write_spill  # few programs have long bodies

        texts = body.texts if self._redactor is None else self._redactor.stream(body.texts)
        path = self.home.spilled_body(self._emitter.writer, seq)
        info = write_spill(path, (text.encode(errors=body.errors) for text in texts))
        if body.original_bytes is None:
            return info
        return msgspec.structs.replace(
            info, original_bytes=body.original_bytes, original_sha256=body.original_sha256
        )

    def _keep_partial(self, span_id: str, body: bytes | bytearray | None) -> None:
        """Store a partial body, redacted, which the collector reads if this process is killed."""
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

    def _register_wire_secret(self, value: str) -> None:
        """Register a secret from an HTTP call, also one that the patterns find: not in base64."""
        if value in self._wire_secrets or self._redactor is None:
            return
        if len(self._wire_secrets) >= HEADER_SECRETS_MAX:
            self._emitter.fault("wire: too many secrets")
            return
        self._wire_secrets.add(value)
        self.secret(value)


class _RootSpan(Span):
    """The root of a run, which notifies the writer of its end."""

    __slots__ = ("on_end",)
    on_end: Callable[[Span], None]

    def end(self, *args: Any, **kwargs: Any) -> None:
        super().end(*args, **kwargs)
        self.on_end(self)


class _UnsampledRootSpan(UnsampledRun, _RootSpan):
    __slots__ = ()


_printed_failure = False
"""The reason of a failed start is printed once: the next call or test may fail the same way."""


_closed_at_exit = False
"""A recorder was closed by atexit. Daemon threads may run for a moment after that."""


def is_exiting() -> bool:
    """Return whether the program is exiting.

    Other threads may outlive the main thread. They are recorded until a recorder is closed at exit.
    """
    main = threading.main_thread()
    if main.is_alive():
        return False
    return _closed_at_exit or threading.current_thread() is main


def _after_fork() -> None:
    global _closed_at_exit
    _closed_at_exit = False


os.register_at_fork(after_in_child=_after_fork)


def _check_arguments(level: str, sample: float, fsync: str) -> None:
    """Raise immediately on invalid arguments: these are programming errors."""
    if level not in LEVEL_RANK:
        raise UsageError(f"level: {level!r} is not known (expected {', '.join(LEVEL_RANK)}).")
    if not 0 <= sample <= 1:
        raise UsageError(f"sample: {sample!r} is out of range (expected 0 to 1).")
    if fsync not in FSYNC_MODES:
        raise UsageError(f"fsync: {fsync!r} is not known (expected {', '.join(FSYNC_MODES)}).")
