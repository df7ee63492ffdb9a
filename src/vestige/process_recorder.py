"""The default recorder of the process, for `@trace`, `traced_run`, `@tool` and HTTP capture.

It is created when first needed, and again after a program has closed it. It never raises: a
recorder that cannot start records nothing.
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
_is_creating = ContextVar("vestige_is_creating", default=False)
"""True while this context creates the recorder.

A signal handler or the garbage collector may run code that logs meanwhile, in the same context.
Another greenlet has the same thread, and so the same lock, but a different context.
"""


def default_recorder() -> Recorder:
    """Return the recorder that `@trace` and `traced_run` use, created when first needed."""
    global _default
    if _default is None or (_default._closed and _should_replace(_default)):
        with _default_lock:
            if is_exiting() or _is_creating.get():
                # A recorder created at exit would not be closed, and look like a crash. During its
                # creation, the recorder cannot be used.
                return _default or _UnusedRecorder()
            if _default is None or (_default._closed and _should_replace(_default)):
                token = _is_creating.set(True)
                try:
                    _default = Recorder()
                finally:
                    _is_creating.reset(token)
    return _default


def _should_replace(recorder: Recorder) -> bool:
    """Return whether to replace a closed recorder. One that failed to start is retried rarely."""
    if recorder.gave_up_ns is not None:
        return SYSTEM.monotonic_ns() - recorder.gave_up_ns > _RETRY_NS
    return recorder.enabled


class _UnusedRecorder(Recorder):
    """A recorder that records nothing."""

    def __init__(self) -> None:
        self.enabled = self.wire = self.logging = self.prints = False
        self.integrations = ("!*",)
        self._closed = True
        self._redactor = None


def _after_fork() -> None:
    global _default_lock
    _default_lock = threading.RLock()  # A thread that does not exist in the child may have held it.
    _is_creating.set(False)


os.register_at_fork(after_in_child=_after_fork)


def child_environment() -> dict[str, str]:
    """Return the environment for a new process, which makes it a child of the ambient span."""
    span = context.SPAN.get()
    environment = dict(os.environ)
    if span is not None:
        environment[PARENT_VARIABLE] = f"{span.run_id}/{span.id}"
    return environment


context.use_default(default_recorder)
