"""Changes of a fork: values that replace parts of the requests from a step on.

    change = parse_change("messages[0].content=@prompt.txt", recorded_body)
    changed_body = apply_changes(body, [change], is_same)

A change names a place in the JSON body of the request at which the run is forked. The program does
not know of the change and sends the old value again with each later request, so it is replaced
there too, as long as the same place has the same value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.errors import UsageError

CHANGES_MAX_BYTES = 30_000
"""Size of all changes of a fork. They are stored as an attribute of the run."""

_STEP = re.compile(r"\[(?P<index>-?\d+)\]|\.?(?P<key>[^.\[\]]+)")
_PATH = re.compile(r"[^.\[\]\s]+(?:\.[^.\[\]\s]+|\[-?\d+\])*")
_SET = re.compile(r"(?P<path>[^=]*?)(?P<equals>:?=)(?P<value>.*)", re.DOTALL)

MISSING = "missing"
"""The value before the change, if there was none."""


class Change(msgspec.Struct, frozen=True):
    """A value to set."""

    path: tuple[str | int, ...]
    value: Any
    before: str
    """The recorded value as JSON, or `MISSING`."""

    @property
    def name(self) -> str:
        """Return the path as the user wrote it."""
        text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return text.removeprefix(".")


IsSame = Callable[[str, str], bool]
"""Returns whether a value of a request, as JSON, is the recorded one."""


def parse_change(text: str, recorded: bytes) -> Change:
    """Parse `PATH=VALUE`, `PATH=@FILE` or `PATH:=JSON` for a recorded request body."""
    found = _SET.fullmatch(text)
    if found is None or not _PATH.fullmatch(found["path"]):
        raise UsageError(
            f"--set {text[:60]!r}: not a change (expected PATH=VALUE, PATH=@FILE or PATH:=JSON,"
            " such as messages[0].content=@prompt.txt)."
        )
    try:
        data = msgspec.json.decode(recorded)
    except (ValueError, RecursionError):
        raise UsageError("--set: the request at this step is not JSON.") from None
    steps = [
        int(step["index"]) if step["index"] else step["key"]
        for step in _STEP.finditer(found["path"])
    ]
    holder, path = _find_holder(data, steps, found["path"])
    before = _get(holder, path[-1])
    value = _parse_value(found["path"], found["equals"], found["value"], before)
    return Change(path, value, before)


def _find_holder(data: Any, steps: list[str | int], name: str) -> tuple[Any, tuple[str | int, ...]]:
    """Return the object or list that contains the value, and the path without negative indexes."""
    path: list[str | int] = []
    for number, step in enumerate(steps):
        is_last = number == len(steps) - 1
        at = _format_path(path) or "the request"
        if isinstance(data, list) and isinstance(step, int):
            index = step + len(data) if step < 0 else step
            if not 0 <= index < len(data) + is_last:
                raise UsageError(f"--set {name}: {at} has {len(data)} items.")
            step = index
        elif isinstance(data, dict) and isinstance(step, str):
            if step not in data and not is_last:
                raise UsageError(f"--set {name}: {at} has no {step!r} (it has {_keys(data)}).")
        else:
            is_group = isinstance(data, dict | list)
            kind = ("a list" if isinstance(data, list) else "an object") if is_group else "a value"
            raise UsageError(f"--set {name}: {at} is {kind}.")
        path.append(step)
        if not is_last:
            data = data[step]
    return data, tuple(path)


def _keys(data: dict[str, Any]) -> str:
    return ", ".join(list(data)[:12])


def _format_path(path: list[str | int]) -> str:
    return Change(tuple(path), None, "").name


def _get(holder: Any, step: str | int) -> str:
    """Return a value as JSON, or `MISSING`."""
    try:
        return msgspec.json.encode(holder[step]).decode()
    except (KeyError, IndexError, TypeError):
        return MISSING


def _parse_value(name: str, equals: str, text: str, before: str) -> Any:
    """Return the new value: text where the recorded value is a text, JSON where it parses."""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise UsageError(f"--set {name}: {text[1:]}: cannot be read ({reason}).") from None
    is_json = equals == ":="
    if not is_json and before.startswith('"'):
        return text
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        if is_json:
            raise UsageError(f"--set {name}: the value is not JSON.") from None
        return text


def apply_changes(body: bytes, changes: list[Change], is_same: IsSame | None = None) -> bytes:
    """Return the body with the changes. With `is_same`, only of values that are the recorded ones.

    A body in which nothing changes is returned as it is.
    """
    try:
        data = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return body
    count = sum(_apply(data, change, is_same) for change in changes)
    return msgspec.json.encode(data) if count else body


def _apply(data: Any, change: Change, is_same: IsSame | None) -> bool:
    holder: Any = data
    try:
        for step in change.path[:-1]:
            holder = holder[step]
    except (KeyError, IndexError, TypeError):
        return False
    last = change.path[-1]
    actual = _get(holder, last)
    if is_same is not None and actual != change.before and not is_same(actual, change.before):
        return False
    if isinstance(holder, list) and isinstance(last, int) and last == len(holder):
        holder.append(change.value)
        return True
    if not isinstance(holder, dict) and actual == MISSING:
        return False
    if isinstance(holder, str):
        return False
    holder[last] = change.value
    return True
