"""Propagate the ambient span and tool call into threads and thread pools.

Context variables follow asyncio tasks. A new thread starts with an empty context, and a thread of a
pool with the context of the code that started it. So, while a recorder is alive, `Thread.start` and
`ThreadPoolExecutor.submit` pass on the ambient span and call. Outside any span they behave as
before. `concurrent.futures` is not imported for this.
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
    """Wrap the two methods. Calls are counted, so that several recorders can install."""
    global _users
    with _lock:
        _users += 1
        first = _users == 1
        if first:
            _wrap(threading.Thread, "start", _wrap_start)
    if first:
        when_imported(_POOLS, _wrap_pool)


def uninstall() -> None:
    """Restore the methods after the last call, unless other code wrapped them since."""
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
            _wrap(module.ThreadPoolExecutor, "submit", _wrap_submit)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # A thread that does not exist in the child may have held it.


os.register_at_fork(after_in_child=_after_fork)


def _wrap(owner: type, name: str, wrapper: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    wrapped = wrapper(original)
    # Mocks of tests have no name.
    wrapped.__name__ = getattr(original, "__name__", name)
    wrapped.__qualname__ = getattr(original, "__qualname__", name)
    wrapped.__doc__, wrapped.__wrapped__ = original.__doc__, original
    wrapped._vestige = True
    _originals.append((owner, name, original))
    setattr(owner, name, wrapped)


def _wrap_start(original: Callable[..., None]) -> Callable[..., None]:
    def start(self: threading.Thread) -> None:
        span, call = context.SPAN.get(), context.CALL.get()
        if span is not None or call is not None:
            run = self.run
            own = self.__dict__.get("run")

            def run_in_span() -> None:
                # Restore the thread's own `run`.
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


def _wrap_submit(original: Callable[..., Any]) -> Callable[..., Any]:
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

        # The pool may start a thread in `original`, which outlives the span and must not get it.
        tokens = context.SPAN.set(None), context.CALL.set(None)
        try:
            return original(self, call_in_span, *args, **kwargs)
        finally:
            for token in tokens:
                context.leave(token)

    return submit
