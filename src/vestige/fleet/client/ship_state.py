"""The progress of shipping a home, stored in `shipped.json`.

    shipped = read_shipped(home, "https://vestige.example")
    shipped.offsets["5f0c9a1e77b2c4d0.1"] = 4096
    write_shipped(home, shipped)

An offset advances only after the server has acknowledged the lines before it. If the file is
missing or damaged, all present lines are sent again; the server recognizes them by their identity.
"""

from __future__ import annotations

import os

import msgspec

from vestige.home import Home


class Shipped(msgspec.Struct):
    """Progress of sending to one server. If the file exists, collector/outbox.py keeps journals."""

    to: str
    offsets: dict[str, int] = {}
    """Keyed by `<writer>.<generation>`: the number of acknowledged bytes."""
    writers: list[str] = []
    """Writers whose end was not sent yet."""
    ended: list[str] = []
    """Writers whose end was sent and whose files still exist."""
    refused: list[str] = []
    """Runs that belong to another tenant on the server: not sent again."""


_decoder = msgspec.json.Decoder(Shipped)


def read_shipped(home: Home, to: str) -> Shipped:
    """Read the state. A damaged file or one of another server gives a new state."""
    try:
        found = _decoder.decode(home.shipped.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return Shipped(to)
    return found if found.to == to else Shipped(to)


def write_shipped(home: Home, shipped: Shipped) -> None:
    unfinished = home.shipped.with_name(f".{home.shipped.name}")
    fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        # Without fsync: after a power failure the file may be old, and some lines are sent twice.
        file.write(msgspec.json.encode(shipped))
    os.replace(unfinished, home.shipped)
