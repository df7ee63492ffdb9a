"""Writer: the state that all recorders of this process share for one home.

A process has one journal per home, one order of records (`seq`), one `process` span and one set of
crash hooks. Recorders attach and detach; the last one closes the journal. A forked child becomes a
new writer.
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
from vestige.emit.span import NO_DETAILS, OpeningDetails, Span
from vestige.home import Home
from vestige.record.redaction.environment_secrets import secrets_in_environment
from vestige.record.redaction.redactor import Redactor
from vestige.record.types import OWN_COMPONENT, Link

if TYPE_CHECKING:
    from vestige.emit.process.crash_hooks import CrashHooks

PARENT_VARIABLE = "VESTIGE_PARENT"
"""`run_id/span_id` of the span that started this process."""
OPEN_RUN_VARIABLE = "VESTIGE_OPEN_RUN"
"""The id of the only run that the parent process had open, if it had one."""

_parent_run = os.environ.get(OPEN_RUN_VARIABLE, "")
"""Read at import: a writer sets the variable for child processes."""


class Journal(JournalStats, Protocol):
    """The part of a journal that a writer needs."""

    def write(self, line: bytes) -> bool: ...

    def restart(self, writer: str) -> None: ...

    def prepare_end(self) -> None: ...

    def close(self) -> None: ...


OpenJournal = Callable[["Writer"], Journal]


class Writer:
    """The writer of a process and home, from `get_process_writer`."""

    def __init__(
        self, home: Home, clock: Clock, open_journal: OpenJournal, private: bool = False
    ) -> None:
        self.home = home
        self._private = private
        """True for the home of a capture, which is not passed on to child processes."""
        self.clock = clock
        self.id = clock.writer_id()
        self.seq = itertools.count(1)
        self.journal = open_journal(self)
        self.redactor = Redactor(cache_folder=home.scanners)
        """Shared, so that a secret registered with one recorder is masked by all."""
        self._emitters: list[Emitter] = []
        self._open_runs: dict[str, Span] = {}
        self._openings: dict[str, OpeningDetails] = {}
        """The details of the spans of this process and its open runs, by span id."""
        self._lock = threading.RLock()  # reentrant: a signal handler may record at any point
        self._crash_hooks: CrashHooks | None = None
        self._root: Span | None = None
        self.process_span: Span | None = None
        self.self_reporter = SelfReporter(
            clock, self.journal, self._emitters, lambda: self.process_span
        )
        self.checks: list[Callable[[], None]] = []
        """Called about once a second, in the journal's thread."""
        self._published = ""
        self._variable_before = None if private else os.environ.get(PARENT_VARIABLE)
        self._parent = None if private else _parent_of_process()

    # --- recorders ----------------------------------------------------------------------

    def attach(self, emitter: Emitter, crash_hooks: bool, silence_s: float = 0) -> None:
        """Attach a recorder. The first one opens the process span, through its emitter."""
        emitter.begin(self.id, self.seq)
        self._emitters.append(emitter)
        # First: a worker may be stopped as soon as it has started.
        if crash_hooks and self._crash_hooks is None:
            from vestige.emit.process.crash_hooks import CrashHooks  # not needed in tests

            self._crash_hooks = CrashHooks(
                self.self_reporter.record_exit, self.home.fault_file(self.id), self._record_os_exit
            )
            self._crash_hooks.install()
        if self.process_span is None:
            self.self_reporter.watch(self.home.ask_file(self.id), silence_s)
            self._open_process(self._parent, "spawned by")
            thread_context.install()
        else:
            self._set_process(emitter)

    def detach(self, emitter: Emitter) -> None:
        """Detach a recorder. The last one closes the process span and the journal."""
        emitter.finish()
        if self._emitters == [emitter]:
            self.journal.prepare_end()
        self.self_reporter.report()
        with _alive_lock:
            if not self._remove(emitter):
                return
        self.journal.close()

    def _remove(self, emitter: Emitter) -> bool:
        """Remove the emitter. Return whether it was the last one."""
        if emitter in self._emitters and len(self._emitters) > 1:
            self._emitters.remove(emitter)
            return False
        for span in (self.process_span, self._root):
            if span is not None and not span.ended:
                span.end(status=self.self_reporter.final_status())
        self._emitters.clear()
        if _alive.get(self.home) is self:
            del _alive[self.home]
        thread_context.uninstall()
        if self._crash_hooks is not None:
            self._crash_hooks.uninstall()
        if os.environ.get(PARENT_VARIABLE) == self._published:
            _set_variable(PARENT_VARIABLE, self._variable_before)
            _set_variable(OPEN_RUN_VARIABLE, _parent_run or None)
        return True

    def _record_os_exit(self, status: int) -> None:
        """Record a call of os._exit.

        Status 0 is a normal end. With any other, the collector marks the process as crashed, and
        this record says how.
        """
        if not self._emitters:
            return
        self.journal.prepare_end()
        self.self_reporter.report()
        if status:
            self.self_reporter.record_exit(f"os._exit({status})", None, exit_code=status)
            return
        for span in (self.process_span, self._root):
            if span is not None and not span.ended:
                span.end(status=self.self_reporter.final_status(), attributes={"exit": "os._exit"})

    def check(self) -> None:
        """Run the periodic checks. The journal's thread calls this about once a second."""
        self.check_descriptors()
        for check in self.checks:
            check()
        self.self_reporter.check()
        self.redactor.complete_scanner()

    def journal_deleted(self) -> None:
        """Open the open spans again in the new journal, so that their runs have a beginning."""
        for emitter in list(self._emitters):
            for span in list(emitter.open_spans.values()):
                span.reopen(self._openings.get(span.id, NO_DETAILS))
        self.self_reporter.report_deleted_journal()

    def files_lost(self) -> None:
        """Continue after the program has closed the journal's descriptor."""
        self.self_reporter.files_reopened += 1
        self.check_descriptors()

    def check_descriptors(self) -> None:
        """Open files again that the program has closed."""
        if self._crash_hooks is not None:
            self._crash_hooks.check()

    # --- this process ----------------------------------------------------------------------

    def _open_process(self, parent: str | None, reason: str) -> None:
        """Open the process span, in the run that started this process or in a new one."""
        from vestige.emit.process.process_info import (  # imports pathlib: 5 ms
            describe_process,
            process_name,
        )

        emitter = self._emitters[0]
        run_id, _, parent_id = (parent or "").partition("/")
        links = None
        self._root = None
        self._openings.clear()
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
            self._openings[parent_id] = OpeningDetails({"implicit": True})
        attributes = describe_process(self.redactor.argv)
        self.process_span = Span(
            emitter,
            run_id,
            parent_id,
            OWN_COMPONENT,
            process_name(),
            "process",
            attributes,
            None,
            links,
        )
        self._openings[self.process_span.id] = OpeningDetails(attributes, links)
        for attached in self._emitters:
            self._set_process(attached)
        self._publish_parent()

    def _set_process(self, emitter: Emitter) -> None:
        assert self.process_span is not None
        emitter.process_run_id = self.process_span.run_id
        emitter.process_span_id = self.process_span.id

    def run_ids(self) -> set[str]:
        """Return the ids of the open runs."""
        spans = (self.process_span, *self._open_runs.values())
        return {span.run_id for span in spans if span is not None}

    def run_opened(self, span: Span, details: OpeningDetails) -> None:
        with self._lock:
            self._open_runs[span.id] = span
            self._openings[span.id] = details
            self._publish_parent()

    def run_ended(self, span: Span) -> None:
        with self._lock:
            self._openings.pop(span.id, None)
            if self._open_runs.pop(span.id, None) is not None and self._emitters:
                self._publish_parent()

    def _publish_parent(self) -> None:
        """Set the parent of child processes: the open run if there is only one, or the process.

        With several open runs, the choice of one would be a guess.
        """
        only = next(iter(self._open_runs.values())) if len(self._open_runs) == 1 else None
        parent = only or self.process_span
        if parent is not None and not self._private:
            self._published = f"{parent.run_id}/{parent.id}"
            try:
                os.environ[PARENT_VARIABLE] = self._published
                _set_variable(OPEN_RUN_VARIABLE, only.run_id if only is not None else None)
            except Exception:  # noqa: BLE001  # a test may have replaced os.environ
                self._emitters[0].fault("child processes do not know their parent")

    # --- fork ----------------------------------------------------------------------

    def forked(self, about_to_exec: bool = False) -> None:
        """Become a new writer in a forked child, inside the span that forked.

        A child that only runs another program has no process span: its end would look like a crash.
        """
        self._lock = threading.RLock()
        self.redactor.forked()
        self.checks.clear()  # The collector process is the parent's.
        self._open_runs.clear()
        parent = context.SPAN.get() or self.process_span
        self.id = self.clock.writer_id()
        self.seq = itertools.count(1)
        for emitter in self._emitters:
            emitter.begin(self.id, self.seq)
        self.self_reporter.watch(self.home.ask_file(self.id))
        self.journal.restart(self.id)
        if about_to_exec:
            return
        if self._crash_hooks is not None:
            self._crash_hooks.restart_after_fork(self.home.fault_file(self.id))
        if parent is not None:
            self._open_process(f"{parent.run_id}/{parent.id}", "forked from")
        _detach_with_multiprocessing(self)


