"""Write a capture into the spool as records.

    run        opened when the capture begins; its body names the owner. Closed by `finalize`.
    snapshot   a span; its output body is a recipe. The items of its slices are log records
               inside it, each written once, when it is first seen.
    file       a span, with the hash of the bytes in bodies/

A snapshot per tool call repeats all earlier items, so writing each in full would be quadratic. An
item that was already written is a number, and a recipe has only the differences to the previous
snapshot of the session. debug/snapshot_rebuild.py rebuilds the text.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from vestige.debug.event_dispatcher import now
from vestige.debug.session import SNAPSHOT_VERSION, plain, type_name
from vestige.debug.spool import COMPONENT, SpoolRecorder
from vestige.emit.exception_attributes import error_attributes
from vestige.emit.span import Span
from vestige.limits import CAPTURE_ITEMS_KNOWN_MAX, CAPTURE_SESSIONS_MAX
from vestige.record.coercion import clean_text, safe_str
from vestige.record.json_render import json_text

Raw = msgspec.Raw
_top = msgspec.json.Decoder(dict[str, Raw])
_slices = msgspec.json.Decoder(list[dict[str, Raw]])
_items = msgspec.json.Decoder(list[Raw])
_tags = msgspec.json.Decoder(dict[str, Any])
_encode = msgspec.json.Encoder().encode


class SliceRecipe(msgspec.Struct, frozen=True, omit_defaults=True):
    """A slice: its fields, and its items as a change to the previous list."""

    head: dict[str, Raw]
    """The fields of the slice in the snapshot; `items` is null."""
    new: list[int] = []
    keep_first: int = 0
    keep_last: int = 0


class Recipe(msgspec.Struct, frozen=True, omit_defaults=True, rename={"is_complete": "whole"}):
    """A snapshot."""

    session_id: str
    head: dict[str, Raw]
    """The fields of the snapshot; `slices` is null."""
    slices: list[SliceRecipe] = []
    is_complete: bool = False
    """True if it does not refer to earlier snapshots, because one may be missing."""


@dataclass(slots=True)
class _Known:
    """The lists of items that were written of one session, by slice."""

    lists: dict[tuple[str, int], list[int]] = field(default_factory=dict)


class SnapshotWriter:
    """Writes the snapshots of one capture."""

    def __init__(self, recorder: SpoolRecorder, run: Span) -> None:
        self._recorder = recorder
        self._run = run
        self._numbers: dict[bytes, int] = {}
        self._next = 0
        self._sessions: dict[str, _Known] = {}
        self._losses = recorder.losses
        self._secrets = recorder.secrets
        # Reentrant: a signal's handler may take a snapshot while this very thread writes one.
        self._lock = threading.RLock()
        self._waiting: deque[tuple[Any, str, str, Exception | None]] = deque()
        self._writing = False
        self.count = 0

    def add(self, session: Any, reason: str) -> None:
        """Add a session and its children, parents first."""
        for member in family(session):
            self._add_one(member, reason)

    def _add_one(self, session: Any, reason: str) -> None:
        # Not while we hold our lock: a session has one of its own, whose holder may wait for ours.
        text, error = take_snapshot(session, reason)
        with self._lock:
            self._waiting.append((session, reason, text, error))
            while (
                self._waiting and not self._writing
            ):  # otherwise the writing thread does this one next
                self._writing = True
                try:
                    while self._waiting:
                        self._write(*self._waiting.popleft())
                finally:
                    self._writing = False

    def _write(self, session: Any, reason: str, text: str, error: Exception | None) -> None:
        session_id = safe_str(getattr(session, "session_id", ""))
        attributes = {"index": self.count, "session_id": session_id, "reason": reason}
        span = Span(
            self._recorder._emitter,
            self._run.run_id,
            self._run.id,
            COMPONENT,
            reason,
            "snapshot",
            attributes,
        )
        self.count += 1
        recipe = None
        if error is None:
            try:
                recipe = self._recipe(span, session_id, reason, text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as found:
                error = found
        if recipe is None:
            assert error is not None
            recipe = self._recipe(span, session_id, reason, invalid_snapshot(session, error, text))
        span.end(
            attributes=error_attributes(error) if error is not None else None,
            body=_encode(recipe).decode(),
            status="ok" if error is None else "error",
        )

    def _recipe(self, span: Span, session_id: str, reason: str, text: str) -> Recipe:
        head = _parse(text)
        slices = _slices.decode(head.get("slices", Raw(b"[]")))
        head["slices"] = Raw(b"null")
        head["tags"] = _with_reason(head.get("tags"), session_id, reason)
        is_complete = self._start_anew_after_a_loss()
        known = self._sessions.setdefault(session_id, _Known())
        before, known.lists = known.lists, {}
        recipes: list[SliceRecipe] = []
        seen: dict[str, int] = {}
        for one in slices:
            name = _text(one.get("slice_type"))
            seen[name] = nth = seen.get(name, -1) + 1
            items = _items.decode(one.get("items", Raw(b"[]")))
            numbers = [self._number(span, name, item) for item in items]
            known.lists[name, nth] = numbers
            one["items"] = Raw(b"null")
            recipes.append(_difference(one, numbers, before.get((name, nth), ())))
        return Recipe(session_id, head, recipes, is_complete)

    def _number(self, span: Span, name: str, item: Raw) -> int:
        raw = bytes(item)
        digest = hashlib.blake2b(raw, digest_size=16).digest()
        number = self._numbers.get(digest)
        if number is None:
            if len(self._numbers) >= CAPTURE_ITEMS_KNOWN_MAX:
                self._numbers.clear()  # then some are written twice, and memory stays bounded
            number = self._numbers[digest] = self._next
            self._next += 1
            self._recorder.write_item(span.run_id, span.id, name, number, raw.decode())
        return number

    def _start_anew_after_a_loss(self) -> bool:
        """Forget earlier items and recipes after a loss: one may refer to a dropped record."""
        if self._recorder.secrets != self._secrets:
            self._secrets = self._recorder.secrets
            self._numbers.clear()  # an item that was written in clear is written again, masked
        losses = self._recorder.losses
        if losses == self._losses:
            return self.count == 1
        self._losses = losses
        self._numbers.clear()
        self._sessions.clear()
        return True


def _difference(head: dict[str, Raw], now: list[int], before: Sequence[int]) -> SliceRecipe:
    most = min(len(now), len(before))
    first = 0
    while first < most and now[first] == before[first]:
        first += 1
    last = 0
    while last < most - first and now[-1 - last] == before[-1 - last]:
        last += 1
    return SliceRecipe(head, now[first : len(now) - last], first, last)


def apply_difference(recipe: SliceRecipe, before: Sequence[int]) -> list[int]:
    """Return the list that a recipe describes."""
    last = before[len(before) - recipe.keep_last :] if recipe.keep_last else ()
    return [*before[: recipe.keep_first], *recipe.new, *last]


# --- any session ----------------------------------------------------------------------------


def family(session: Any) -> Iterator[Any]:
    """Return a session and all its descendants, parents first, each once."""
    seen: set[int] = set()
    waiting = [session]
    while waiting and len(seen) < CAPTURE_SESSIONS_MAX:
        one = waiting.pop(0)
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting.extend(getattr(one, "children", None) or ())


def take_snapshot(session: Any, reason: str) -> tuple[str, Exception | None]:
    """Return a session's snapshot as JSON, or the error of `snapshot` or `to_json`."""
    taken: Any = None
    try:
        taken = session.snapshot(**_accepted(session.snapshot, tag=reason, include_all=True))
        text = taken.to_json()
        return (text if isinstance(text, str) else bytes(text).decode()), None
    except Exception as error:  # noqa: BLE001  # the session's own code
        return _what_there_is(taken), error


