"""Log records of the whole program, at every requested level, for the captures they belong to.

    with listening(Sink(...)): ...        # capture.py and `collect_all_logs` are the users

`emit/hooks/logging_hook.py` gets the records, also those below the program's levels.

A record goes to the captures of its context (a thread or task is in the capture that it was started
in). One without any, as from a plain thread, goes to the open capture if there is only one, else to
all of them, with `vestige.shared_by` in its context.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any, Final

from vestige.emit.exception_attributes import error_attributes
from vestige.emit.hooks.logging_capture import format_message
from vestige.emit.hooks.logging_hook import EXTRA_MARK, subscribe
from vestige.formats.wink.log_records import LEVELS, our_level
from vestige.limits import MESSAGE_MAX
from vestige.record.coercion import safe_str
from vestige.record.json_render import json_text

SHARED: Final = "vestige.shared_by"
"""In the context of a record that may belong to any of this many captures."""

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "taskName",
    "event",
    "context",
    EXTRA_MARK,
}
_OWN_FIELDS: Final = len(logging.makeLogRecord({}).__dict__)
"""The number of attributes of every record; those of `extra` follow."""
_SCALARS: Final = frozenset((str, int, bool, type(None)))
_PLAIN_LEVELS: Final = {name: level for level, name in LEVELS.items()}

ENTRY_BODY: Final = "entry.body"
"""Set where the body holds message and context, because they are not flat, or long."""
RESERVED: Final = frozenset((ENTRY_BODY, "event", "entry.level"))

Write = Callable[[str, str, str, int, dict[str, Any], str | None], bool]
"""component, level, message, time_ns, attributes, body. False: too long, or not text, for a line
without a body."""


class Sink:
    """A listener: its level, and the function that gets each record."""

    def __init__(self, write: Write, level: int = logging.DEBUG) -> None:
        self.level = level
        self._write = write
        self.count = 0
        self.failed = 0

    def receive(self, _logger: logging.Logger, record: logging.LogRecord) -> None:
        """Take a record of this sink's context, or one without a context."""
        if self not in _open:
            return
        here = _HERE.get()
        if here:
            # A late record of a capture that has ended belongs to no other capture.
            if self in here:
                self.take(record)
        else:
            self.take(record, 0 if len(_open) == 1 else len(_open))

    def take(self, record: logging.LogRecord, shared_by: int = 0) -> None:
        """Keep a record. Whatever is in it, the program that logs goes on."""
        if record.levelno < self.level:
            return
        try:
            context = context_of(record)
            if shared_by:
                context[SHARED] = shared_by
            event = record.__dict__.get("event")
            if event is not None and event.__class__ is not str:
                context["event"] = event  # then it is not a name, but the program's own value
                event = None
            message = message_of(record)
            if not self._keep_flat(record, message, event, context):
                self._keep_whole(record, message, event, context)
            self.count += 1
        except Exception:  # noqa: BLE001  # a value's own code; it is counted
            self.failed += 1

    def _keep_flat(
        self, record: logging.LogRecord, message: str, event: str | None, context: dict[str, Any]
    ) -> bool:
        """Write a record that fits into one short line, as nearly all do. False: this one is
        not."""
        level = _PLAIN_LEVELS.get(record.levelname)
        if level is None or len(message) > MESSAGE_MAX:
            return False
        for key, value in context.items():
            if value.__class__ not in _SCALARS or key.__class__ is not str or key in RESERVED:
                return False
        if event is not None:
            context["event"] = event
        time_ns = int(record.created * 1e9)
        if self._write(name_of(record), level, message, time_ns, context, None):
            return True
        context.pop("event", None)
        return False

    def _keep_whole(
        self, record: logging.LogRecord, message: str, event: str | None, context: dict[str, Any]
    ) -> None:
        """Attributes are flat, and a message is cut; a body is neither."""
        attributes: dict[str, Any] = {ENTRY_BODY: True}
        if event is not None:
            attributes["event"] = event
        levelname = safe_str(record.levelname)
        level = our_level(levelname)
        if LEVELS.get(level) != levelname:
            attributes["entry.level"] = levelname
        body = json_text({"message": message, "context": context})
        time_ns = int(record.created * 1e9)
        self._write(name_of(record), level, message[:MESSAGE_MAX], time_ns, attributes, body)


def name_of(record: logging.LogRecord) -> str:
    return record.name if record.name.__class__ is str else safe_str(record.name)


def message_of(record: logging.LogRecord) -> str:
    if not record.args and record.msg.__class__ is str:
        return record.msg
    return format_message(record)


def context_of(record: logging.LogRecord) -> dict[str, Any]:
    """`extra` and `context` as they were given; and of an exception, what and where."""
    fields = record.__dict__
    context: dict[str, Any] = {}
    if record.exc_info is None and len(fields) == _OWN_FIELDS + 2 and "event" in fields:
        context_value = fields.get(
            "context"
        )  # as a structured logger has it: nothing else to look for
        if context_value.__class__ is dict and record.stack_info is None:
            return dict(context_value)
    if len(fields) > _OWN_FIELDS or record.__class__ is not logging.LogRecord:
        # A record of another class may have its own fields in front.
        own = _OWN_FIELDS if record.__class__ is logging.LogRecord else 0
        more = islice(fields.items(), own, None)
        context = {key: value for key, value in more if key not in _STANDARD}
        context_value = fields.get("context")
        if context_value.__class__ is dict and not context:
            context = dict(context_value)
        elif isinstance(context_value, Mapping):
            context.update(context_value)
        elif context_value is not None:
            context["context"] = context_value
    if record.exc_info and record.exc_info[1] is not None:
        context |= error_attributes(record.exc_info[1])
    elif record.exc_text:
        context["error.stack"] = record.exc_text
    if record.stack_info:
        context["stack"] = record.stack_info
    return context


# --- the captures of a record -------------------------------------------------------------------

_HERE: ContextVar[tuple[Sink, ...]] = ContextVar("vestige_captures", default=())
_open: set[Sink] = set()


@contextmanager
def listening(sink: Sink) -> Iterator[Sink]:
    """Give the records of this context to a sink until the block ends."""
    token = _HERE.set((*_HERE.get(), sink))
    _open.add(sink)
    unsubscribe = subscribe(sink.receive, level=sink.level)
    try:
        yield sink
    finally:
        _open.discard(sink)
        unsubscribe()
        try:
            _HERE.reset(token)
        except ValueError:  # left in another context than it was entered in
            pass