_alive: dict[Home, Writer] = {}
_standalone_redactors: weakref.WeakSet[Redactor] = weakref.WeakSet()
_alive_lock = threading.RLock()
"""Held while recorders attach and detach. Reentrant: a signal handler may close one."""


def _parent_of_process() -> str | None:
    """Return the parent of this process, from its environment.

    A writer of this process may have replaced the variable for child processes. Then its own parent
    is returned.
    """
    parent = os.environ.get(PARENT_VARIABLE)
    run_id = (parent or "").partition("/")[0]
    for writer in _alive.values():
        if run_id in writer.run_ids():
            return writer._parent
    return parent


def is_worker_of_run(run_id: str) -> bool:
    """Return whether multiprocessing spawned this process while its parent had this run open.

    A forked worker inherits the span instead.
    """
    if not run_id or run_id != _parent_run:
        return False
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def registry_lock() -> threading.RLock:
    """Return the lock to hold from `get_process_writer` to `attach`.

    Without it, the last recorder could detach in between and close the writer.
    """
    return _alive_lock


def get_process_writer(
    home: Home, clock: Clock, open_journal: OpenJournal, private: bool = False
) -> Writer:
    """Return the process's writer for a home, created when first needed."""
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
    """Register the secrets that this process was started with."""
    try:
        redactor.add_secrets(secrets_in_environment(os.environ))
    except Exception:  # noqa: BLE001  # a test may have replaced the environment
        return


