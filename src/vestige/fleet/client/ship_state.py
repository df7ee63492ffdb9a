"""How far a home has been sent on: read and kept in `shipped.json`, atomically.

    shipped = read_shipped(home, "https://vestige.example")
    shipped.offsets["5f0c9a1e77b2c4d0.1"] = 4096
    write_shipped(home, shipped)

An offset moves only after the server has said that it has the lines before it. Should the file
be lost or damaged, all that is still here is sent again: the server knows it by its identity.
"""

from __future__ import annotations

import os

import msgspec

from vestige.home import Home


class Shipped(msgspec.Struct):
    """What was sent, to whom. `outbox.py` takes the file's existence for: this home is shipped."""

    to: str
    offsets: dict[str, int] = {}
    """By `<writer>.<generation>`: all bytes before it were acknowledged."""
    writers: list[str] = []
    """Those whose end was not told yet."""
    ended: list[str] = []
    """Those whose end was told, while files of theirs are still here."""
    refused: list[str] = []
    """Runs that belong to another tenant over there: not sent again."""


_decoder = msgspec.json.Decoder(Shipped)


def read_shipped(home: Home, to: str) -> Shipped:
    """The state for this server; of another server, or damaged: a new one."""
    try:
        found = _decoder.decode(home.shipped.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return Shipped(to)
    return found if found.to == to else Shipped(to)


def write_shipped(home: Home, shipped: Shipped) -> None:
    unfinished = home.shipped.with_name(f".{home.shipped.name}")
    fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        # No fsync: after a power cut it may be old or empty, and then some lines are sent twice.
        file.write(msgspec.json.encode(shipped))
    os.replace(unfinished, home.shipped)
