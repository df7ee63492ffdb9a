"""The content of a bundle from any source: a loaded zip, a stored run, or a spool.

The writer (formats/wink/write.py) takes any of them, and `DebugBundle` shows any of them.
Everything is handed out one piece at a time: a bundle may be far larger than memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from vestige.formats.wink.manifest import Manifest


@dataclass(frozen=True, slots=True)
class ContentFile:
    """A captured file."""

    path: str
    """Relative to `files/`, with forward slashes: `workspace/.env`."""
    size_bytes: int
    open: Callable[[], BinaryIO]


@dataclass(frozen=True, slots=True)
class Extra:
    """A component beyond those of the wink format."""

    name: str
    """Its key in `manifest.components`: `records`."""
    path: str
    """Inside the zip: `vestige/records.ndjson`."""
    entry_count: int | None
    chunks: Callable[[], Iterator[bytes]]


class BundleContent(Protocol):
    """The parts of a bundle, in order."""

    @property
    def manifest(self) -> Manifest:
        """Sizes, counts and hashes of its components are filled in by the writer."""

    def snapshots(self) -> Iterator[str]:
        """Yield the snapshots, oldest first: one JSON object per line."""

    def logs(self) -> Iterator[str]:
        """Yield the log entries, oldest first: one JSON object per line."""

    def files(self) -> Iterator[ContentFile]: ...

    def extras(self) -> Iterator[Extra]: ...
