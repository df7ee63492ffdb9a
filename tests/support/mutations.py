"""Damage files of other tools at random: values, structure, bytes and encodings.

mutate(path, random.Random(7))      # the same damage for the same seed
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any, Final

VALUES: Final[list[Any]] = [
    *(None, True, 0, -1, 2**63, 10**400, 1.5, float("nan"), float("inf")),
    *("", "x", "\x00", "\ud800", "a" * 5000, "\x1b[31m"),
    *("2026-13-45T99:99:99Z", "9999-12-31T23:59:59.999999999Z"),
    *([], {}, [[]], [None], [{}], {"": ""}, {"type": "text"}, [{"type": "tool_use", "id": 7}]),
]
"""Values that a newer version, a bug or an attacker may write anywhere."""
ROWS: Final[list[Any]] = [None, -1, 2**62, 1.5, "", b"\xff\x00", "[" * 3000, "{}", '"x"', "NaN"]
ENCODINGS: Final = ("utf-16", "utf-16-be", "utf-8-sig", "latin-1")


def mutate(path: Path, pick: Random) -> None:
    """Damage a file in place."""
    if path.suffix == ".db":
        _mutate_database(path, pick)
    elif path.suffix == ".jsonl" and pick.random() < 0.8:
        _mutate_lines(path, pick)
    elif path.suffix == ".json" and pick.random() < 0.8:
        path.write_bytes(mutate_document(path.read_bytes(), pick))
    else:
        path.write_bytes(mutate_bytes(path.read_bytes(), pick))


def mutate_document(data: bytes, pick: Random) -> bytes:
    """Replace, remove, repeat or move values of a JSON document."""
    try:
        value = json.loads(data)
    except ValueError:
        return mutate_bytes(data, pick)
    places: list[tuple[Any, Any]] = []
    _collect(value, places)
    for _ in range(pick.choice([1, 1, 2, 5, 20]) if places else 0):
        inside, key = pick.choice(places)
        with suppress(KeyError, IndexError):  # an earlier change removed the place
            action = pick.random()
            if action < 0.6:
                inside[key] = pick.choice(VALUES)
            elif action < 0.8:
                del inside[key]
            elif isinstance(inside, list):
                inside.insert(key, pick.choice(inside))
            else:
                other, other_key = pick.choice(places)
                inside[key] = json.loads(json.dumps(other[other_key]))
    return json.dumps(value).encode()


def mutate_bytes(data: bytes, pick: Random) -> bytes:
    """Truncate, change, remove or add bytes, or use another encoding."""
    begin, end = sorted(pick.randrange(len(data) + 1) for _ in range(2))
    match pick.randrange(5):
        case 0:
            return data[:end]
        case 1:
            return data[:begin] + data[end:]
        case 2:
            return data[:begin] + pick.randbytes(200) + data[begin:]
        case 3:
            return data.decode("utf-8", "replace").encode(pick.choice(ENCODINGS), "replace")
    changed = bytearray(data)
    for _ in range(pick.choice([1, 3, 30]) if data else 0):
        changed[pick.randrange(len(changed))] = pick.randrange(256)
    return bytes(changed)


def _collect(value: Any, places: list[tuple[Any, Any]]) -> None:
    """Add the containers and keys of all values in a value."""
    if isinstance(value, (dict, list)):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            places.append((value, key))
            _collect(value[key], places)


def _mutate_lines(path: Path, pick: Random) -> None:
    lines = path.read_bytes().split(b"\n")
    for _ in range(pick.choice([1, 2, 5])):
        number, other = pick.randrange(len(lines)), pick.randrange(len(lines))
        action = pick.random()
        if action < 0.8:
            lines[number] = mutate_document(lines[number], pick)
        elif action < 0.9:
            lines.insert(other, lines[number])
        else:
            lines[number], lines[other] = lines[other], lines[number]
    path.write_bytes(b"\n".join(lines))


def _mutate_database(path: Path, pick: Random) -> None:
    if pick.random() < 0.25:
        path.write_bytes(mutate_bytes(path.read_bytes(), pick))
        return
    with closing(sqlite3.connect(path)) as connection, connection:
        names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        places = [
            (table, column[1], rowid)
            for (table,) in connection.execute(names).fetchall()
            for column in connection.execute(f'PRAGMA table_info("{table}")').fetchall()
            for (rowid,) in connection.execute(f'SELECT rowid FROM "{table}"').fetchall()
        ]
        connection.text_factory = bytes
        for _ in range(pick.choice([1, 3, 10])):
            table, column, rowid = pick.choice(places)
            where = f'"{table}" WHERE rowid = ?'
            row = connection.execute(f'SELECT "{column}" FROM {where}', (rowid,)).fetchone()
            change, new = "?", pick.choice(ROWS)
            if row is not None and isinstance(row[0], bytes) and row[0][:1] in (b"[", b"{"):
                change, new = "CAST(? AS TEXT)", mutate_document(row[0], pick)  # also invalid UTF-8
            with suppress(sqlite3.Error):  # a constraint
                change = f'UPDATE "{table}" SET "{column}" = {change} WHERE rowid = ?'
                connection.execute(change, (new, rowid))
