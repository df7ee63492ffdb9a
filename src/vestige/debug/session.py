"""Session: the state of one execution, in typed slices, with a snapshot at any moment.

    @dataclass(frozen=True)
    class Plan:
        steps: tuple[str, ...] = ()

    session = Session(tags={"suite": "nightly"})
    session[Plan].seed(Plan())
    session.register(AddStep, Plan, lambda plans, event: (*plans, Plan(...)))
    session.dispatch(AddStep("search"))
    line = session.snapshot(include_all=True).to_json()

A slice contains items of one class, in order. A slice with the policy `state` can be rolled back to
a snapshot; one with `log` is never rolled back. The three events of debug/event_dispatcher.py are
added to log slices automatically, if they have this session's id, or none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID

from vestige._runtime.clock import SYSTEM
from vestige.debug.event_dispatcher import (
    Dispatcher,
    DispatchResult,
    PromptExecuted,
    PromptRendered,
    ToolInvoked,
    now,
)
from vestige.errors import UsageError
from vestige.limits import NESTING_MAX
from vestige.record.coercion import safe_str
from vestige.record.json_render import json_text

T = TypeVar("T")
E = TypeVar("E")
Policy = Literal["state", "log"]
POLICIES: tuple[Policy, ...] = ("state", "log")
EVENTS = (PromptRendered, ToolInvoked, PromptExecuted)
SNAPSHOT_VERSION = "1"

Reducer = Callable[[tuple[Any, ...], Any], tuple[Any, ...]]
"""The items so far, and an event -> the items from now on."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session at one moment; later changes do not reach it."""

    created_at: datetime
    session_id: UUID
    parent_id: UUID | None
    children_ids: tuple[UUID, ...]
    tags: Mapping[str, str]
    policies: Mapping[type, Policy]
    slices: Mapping[type, tuple[Any, ...]]

    def to_json(self) -> str:
        """Render one line of JSON. Other values have the forms of record/coercion.py."""
        head = json_text(
            {
                "version": SNAPSHOT_VERSION,
                "created_at": self.created_at.isoformat(),
                "parent_id": None if self.parent_id is None else str(self.parent_id),
                "children_ids": [str(child) for child in self.children_ids],
                "tags": dict(self.tags),
                "policies": {type_name(kind): policy for kind, policy in self.policies.items()},
            }
        )
        slices = ",".join(_slice_text(kind, items) for kind, items in self.slices.items())
        return f'{head[:-1]},"slices":[{slices}]}}'


def _slice_text(kind: type, items: tuple[Any, ...]) -> str:
    item_type = type_name(type(items[0]) if items else kind)
    head = json_text({"slice_type": type_name(kind), "item_type": item_type})
    # One by one: what is small is rendered quickly.
    return f'{head[:-1]},"items":[{",".join(json_text(plain(item)) for item in items)}]}}'


class Slice(Generic[T]):
    """A slice of a session: `session[Plan]`."""

    def __init__(self, session: Session, kind: type[T]) -> None:
        self._session = session
        self._kind = kind

    def all(self) -> tuple[T, ...]:
        return self._session._items.get(self._kind, ())

    def latest(self) -> T | None:
        items = self.all()
        return items[-1] if items else None

    def seed(self, *items: T) -> None:
        """Replace all that is there."""
        self._session._set(self._kind, items)

    def append(self, item: T) -> None:
        with self._session._lock:
            self._session._set(self._kind, (*self.all(), item))

    def clear(self) -> None:
        self.seed()

    def __len__(self) -> int:
        return len(self.all())

    def __iter__(self) -> Iterator[T]:
        return iter(self.all())


