"""Dispatcher: calls the subscribers of an event's class one after the other.

    dispatcher = Dispatcher()
    dispatcher.subscribe(ToolInvoked, lambda event: print(event.name))
    dispatcher.dispatch(ToolInvoked(name="search", result="3 pages"))

Delivery is by exact class: a handler of a base class does not see its children. A handler
that fails never breaks the others, nor the caller; `DispatchResult` names it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

from vestige._runtime.clock import SYSTEM

E = TypeVar("E")
Handler = Callable[[Any], object]


def now() -> datetime:
    """Return the current time in UTC, to the microsecond."""
    return datetime.fromtimestamp(SYSTEM.now_ns() / 1e9, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRendered:
    """A prompt is ready, and about to be sent."""

    prompt_name: str = ""
    rendered_prompt: str = ""
    adapter: str = ""
    session_id: UUID | None = None
    """None: not known to the sender. A shared dispatcher's listeners go by it."""
    created_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInvoked:
    """A tool has run."""

    name: str
    params: Any = None
    result: Any = None
    prompt_name: str = ""
    adapter: str = ""
    call_id: str | None = None
    session_id: UUID | None = None
    created_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptExecuted:
    """A prompt was evaluated, tools and all."""

    prompt_name: str = ""
    result: Any = None
    adapter: str = ""
    session_id: UUID | None = None
    created_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True)
class DispatchResult:
    """The handlers that were called, and those that failed."""

    event: object
    handled_count: int
    errors: tuple[tuple[Handler, Exception], ...]

    @property
    def ok(self) -> bool:
        return not self.errors


class Dispatcher:
    """Safe to share between threads and sessions."""

    def __init__(self) -> None:
        self._handlers: dict[type, tuple[Handler, ...]] = {}
        self._lock = threading.Lock()

    def subscribe(self, event_type: type[E], handler: Callable[[E], object]) -> None:
        """Call `handler` with every event of exactly this class."""
        with self._lock:
            self._handlers[event_type] = (*self._handlers.get(event_type, ()), handler)

    def unsubscribe(self, event_type: type[E], handler: Callable[[E], object]) -> bool:
        """Undo one `subscribe`. Return False if there was none."""
        with self._lock:
            handlers = list(self._handlers.get(event_type, ()))
            if handler not in handlers:
                return False
            handlers.remove(handler)
            self._handlers[event_type] = tuple(handlers)
            return True

    def dispatch(self, event: object) -> DispatchResult:
        """Call the handlers of the event's class, in the order in which they subscribed."""
        handlers = self._handlers.get(type(event), ())
        errors: list[tuple[Handler, Exception]] = []
        for handler in handlers:
            try:
                handler(event)
            except Exception as error:  # noqa: BLE001  # a handler's own code; the result names it
                errors.append((handler, error))
        return DispatchResult(event, len(handlers), tuple(errors))
