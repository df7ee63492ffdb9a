"""The process's own recorder, for whoever asks for none: `@trace`, `traced_run`, `@tool`, the wire.

It is made when first needed, made anew when a program has closed it, and never raises: what cannot begin records nothing.
"""

from __future__ import annotations

import os
import threading
from contextvars import ContextVar

from vestige._runtime.clock import SYSTEM
from vestige.emit import context
from vestige.process_writer import PARENT_VARIABLE
from vestige.recorder import Recorder, is_exiting

_RETRY_NS = 100_000_000

_default: Recorder | None = None
_default_lock = threading.RLock()
_is_making = ContextVar("vestige_is_making", default=False)
"""Reentrant: while it is made, a signal's handler or the garbage collector may run code that logs. Theirs is this
context; that of another greenlet, which has the same thread and so the same lock, is not."""


def default_recorder() -> Recorder:
    """The recorder that `@trace` and `traced_run` use; made when first needed."""
    global _default
    if _default is None or (_default._closed and _is_over(_default)):
        with _default_lock:
            if is_exiting() or _is_making.get():
                # Goodbye was said or never will be: nobody would close it, and it would look like
                # a crash. Or we are inside the making of it: there is none yet.
                return _default or _UnusedRecorder()
            if _default is None or (_default._closed and _is_over(_default)):
                making = _is_making.set(True)
                try:
                    _default = Recorder()
                finally:
                    _is_making.reset(making)
    return _default


def _is_over(recorder: Recorder) -> bool:
    """Should there be a new one in the place of one that is closed? Where it could not begin, not at every call."""
    if recorder.gave_up_ns is not None:
        return SYSTEM.monotonic_ns() - recorder.gave_up_ns > _RETRY_NS
    return recorder.enabled


class _UnusedRecorder(Recorder):
    """Records nothing."""

    def __init__(self) -> None:
        self.enabled = self.wire = self.logging = self.prints = False
        self._closed = True
        self._redactor = None


def _after_fork() -> None:
    global _default_lock
    _default_lock = threading.RLock()  # a thread that does not exist here may have held it
    _is_making.set(False)


os.register_at_fork(after_in_child=_after_fork)


def child_environment() -> dict[str, str]:
    """The environment for a process that you start: it becomes a child of the ambient span."""
    span = context.SPAN.get()
    environment = dict(os.environ)
    if span is not None:
        environment[PARENT_VARIABLE] = f"{span.run_id}/{span.id}"
    return environment


context.use_default(default_recorder)
