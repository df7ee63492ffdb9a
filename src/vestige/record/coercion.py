"""What a value may be: attributes are flat scalars, a body is exact text.

A caller may hand us anything. Each odd value has one defined form, so nothing is
lost and nothing raises:

    NaN, infinities         "NaN", "Infinity", "-Infinity"
    ints beyond 64 bits     their decimal digits, as text
    bytes                   text if they are UTF-8, else "base64:..."
    lone surrogates         written out: "\\ud800"
    dicts, lists, tuples    JSON text; cycles and depth cut with "<...>"
    everything else         str(value), or "<unprintable ClassName>"
    too long                cut, with "…[+N characters]"
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
"""Types whose values are written as they are. Not float: some floats need a form of their own."""
_INT_MAX = 2**63 - 1


def flat_attributes(attributes: Mapping[str, Any]) -> Attributes:
    """Attributes as they can be written. Where all are PLAIN, the emitter does not call this."""
    return {
        key if type(key) is str else clean_name(key): flat(value)
        for key, value in attributes.items()
    }


def clean_attributes(attributes: Mapping[Any, Any]) -> Attributes:
    """The thorough form: also keys, lengths, counts and surrogates. For what failed to encode."""
    cleaned: Attributes = {}
    for key, value in attributes.items():
        if len(cleaned) == ATTRIBUTES_MAX:
            cleaned["vestige.attributes_dropped"] = len(attributes) - ATTRIBUTES_MAX
            break
        scalar = flat(value)
        if isinstance(scalar, str):
            scalar = cut(clean_text(scalar), ATTRIBUTE_VALUE_MAX)
        elif type(scalar) is int and not -_INT_MAX <= scalar <= _INT_MAX:
            scalar = _digits(scalar)
        cleaned[clean_name(key)] = scalar
    return cleaned


def flat(value: Any) -> Scalar:
    """One value as a scalar; a nested one becomes JSON text."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value  # type: ignore[no-any-return]  # checked by its exact type
    if kind is float:
        return scalar_of(value)
    try:
        if isinstance(value, (Mapping, list, tuple, set, frozenset)):
            from vestige.record.json_render import (
                json_text,  # record/json_render.py is built on this module
            )

            return json_text(value, ATTRIBUTE_VALUE_MAX)
    except Exception:  # noqa: BLE001  # even `__class__` may be a value's own code (proxies)
        return f"<unprintable {type(value).__name__}>"
    return scalar_of(value)


def scalar_of(value: Any) -> Scalar:
    """A value that is no container, as a scalar."""
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
    except Exception:  # noqa: BLE001  # as above
        pass
    return safe_str(value)


def safe_str(value: Any) -> str:
    """`str(value)`, for a value whose own code may raise, or return no string."""
    try:
        return str.__str__(str(value))
    except Exception:  # noqa: BLE001  # whatever a foreign __str__ raises
        return f"<unprintable {type(value).__name__}>"


def inline_bytes(raw: bytes) -> tuple[str, BodyInfo | None]:
    """Bytes as a line can hold them."""
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
    """Text that UTF-8 can hold: lone surrogates are written out."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text


def clean_name(name: Any) -> str:
    """A name, component or key: text, of bounded length."""
    return cut(clean_text(name if type(name) is str else safe_str(name)), NAME_MAX)


def clean_message(message: Any) -> str:
    return cut(clean_text(message if type(message) is str else safe_str(message)), MESSAGE_MAX)


def cut(text: str, length_max: int) -> str:
    """At most `length_max` characters, and how many went."""
    if len(text) <= length_max:
        return text
    kept, _ = secret_across(text, length_max)
    return f"{text[:kept]}…[+{len(text) - kept} characters]"


class KnowsSecrets(Protocol):
    def across(self, text: str, place: int) -> tuple[int, int]: ...


_knowing: list[ref[KnowsSecrets]] = []


def ask_before_cutting(redactor: KnowsSecrets) -> None:
    """Texts are cut before they are masked, and half a secret would not be known any more: so
    whoever knows secrets is asked where one lies, for as long as it is in use."""
    _knowing.append(ref(redactor, _knowing.remove))


def secret_across(text: str, place: int) -> tuple[int, int]:
    """Where a secret that lies across this place begins and ends; the place itself if none does."""
    low = high = place
    for known in _knowing:
        redactor = known()
        if redactor is not None:
            with suppress(Exception):  # as everywhere here: nothing raises
                begin, end = redactor.across(text, place)
                low, high = min(low, begin), max(high, end)
    return low, high


def _base64(raw: bytes) -> str:
    from base64 import b64encode  # here: few programs have such bytes, and all import this module

    return b64encode(raw).decode()


def _digits(number: int) -> str:
    try:
        return str(number)
    except ValueError:  # more digits than the interpreter is willing to write
        return hex(number)


def _name_of(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"
