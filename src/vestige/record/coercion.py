"""Convert any value to a form that a record can store: attributes are scalars, bodies are text.

A caller may pass anything. Each unusual value has one defined form, so nothing is
lost and nothing raises:

    NaN, infinities         "NaN", "Infinity", "-Infinity"
    ints beyond 64 bits     their decimal digits, as text
    bytes                   text if they are UTF-8, else "base64:..."
    lone surrogates         written out: "\\ud800"
    dicts, lists, tuples    JSON text; "<...>" in place of cycles and deep values
    everything else         str(value), or "<unprintable ClassName>"
    too long                truncated, with "…[+N characters]"
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol
from weakref import ref

from vestige.limits import (
    ATTRIBUTE_VALUE_MAX,
    ATTRIBUTES_MAX,
    MESSAGE_MAX,
    NAME_MAX,
)
from vestige.record.types import Attributes, BodyInfo, Scalar

PLAIN = frozenset((str, int, bool, type(None)))
"""Types whose values are written as they are. Not float: NaN and infinities become text."""
_INT_MAX = 2**63 - 1


def flat_attributes(attributes: Mapping[str, Any]) -> Attributes:
    """Return attributes as scalars. The emitter skips this call if all values are PLAIN."""
    return {
        key if type(key) is str else clean_name(key): flat(value)
        for key, value in attributes.items()
    }


def clean_attributes(attributes: Mapping[Any, Any]) -> Attributes:
    """Return attributes with valid keys, lengths, counts and text, after encoding has failed."""
    cleaned: Attributes = {}
    for key, value in attributes.items():
        if len(cleaned) == ATTRIBUTES_MAX:
            cleaned["vestige.attributes_dropped"] = len(attributes) - ATTRIBUTES_MAX
            break
        scalar = flat(value)
        if isinstance(scalar, str):
            scalar = truncate(clean_text(scalar), ATTRIBUTE_VALUE_MAX)
        elif type(scalar) is int and not -_INT_MAX <= scalar <= _INT_MAX:
            scalar = _digits(scalar)
        cleaned[clean_name(key)] = scalar
    return cleaned


def flat(value: Any) -> Scalar:
    """Return a value as a scalar. A nested value becomes JSON text."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value  # type: ignore[no-any-return]  # checked by its exact type
    if kind is float:
        return scalar_of(value)
    try:
        if isinstance(value, (Mapping, list, tuple, set, frozenset)):
            # Not at the top: record/json_render.py imports this module.
            from vestige.record.json_render import json_text

            return json_text(value, ATTRIBUTE_VALUE_MAX)
    except Exception:  # noqa: BLE001  # even `__class__` may be a value's own code (proxies)
        return f"<unprintable {type(value).__name__}>"
    return scalar_of(value)


def scalar_of(value: Any) -> Scalar:
    """Return a value that is not a container as a scalar."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value  # type: ignore[no-any-return]  # checked by its exact type
    if kind is int:
        return value if -_INT_MAX <= value <= _INT_MAX else _digits(value)
    if kind is float:
        return value if math.isfinite(value) else _name_of(value)
    try:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return text_of_bytes(bytes(value))
    except Exception:  # noqa: BLE001  # even `__class__` may be a value's own code (proxies)
        pass
    return safe_str(value)


def safe_str(value: Any) -> str:
    """Return `str(value)`, even if the value's own code raises or does not return a string."""
    try:
        return str.__str__(str(value))
    except Exception:  # noqa: BLE001  # whatever a foreign __str__ raises
        return f"<unprintable {type(value).__name__}>"


def inline_bytes(raw: bytes) -> tuple[str, BodyInfo | None]:
    """Return bytes as text for a line, with the encoding if they are not UTF-8."""
    try:
        return raw.decode(), None
    except UnicodeDecodeError:
        return _base64(raw), BodyInfo(encoding="base64")


def text_of_bytes(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return f"base64:{_base64(raw)}"


def clean_text(text: str) -> str:
    """Return text that UTF-8 can represent: lone surrogates are written out."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text


def clean_name(name: Any) -> str:
    """Return a name, component or key as text of limited length."""
    return truncate(clean_text(name if type(name) is str else safe_str(name)), NAME_MAX)


def clean_message(message: Any) -> str:
    return truncate(clean_text(message if type(message) is str else safe_str(message)), MESSAGE_MAX)


def truncate(text: str, length_max: int) -> str:
    """Return at most `length_max` characters, and a marker with the number of missing ones."""
    if len(text) <= length_max:
        return text
    length, _ = find_secret_across(text, length_max)
    return f"{text[:length]}…[+{len(text) - length} characters]"


class SecretFinder(Protocol):
    def find_across(self, text: str, offset: int) -> tuple[int, int]: ...


_finders: list[ref[SecretFinder]] = []


def register_finder(redactor: SecretFinder) -> None:
    """Use a redactor to find secrets at the point of truncation, for as long as it exists.

    Texts are truncated before they are masked, and half a secret would not be recognized."""
    _finders.append(ref(redactor, _finders.remove))


def find_secret_across(text: str, offset: int) -> tuple[int, int]:
    """Return the range of a secret that spans this offset, or the offset itself twice."""
    low = high = offset
    for reference in _finders:
        redactor = reference()
        if redactor is not None:
            with suppress(Exception):  # nothing in this module raises
                begin, end = redactor.find_across(text, offset)
                low, high = min(low, begin), max(high, end)
    return low, high


def _base64(raw: bytes) -> str:
    from base64 import b64encode  # not at the top: few programs need it, and all import this module

    return b64encode(raw).decode()


def _digits(number: int) -> str:
    try:
        return str(number)
    except ValueError:  # more digits than the interpreter's limit for decimal text
        return hex(number)


def _name_of(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"
