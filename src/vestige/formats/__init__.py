"""External formats: each module reads, writes and validates runs of one format.

Formats do not import each other or a store. formats/protocol.py defines their functions.
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
    "atif",
    "inspect_logs",
    "claude_code",
    "codex",
    "gemini_cli",
    "opencode",
    "goose",
    "cline",
    "openhands",
    "messages",
)
"""Modules and packages of this folder, in the order in which they are tried on a path."""

WRITTEN: Final[tuple[str, ...]] = (
    "wink",
    "agentdbg",
    "junit",
    "artifacts",
    "openwop",
    "otlp",
    "atif",
    "messages",
)
"""The formats that can be written, too."""


def get_format(name: str) -> Format:
    """Import and return a format. Raise UsageError if the name is unknown."""
    if name not in NAMES:
        raise UsageError(f"format: {name!r} is unknown (expected {', '.join(NAMES)}).")
    return cast("Format", import_module(f"vestige.formats.{name}"))