def _accepted(function: Any, **options: Any) -> dict[str, Any]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return options
    return {name: value for name, value in options.items() if name in parameters}


def _what_there_is(taken: Any) -> str:
    """Return the slices of a snapshot that cannot serialize itself, as far as they can be shown."""
    slices = getattr(taken, "slices", None)
    if not isinstance(slices, Mapping):
        return "[]"
    shown = [
        {
            "slice_type": type_name(kind) if isinstance(kind, type) else safe_str(kind),
            "item_type": type_name(type(items[0])) if items else "",
            "items": [plain(item) for item in items],
        }
        for kind, items in slices.items()
    ]
    return json_text(shown)


def invalid_snapshot(session: Any, error: Exception, text: str) -> str:
    """Return a replacement for a snapshot that failed, with its error and what is known."""
    parent = getattr(session, "parent", None)
    slices: Any = []
    try:
        slices = Raw(_encode(_slices.decode(text)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if text and text != "[]":
            slices = [{"slice_type": "unparsed", "item_type": "str", "items": [clean_text(text)]}]
    try:
        children = [safe_str(child.session_id) for child in session.children or ()]
    except Exception:  # noqa: BLE001  # the session's own code
        children = []
    found: dict[str, Any] = {
        "version": SNAPSHOT_VERSION,
        "created_at": now().isoformat(),
        "parent_id": None if parent is None else safe_str(getattr(parent, "session_id", "")),
        "children_ids": children,
        "tags": {"session_id": safe_str(getattr(session, "session_id", ""))},
        "policies": {},
        "validation_error": f"{type(error).__name__}: {clean_text(safe_str(error))}",
        "slices": slices,
    }
    return _encode(found).decode()


def _with_reason(raw: Raw | None, session_id: str, reason: str) -> Raw:
    """Return a snapshot's tags, with its owner and reason unless they have them already."""
    try:
        tags = _tags.decode(raw) if raw is not None else {}
    except (msgspec.DecodeError, RecursionError):
        tags = {}
    return Raw(_encode({"session_id": session_id, "tag": reason, **tags}))


def _one_line(text: str) -> bytes:
    """Return JSON without line breaks: each snapshot is a line of a file."""
    raw = clean_text(text).encode()
    return msgspec.json.format(raw, indent=-1) if b"\n" in raw or b"\r" in raw else raw


def _parse(text: str) -> dict[str, Raw]:
    try:
        return _top.decode(_one_line(text))
    except msgspec.DecodeError:
        # The standard library writes NaN and infinities, which are not JSON; it reads them too.
        return _top.decode(json_text(json.loads(text)))


def _text(raw: Raw | None) -> str:
    try:
        value = msgspec.json.decode(raw) if raw is not None else ""
    except (msgspec.DecodeError, RecursionError):
        return ""
    return value if isinstance(value, str) else ""
