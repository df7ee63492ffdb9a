"""Record the lines of the standard library's `logging`.

    logging.getLogger().addHandler(vestige.LoggingHandler())

A log line is recorded in the ambient span, with its logger's name as the component, its `extra`
fields and its traceback. `vestige run` and recorded test suites do this without a handler
(boot/log_capture.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from vestige.emit import context
from vestige.emit.exception_attributes import error_attributes
from vestige.emit.hooks.logging_hook import subscribe
from vestige.record.coercion import safe_str

RECENT_MAX = 5_000
"""Recorded lines to remember, at most twice as many: more than queues and buffers usually have."""

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class LoggingHandler(logging.Handler):
    """A logging handler that records, with the process's recorder by default."""

    def __init__(
        self, recorder: context.RunSource | None = None, level: int = logging.NOTSET
    ) -> None:
        super().__init__(level)
        self._recorder = recorder

    def emit(self, record: logging.LogRecord) -> None:
        if not _recent.has(record) or self._has_other_home():
            record_line(record, self._recorder)

    def _has_other_home(self) -> bool:
        home = getattr(self._recorder, "home", None)
        return home is not None and home != getattr(context.default(), "home", None)


def record_line(record: logging.LogRecord, recorder: context.LoggerSource | None = None) -> None:
    """Record a log line. Never raise: the program that logs must not break."""
    try:
        # Not cached: the process's recorder may be closed and created again.
        logger = (recorder or context.default()).logger(record.name)
        logger.record(_level(record.levelno), format_message(record), _attributes(record))
    except Exception:  # noqa: BLE001  # its arguments run the program's code
        pass


class _RecentLines:
    """The lines recorded before their handlers ran, so that a `LoggingHandler` skips them.

    The handler may run later in another thread, behind a queue that copies records. A mark on the
    record would appear in the output of handlers that print all attributes. So a line is identified
    by its time and origin.
    """

    def __init__(self) -> None:
        self._newer: dict[object, None] = {}
        self._older: dict[object, None] = {}

    def add(self, record: logging.LogRecord) -> None:
        try:
            self._newer[_key(record)] = None
        except (AttributeError, TypeError):  # The program built the record by hand.
            return
        if len(self._newer) >= RECENT_MAX:
            self._older, self._newer = self._newer, {}

    def has(self, record: logging.LogRecord) -> bool:
        try:
            key = _key(record)
            return key in self._newer or key in self._older
        except (AttributeError, TypeError):
            return False


def _key(record: logging.LogRecord) -> object:
    return record.created, record.thread, record.name, record.lineno, record.levelno


_recent = _RecentLines()


def record_all_lines(
    recorder: context.LoggerSource | None = None, all_levels: bool = True
) -> Callable[[], None]:
    """Record each line before its handlers run. Return a function that stops this.

    Without `all_levels`, debug and info lines that the levels of all handlers drop are left out.
    """

    def receive(logger: logging.Logger, record: logging.LogRecord) -> None:
        if all_levels or not _is_dropped(logger, record):
            record_line(record, recorder)
            _recent.add(record)

    return subscribe(receive, suppresses_prints=True)


def _is_dropped(logger: logging.Logger, record: logging.LogRecord) -> bool:
    """Return whether this is a debug or info line that the levels of all its handlers drop.

    Frameworks set their loggers to DEBUG, and the level on the handler. Without any handler, the
    line is recorded: its logger's level was set for it. Filters of handlers are not called, because
    they may count or change what they see.
    """
    try:
        level, found = record.levelno, False
        if level >= logging.WARNING:
            return False  # Evidence of a failure, printed or not.
        at: logging.Logger | None = logger
        while at is not None:
            for handler in at.handlers:
                if isinstance(handler, logging.NullHandler):
                    continue  # Libraries add it so that nothing is printed.
                if handler.level <= level:
                    return False
                found = True
            at = at.parent if at.propagate else None
    except Exception:  # noqa: BLE001  # a logger of the program's own kind
        return False
    return found


def suppress_handler_prints() -> Callable[[], None]:
    """Do not record what log handlers print. Return a function that stops this."""
    return subscribe(lambda _logger, _record: None, suppresses_prints=True)


def _level(number: object) -> str:
    if not isinstance(number, int):
        return "info"  # The program built the record by hand.
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warn"
    return "info" if number >= logging.INFO else "debug"


def format_message(record: logging.LogRecord) -> str:
    """Return the text of a record, also if its arguments do not fit."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001  # the number of arguments is wrong: show them as they are
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
