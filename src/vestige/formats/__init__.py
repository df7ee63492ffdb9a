"""Outside shapes: each module reads runs out of one format, writes them into it, and checks it.

They do not know each other, nor any store. What a format module offers is in formats/protocol.py.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

from vestige.errors import UsageError

if TYPE_CHECKING:
    from vestige.formats.protocol import Format

NAMES: Final[tuple[str, ...]] = (
    "wink",
    "agentdbg",
    "junit",
    "reportlog",
    "artifacts",
    "openwop",
    "otlp",
)
"""In the order in which a path is shown to them; each is a module or package of this folder."""


def get_format(name: str) -> Format:
    """A format by its name; loaded when first asked for."""
    if name not in NAMES:
        raise UsageError(f"format: {name!r} is not known (expected {', '.join(NAMES)}).")
    return cast("Format", import_module(f"vestige.formats.{name}"))
