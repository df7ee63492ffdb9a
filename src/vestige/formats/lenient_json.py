"""Decode JSON of other tools: damaged characters are replaced, large arrays are bounded.

    members = decode_members(data)          # {name: Raw} of an object; its values stay undecoded
    items = decode_items(members["steps"])  # [Raw] of an array
    value = decode_value(items[0])          # a Python value, or None if it is not JSON

Nothing here raises for damaged content.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from vestige.errors import UnreadableError
from vestige.formats.bounded_lines import BOM
from vestige.limits import FOREIGN_FILE_MAX, FOREIGN_VALUES_MAX, MIB

Object = dict[str, Any]
Raw = msgspec.Raw

_decode = msgspec.json.Decoder().decode
_decode_items = msgspec.json.Decoder(list[Raw]).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_LONE_SURROGATE: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|"
    r"(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_ERRORS = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


def read_document(path: Path, advice: str = "") -> bytes:
    """Return the text of a file with one JSON document. Raise UnreadableError if it is too big."""
    try:
        with open(path, "rb") as file:
            data = file.read(FOREIGN_FILE_MAX + 1)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read ({error.strerror}).") from None
    if len(data) > FOREIGN_FILE_MAX:
        raise UnreadableError(f"{path}: larger than {FOREIGN_FILE_MAX // MIB} MiB.{advice}")
    if data.count(b",") > FOREIGN_VALUES_MAX:
        raise UnreadableError(f"{path}: more than {FOREIGN_VALUES_MAX:,} values.{advice}")
    return data.removeprefix(BOM).strip()


def decode_members(data: bytes | Raw) -> dict[str, Raw]:
    """Return the members of an object; none if it is not one."""
    found = _decode_leniently(_decode_members, data)
    return found if isinstance(found, dict) else {}


def decode_items(data: bytes | Raw | None) -> list[Raw]:
    """Return the items of an array; none if it is not one."""
    found = None if data is None else _decode_leniently(_decode_items, data)
    return found if isinstance(found, list) else []


def decode_value(data: bytes | Raw | None) -> Any:
    """Return the value; None if it is not JSON."""
    return None if data is None else _decode_leniently(_decode, data)


def decode_object(data: bytes | Raw | None) -> Object:
    """Return the object; an empty one if it is not an object."""
    found = decode_value(data)
    return found if isinstance(found, dict) else {}


def _decode_leniently(decode: Callable[[bytes], Any], data: bytes | Raw) -> Any:
    try:
        return decode(bytes(data))
    except _ERRORS:
        text = bytes(data).decode(errors="replace")
    try:
        return decode(_LONE_SURROGATE.sub(r"\\ufffd", text).encode())
    except _ERRORS:
        return None
