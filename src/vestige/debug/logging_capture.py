"""Log records of the whole program, at every level asked for, into the captures that they belong to.

    with listening(Sink(...)): ...        # capture.py and `collect_all_logs` are the users

Asking for DEBUG must not make the program's own handlers print more. So no logger's level is
touched: while a capture is open, `Logger.isEnabledFor` also says yes to what a capture wants;
`makeRecord` marks a record that the program itself would not have made; `handle` keeps what a filter
raises of such a one to itself; and `callHandlers` gives every record to the captures, and only
unmarked ones to the program's handlers. With the last capture all four are as they were. That way a logger that does not propagate is heard too, and the
program may change levels and handlers while it runs.

A record goes to the captures of its context (a thread or task is in the capture that it was started
in). One without any, as from a plain thread, goes to the open capture if there is only one, else to
all of them, with `vestige.shared_by` in its context.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any, Final

from vestige.emit.exceptions import error_attributes
from vestige.formats.wink.log_records import LEVELS, our_level
from vestige.limits import MESSAGE_MAX
from vestige.record.coercion import safe_str
from vestige.record.json_render import json_text

SHARED: Final = "vestige.shared_by"
"""In the context of a record that may belong to any of this many captures."""

_OURS_ONLY: Final = "_vestige_only"
_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "taskName",
    "event",
    "context",
    _OURS_ONLY,
}
_OWN_FIELDS: Final = len(logging.makeLogRecord({}).__dict__)
"""What every record has; what `extra` gave comes behind."""
_SCALARS: Final = frozenset((str, int, bool, type(None)))
_PLAIN_LEVELS: Final = {name: level for level, name in LEVELS.items()}

WHOLE: Final = "entry.body"
"""Set where the body holds message and context, because they are not flat, or long."""
RESERVED: Final = frozenset((WHOLE, "event", "entry.level"))

Write = Callable[[str, str, str, int, dict[str, Any], str | None], bool]
"""component, level, message, time_ns, attributes, body. False: too long, or not text, for a line
without a body."""


class Sink:
    """One listener: what level it wants, and where a record goes."""

    def __init__(self, write: Write, level: int = logging.DEBUG) -> None:
        self.level = level
        self.open = False
        self._write = write
        self.count = 0
        self.failed = 0

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
                context["event"] = event  # then it is no name, but something of the program's
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
        """As nearly all records are: everything fits into one short line. False: this one is not."""
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
        told: dict[str, Any] = {WHOLE: True}
        if event is not None:
            told["event"] = event
        levelname = safe_str(record.levelname)
        level = our_level(levelname)
        if LEVELS.get(level) != levelname:
            told["entry.level"] = levelname
        body = json_text({"message": message, "context": context})
        time_ns = int(record.created * 1e9)
        self._write(name_of(record), level, message[:MESSAGE_MAX], time_ns, told, body)


def name_of(record: logging.LogRecord) -> str:
    return record.name if record.name.__class__ is str else safe_str(record.name)


def message_of(record: logging.LogRecord) -> str:
    if not record.args and record.msg.__class__ is str:
        return record.msg
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001  # wrong number of arguments: keep what there is
        return f"{safe_str(record.msg)} {safe_str(record.args)}"


def context_of(record: logging.LogRecord) -> dict[str, Any]:
    """`extra` and `context` as they were given; and of an exception, what and where."""
    fields = record.__dict__
    context: dict[str, Any] = {}
    if record.exc_info is None and len(fields) == _OWN_FIELDS + 2 and "event" in fields:
        given = fields.get("context")  # as a structured logger has it: nothing else to look for
        if given.__class__ is dict and record.stack_info is None:
            return dict(given)
    if len(fields) > _OWN_FIELDS or record.__class__ is not logging.LogRecord:
        # A record of another class may have its own fields in front.
        own = _OWN_FIELDS if record.__class__ is logging.LogRecord else 0
        more = islice(fields.items(), own, None)
        context = {key: value for key, value in more if key not in _STANDARD}
        given = fields.get("context")
        if given.__class__ is dict and not context:
            context = dict(given)
        elif isinstance(given, Mapping):
            context.update(given)
        elif given is not None:
            context["context"] = given
    if record.exc_info and record.exc_info[1] is not None:
        context |= error_attributes(record.exc_info[1])
    elif record.exc_text:
        context["error.stack"] = record.exc_text
    if record.stack_info:
        context["stack"] = record.stack_info
    return context


# --- who hears what ---------------------------------------------------------------------------

_HERE: ContextVar[tuple[Sink, ...]] = ContextVar("vestige_captures", default=())
_open: tuple[Sink, ...] = ()
_floor = logging.CRITICAL + 1
_lock = threading.RLock()


@contextmanager
def listening(sink: Sink) -> Iterator[Sink]:
    """Give the records of this context to a sink until the block ends."""
    token = _HERE.set((*_HERE.get(), sink))
    sink.open = True
    _change(lambda sinks: (*sinks, sink))
    try:
        yield sink
    finally:
        sink.open = False
        _change(lambda sinks: tuple(one for one in sinks if one is not sink))
        try:
            _HERE.reset(token)
        except ValueError:  # left in another context than it was entered in
            pass


def dispatch_log_record(record: logging.LogRecord) -> None:
    """Give a record to whom it belongs."""
    here = _HERE.get()
    for sink in here:
        if sink.open:
            sink.take(record)
    if here:
        return  # perhaps it comes late: of a capture that has ended, and of no other
    sinks = _open
    shared_by = 0 if len(sinks) == 1 else len(sinks)
    for sink in sinks:
        sink.take(record, shared_by)


def _change(changed: Callable[[tuple[Sink, ...]], tuple[Sink, ...]]) -> None:
    global _open, _floor
    with _lock:
        before, _open = _open, changed(_open)
        _floor = min((sink.level for sink in _open), default=logging.CRITICAL + 1)
        if _open and not before:
            _install()
        elif before and not _open:
            _uninstall()


# --- between the program's loggers and its handlers --------------------------------------------

_installed: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}
"""By name: what was there before, and ours."""
_installation: _Installation | None = None


class _Installation:
    """Ours between the first capture and the last. One who wrapped ours meanwhile keeps it for good:
    from then on it only hands on, also while later captures have theirs."""

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended = False


def _install() -> None:
    global _installation
    enabled = logging.Logger.isEnabledFor
    make = logging.Logger.makeRecord
    handle = logging.Logger.handle
    call = logging.Logger.callHandlers
    ours = _installation = _Installation()

    def is_enabled_for(self: logging.Logger, level: int) -> bool:
        return (level >= _floor and not ours.ended) or enabled(self, level)

    def make_record(
        self: logging.Logger,
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
        if ours.ended or enabled(self, level):
            return make(self, name, level, fn, lno, msg, args, exc_info, func, extra, sinfo)
        try:
            record = make(self, name, level, fn, lno, msg, args, exc_info, func, extra, sinfo)
        except Exception:  # noqa: BLE001  # of `extra`, or a factory: the program would not have met it
            record = logging.LogRecord(name, level, fn, lno, msg, args, exc_info, func, sinfo)
        record.__dict__[_OURS_ONLY] = True
        return record

    def handle_record(self: logging.Logger, record: logging.LogRecord) -> None:
        if _OURS_ONLY not in record.__dict__:
            handle(self, record)
            return
        try:
            handle(self, record)
        except Exception:  # noqa: BLE001  # a filter's own, which the program would not have met
            if not ours.ended:
                dispatch_log_record(record)

    def call_handlers(self: logging.Logger, record: logging.LogRecord) -> None:
        if not ours.ended:
            dispatch_log_record(record)
        if _OURS_ONLY not in record.__dict__:
            call(self, record)

    _put("isEnabledFor", is_enabled_for)
    _put("makeRecord", make_record)
    _put("handle", handle_record)
    _put("callHandlers", call_handlers)


def _put(name: str, new: Any) -> None:
    original = getattr(logging.Logger, name)
    new.__wrapped__ = original
    _installed[name] = (original, new)
    setattr(logging.Logger, name, new)


def _uninstall() -> None:
    """What was there before; but what somebody put over ours since stays."""
    if _installation is not None:
        _installation.ended = True
    for name, (original, new) in _installed.items():
        if getattr(logging.Logger, name) is new:
            setattr(logging.Logger, name, original)
    _installed.clear()
