"""The storage of segments: a directory, or a bucket of S3. Segments are never changed.

    storage = open_storage("s3://bucket/prefix")
    storage.put("0f3a…-000000000001.zst", data)      # durable when it returns
    for info in storage.list_segments(): ...

Elsewhere: S3 in s3_storage.py; what a segment contains, segment_format.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import msgspec

from vestige._runtime import clock
from vestige.errors import StoreError, UsageError

SUFFIX: Final = ".zst"
REJECTED: Final = "rejected/"
"""The prefix of the keys of segments that could not be loaded."""
_KEY: Final = re.compile(r"(?:rejected/)?[0-9a-f]{16}-[0-9]{12}\.zst")
_ABANDONED_S: Final = 3600
"""The age at which an unfinished file belongs to a server that was killed."""


class SegmentInfo(msgspec.Struct, frozen=True):
    """A segment that is waiting."""

    key: str
    size_bytes: int
    written_s: float
    """When it was written, in seconds since 1970."""


class SegmentExistsError(StoreError):
    """A segment with this key exists, with other contents."""


class SegmentStorage(Protocol):
    """A place for segments. Methods raise StoreError if it cannot be reached."""

    def put(self, key: str, data: bytes) -> None:
        """Write a segment, which is durable when this returns.

        Raise SegmentExistsError, and change nothing, if the key is in use.
        """

    def list_segments(self) -> list[SegmentInfo]:
        """Return the segments that are not loaded, in the order in which they were written."""

    def count_rejected(self) -> int:
        """Return the number of segments that could not be loaded."""

    def find(self, key: str) -> bytes | None:
        """Return the contents of a segment, or None if another loader has deleted it."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete segments. Keys that do not exist are ignored."""


def make_key(writer: str, number: int) -> str:
    """Return the key of a segment, by the process that writes it and its first shipment."""
    return f"{writer}-{number:012d}{SUFFIX}"


def is_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None


def open_storage(location: str) -> SegmentStorage:
    """Open the place of segments: s3://BUCKET/PREFIX, or a directory."""
    if scheme := re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", location):
        if scheme[1] != "s3":
            raise UsageError(
                f"{location[:200]}: not a place for segments (expected s3://BUCKET/PREFIX or a"
                " directory)."
            )
        from vestige.fleet.segments.s3_storage import S3Storage

        bucket, _, prefix = location.removeprefix("s3://").partition("/")
        return S3Storage(bucket, prefix)
    return DirectoryStorage(Path(location).expanduser())


class DirectoryStorage:
    """Segments as files of a directory, which may be on a disk that servers share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, key: str, data: bytes) -> None:
        path = self._folder / key
        unfinished = path.with_name(f".{clock.random_bytes(8).hex()}.part")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with open(descriptor, "wb", closefd=False) as file:
                    file.write(data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            try:
                os.link(unfinished, path)  # fails if the name exists, unlike a rename
            finally:
                os.unlink(unfinished)
            _sync_folder(path.parent)
        except FileExistsError:
            if path.read_bytes() != data:
                raise SegmentExistsError(f"{path}: exists with other contents.") from None
        except OSError as error:
            raise StoreError(f"{path}: cannot be written ({error.strerror}).") from error

    def list_segments(self) -> list[SegmentInfo]:
        found = []
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):  # another loader has deleted it
                        if is_key(entry.name):
                            stat = entry.stat()
                            found.append(SegmentInfo(entry.name, stat.st_size, stat.st_mtime))
                        elif entry.name.endswith(".part"):
                            _delete_abandoned(Path(entry.path))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"{self._folder}: cannot be read ({error.strerror}).") from error
        return sorted(found, key=lambda info: (info.written_s, info.key))

    def count_rejected(self) -> int:
        try:
            return sum(is_key(REJECTED + name) for name in os.listdir(self._folder / REJECTED))
        except FileNotFoundError:
            return 0

    def find(self, key: str) -> bytes | None:
        try:
            return (self._folder / key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{self._folder / key}: cannot be read ({error.strerror}).") from error

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            try:
                (self._folder / key).unlink(missing_ok=True)
            except OSError as error:
                raise StoreError(
                    f"{self._folder / key}: cannot be deleted ({error.strerror})."
                ) from error


def _delete_abandoned(path: Path) -> None:
    if clock.SYSTEM.now_ns() / 1e9 - path.stat().st_mtime > _ABANDONED_S:
        path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a new name in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
