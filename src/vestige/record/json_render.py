"""Render any value as JSON text, in chunks and with limits.

A caller's object may be huge, endless, cyclic, or run its own code when it is read.
So it is never copied at once: the text is generated in chunks and stops at a limit.

    "".join(iter_json(value))
    json_text(value, 1000)              # one text, truncated with a marker

Values that JSON does not have take the forms of record/coercion.py. Omitted parts are marked:
"<cycle>", "<too deep>", "<more>".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.limits import BODY_CHUNK, BODY_INLINE_MAX, BODY_NODES_MAX, NESTING_MAX
from vestige.record.coercion import clean_name, clean_text, safe_str, scalar_of, truncate

CONTAINERS = (Mapping, list, tuple, set, frozenset)
_SMALL_NODES = 1_000
_INT_MAX = 2**63 - 1
_encode = msgspec.json.Encoder().encode


def json_text(value: Any, length_max: int | None = None) -> str:
    """Return a value as JSON text, truncated with a marker after `length_max` characters."""
    parts, length = [], 0
    for chunk in iter_json(value):
        parts.append(chunk)
        length += len(chunk)
        if length_max is not None and length > length_max:
            break
    text = "".join(parts)
    return text if length_max is None else truncate(text, length_max)


def iter_json(value: Any) -> Iterator[str]:
    """Yield the JSON text of a value in chunks of limited size."""
    if (plain := plain_text(value)) is not None:
        yield plain
        return
    parts: list[str] = []
    length = 0
    for part in _parts(value, NESTING_MAX, frozenset(), _Bound(BODY_NODES_MAX)):
        parts.append(part)
        length += len(part)
        if length >= BODY_CHUNK:
            yield "".join(parts)
            parts, length = [], 0
    yield "".join(parts)


def plain_text(value: Any) -> str | None:
    """Return the JSON of a small value of plain types, or None for any other value."""
    if not _is_plain(value):
        return None
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:  # lone surrogates
        return None


class _Bound:
    """The number of values that may still be read."""

    def __init__(self, left: int) -> None:
        self.left = left


def _is_plain(value: Any) -> bool:
    """Return whether a value is small and only of JSON's types, so that msgspec can encode it."""
    kind = type(value)
    if kind is not dict and kind is not list and kind is not tuple:
        value = (value,)
    stack, seen, length = [value], 0, 0
    for items in stack:  # the loop appends to it
        seen += len(items)
        if seen > _SMALL_NODES or length > BODY_INLINE_MAX:
            return False
        if type(items) is dict:
            for key in items:
                if type(key) is not str:
                    return False
                length += len(key)
            items = items.values()
        for item in items:
            kind = type(item)
            if kind is str:
                length += len(item)
            elif kind is int:
                if not -_INT_MAX <= item <= _INT_MAX:
                    return False
            elif kind is dict or kind is list or kind is tuple:
                stack.append(item)
            elif kind is float:
                if not math.isfinite(item):
                    return False
            elif kind is not bool and item is not None:
                return False
    return length <= BODY_INLINE_MAX


def _parts(value: Any, depth: int, above: frozenset[int], bound: _Bound) -> Iterator[str]:
    bound.left -= 1
    if type(value) is str:
        yield from _iter_quoted(value)
        return
    value = _expand_fields(value)
    if not is_container(value):
        scalar = scalar_of(value)
        if type(scalar) is str:
            yield from _iter_quoted(scalar)
        else:
            yield _encode(scalar).decode()
    elif depth == 0:
        yield '"<too deep>"'
    elif id(value) in above:
        yield '"<cycle>"'
    else:
        above = above | {id(value)}
        if isinstance(value, Mapping):
            yield from _members(value, depth, above, bound)
        else:
            yield from _elements(value, depth, above, bound)


def _members(
    value: Mapping[Any, Any], depth: int, above: frozenset[int], bound: _Bound
) -> Iterator[str]:
    opening = "{"
    for key, item in _each(value.items):
        yield opening
        opening = ","
        if bound.left <= 0:
            yield '"<more>":true'
            break
        yield _encode(clean_name(key)).decode() + ":"
        yield from _parts(item, depth - 1, above, bound)
    yield "{}" if opening == "{" else "}"


def _elements(
    value: Iterable[Any], depth: int, above: frozenset[int], bound: _Bound
) -> Iterator[str]:
    opening = "["
    for item in _each(value.__iter__):
        yield opening
        opening = ","
        if bound.left <= 0:
            yield '"<more>"'
            break
        yield from _parts(item, depth - 1, above, bound)
    yield "[]" if opening == "[" else "]"


def _each(items: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    """Yield the items of a container until its own code raises."""
    try:
        yield from items()
    except Exception:  # noqa: BLE001  # whatever a foreign container raises
        return


def is_container(value: Any) -> bool:
    try:
        return isinstance(value, CONTAINERS)
    except Exception:  # noqa: BLE001  # even `__class__` may be a value's own code (proxies)
        return False


def has_fields(value: Any) -> bool:
    """Return whether a value is a dataclass or a struct."""
    cls = type(value)
    return hasattr(cls, "__dataclass_fields__") or hasattr(cls, "__struct_fields__")


def _expand_fields(value: Any) -> Any:
    """Return the fields of a dataclass or struct as a dict; any other value as it is."""
    if not has_fields(value):
        return value
    cls = type(value)
    names = getattr(cls, "__dataclass_fields__", None) or cls.__struct_fields__
    try:
        return {name: getattr(value, name) for name in names}
    except Exception:  # noqa: BLE001  # a field may be a property
        return safe_str(value)


def _iter_quoted(text: str) -> Iterator[str]:
    yield '"'
    for at in range(0, len(text), BODY_CHUNK):
        yield _encode(clean_text(text[at : at + BODY_CHUNK])).decode()[1:-1]
    yield '"'
