"""Bytes that ought to be JSON: the value, or the rule that they break. Pure.

    value = parse_json(data)                     # NotJsonError says which rule, where, and why
    value = parse_json(data, unique_keys=True)   # also refuses a key that is there twice

The quick decoder says yes; when it says no, the thorough one says why.
"""

from __future__ import annotations

import codecs
import json
import shlex
from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec

_BOMS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_quick = msgspec.json.Decoder().decode


class NotJsonError(Exception):
    """The reason why bytes are not JSON, by our rules."""

    def __init__(self, rule: str, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.line = line


def parse_json(data: bytes, unique_keys: bool = False) -> Any:
    """Return the value. Raise for whitespace alone (`json-empty`)."""
    if not unique_keys:
        try:
            return _quick(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            pass
    return _thorough(data, unique_keys)


def is_json(name: str) -> bool:
    return name.endswith((".json", ".jsonl", ".ndjson"))


def is_valid_json(name: str, data: bytes) -> bool:
    """Return whether a validator would accept these bytes under this name."""
    lines = [data] if name.endswith(".json") else data.split(b"\n")
    try:
        for line in lines:
            if line.strip():
                parse_json(line, False)
    except NotJsonError:
        return False
    return True


def parse_variables(data: bytes) -> dict[str, str]:
    """Parse the `NAME=value` lines of diagnostics/env_redacted.txt."""
    found = {}
    for line in data.decode(errors="replace").split("\n"):  # a value may hold other ends of lines
        name, equals, value = line.strip().partition("=")
        if equals and name.isidentifier():
            found[name] = value
    return found


def parse_quoted(data: bytes) -> dict[str, str]:
    """Parse the variables of repro.env, and undo the quoting for a shell."""
    found = {}
    for name, value in parse_variables(data).items():
        try:
            found[name] = "".join(shlex.split(value))
        except ValueError:
            found[name] = value
    return found


def _thorough(data: bytes, unique_keys: bool) -> Any:
    if data.startswith(_BOMS):
        raise NotJsonError("json-bom", "begins with a byte order mark.")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise NotJsonError("json-utf8", f"is not UTF-8 at byte {error.start}.", line) from None
    if not text.strip():
        raise NotJsonError("json-empty", "is empty.")
    doubled: list[str] = []

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            doubled.extend(_doubled(pairs))
        return found

    try:
        value = json.loads(
            text, parse_constant=_refuse, object_pairs_hook=build if unique_keys else None
        )
    except json.JSONDecodeError as error:
        raise NotJsonError(
            "json-invalid", f"is not JSON: {error.msg}, column {error.colno}.", error.lineno
        ) from None
    except RecursionError:
        raise NotJsonError("json-invalid", "is nested too deeply to be read.") from None
    except ValueError as error:  # a number of thousands of digits
        raise NotJsonError("json-invalid", f"is not JSON that can be read: {error}.") from None
    if doubled:
        raise DoubledKeyError(value, doubled)
    return value


class DoubledKeyError(NotJsonError):
    """JSON, with keys that are there twice; the value is here all the same."""

    def __init__(self, value: Any, keys: list[str]) -> None:
        names = ", ".join(repr(key[:80]) for key in keys[:5])
        super().__init__("json-duplicate-key", f"has keys twice: {names}.")
        self.value = value


def _doubled(pairs: list[tuple[str, Any]]) -> Iterator[str]:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            yield key
        seen.add(key)


def _refuse(constant: str) -> NoReturn:
    raise NotJsonError("json-nan", f"holds {constant}.")
