"""Debugging hints of a component, for the person or agent who investigates it.

A component may register a short text, the span types that it opens, and named queries:

    recorder.logger("billing").surface(
        text="An invoice goes draft -> sent -> paid. `deliver` must occur once per invoice.",
        span_types=["invoice", "deliver"],
        queries={"unpaid": "SELECT name FROM spans WHERE type = 'invoice' AND status != 'ok'"},
    )

It becomes one log record of the component `vestige`, so that a process with no other records stays
out of lists. It is read in query/views/debugging_hints.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.limits import ATTRIBUTE_VALUE_MAX, NAME_MAX
from vestige.record.coercion import clean_name, clean_text

if TYPE_CHECKING:
    from vestige.emit.emitter import Emitter

ATTRIBUTE = "surface"
"""The attribute of the log record that contains the surface as JSON text."""

SURFACES_MAX = 256
"""Per process. People write surfaces by hand, so more of them come from a loop."""

_EMITTERS_MAX = 8
_recorded: dict[int, tuple[Emitter, str, set[str]]] = {}
"""Keyed by emitter id: the emitter (so that the id is not reused), its writer, its surfaces."""


def mark_recorded(emitter: Emitter, encoded: str) -> bool:
    """Return whether this process records the surface for the first time, and remember it.

    A forked child records its own. A lock could stay locked after a fork, so this has none: two
    threads at once may record a surface twice.
    """
    known = _recorded.pop(id(emitter), None)
    if known is None or known[1] != emitter.writer:
        known = (emitter, emitter.writer, set())
    if len(_recorded) >= _EMITTERS_MAX:  # The least recently used emitter may repeat its surfaces.
        _recorded.pop(next(iter(list(_recorded))), None)
    _recorded[id(emitter)] = known
    surfaces = known[2]
    if encoded in surfaces or len(surfaces) >= SURFACES_MAX:
        return False
    surfaces.add(encoded)
    return True


def encode_surface(
    component: str,
    text: str,
    span_types: Iterable[str] | None = None,
    queries: Mapping[str, str] | None = None,
) -> str:
    """Return the attribute's value. Raise ValueError if an argument is invalid or too long.

    A surface is never truncated, because half a query is worse than none.
    """
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


def _name(argument: str, name: Any) -> str:
    if not isinstance(name, str) or not name.strip() or len(name) > NAME_MAX:
        raise ValueError(f"{argument}: expected short names")
    return clean_text(name.strip())


def _query(name: str, sql: Any) -> str:
    if not isinstance(sql, str) or not sql.strip():
        raise ValueError(f"queries: {name}: expected SQL text")
    return clean_text(sql.strip())
