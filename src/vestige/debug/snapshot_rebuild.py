"""Rebuild snapshots from their recipes.

Each is built on demand from the items that its recipe names. One snapshot and the recently used
items are in memory. A recipe with missing items yields a snapshot that reports the gap.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Self

import msgspec

from vestige.debug.snapshot_writer import Recipe, apply_difference
from vestige.debug.spool_index import (
    Index,
    JournalOffset,
    decode_body,
    open_binary,
    read_body,
    read_record,
)
from vestige.formats.wink.log_records import to_ns
from vestige.home import Home
from vestige.limits import CAPTURE_CACHE_BYTES
from vestige.record.codec import parse_line

_encode = msgspec.json.Encoder().encode


def assemble_snapshots(home: Home, index: Index) -> Iterator[str]:
    """Yield each as one line of JSON, in the order of their times.

    Threads may write them in another order than they take them. A recipe is a change to the one
    written before it, so all are followed in the order of writing; one that is not yet due waits
    as the numbers of its items, not as text.
    """
    lists: Lists = {}
    times: list[int] = []
    for recipe in _recipes(home, index):
        time_ns = _time_ns(recipe)
        times.append((times[-1] if times else 0) if time_ns is None else time_ns)
    due = iter(sorted(range(len(times)), key=times.__getitem__))
    waiting: dict[int, tuple[Recipe, list[list[int]]]] = {}
    turn = next(due, None)
    with _Items(home, index.items) as items:
        for place, recipe in enumerate(_recipes(home, index)):
            waiting[place] = recipe, _follow(recipe, lists)
            while turn in waiting:
                assert turn is not None
                yield _render(*waiting.pop(turn), items)
                turn = next(due, None)


def _recipes(home: Home, index: Index) -> Iterator[Recipe]:
    for place in index.recipes:
        recipe = decode_body(home, read_record(place), Recipe)
        if recipe is not None:
            yield recipe


def _time_ns(recipe: Recipe) -> int | None:
    try:
        return to_ns(msgspec.json.decode(recipe.head["created_at"], type=str))
    except (msgspec.DecodeError, LookupError):
        return None


class _Items:
    """The texts of items, the ones used last in memory."""

    def __init__(self, home: Home, places: dict[int, JournalOffset]) -> None:
        self._home = home
        self._places = places
        self._cache: OrderedDict[int, str] = OrderedDict()
        self._size = 0
        self._files: dict[Path, BinaryIO] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def get(self, number: int) -> str:
        text = self._cache.get(number)
        if text is not None:
            return text
        text = self._load(number)
        self._cache[number] = text
        self._size += len(text)
        while self._size > CAPTURE_CACHE_BYTES and len(self._cache) > 1:
            _, old = self._cache.popitem(last=False)
            self._size -= len(old)
        return text

    def _load(self, number: int) -> str:
        place = self._places[number]  # LookupError: it was lost
        file = self._files.get(place.path)
        if file is None:
            file = self._files[place.path] = open_binary(place.path)
        file.seek(place.offset)
        record = parse_line(file.read(place.length))
        body = read_body(self._home, record)  # type: ignore[arg-type]  # indexed as a Log
        if body is None:
            raise LookupError(f"item {number} is gone")
        try:
            msgspec.json.decode(body, type=msgspec.Raw)
        except (msgspec.DecodeError, RecursionError):
            return _encode(body).decode()  # whatever it is, the line around it stays JSON
        return body


Lists = dict[str, dict[tuple[str, int], list[int]]]
"""The items of each session and slice in the last snapshot."""


def _follow(recipe: Recipe, lists: Lists) -> list[list[int]]:
    """Return the items of each slice, by their numbers, and note them for the next snapshot."""
    if recipe.is_complete:
        lists.clear()
    before, after = lists.get(recipe.session_id, {}), {}
    seen: dict[str, int] = {}
    numbers: list[list[int]] = []
    for one in recipe.slices:
        name = bytes(one.head.get("slice_type", b"")).decode()
        seen[name] = nth = seen.get(name, -1) + 1
        after[name, nth] = apply_difference(one, before.get((name, nth), ()))
        numbers.append(after[name, nth])
    lists[recipe.session_id] = after
    return numbers


def _render(recipe: Recipe, numbers: list[list[int]], items: _Items) -> str:
    try:
        slices = [
            _object(one.head, "items", [items.get(number) for number in own])
            for one, own in zip(recipe.slices, numbers, strict=True)
        ]
    except LookupError:
        why = msgspec.Raw(b'"some of it could not be written while it was captured"')
        return _object({**recipe.head, "validation_error": why}, "slices", [])
    return _object(recipe.head, "slices", slices)


def _object(head: dict[str, msgspec.Raw], key: str, elements: list[str]) -> str:
    """Return a JSON object with the list back in its place."""
    parts = []
    for name, raw in head.items():
        value = f"[{','.join(elements)}]" if name == key else bytes(raw).decode()
        parts.append(f"{_encode(name).decode()}:{value}")
    return "{" + ",".join(parts) + "}"
