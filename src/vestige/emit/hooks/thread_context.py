"""Carry what is ambient (span, tool call) into threads and thread pools.

A context variable follows asyncio tasks by itself, but a new thread starts with an
empty context, and a pool's thread with that of whoever happened to start it. So, as
long as a recorder is alive, `Thread.start` and `ThreadPoolExecutor.submit` hand the
ambient over. Outside any span they do exactly what they did before. A program that has no
pools does not load them for that.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vestige._runtime.import_hooks import cancel_hook, when_imported
from vestige.emit import context

_POOLS = "concurrent.futures.thread"
_users = 0
_lock = threading.Lock()
_originals: list[tuple[type, str, Any]] = []


def install() -> None:
    """Begin to carry spans; counted, so that recorders can come and go."""
    global _users
    with _lock:
        _users += 1
        first = _users == 1
        if first:
            _wrap(threading.Thread, "start", _starting)
    if first:
        when_imported(_POOLS, _wrap_pool)


def uninstall() -> None:
    """The last one out restores what was there, unless somebody wrapped it after us."""
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            cancel_hook(_POOLS, _wrap_pool)
            for owner, name, original in _originals:
                if getattr(getattr(owner, name), "_vestige", False):
                    setattr(owner, name, original)
            _originals.clear()


def _wrap_pool(module: ModuleType) -> None:
    with _lock:
        if _users:
            _wrap(module.ThreadPoolExecutor, "submit", _submitting)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # a thread that does not exist here may have held it


os.register_at_fork(after_in_child=_after_fork)


def _wrap(owner: type, name: str, wrapper: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    wrapped = wrapper(original)
    # A test's mock has no name.
    wrapped.__name__ = getattr(original, "__name__", name)
    wrapped.__qualname__ = getattr(original, "__qualname__", name)
    wrapped.__doc__, wrapped.__wrapped__ = original.__doc__, original
    wrapped._vestige = True
    _originals.append((owner, name, original))
    setattr(owner, name, wrapped)


def _starting(original: Callable[..., None]) -> Callable[..., None]:
    def start(self: threading.Thread) -> None:
        span, call = context.SPAN.get(), context.CALL.get()
        if span is not None or call is not None:
            run = self.run
            own = self.__dict__.get("run")

            def run_in_span() -> None:
                # Leave the thread as its owner made it.
                if own is None:
                    del self.__dict__["run"]
                else:
                    self.__dict__["run"] = own
                context.SPAN.set(span)
                context.CALL.set(call)
                run()

            self.__dict__["run"] = run_in_span
        return original(self)

    return start


def _submitting(original: Callable[..., Any]) -> Callable[..., Any]:
    def submit(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        span, call = context.SPAN.get(), context.CALL.get()
        if span is None and call is None:
            return original(self, fn, *args, **kwargs)

        def call_in_span(*args: Any, **kwargs: Any) -> Any:
            tokens = context.SPAN.set(span), context.CALL.set(call)
            try:
                return fn(*args, **kwargs)
            finally:
                for token in tokens:
                    context.leave(token)

        # A pool may start its thread in here: that thread outlives the span, and must not keep it.
        tokens = context.SPAN.set(None), context.CALL.set(None)
        try:
            return original(self, call_in_span, *args, **kwargs)
        finally:
            for token in tokens:
                context.leave(token)

    return submit