def register_secret(value: str, registered: Redactor) -> None:
    """Add a secret to all redactors of this process, except the one that has it already."""
    with _alive_lock:
        for redactor in (*(writer.redactor for writer in _alive.values()), *_standalone_redactors):
            if redactor is not registered:
                redactor.add_secret(value)


def make_redactor() -> Redactor:
    """Return a redactor without a home. It knows the secrets of this process, now and later."""
    redactor = Redactor()
    _learn_environment(redactor)
    with _alive_lock:
        for writer in _alive.values():
            redactor.learn_from(writer.redactor)
        _standalone_redactors.add(redactor)
    return redactor


def _after_fork() -> None:
    global _alive_lock
    _alive_lock = threading.RLock()
    for redactor in list(_standalone_redactors):
        redactor.forked()
    about_to_exec = _is_about_to_exec(sys._getframe())
    for home, writer in list(_alive.items()):
        try:
            writer.forked(about_to_exec)
        except Exception:  # noqa: BLE001  # the child continues without recording
            del _alive[home]


def _is_about_to_exec(frame: FrameType | None) -> bool:
    """Return whether `subprocess` forked, which runs Python in the child for `preexec_fn`."""
    while frame is not None:
        if frame.f_code.co_name == "_execute_child":
            return frame.f_globals.get("__name__") == "subprocess"
        frame = frame.f_back
    return False


def _detach_with_multiprocessing(writer: Writer) -> None:
    """Detach all recorders at the end of a multiprocessing child, which skips atexit."""
    util = sys.modules.get("multiprocessing.util")
    if util is None:
        return

    def detach_all() -> None:
        while writer._emitters:
            writer.detach(writer._emitters[-1])

    util.register_after_fork(writer, lambda _: util.Finalize(None, detach_all, exitpriority=0))


os.register_at_fork(after_in_child=_after_fork)


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
