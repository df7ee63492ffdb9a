"""The standard library's logging, into the record.

    logging.getLogger().addHandler(vestige.LoggingHandler())

An ordinary log line lands in the ambient span, its logger's name as the component,
with its `extra` fields and its traceback. Below `vestige run`, and in a test suite that is recorded,
that happens by itself (boot/log_capture.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from vestige.emit import context
from vestige.emit.exceptions import error_attributes
from vestige.emit.hooks.print_suppression import suppress_prints
from vestige.record.coercion import safe_str

TOLD_MAX = 5_000
"""Lines by which one is known again, twice at most: more than queues and buffers hold as a rule."""

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class LoggingHandler(logging.Handler):
    """A logging handler that records. Give it a recorder, or it uses the process's own."""

    def __init__(self, recorder: context.Opener | None = None, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._recorder = recorder

    def emit(self, record: logging.LogRecord) -> None:
        if not _told.has(record) or self._is_apart():
            tell(record, self._recorder)

    def _is_apart(self) -> bool:
        """Is ours another recorder than that of the process, in another home?"""
        home = getattr(self._recorder, "home", None)
        return home is not None and home != getattr(context.default(), "home", None)


def tell(record: logging.LogRecord, recorder: context.Speaker | None = None) -> None:
    """Record a log line. Never raises: it must not break the program that logs."""
    try:
        # Asked every time: the process's recorder may be closed and made anew.
        logger = (recorder or context.default()).logger(record.name)
        logger.say(_level(record.levelno), _message(record), _attributes(record))
    except Exception:  # noqa: BLE001  # its arguments run the program's code
        pass


class _Told:
    """The lines that were recorded on their way to the handlers: one of ours among them need not do
    it again, be it at once or, where a queue or a buffer is between, later in another thread.

    Such a queue hands on copies, and a mark on the record would be printed by handlers that print
    all that is in one: so a line is known by when and where it was logged, the last ones of them."""

    def __init__(self) -> None:
        self._last: dict[object, None] = {}
        self._before: dict[object, None] = {}

    def note(self, record: logging.LogRecord) -> None:
        try:
            self._last[_key(record)] = None
        except (AttributeError, TypeError):  # made by hand, of anything
            return
        if len(self._last) >= TOLD_MAX:
            self._before, self._last = self._last, {}

    def has(self, record: logging.LogRecord) -> bool:
        try:
            key = _key(record)
            return key in self._last or key in self._before
        except (AttributeError, TypeError):
            return False


def _key(record: logging.LogRecord) -> object:
    return record.created, record.thread, record.name, record.lineno, record.levelno


_told = _Told()

CallHandlers = Callable[[logging.Logger, logging.LogRecord], None]


def telling(recorder: context.Speaker | None = None) -> Callable[[CallHandlers], CallHandlers]:
    """What makes of `Logger.callHandlers` one that records the line before any handler gets it."""

    def make(call_handlers: CallHandlers) -> CallHandlers:
        def tell_and_call(logger: logging.Logger, record: logging.LogRecord) -> None:
            tell(record, recorder)
            _told.note(record)
            with suppress_prints():
                call_handlers(logger, record)

        return tell_and_call

    return make


def ignoring(call_handlers: CallHandlers) -> CallHandlers:
    """`Logger.callHandlers`, with nothing recorded of what its handlers print."""

    def call_hushed(logger: logging.Logger, record: logging.LogRecord) -> None:
        with suppress_prints():
            call_handlers(logger, record)

    return call_hushed


def _level(number: object) -> str:
    if not isinstance(number, int):
        return "info"  # a record that was made by hand
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warn"
    return "info" if number >= logging.INFO else "debug"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001  # wrong number of arguments: keep what there is
        return f"{safe_str(record.msg)} {safe_str(record.args)}"


def _attributes(record: logging.LogRecord) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        key: value for key, value in record.__dict__.items() if key not in _STANDARD
    }
    attributes["code.file"] = f"{record.pathname}:{record.lineno}"
    attributes["code.function"] = record.funcName
    if record.threadName != "MainThread":
        attributes["thread"] = record.threadName
    if record.exc_info and record.exc_info[1] is not None:
        attributes |= error_attributes(record.exc_info[1])
    elif record.exc_text:
        attributes["error.stack"] = record.exc_text
    if record.stack_info:
        attributes["stack"] = record.stack_info
    return attributes
