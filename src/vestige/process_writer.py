"""Writer: this process, as one voice in one home.

However many recorders a program makes for a home, its process has one journal there,
one order of records (`seq`), one `process` span, and one set of last words. Recorders
join and leave; the last one out says goodbye. A forked child becomes a writer of its own.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from vestige._runtime.clock import Clock
from vestige.emit import context
from vestige.emit.emitter import Emitter
from vestige.emit.hooks import thread_context
from vestige.emit.process.self_reporting import JournalStats, SelfReporter
from vestige.emit.span import Span
from vestige.home import Home
from vestige.record.redaction.environment_secrets import secrets_in_environment
from vestige.record.redaction.redactor import Redactor
from vestige.record.types import OWN_COMPONENT, Link

if TYPE_CHECKING:
    from vestige.emit.process.crash_hooks import CrashHooks

PARENT_VARIABLE = "VESTIGE_PARENT"
"""`run_id/span_id` of the span that started this process: how a spawned child finds its parent."""


class Journal(JournalStats, Protocol):
    """What a writer needs of its journal."""

    def write(self, line: bytes) -> bool: ...

    def restart(self, writer: str) -> None: ...

    def close(self) -> None: ...


OpenJournal = Callable[["Writer"], Journal]


class Writer:
    """Made and shared by `join`; one per process and home."""

    def __init__(
        self, home: Home, clock: Clock, open_journal: OpenJournal, private: bool = False
    ) -> None:
        self.home = home
        self._private = private
        """Beside the program's own: children that it spawns are told nothing of this home."""
        self.clock = clock
        self.id = clock.writer_id()
        self.seq = itertools.count(1)
        self.journal = open_journal(self)
        self.redactor = Redactor(kept_in=home.scanners)
        """Shared: a secret that one recorder is told of, none of them may leak."""
        self._emitters: list[Emitter] = []
        self._open_runs: dict[str, Span] = {}
        self._lock = threading.RLock()  # as the journal's: last words may come at any point
        self._last_words: CrashHooks | None = None
        self._root: Span | None = None
        self.process_span: Span | None = None
        self.voice = SelfReporter(clock, self.journal, self._emitters, lambda: self.process_span)
        self.checks: list[Callable[[], None]] = []
        """Called about once a second, in the journal's thread."""
        self._published = ""
        self._variable_before = None if private else os.environ.get(PARENT_VARIABLE)
        self._parent = None if private else _parent_of_process()

    # --- recorders come and go -------------------------------------------------------------------

    def attach(self, emitter: Emitter, last_words: bool, silence_s: float = 0) -> None:
        """A recorder joins; the first one opens the process span, through its own emitter."""
        emitter.begin(self.id, self.seq)
        self._emitters.append(emitter)
        if self.process_span is None:
            self.voice.watch(self.home.ask_file(self.id), silence_s)
            self._open_process(self._parent, "spawned by")
            thread_context.install()
        else:
            self._tell_place(emitter)
        if last_words and self._last_words is None:
            from vestige.emit.process.crash_hooks import CrashHooks  # a test session has none

            self._last_words = CrashHooks(
                self.voice.say_last_words, self.home.fault_file(self.id), self._leaving
            )
            self._last_words.install()

    def detach(self, emitter: Emitter) -> None:
        """A recorder leaves; the last one closes the process span and the journal."""
        emitter.finish()
        self.voice.report()
        with _alive_lock:
            if not self._leave(emitter):
                return
        self.journal.close()

    def _leave(self, emitter: Emitter) -> bool:
        """Whether that was the last one."""
        if emitter in self._emitters and len(self._emitters) > 1:
            self._emitters.remove(emitter)
            return False
        for span in (self.process_span, self._root):
            if span is not None and not span.ended:
                span.end(status=self.voice.how_it_ends())
        self._emitters.clear()
        if _alive.get(self.home) is self:
            del _alive[self.home]
        thread_context.uninstall()
        if self._last_words is not None:
            self._last_words.uninstall()
        if os.environ.get(PARENT_VARIABLE) == self._published:
            _set_variable(PARENT_VARIABLE, self._variable_before)
        return True

    def _leaving(self, status: int) -> None:
        """The process calls os._exit. With 0 it ends as it wants to, like at any other exit; with
        another status the collector will say that it died, and this is how."""
        if not self._emitters:
            return
        if status:
            self.voice.say_last_words(f"os._exit({status})", None, exit_code=status)
            return
        for span in (self.process_span, self._root):
            if span is not None and not span.ended:
                span.end(status=self.voice.how_it_ends(), attributes={"exit": "os._exit"})

    def check(self) -> None:
        """About once a second, in the journal's thread."""
        self.check_descriptors()
        for check in self.checks:
            check()
        self.voice.check()

    def check_descriptors(self) -> None:
        """Open again what the program has closed."""
        if self._last_words is not None:
            self._last_words.check()

    # --- this process ------------------------------------------------------------------------------

    def _open_process(self, parent: str | None, reason: str) -> None:
        """The process's own span: in the run of whoever started us, or in one of our own."""
        from vestige.emit.process.process_info import (  # needs pathlib: 5 ms
            describe_process,
            process_name,
        )

        emitter = self._emitters[0]
        run_id, _, parent_id = (parent or "").partition("/")
        links = None
        self._root = None
        if run_id and parent_id:
            links = [Link(parent_id, run_id, reason)]
        else:
            self._root = Span(
                emitter,
                emitter.run_id(),
                None,
                OWN_COMPONENT,
                process_name(),
                "run",
                {"implicit": True},
            )
            run_id, parent_id = self._root.run_id, self._root.id
        self.process_span = Span(
            emitter,
            run_id,
            parent_id,
            OWN_COMPONENT,
            process_name(),
            "process",
            describe_process(self.redactor.argv),
            None,
            links,
        )
        for attached in self._emitters:
            self._tell_place(attached)
        self._publish_parent()

    def _tell_place(self, emitter: Emitter) -> None:
        assert self.process_span is not None
        emitter.process_run_id = self.process_span.run_id
        emitter.process_span_id = self.process_span.id

    def run_ids(self) -> set[str]:
        """Of the runs that are open here."""
        spans = (self.process_span, *self._open_runs.values())
        return {span.run_id for span in spans if span is not None}

    def run_opened(self, span: Span) -> None:
        with self._lock:
            self._open_runs[span.id] = span
            self._publish_parent()

    def run_ended(self, span: Span) -> None:
        with self._lock:
            if self._open_runs.pop(span.id, None) is not None and self._emitters:
                self._publish_parent()

    def _publish_parent(self) -> None:
        """Tell processes that we may spawn where they come from: the open run if there is
        just one, else the process. (Of two at once, either would be a guess.)"""
        only = next(iter(self._open_runs.values())) if len(self._open_runs) == 1 else None
        where = only or self.process_span
        if where is not None and not self._private:
            self._published = f"{where.run_id}/{where.id}"
            try:
                os.environ[PARENT_VARIABLE] = self._published
            except Exception:  # noqa: BLE001  # a test may have put something else there
                self._emitters[0].fault("child processes are not told where they come from")

    # --- fork ----------------------------------------------------------------------------------------

    def forked(self, about_to_exec: bool = False) -> None:
        """In a forked child: a writer of our own, inside the span that forked us. One that only
        becomes another program says nothing of itself, or its end would look like a crash."""
        self._lock = threading.RLock()  # as the journal's: last words may come at any point
        self.redactor.forked()
        self.checks.clear()  # A collector beside the parent is the parent's.
        self._open_runs.clear()
        within = context.SPAN.get() or self.process_span
        self.id = self.clock.writer_id()
        self.seq = itertools.count(1)
        for emitter in self._emitters:
            emitter.begin(self.id, self.seq)
        self.voice.watch(self.home.ask_file(self.id))
        self.journal.restart(self.id)
        if about_to_exec:
            return
        if self._last_words is not None:
            self._last_words.forked(self.home.fault_file(self.id))
        if within is not None:
            self._open_process(f"{within.run_id}/{within.id}", "forked from")
        _leave_with_multiprocessing(self)


