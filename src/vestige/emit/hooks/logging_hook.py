"""The one hook into `logging`: subscribers get a record before the program's handlers do.

    unsubscribe = subscribe(receive)                  # what the program's loggers let through
    unsubscribe = subscribe(receive, level=10)        # and everything else from this level on

No handler is added and no level is changed: programs count and replace handlers, and must not print
more because a subscriber wants more. While there are subscribers, `Logger.callHandlers` is wrapped.
While one has a level, three more methods are: `isEnabledFor` also accepts that level, `makeRecord`
marks a record that the program itself would not have made, and `handle` keeps the errors of filters
for marked records from the program. A marked record goes to subscribers with a level only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Final, NamedTuple, cast

from vestige.emit.hooks.skip_recorded_prints import suppress_prints

Receive = Callable[[logging.Logger, logging.LogRecord], None]
"""Gets each record, in the thread that logs. Must not raise."""

EXTRA_MARK: Final = "_vestige_only"
"""In the `__dict__` of a record that the program itself would not have made."""

_NO_LEVEL: Final = 1 << 62


class _Subscriber(NamedTuple):
    receive: Receive
    level: int | None
    suppresses_prints: bool


_subscribers: tuple[_Subscriber, ...] = ()
_level_min = _NO_LEVEL
_suppresses = False
_installation: _Installation | None = None
_lock = threading.RLock()


def subscribe(
    receive: Receive, *, level: int | None = None, suppresses_prints: bool = False
) -> Callable[[], None]:
    """Give all log records to a function. Return a function that stops this.

    `suppresses_prints`: what handlers print is not recorded as the program's output.
    """
    subscriber = _Subscriber(receive, level, suppresses_prints)
    _change(lambda before: (*before, subscriber))
    return lambda: _change(lambda before: tuple(one for one in before if one is not subscriber))


def _change(changed: Callable[[tuple[_Subscriber, ...]], tuple[_Subscriber, ...]]) -> None:
    global _subscribers, _level_min, _suppresses, _installation
    with _lock:
        _subscribers = changed(_subscribers)
        levels = [one.level for one in _subscribers if one.level is not None]
        _level_min = min(levels, default=_NO_LEVEL)
        _suppresses = any(one.suppresses_prints for one in _subscribers)
        installed = _installation
        if installed is not None and _subscribers and installed.has_levels == bool(levels):
            return
        # Installed again, outermost, when levels are needed: a wrapper of other code between ours
        # and the handlers never sees a marked record.
        if installed is not None:
            installed.remove()
        _installation = _Installation(bool(levels)) if _subscribers else None


def _dispatch(logger: logging.Logger, record: logging.LogRecord, is_extra: bool) -> None:
    for subscriber in _subscribers:
        if subscriber.level is not None or not is_extra:
            subscriber.receive(logger, record)


def _is_extra(record: logging.LogRecord) -> bool:
    return EXTRA_MARK in getattr(record, "__dict__", ())


class _Installation:
    """Our wrappers of methods of `logging.Logger`, until they are removed.

    Code that wrapped ours meanwhile keeps them for good: then they only pass calls on.
    """

    def __init__(self, has_levels: bool) -> None:
        self.has_levels = has_levels
        self._ended = False
        self._wrapped: list[tuple[str, Any, Any]] = []
        self._wrap("callHandlers", self._make_call_handlers)
        if has_levels:
            enabled = logging.Logger.isEnabledFor
            self._wrap("isEnabledFor", self._make_is_enabled_for)
            self._wrap("makeRecord", lambda make: self._make_make_record(make, enabled))
            self._wrap("handle", self._make_handle)

    def _wrap(self, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(logging.Logger, name)
        wrapper = update_wrapper(make(original), original)
        setattr(logging.Logger, name, wrapper)
        self._wrapped.append((name, original, wrapper))

    def remove(self) -> None:
        """Restore the methods, except those that other code has replaced since."""
        self._ended = True
        for name, original, wrapper in self._wrapped:
            if getattr(logging.Logger, name) is wrapper:
                setattr(logging.Logger, name, original)

    def _make_call_handlers(self, call: Receive) -> Receive:
        def call_handlers(logger: logging.Logger, record: logging.LogRecord) -> None:
            is_extra = _is_extra(record)
            if not self._ended:
                _dispatch(logger, record, is_extra)
            if is_extra:
                return
            if _suppresses and not self._ended:
                with suppress_prints():
                    call(logger, record)
            else:
                call(logger, record)

        return call_handlers

    def _make_is_enabled_for(
        self, enabled: Callable[[logging.Logger, int], bool]
    ) -> Callable[[logging.Logger, int], bool]:
        def is_enabled_for(logger: logging.Logger, level: int) -> bool:
            return (level >= _level_min and not self._ended) or enabled(logger, level)

        return is_enabled_for

    def _make_make_record(
        self, make: Callable[..., Any], enabled: Callable[[logging.Logger, int], bool]
    ) -> Callable[..., logging.LogRecord]:
        def make_record(
            logger: logging.Logger,
            name: str,
            level: int,
            fn: str,
            lno: int,
            msg: object,
            args: Any,
            exc_info: Any,
            func: str | None = None,
            extra: Any = None,
            sinfo: str | None = None,
        ) -> logging.LogRecord:
            values = (name, level, fn, lno, msg, args, exc_info, func)
            if self._ended or enabled(logger, level):
                return cast(logging.LogRecord, make(logger, *values, extra, sinfo))
            try:
                record = make(logger, *values, extra, sinfo)
            except Exception:  # noqa: BLE001  # of `extra` or a factory: not the program's
                record = logging.LogRecord(*values, sinfo)
            record.__dict__[EXTRA_MARK] = True
            return cast(logging.LogRecord, record)

        return make_record

    def _make_handle(self, handle: Receive) -> Receive:
        def handle_record(logger: logging.Logger, record: logging.LogRecord) -> None:
            if not _is_extra(record):
                handle(logger, record)
                return
            try:
                handle(logger, record)
            except Exception:  # noqa: BLE001  # of a filter that the program would not have called
                if not self._ended:
                    _dispatch(logger, record, True)

        return handle_record