class Session:
    """Safe to share between threads."""

    def __init__(
        self,
        *,
        dispatcher: Any = None,
        parent: Session | None = None,
        session_id: UUID | None = None,
        created_at: datetime | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self.session_id = session_id if session_id is not None else UUID(SYSTEM.run_id())
        self.created_at = _in_utc(created_at)
        self.dispatcher: Any = dispatcher if dispatcher is not None else Dispatcher()
        self.parent = parent
        self._children: list[Session] = []
        own = {"session_id": str(self.session_id)}
        if parent is not None:
            own["parent_session_id"] = str(parent.session_id)
        self.tags: Mapping[str, str] = MappingProxyType(
            {**{safe_str(key): safe_str(value) for key, value in (tags or {}).items()}, **own}
        )
        self._lock = threading.RLock()
        self._items: dict[type, tuple[Any, ...]] = {}
        self._policies: dict[type, Policy] = {}
        self._reducers: dict[type, list[tuple[type, Reducer]]] = {}
        for event_type in EVENTS:
            self.register(event_type, event_type, _append, policy="log")
            self.dispatcher.subscribe(event_type, self._on_event)
        if parent is not None:
            parent._children.append(self)

    @property
    def children(self) -> tuple[Session, ...]:
        return tuple(self._children)

    def __getitem__(self, kind: type[T]) -> Slice[T]:
        return Slice(self, kind)

    def register(
        self,
        event_type: type[E],
        kind: type[T],
        reducer: Callable[[tuple[T, ...], E], tuple[T, ...]],
        *,
        policy: Policy = "state",
    ) -> None:
        """Replace the slice with the result of the reducer on each event of this class."""
        if policy not in POLICIES:
            raise UsageError(f"policy: {policy!r} is not known (expected {', '.join(POLICIES)}).")
        with self._lock:
            self._policies.setdefault(kind, policy)
            self._reducers.setdefault(event_type, []).append((kind, reducer))

    def dispatch(self, event: object) -> DispatchResult | None:
        """Reduce an event here; one of the three that a session listens to goes by the
        dispatcher."""
        if type(event) in EVENTS:
            result: DispatchResult | None = self.dispatcher.dispatch(event)
            return result
        self._reduce(event)
        return None

    def snapshot(self, *, tag: str | None = None, include_all: bool = False) -> Snapshot:
        """Return a snapshot of the state slices, or of all. `tag` is stored among its tags."""
        with self._lock:
            slices = {
                kind: items
                for kind, items in self._items.items()
                if items and (include_all or self._policies.get(kind, "state") == "state")
            }
            policies = dict(self._policies)
        return Snapshot(
            created_at=now(),
            session_id=self.session_id,
            parent_id=None if self.parent is None else self.parent.session_id,
            children_ids=tuple(child.session_id for child in self._children),
            tags=dict(self.tags) if tag is None else {**self.tags, "tag": tag},
            policies=policies,
            slices=slices,
        )

    def restore(self, snapshot: Snapshot, *, preserve_logs: bool = True) -> None:
        """Restore a snapshot. Logs are kept unless `preserve_logs` is false."""
        with self._lock:
            for kind in {*self._items, *snapshot.slices}:
                is_log = self._policies.get(kind, "state") == "log"
                if not (is_log and preserve_logs):
                    self._set(kind, snapshot.slices.get(kind, ()))

    # --- inside ---------------------------------------------------------------------------

    def _on_event(self, event: Any) -> None:
        if getattr(event, "session_id", None) in (None, self.session_id):
            self._reduce(event)

    def _reduce(self, event: object) -> None:
        with self._lock:
            for kind, reducer in self._reducers.get(type(event), ()):
                self._set(kind, tuple(reducer(self._items.get(kind, ()), event)))

    def _set(self, kind: type, items: tuple[Any, ...]) -> None:
        with self._lock:
            self._policies.setdefault(kind, "state")
            self._items[kind] = items


def plain(value: Any, depth: int = NESTING_MAX) -> Any:
    """A value with its dataclasses opened and times and ids as text; what is left JSON knows, or
    json_text has a form for."""
    kind = type(value)
    if kind is str or kind is int or kind is float or kind is bool or value is None:
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Enum):
        return plain(value.value, depth - 1) if depth else safe_str(value)
    if depth == 0:
        return value
    if kind is dict:
        return {key: plain(item, depth - 1) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [plain(item, depth - 1) for item in value]
    names = getattr(kind, "__dataclass_fields__", None)
    if names is None:
        return value
    return {name: plain(getattr(value, name, None), depth - 1) for name in names}


def type_name(kind: type) -> str:
    """Return `package.module:Class`, as snapshots name types."""
    return f"{kind.__module__}:{kind.__qualname__}"


def _append(items: tuple[Any, ...], event: Any) -> tuple[Any, ...]:
    return (*items, event)


def _in_utc(moment: datetime | None) -> datetime:
    if moment is None:
        return now()
    if moment.tzinfo is None:
        raise UsageError("created_at: has no time zone (expected one, e.g. datetime.now(UTC)).")
    return moment.astimezone(UTC)