_alive: dict[Home, Writer] = {}
_apart: weakref.WeakSet[Redactor] = weakref.WeakSet()
_alive_lock = threading.RLock()
"""Held while recorders come and go. Reentrant: a signal's handler may close one at any point."""


def _parent_of_process() -> str | None:
    """What started this process, as its environment says. What a writer of another home has put there is for the
    processes that we start, and tells of runs that this home does not have."""
    given = os.environ.get(PARENT_VARIABLE)
    run_id = (given or "").partition("/")[0]
    for writer in _alive.values():
        if run_id in writer.run_ids():
            return writer._parent
    return given


def registry_lock() -> threading.RLock:
    """Hold it from `join` to `attach`: else the last one out may close the writer between them."""
    return _alive_lock


def get_process_writer(
    home: Home, clock: Clock, open_journal: OpenJournal, private: bool = False
) -> Writer:
    """The process's writer for a home: the one it has, or a new one."""
    with _alive_lock:
        writer = _alive.get(home)
        if writer is None:
            writer = Writer(home, clock, open_journal, private)
            _learn_environment(writer.redactor)
            for other in _alive.values():
                writer.redactor.learn_from(other.redactor)
            _alive[home] = writer
        return writer


def _learn_environment(redactor: Redactor) -> None:
    """Teach a redactor the secrets that this process was started with."""
    try:
        redactor.add_secrets(secrets_in_environment(os.environ))
    except Exception:  # noqa: BLE001  # a test may have put something else in the environment's place
        return


def register_secret(value: str, knows: Redactor) -> None:
    """Mask a value in every other home of this process, too: a capture has one of its own."""
    with _alive_lock:
        for redactor in (*(writer.redactor for writer in _alive.values()), *_apart):
            if redactor is not knows:
                redactor.add_secret(value)


def make_redactor() -> Redactor:
    """One for what goes to no home: it masks what this process was told to, now and later."""
    redactor = Redactor()
    _learn_environment(redactor)
    with _alive_lock:
        for writer in _alive.values():
            redactor.learn_from(writer.redactor)
        _apart.add(redactor)
    return redactor


def _after_fork() -> None:
    global _alive_lock
    _alive_lock = threading.RLock()
    for redactor in list(_apart):
        redactor.forked()
    about_to_exec = _is_about_to_exec(sys._getframe())
    for home, writer in list(_alive.items()):
        try:
            writer.forked(about_to_exec)
        except Exception:  # noqa: BLE001  # a child without a recorder is better than no child
            del _alive[home]


def _is_about_to_exec(frame: FrameType | None) -> bool:
    """Was it `subprocess` that forked? It runs Python in the child only for a `preexec_fn`."""
    while frame is not None:
        if frame.f_code.co_name == "_execute_child":
            return frame.f_globals.get("__name__") == "subprocess"
        frame = frame.f_back
    return False


def _leave_with_multiprocessing(writer: Writer) -> None:
    """multiprocessing's children leave by os._exit, past atexit: use its own way out."""
    util = sys.modules.get("multiprocessing.util")
    if util is None:
        return

    def leave() -> None:
        while writer._emitters:
            writer.detach(writer._emitters[-1])

    util.register_after_fork(writer, lambda _: util.Finalize(None, leave, exitpriority=0))


os.register_at_fork(after_in_child=_after_fork)


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
