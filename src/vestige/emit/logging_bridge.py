"""The standard library's logging, into the record.

    logging.getLogger().addHandler(vestige.LoggingHandler())

An ordinary log line lands in the ambient span, its logger's name as the component,
with its `extra` fields and its traceback.
"""

from __future__ import annotations

import logging
from typing import Any

from vestige.emit import current
from vestige.emit.exceptions import error_attributes
from vestige.record.values import safe_str

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class LoggingHandler(logging.Handler):
    """A logging handler that records. Give it a recorder, or it uses the process's own."""

    def __init__(self, recorder: current.Opener | None = None, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._recorder = recorder

    def emit(self, record: logging.LogRecord) -> None:
        try:
            # Asked every time: the process's recorder may be closed and made anew.
            logger = (self._recorder or current.default()).logger(record.name)
            logger.say(_level(record.levelno), _message(record), _attributes(record))
        except Exception:  # noqa: BLE001  # a log line must never break the program that logs
            pass


def _level(number: int) -> str:
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
