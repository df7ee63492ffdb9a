"""A debug surface: what a component tells whoever investigates it.

Every component is observable for nothing: its handle stamps what it says. One with
diagnostics of its own may add a short text, the span types that it makes, and named queries:

    recorder.logger("billing").surface(
        text="An invoice goes draft -> sent -> paid. One that is sent twice has two `deliver` spans.",
        span_types=["invoice", "deliver"],
        queries={"unpaid": "SELECT name, status FROM spans WHERE type = 'invoice' AND status != 'ok'"},
    )

It becomes one record of the process, as the recorder's own word, so that a process that
says nothing else stays out of lists. Read back in query/views/debug_surfaces.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from vestige.limits import ATTRIBUTE_VALUE_MAX, NAME_MAX
from vestige.record.coercion import clean_name, clean_text

if TYPE_CHECKING:
    from vestige.emit.emitter import Emitter

ATTRIBUTE = "surface"
"""Of the log record that carries it: JSON text."""

SURFACES_MAX = 256
"""Of one process. Surfaces are written by people; more than this is a loop gone wrong."""

_EMITTERS_MAX = 8
_said: dict[int, tuple[Emitter, str, set[str]]] = {}
"""What each emitter said, and as which writer. It holds the emitter, so that no id comes twice."""


def is_news(emitter: Emitter, said: str) -> bool:
    """Was this not said yet by this process? From now on it was. A forked child says its own.

    Without a lock, which a fork could leave locked: two threads at once may say it twice.
    """
    known = _said.pop(id(emitter), None)
    if known is None or known[1] != emitter.writer:
        known = (emitter, emitter.writer, set())
    if len(_said) >= _EMITTERS_MAX:  # the one that was longest silent may repeat itself
        _said.pop(next(iter(list(_said))), None)
    _said[id(emitter)] = known
    surfaces = known[2]
    if said in surfaces or len(surfaces) >= SURFACES_MAX:
        return False
    surfaces.add(said)
    return True


def surface_text(
    component: str,
    text: str,
    span_types: Iterable[str] | None = None,
    queries: Mapping[str, str] | None = None,
) -> str:
    """The attribute's value. Raises ValueError for what is none, or too long to be kept whole:
    half a query is worse than none."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError("text: expected a short text that says how to read this component")
    if isinstance(span_types, str):
        raise ValueError("span_types: expected a list of types, not one text")
    surface: dict[str, Any] = {"component": clean_name(component), "text": clean_text(text.strip())}
    types = [_name("span_types", kind) for kind in span_types or ()]
    if types:
        surface["span_types"] = types
    named = {_name("queries", name): _query(name, sql) for name, sql in (queries or {}).items()}
    if named:
        surface["queries"] = named
    encoded = msgspec.json.encode(surface).decode()
    if len(encoded) > ATTRIBUTE_VALUE_MAX:
        raise ValueError(f"{len(encoded)} characters (expected at most {ATTRIBUTE_VALUE_MAX})")
    return encoded


def _name(what: str, name: Any) -> str:
    if not isinstance(name, str) or not name.strip() or len(name) > NAME_MAX:
        raise ValueError(f"{what}: expected short names")
    return clean_text(name.strip())


def _query(name: str, sql: Any) -> str:
    if not isinstance(sql, str) or not sql.strip():
        raise ValueError(f"queries: {name}: expected SQL text")
    return clean_text(sql.strip())
